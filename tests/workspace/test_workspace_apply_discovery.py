"""Apply, patch and branch leave out everything that git would find as a repository."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import pytest
from git_canary import HEAD, Canary
from workspace_support import created, git, make_tree, state, tree_of

from wink_workspace.workspace import Applied, Workspace

Files = Mapping[str, str | bytes | None]
Target = Literal["worktree", "patch", "branch"]


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    return Canary(tmp_path / "canary")


def files_of(workspace: Workspace, tmp_path: Path) -> Path:
    return state(tmp_path).folder(workspace.info.id).files


def source_with(tmp_path: Path, files: Files, *, is_repository: bool) -> Workspace:
    workspace = created(tmp_path, {"a.txt": "a\n"})
    workspace.close()
    source = make_tree(tmp_path / "source", files)
    if is_repository:
        git(source, "init", "-q", "-b", "main")
        git(source, "add", "-A")
        git(source, "commit", "-qm", "one")
    return Workspace.create(source, storage=state(tmp_path))


def named(paths: Iterable[str], applied: Applied) -> set[str]:
    """Those of *paths* that are named as left out, or are in such a directory."""
    return {path for path in paths if any(f"{path}/".startswith(f"{n}/") for n in applied.left_out)}


def apply(workspace: Workspace, tmp_path: Path, to: Target) -> Applied:
    """Apply the changes to the source's files with *to*."""
    applied = workspace.apply(to, branch="ours" if to == "branch" else "")
    source = tmp_path / "source"
    if to == "branch":
        git(source, "checkout", "-q", "ours")
    elif to == "patch" and applied.patch:
        patch = tmp_path / "p.patch"
        patch.write_text(applied.patch, errors="surrogateescape")
        git(source, "apply", str(patch))
    return applied


WHOLE = {
    "HEAD": HEAD,
    "objects/o": "x",
    "refs/r": "x",
    "config": "CANARY",
    "hooks/h": "#!/bin/sh\n",
}

# The source, the changes in the copy, and the paths that must be left out. The files of the source
# are committed there; with "untracked:" they are not, and are added after the import.
CASES: dict[str, tuple[Files, Files, set[str]]] = {
    "new directory": (
        {},
        {f"d/{name}": text for name, text in WHOLE.items()},
        {"d", "d/objects", "d/refs", "d/hooks", *(f"d/{name}" for name in WHOLE)},
    ),
    "deep": (
        {"p/q": "q"},
        {"p/n/d/HEAD": "0" * 40, "p/n/d/refs/x": "x"},
        {"p/n/d", "p/n/d/HEAD", "p/n/d/refs", "p/n/d/refs/x"},
    ),
    "the top": ({}, WHOLE, {"HEAD", "refs", "refs/r"}),
    "a directory that is there": (
        {"d/mine": "mine"}, {f"d/{name}": text for name, text in WHOLE.items()},
        {"d/HEAD", "d/refs", "d/refs/r"},
    ),
    "user has HEAD": ({"d/HEAD": HEAD}, {"d/refs/x": "x", "d/y": "y"}, {"d/refs", "d/refs/x"}),
    "user has refs": (
        {"d/refs/x": "x", "d/objects/x": "x"}, {"d/HEAD": HEAD, "d/config": "CANARY"}, {"d/HEAD"},
    ),
    "user has refs untracked": (
        {"untracked:d/refs/x": "x", "untracked:d/objects/x": "x"}, {"d/HEAD": HEAD}, {"d/HEAD"},
    ),
    "user has another HEAD": (
        {"d/HEAD": "heads\n", "d/refs/x": "x"}, {"d/HEAD": HEAD, "d/y": "y"}, {"d/HEAD"},
    ),
    "link for HEAD": (
        {"d/refs/x": "x"}, {"d/HEAD": "-> refs/heads/main", "d/y": "y"}, {"d/HEAD"},
    ),
    "links": (
        {},
        {"d/HEAD": HEAD, "d/refs": "-> ../e", "d/objects": "-> ../e", "e/x": "x"},
        {"d", "d/HEAD", "d/refs", "d/objects"},
    ),
    "common directory": (
        {},
        {"d/HEAD": HEAD, "d/commondir": "../c\n", "c/refs/x": "x", "c/objects/x": "x"},
        {"d", "d/HEAD", "d/commondir"},
    ),
    "common directory of the user": (
        {"w/HEAD": HEAD, "w/commondir": "../c/d\n"},
        {"c/d/refs/x": "x", "c/d/objects/x": "x", "c/d/config": "CANARY"},
        {"c/d", "c/d/refs", "c/d/refs/x", "c/d/objects", "c/d/objects/x", "c/d/config"},
    ),
    "link for the common directory of the user": (
        {"w/HEAD": HEAD, "w/commondir": "../c\n", "c/mine": "x"},
        {"c": "-> e", "e/refs/x": "x", "e/objects/x": "x", "e/config": "CANARY"},
        {"c", "c/mine"},
    ),
    "other case": (
        {}, {"d/head": HEAD, "d/REFS/x": "x"}, {"d", "d/head", "d/REFS", "d/REFS/x"},
    ),
    "repository of the user": (
        {f"own.git/{name}": text for name, text in WHOLE.items()},
        {"own.git/config": "[core]\nfsmonitor = CANARY\n", "own.git/hooks/h": "#!/bin/sh\necho\n",
         "own.git/new/x": "x"},
        {"own.git/config", "own.git/hooks/h", "own.git/new", "own.git/new/x"},
    ),
}  # fmt: skip


# The cases share one source to save time: each has its own directory; "the top" runs alone.
ALONE = {"top": {"the top"}, "below": CASES.keys() - {"the top"}}


@pytest.mark.behaviour(31)
@pytest.mark.parametrize("to", ["worktree", "patch", "branch"])
@pytest.mark.parametrize("where", ALONE)
def test_paths_that_would_complete_a_repository_are_left_out_and_others_applied(
    tmp_path: Path, canary: Canary, where: str, to: Target
) -> None:
    given: dict[str, str | bytes | None] = {}
    changed: dict[str, str | bytes | None] = {}
    expected: set[str] = set()
    for name in ALONE[where]:
        above = "" if where == "top" else f"{name}/"
        for path, text in CASES[name][0].items():
            late, _, rest = path.rpartition(":")
            given[f"{late}:{above}{rest}"] = text
        changed |= {above + path: _with(canary, text) for path, text in CASES[name][1].items()}
        changed[f"{above}fine.txt"] = "fine\n"
        given[f":{above}kept"] = "kept"
        expected |= {above + path for path in CASES[name][2]}
    tracked = {path[1:]: text for path, text in given.items() if path.startswith(":")}
    late = {path.partition(":")[2]: text for path, text in given.items() if path[0] != ":"}
    with source_with(tmp_path, tracked, is_repository=to == "branch") as workspace:
        source = make_tree(tmp_path / "source", late)
        copy = files_of(workspace, tmp_path)
        for path in changed:
            if (copy / path).is_dir():
                shutil.rmtree(copy / path)
            (copy / path).unlink(missing_ok=True)
        make_tree(copy, changed)
        applied = apply(workspace, tmp_path, to)
    assert set(applied.left_out) <= expected
    assert expected <= named(expected, applied)
    own = [source / "repository of the user/own.git", source / ".git"]
    assert canary.repositories_below(source, own=own) == []
    assert not canary.has_run
    fine = {path for path in changed if path.endswith("fine.txt")}
    assert fine <= set(applied.paths)
    assert all((source / path).exists() for path in (*fine, *tracked, *late))


def _with(canary: Canary, text: str | bytes | None) -> str | bytes | None:
    if not isinstance(text, str):
        return text
    return canary.config() if text == "CANARY" else text.replace("CANARY", str(canary.program))


@pytest.mark.behaviour(31)
def test_repository_made_by_git_in_the_copy_is_not_applied(tmp_path: Path, canary: Canary) -> None:
    """Bare repositories, one with a working tree, and a linked one; twice, and after an undo."""
    with created(tmp_path, {"a.txt": "a\n"}, mode="copy") as workspace:  # git needs a path
        copy, source = files_of(workspace, tmp_path), tmp_path / "source"
        before = tree_of(source)
        canary.git(copy, "init", "-q", "--bare", "bare.git")
        canary.git(copy, "init", "-q", "project")
        (copy / "project/file").write_text("x\n")
        canary.git(copy / "project", "add", "file")
        canary.git(copy / "project", "commit", "-qm", "x")
        canary.git(copy / "project", "worktree", "add", "-q", "../linked")
        with (copy / "bare.git/config").open("a") as config:
            config.write(canary.config())
        first = workspace.apply()
        assert first.paths == ("linked/file", "project/file")
        assert {"bare.git", "linked/.git", "project/.git"} <= {*first.left_out}
        second = workspace.apply()
        assert second.paths == ()
        workspace.restore(1)
        workspace.apply()
        assert tree_of(source) == before
    assert canary.repositories_below(source) == []
    assert not canary.has_run


@pytest.mark.behaviour(31)
def test_second_apply_does_not_complete_a_repository_begun_by_the_first(
    tmp_path: Path, canary: Canary
) -> None:
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        copy, source = files_of(workspace, tmp_path), tmp_path / "source"
        make_tree(copy, {"d/refs/x": "x", "d/objects/x": "x", "d/config": canary.config()})
        assert workspace.apply().left_out == ()
        (copy / "d/HEAD").write_text(HEAD)
        applied = workspace.apply()
        assert (applied.paths, applied.left_out) == ((), ("d/HEAD",))
    assert canary.repositories_below(source) == []


def test_removed_directory_stays_in_the_source_if_the_user_has_a_repository_in_it(
    tmp_path: Path, canary: Canary
) -> None:
    own = {f"fixtures/own.git/{name}": text for name, text in WHOLE.items()}
    with created(tmp_path, {"a.txt": "a\n", "fixtures/b": "b", **own}) as workspace:
        source = tmp_path / "source"
        workspace.files.delete("fixtures", recursive=True)
        applied = workspace.apply()
        assert applied.paths == ("fixtures/b",)
        assert set(own) <= named(own, applied)
    assert all((source / path).exists() for path in own)
    assert not (source / "fixtures/b").exists()
