"""Calls in place cannot create a repository, so git never runs a program that a model chose."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import permutations
from pathlib import Path

import pytest
from git_canary import HEAD, Canary
from in_place_rig import begun, files_of, git, repository, source_of
from workspace_rig import assert_same, calls, doing

from wink_workspace.errors import GitRepositoryError, ReadOnlyError, WinkError
from wink_workspace.filesystem import Filesystem
from wink_workspace.workspace import Workspace

Step = Callable[[Filesystem], object]
Files = Mapping[str, bytes]

OID = "0123456789abcdefABCDEF0123456789abcdef01"
PARTS = {"objects/x": "x", "refs/x": "x"}


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    return Canary(tmp_path / "canary")


def writing(path: str, text: str = "x") -> Step:
    return lambda files: files.write_text(path, text)


def adding(path: str, text: str) -> Step:
    """Apply a patch that adds a file of one line."""
    return lambda files: files.apply_patch(f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{text}")


def moving(source: str, destination: str) -> Step:
    return lambda files: files.move(source, destination)


def linking(path: str, target: str) -> Step:
    return lambda files: files.symlink(path, target)


def test_the_canary_runs_wherever_a_repository_is_complete(tmp_path: Path, canary: Canary) -> None:
    """The canary works: each setting makes git run the program in a complete repository."""
    cases: list[tuple[Sequence[str], tuple[str, ...]]] = [
        (("[core]", "fsmonitor = %"), ("status",)),
        (("[core]", "hooksPath = %h"), ("commit", "--allow-empty", "-m", "x")),
        (("[core]", "sshCommand = %"), ("fetch", "ssh://localhost:1/x")),
        (('[filter "f"]', "clean = %"), ("add", "file")),
        (("[alias]", "pwn = !%"), ("pwn",)),
        (("[diff]", "external = %"), ("diff",)),
        (("[include]", "path = more"), ("status",)),
    ]
    for number, (settings, command) in enumerate(cases):
        directory = tmp_path / f"case-{number}"
        for name in ("objects", "refs/heads", "info"):
            (directory / name).mkdir(parents=True)
        (directory / "HEAD").write_text(HEAD)
        (directory / "file").write_text("one\n")
        (directory / "more").write_text(f"[core]\nfsmonitor = {canary.program}\n")
        (directory / "config").write_text(canary.config("[core]"))
        canary.git(directory, "add", "file")
        (directory / "file").write_text("two\n")
        (directory / "info/attributes").write_text("* filter=f\n")
        (directory / "config").write_text(canary.config(*settings))
        assert not canary.has_run
        canary.git(directory, *command)
        assert canary.has_run, settings
        canary.reset()
    assert canary.repositories_below(tmp_path / "case-0") == [str(tmp_path / "case-0")]
    assert canary.has_run


def refused(workspace: Workspace, steps: Sequence[Step]) -> list[WinkError]:
    """The errors of those of *steps* that were refused."""
    errors: list[WinkError] = []
    for step in steps:
        try:
            step(workspace.files)
        except WinkError as error:
            errors.append(error)
    return errors


LINKED = {"worktrees/w/HEAD": HEAD.encode(), "worktrees/w/commondir": b"../../shared\n"}
"""The files of a linked working tree whose main repository is missing."""

SEQUENCES: dict[str, tuple[Files, Sequence[Step]]] = {
    "detached": ({}, [writing("d/HEAD", OID), writing("d/refs/x")]),
    "no objects": ({}, [writing("d/HEAD", HEAD), writing("d/refs/x")]),
    "mkdir": ({}, [writing("d/HEAD", HEAD), lambda files: files.mkdir("d/refs")]),
    "refs is a file": (
        {},
        [writing("d/HEAD", HEAD), writing("d/refs"), lambda f: f.set_executable("d/refs", True)],
    ),
    "refs is a link": ({}, [writing("d/HEAD", HEAD), linking("d/refs", "../e")]),
    "HEAD is a link": ({}, [writing("d/refs/x"), linking("d/HEAD", "refs/heads/main")]),
    "HEAD is appended to": (
        {},
        [
            writing("d/refs/x"),
            writing("d/HEAD", "ref:"),
            lambda files: files.write_text("d/HEAD", " refs/heads/x", mode="append"),
        ],
    ),
    "HEAD is edited": (
        {},
        [
            writing("d/refs/x"),
            writing("d/HEAD", "see refs/heads/main"),
            lambda files: files.edit("d/HEAD", "see", "ref:"),
        ],
    ),
    "HEAD is patched": ({}, [writing("d/refs/x"), adding("d/HEAD", HEAD)]),
    "refs are patched": ({}, [writing("d/HEAD", HEAD), adding("d/refs/heads/x", OID + "\n")]),
    "HEAD is moved": ({}, [writing("d/refs/x"), writing("h", HEAD), moving("h", "d/HEAD")]),
    "refs are moved": ({}, [writing("d/HEAD", HEAD), writing("r/x"), moving("r", "d/refs")]),
    "HEAD is renamed by a patch": (
        {},
        [
            writing("d/refs/x"),
            writing("h", HEAD),
            lambda files: files.apply_patch(
                "diff --git a/h b/d/HEAD\nsimilarity index 100%\nrename from h\nrename to d/HEAD\n"
            ),
        ],
    ),
    "common directory": (
        {},
        [writing("c/refs/x"), writing("c/objects/x"), writing("d/commondir", "../c"),
         writing("d/HEAD", HEAD)],
    ),
    "common directory last": (
        {},
        [writing("c/refs/x"), writing("d/HEAD", HEAD), writing("d/commondir", "../c")],
    ),
    "through a link": (
        {},
        [lambda files: files.mkdir("d"), linking("l", "d"), writing("l/HEAD", HEAD),
         writing("l/refs/x")],
    ),
    "deep": ({}, [writing("a/b/c/HEAD", HEAD), writing("a/b/c/refs/x")]),
    "user has objects and refs": (
        {"d/objects/o": b"", "d/refs/r": b""}, [writing("d/HEAD", HEAD)],
    ),
    "user has HEAD": ({"d/HEAD": HEAD.encode()}, [writing("d/refs/x")]),
    "user has a pointer": (
        {"sub/.git": b"gitdir: ../store\n"}, [writing("store/HEAD", HEAD), writing("store/refs/x")],
    ),
    "user has a pointer to a worktree's": (
        {"sub/.git": b"gitdir: ../store/w\n"},
        [writing("c/refs/x"), writing("store/w/commondir", "../../c"),
         writing("store/w/HEAD", HEAD)],
    ),
    "user's common directory is missing": (
        LINKED, [writing("shared/config"), writing("shared/objects/x"), writing("shared/refs/x")],
    ),
    "user's common directory is linked": (
        LINKED, [writing("e/refs/x"), writing("e/objects/x"), linking("shared", "e")],
    ),
    "user's common directory is moved in": (
        LINKED, [writing("e/refs/x"), writing("e/objects/x"), moving("e", "shared")],
    ),
    "user's common directory is changed": (
        LINKED, [writing("e/shared/refs/x"), lambda files: files.mkdir("deep"),
                 moving("worktrees", "e/worktrees")],
    ),
    "other case": ({}, [writing("d/head", HEAD), writing("d/Refs/x"), moving("d/head", "d/HEAD")]),
    "stream and dots": ({}, [writing("d/HEAD. ", HEAD), writing("d/refs::$INDEX_ALLOCATION/x")]),
    "ignored characters": ({}, [writing("d/HE\u200cAD", HEAD), writing("d/ref\u017f/x")]),
    "reftable": ({}, [writing("d/HEAD", HEAD), writing("d/reftable/tables.list")]),
}  # fmt: skip


@pytest.mark.behaviour(31)
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence_of_calls_completes_no_repository(
    tmp_path: Path, canary: Canary, name: str
) -> None:
    files, steps = SEQUENCES[name]
    with begun(tmp_path, {"a.txt": b"a\n", **files}) as workspace:
        workspace.files.write_text("d/config", canary.config())
        workspace.files.write_text("d/objects/x", "x")
        error, *_ = refused(workspace, steps)
        assert isinstance(error, GitRepositoryError)
        assert "repository" in error.message
        assert error.hint
    assert canary.repositories_below(source_of(tmp_path)) == []
    assert not canary.has_run


def test_directory_shared_by_a_repository_of_the_user_is_moved_with_it(tmp_path: Path) -> None:
    with begun(
        tmp_path, {"both/w/HEAD": HEAD.encode(), "both/w/commondir": b"../c\n"}
    ) as workspace:
        workspace.files.write_text("c/refs/x", "x")
        with pytest.raises(GitRepositoryError):
            workspace.files.write_text("both/c/refs/x", "x")
        workspace.files.move("both", "moved")
    assert Canary(tmp_path / "canary").repositories_below(source_of(tmp_path)) == []


@pytest.mark.behaviour(31)
@pytest.mark.parametrize("prefix", ["", "deep/er/"])
def test_five_writes_in_any_order_complete_no_repository(
    tmp_path: Path, canary: Canary, prefix: str
) -> None:
    """The write that would complete it is refused and names the directory; the others succeed."""
    parts = {"HEAD": HEAD, **PARTS}
    with begun(tmp_path, {"a.txt": b"a\n"}) as workspace, calls(workspace) as call:
        call("write_file", file_path=f"{prefix}config", content=canary.config())
        for order in permutations(parts):
            outcomes = {
                name: call("write_file", file_path=prefix + name, content=parts[name])
                for name in order
            }
            failed = {name for name, outcome in outcomes.items() if not outcome.result.success}
            last = "HEAD" if order.index("HEAD") > order.index("refs/x") else "refs/x"
            assert failed == {last}
            where = "deep/er" if prefix else "the workspace's own directory"
            assert where in outcomes[last].text
            assert canary.repositories_below(source_of(tmp_path)) == []
            for name in ("HEAD", "objects", "refs"):
                call("rm", path=prefix + name)
    assert not canary.has_run


def test_names_of_the_layout_are_written_where_they_do_not_complete_a_repository(
    tmp_path: Path,
) -> None:
    """A layout without HEAD, another HEAD, or parts in two directories are allowed."""
    with begun(tmp_path) as workspace:
        files = workspace.files
        for path, text in {
            "a/HEAD": "of the class\n", "a/refs/x": "", "a/objects/x": "", "a/config": "",
            "b/refs/x": "", "b/objects/x": "", "b/commondir": "", "b/hooks/x": "",
            "c/HEAD": HEAD, "c/objects/x": "", "c/config": "",
            "e/HEAD": OID[:39], "e/refs/x": "",
            "f/HEAD/x": HEAD, "f/refs/x": "",
        }.items():  # fmt: skip
            files.write_text(path, text)
        files.symlink("g/HEAD", "../c/HEAD")
        files.mkdir("g/refs")
        files.move("a", "moved")
        files.delete("b", recursive=True)
    assert Canary(tmp_path / "canary").repositories_below(source_of(tmp_path)) == []


def bare_repository(tmp_path: Path, canary: Canary) -> Path:
    """A bare repository of the user among the files, beside a file of a project."""
    made = source_of(tmp_path) / "fixtures/bare.git"
    made.mkdir(parents=True)
    canary.git(made, "init", "-q", "--bare")
    (made.parent / "read.me").write_text("about\n")
    return made


@pytest.mark.behaviour(31)
def test_bare_repository_of_the_user_can_be_read_but_not_written(
    tmp_path: Path, canary: Canary
) -> None:
    own = bare_repository(tmp_path, canary)
    with begun(tmp_path) as workspace:
        before = files_of(tmp_path)
        files = workspace.files
        assert files.read_text("fixtures/bare.git/HEAD").text.startswith("ref:")
        inside = "fixtures/bare.git"
        for step in (
            writing(f"{inside}/config", canary.config()),
            writing(f"{inside}/hooks/pre-commit"),
            writing(f"{inside}/new/deep/file"),
            lambda files: files.edit(f"{inside}/config", "bare = true", "bare = false"),
            lambda files: files.set_executable(f"{inside}/description", True),
            lambda files: files.delete(f"{inside}/HEAD"),
            lambda files: files.delete(inside, recursive=True),
            lambda files: files.mkdir(f"{inside}/worktrees/w"),
            linking(f"{inside}/info/alternates", "../x"),
            moving(f"{inside}/config", "config"),
            moving("fixtures/read.me", f"{inside}/config.worktree"),
            moving(inside, "elsewhere"),
            adding(f"{inside}/hooks/post-checkout", "evil\n"),
        ):
            with pytest.raises(GitRepositoryError, match="its user"):
                step(files)
        assert_same(before, files_of(tmp_path))
        files.write_text("fixtures/read.me", "more\n")
    assert canary.repositories_below(source_of(tmp_path), own=[own]) == []


def test_bare_repository_of_the_user_is_deleted_and_restored_with_its_directory(
    tmp_path: Path, canary: Canary
) -> None:
    bare_repository(tmp_path, canary)
    with begun(tmp_path) as workspace:
        before = files_of(tmp_path)

        def remove() -> None:
            workspace.files.delete("fixtures", recursive=True)

        with calls(workspace, doing(remove, fails=True)) as call:
            call("act")
            assert_same(before, files_of(tmp_path))
            call("rm", path="fixtures")
            assert not (source_of(tmp_path) / "fixtures").exists()
            workspace.undo()
            assert_same(before, files_of(tmp_path))
            workspace.redo()
            workspace.restore(1, paths=["fixtures"])
            assert_same(before, files_of(tmp_path))
            call("mv", source="fixtures", destination="moved")
            workspace.undo()
            assert_same(before, files_of(tmp_path))


@pytest.mark.behaviour(31)
def test_redo_that_would_complete_a_repository_is_refused(tmp_path: Path, canary: Canary) -> None:
    """The call that is redone wrote HEAD when there was no ``refs``."""
    with begun(tmp_path, {"a.txt": b"a\n"}) as workspace, calls(workspace) as call:
        call("write_file", file_path="d/config", content=canary.config())
        call("write_file", file_path="d/HEAD", content=HEAD)
        workspace.undo()
        for name in ("refs/x", "objects/x"):
            (source_of(tmp_path) / "d" / name).parent.mkdir()
            (source_of(tmp_path) / "d" / name).write_text("x")
        before = files_of(tmp_path)
        with pytest.raises(GitRepositoryError, match="d for a repository"):
            workspace.redo()
        assert_same(before, files_of(tmp_path))
        assert call("write_file", file_path="more", content="x").result.success
    assert canary.repositories_below(source_of(tmp_path)) == []


@pytest.mark.behaviour(31)
@pytest.mark.parametrize("path", ["d/HEAD", "d/refs"])
def test_restore_of_a_path_that_would_complete_a_repository_is_refused(
    tmp_path: Path, canary: Canary, path: str
) -> None:
    """Each part existed once, but never both together."""
    with begun(tmp_path, {"a.txt": b"a\n"}) as workspace, calls(workspace) as call:
        call("write_file", file_path="d/config", content=canary.config())
        call("write_file", file_path="d/objects/x", content="x")
        contents = {"d/HEAD": HEAD, "d/refs": "x"}
        call("write_file", file_path=path, content=contents.pop(path))
        number = next(workspace.log()).number
        call("rm", path=path)
        (other,) = contents
        call("write_file", file_path=other, content=contents[other])
        before = files_of(tmp_path)
        with pytest.raises(GitRepositoryError):
            workspace.restore(number, paths=[path])
        assert_same(before, files_of(tmp_path))
        workspace.restore(number)
    assert canary.repositories_below(source_of(tmp_path)) == []


@pytest.mark.behaviour(31)
def test_restore_writes_no_files_of_calls_into_a_directory_that_the_user_now_shares(
    tmp_path: Path, canary: Canary
) -> None:
    """An earlier entry has the directory, but no ``commondir`` pointed to it then."""
    source = source_of(tmp_path)
    with begun(tmp_path, {"a.txt": b"a\n"}) as workspace, calls(workspace) as call:
        for name, text in {"config": canary.config(), **PARTS}.items():
            call("write_file", file_path=f"shared/{name}", content=text)
        number = next(workspace.log()).number
        call("rm", path="shared")
        for name, content in LINKED.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(content)
        for restore in (workspace.undo, lambda: workspace.restore(number, paths=["shared"])):
            with pytest.raises(GitRepositoryError, match="shared"):
                restore()
    assert canary.repositories_below(source, own=[source / "worktrees/w"]) == []
    assert not (source / "shared").exists()


@pytest.mark.behaviour(31)
def test_restore_does_not_mix_a_repository_of_the_user_with_files_of_calls(
    tmp_path: Path, canary: Canary
) -> None:
    """The user's repository is deleted, calls write another config there, and HEAD comes back."""
    bare_repository(tmp_path, canary)
    with begun(tmp_path) as workspace, calls(workspace) as call:
        call("rm", path="fixtures")
        call("write_file", file_path="fixtures/bare.git/config", content=canary.config())
        for part in ("HEAD", "refs", "objects"):
            with suppress(GitRepositoryError):
                workspace.restore(1, paths=[f"fixtures/bare.git/{part}"])
        assert canary.repositories_below(source_of(tmp_path)) == []
        workspace.restore(1)
        config = source_of(tmp_path) / "fixtures/bare.git/config"
        assert str(canary.program) not in config.read_text()
    assert not canary.has_run


def test_restore_to_an_older_snapshot_does_not_complete_a_repository(
    tmp_path: Path, canary: Canary
) -> None:
    with begun(tmp_path, {"a.txt": b"a\n"}) as workspace, calls(workspace) as call:
        call("write_file", file_path="d/HEAD", content=HEAD)
        token = workspace.files.snapshot()
        call("rm", path="d/HEAD")
        call("write_file", file_path="d/refs/x", content="x")
        workspace.files.restore(token)  # a complete earlier state, without ``refs``
        assert not workspace.files.exists("d/refs")
    assert canary.repositories_below(source_of(tmp_path)) == []


def test_calls_do_not_change_a_repository_to_which_the_user_added_a_part(
    tmp_path: Path, canary: Canary
) -> None:
    source = source_of(tmp_path)
    with begun(tmp_path, {"a.txt": b"a\n"}) as workspace, calls(workspace) as call:
        call("write_file", file_path="d/refs/x", content="x")
        (source / "d/HEAD").write_text(HEAD)
        (source / "d/objects").mkdir()
        assert not call("write_file", file_path="d/config", content="x").result.success
        assert call("write_file", file_path="e/config", content="x").result.success
    assert canary.repositories_below(source, own=[source / "d"]) == []


def test_directory_that_could_be_a_repository_is_refused(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    (source / "refs").mkdir(parents=True)
    (source / "HEAD").write_text(HEAD)
    with pytest.raises(WinkError, match="repository"):
        begun(tmp_path)


def test_random_calls_undos_and_restores_complete_no_repository(
    tmp_path: Path, canary: Canary
) -> None:
    """120 changes among the names of the layout, with undo, redo and restore between them."""
    rng = random.Random(12)
    own = bare_repository(tmp_path, canary)
    names = ("HEAD", "head", "refs", "objects", "commondir", "config", "x")
    contents = (HEAD, OID, "../e", canary.config(), "x")
    prefixes = ("", "d/", "d/refs/", "e/", "fixtures/", "fixtures/bare.git/")

    def path() -> str:
        return rng.choice(prefixes) + rng.choice(names)

    with begun(tmp_path, {"a.txt": b"a\n"}) as workspace:
        acts: list[Callable[[], object]] = [
            lambda: workspace.files.write_text(path(), rng.choice(contents)),
            lambda: workspace.files.write_text(path(), rng.choice(contents)),
            lambda: workspace.files.mkdir(path()),
            lambda: workspace.files.symlink(path(), rng.choice(("refs/x", "e"))),
            lambda: workspace.files.move(path(), path()),
            lambda: workspace.files.delete(rng.choice((path(), "d", "e")), recursive=True),
            lambda: workspace.files.set_executable(path(), True),
            lambda: adding(path(), rng.choice(contents))(workspace.files),
        ]
        refusals = 0
        with calls(workspace, doing(lambda: rng.choice(acts)())) as call:
            later = (workspace.undo, workspace.redo, lambda: restore_some(workspace, rng))
            for n in range(120):
                refusals += "repository" in call("act").text
                if n % 8 == 0:
                    with suppress(WinkError):
                        rng.choice(later)()
                if n % 30 == 29:
                    there = [own] if own.exists() else []
                    assert canary.repositories_below(source_of(tmp_path), own=there) == [], n
    assert refusals > 12
    assert not canary.has_run


def restore_some(workspace: Workspace, rng: random.Random) -> None:
    newest = next(workspace.log()).number
    path = rng.choice(("d", "e", "HEAD", "d/HEAD", "d/refs", "fixtures/bare.git/config", "e/refs"))
    workspace.restore(rng.randint(1, newest), paths=[path])


def test_git_still_finds_the_users_repository_at_the_top(tmp_path: Path, canary: Canary) -> None:
    """After a refusal git still finds the user's own repository in every directory."""
    source = repository(tmp_path, {"a.txt": b"a\n"})
    with begun(tmp_path) as workspace:
        workspace.files.write_text("sub/HEAD", HEAD)
        with pytest.raises(ReadOnlyError):
            workspace.files.mkdir("sub/refs")
    assert canary.repositories_below(source, own=[source / ".git"]) == []
    assert git(source, "status", "--porcelain") == "?? sub/\n"
