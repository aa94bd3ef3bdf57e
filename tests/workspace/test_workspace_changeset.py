"""One set of changes for every command: what is applied, what is left out, and why."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from workspace_support import created, git, make_tree, state, tree_of, write

from wink_workspace.errors import ConflictError
from wink_workspace.filesystem import FileKind, LineCounts, parse_path
from wink_workspace.ledger import (
    EMPTY_DIRECTORY,
    EMPTY_TREE_ID,
    Ledger,
    TreeChange,
    TreeEntry,
    build,
    diff,
)
from wink_workspace.workspace import ChangeSet, Workspace, WorkspaceReader
from wink_workspace.workspace.changes.changeset import LeftOutReason
from wink_workspace.workspace.changes.source_rules import open_source_filter, rules_in

FILES: dict[str, str | bytes | None] = {
    "a.txt": "one\ntwo\n",
    "gone.txt": "gone\n",
    "run.sh": "#!/bin/sh\n",
    ".gitignore": "*.log\n/made/\n",
    "old.log": "imported\n",
    "d/e": "e\n",
}
NEW = {
    "new.txt": "new\n",
    "noise.log": "noise\n",
    "made/out/x.o": "object\n",
    "cache/deep/y.log": "only ignored files in a new directory\n",
    ".wink-output/stdout.txt": "ours\n",
    "old.log": "changed\n",
    "d/.git/hooks/post-checkout": "#!/bin/sh\n",
}


def repository(source: Path) -> None:
    git(source, "init", "-q", "-b", "main")
    git(source, "add", "-A", "--force")
    git(source, "commit", "-qm", "one")


def files_of(workspace: Workspace, tmp_path: Path) -> Path:
    return state(tmp_path).folder(workspace.info.id).files


def left_out(changes: ChangeSet) -> dict[str, str]:
    return {str(each.path): each.reason.value for each in changes.left_out}


def changed(tmp_path: Path) -> Workspace:
    """A workspace of a repository with every kind of change."""
    repository(make_tree(tmp_path / "source", FILES))
    workspace = Workspace.create(tmp_path / "source", storage=state(tmp_path))
    files = files_of(workspace, tmp_path)
    make_tree(files, NEW)
    (files / "a.txt").write_text("one\n2\n")
    (files / "gone.txt").unlink()
    (files / "run.sh").chmod(0o644)
    return workspace


APPLIED = ("a.txt", "gone.txt", "new.txt", "old.log", "run.sh")


def test_changes_diff_patch_branch_and_apply_have_the_same_paths(tmp_path: Path) -> None:
    with changed(tmp_path) as workspace:
        changes = workspace.changeset()
        assert changes.paths == APPLIED
        assert tuple(str(change.path) for change in workspace.changes()) == APPLIED
        assert workspace.source.preview().paths == APPLIED
        patch = workspace.apply("patch")
        branch = workspace.apply("branch", branch="agent")
        applied = workspace.apply()
        for done in (patch, branch, applied):
            assert done.paths == APPLIED
            assert set(done.left_out) == set(left_out(changes))
    with WorkspaceReader(state(tmp_path).folder(workspace.info.id)) as reader:
        assert reader.changeset().paths == APPLIED


def test_left_out_paths_are_named_once_with_their_reason(tmp_path: Path) -> None:
    with changed(tmp_path) as workspace:
        changes = workspace.changeset()
    assert left_out(changes) == {
        ".wink-output": LeftOutReason.OWN_OUTPUT,
        "cache/deep/y.log": LeftOutReason.IGNORED,
        "d/.git": LeftOutReason.REPOSITORY,
        "made": LeftOutReason.IGNORED,
        "noise.log": LeftOutReason.IGNORED,
    }
    assert all(each.n_files == 1 for each in changes.left_out)


def test_ignored_files_and_our_own_output_never_reach_the_source(tmp_path: Path) -> None:
    with changed(tmp_path) as workspace:
        workspace.apply()
    after = tree_of(tmp_path / "source")
    assert not {"noise.log", "made", "cache", ".wink-output"} & after.keys()
    assert (tmp_path / "source/old.log").read_text() == "changed\n", "it was imported"


def test_ignored_files_are_included_on_request(tmp_path: Path) -> None:
    with changed(tmp_path) as workspace:
        with_ignored = ("a.txt", "cache/deep/y.log", "gone.txt", "made/out/x.o", "new.txt",
                        "noise.log", "old.log", "run.sh")  # fmt: skip
        assert workspace.changeset(include_ignored=True).paths == with_ignored
        assert workspace.apply("patch", include_ignored=True).paths == with_ignored
        branch = workspace.apply("branch", branch="b", include_ignored=True)
        assert branch.paths == with_ignored
        assert workspace.apply(include_ignored=True).paths == with_ignored
        write(workspace, **{"later.txt": "later\n"})
        (files_of(workspace, tmp_path) / "noise.log").write_text("more\n")
        assert workspace.apply().paths == ("later.txt", "noise.log"), "the source has it"
    assert (tmp_path / "source/noise.log").read_text() == "more\n"


def test_an_ignored_file_without_a_commit_is_not_published_by_a_branch(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {"a.txt": "a\n", ".gitignore": "own.cfg\n"})
    repository(source)
    (source / "own.cfg").write_text("KEY=secret\n")
    with Workspace.create(source, storage=state(tmp_path)) as workspace:
        (files_of(workspace, tmp_path) / "own.cfg").write_text("KEY=other\n")
        assert workspace.changeset().paths == ("own.cfg",)
        applied = workspace.apply("branch", branch="b")
        assert (applied.paths, applied.left_out) == ((), ("own.cfg",))
        assert workspace.apply().paths == ("own.cfg",)


def test_a_rule_that_crashes_libgit2_does_not_crash_apply(tmp_path: Path) -> None:
    repository(make_tree(tmp_path / "source", {"b": "b\n", ".gitignore": "/a*\n!//\n"}))
    with Workspace.create(tmp_path / "source", storage=state(tmp_path)) as workspace:
        write(workspace, **{"b/c": "no", "c": "c\n", "abc": "abc\n"})
        assert workspace.apply("branch", branch="b").paths == ("c",)


def ignored_by(
    tmp_path: Path, source: Mapping[str, str | bytes | None], new: Mapping[str, str]
) -> set[str]:
    with created(tmp_path, dict(source)) as workspace:
        make_tree(files_of(workspace, tmp_path), new)
        return set(left_out(workspace.changeset()))


def test_a_directory_without_git_has_its_rules_too(tmp_path: Path) -> None:
    rules = {".gitignore": "*.log\n", "d/.gitignore": "!keep.log\nx\n"}
    new = {"a.log": "", "d/keep.log": "", "d/x": "", "x": ""}
    assert ignored_by(tmp_path, rules, new) == {"a.log", "d/x"}


def test_paths_in_info_exclude_are_left_out(tmp_path: Path) -> None:
    source = {".git/info/exclude": "*.mine\n", ".git/HEAD": "ref: refs/heads/main\n"}
    assert ignored_by(tmp_path, source, {"a.mine": "", "b": ""}) == {"a.mine"}


def test_a_linked_working_tree_has_the_exclusions_of_its_repository(tmp_path: Path) -> None:
    repository(make_tree(tmp_path / "main", {"a": "a"}))
    git(tmp_path / "main", "worktree", "add", "-q", str(tmp_path / "source"))
    (tmp_path / "main/.git/info/exclude").write_text("*.mine\n")
    assert ignored_by(tmp_path, {}, {"a.mine": "", "b": ""}) == {"a.mine"}


def test_a_part_of_a_repository_has_the_rules_above_it(tmp_path: Path) -> None:
    make_tree(tmp_path, {".gitignore": "/source/made\n*.log\n", ".git/info/exclude": "mine\n"})
    new = {"made": "", "a.log": "", "mine": "", "b": ""}
    assert ignored_by(tmp_path, {}, new) == {"made", "a.log", "mine"}


def test_new_files_of_an_ignored_source_are_included(tmp_path: Path) -> None:
    make_tree(tmp_path, {".gitignore": "/source/\n*.log\n", ".git/info/exclude": ""})
    assert ignored_by(tmp_path, {".gitignore": "x\n"}, {"x": "", "a.log": ""}) == {"x"}


def test_a_nested_repository_has_its_own_rules(tmp_path: Path) -> None:
    source = {
        ".gitignore": "/modules/\n*.log\n",
        "modules/m/.git/info/exclude": "mine\n",
        "modules/m/.gitignore": "*.tmp\n",
    }
    new = {"modules/m/new.py": "", "modules/m/a.log": "", "modules/m/a.tmp": "",
           "modules/m/mine": "", "modules/other": ""}  # fmt: skip
    found = ignored_by(tmp_path, source, new)
    assert found == {"modules/m/a.tmp", "modules/m/mine", "modules/other"}


def test_the_git_configuration_of_the_user_has_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(tmp_path / "home", {".config/git/ignore": "*.py\n", ".gitconfig": "[core]\n"})
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home/.config"))
    config = "[core]\n\texcludesFile = rules\n\tfsmonitor = touch ran\n"
    source = {".git/config": config, ".git/info/exclude": "", "rules": "*.txt\n"}
    assert ignored_by(tmp_path, source, {"a.py": "", "a.txt": ""}) == set()
    assert not list(tmp_path.rglob("ran"))


def test_a_cache_that_ignores_itself_is_left_out(tmp_path: Path) -> None:
    new = {".own_cache/.gitignore": "*\n", ".own_cache/v/x": "", "a": "",
           ".gitignore": "*.pyc\n", "m.pyc": ""}  # fmt: skip
    found = ignored_by(tmp_path, {}, new)
    assert found == {".own_cache/.gitignore", ".own_cache/v", "m.pyc"}
    assert not (tmp_path / "source/.own_cache").exists()


def test_a_rule_that_the_run_removes_still_counts(tmp_path: Path) -> None:
    with created(tmp_path, {".gitignore": "*.log\n"}) as workspace:
        make_tree(files_of(workspace, tmp_path), {".gitignore": "", "a.log": ""})
        assert left_out(workspace.changeset()) == {"a.log": "ignored"}


def test_a_rule_that_the_user_adds_meanwhile_counts(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        write(workspace, **{"a.tmp": "", "b": ""})
        (tmp_path / "source/.gitignore").write_text("*.tmp\n")
        assert left_out(workspace.changeset()) == {"a.tmp": "ignored"}
        assert workspace.apply().paths == ("b",)


def test_without_the_source_its_imported_rules_count(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        write(workspace, **{"a.log": "", "b": ""})
        (tmp_path / "source").rename(tmp_path / "elsewhere")
        assert left_out(workspace.changeset()) == {"a.log": "ignored"}
        assert workspace.apply("patch").paths == ("b",)


def test_a_link_in_place_of_a_rules_file_is_not_followed(tmp_path: Path) -> None:
    make_tree(tmp_path, {"rules": "*\n"})
    source = {".gitignore": "-> ../rules", ".git/info/exclude": ""}
    assert ignored_by(tmp_path, source, {"a": ""}) == set()


def test_only_files_links_and_empty_directories_are_counted(tmp_path: Path) -> None:
    with created(tmp_path, {"full/x": "x\n", "empty": None, "turns": "file\n"}) as workspace:
        files = files_of(workspace, tmp_path)
        (files / "full/x").unlink()
        (files / "full").rmdir()
        (files / "empty").rmdir()
        (files / "turns").unlink()
        make_tree(files, {"turns/into": "y\n", "made/void": None, "l": "-> turns"})
        changes = {str(each.path): each for each in workspace.changeset().changes()}
        assert {path: each.status for path, each in changes.items()} == {
            "empty": "removed",
            "full/x": "removed",
            "l": "added",
            "made/void": "added",
            "turns": "removed",
            "turns/into": "added",
        }
        assert (changes["made/void"].detail, changes["l"].detail) == ("empty directory", "link")
        assert workspace.apply("patch").left_out == ("empty", "made/void")
        applied = workspace.apply()
        assert applied.paths == tuple(changes)
        assert tree_of(tmp_path / "source") == tree_of(files)


def test_lines_are_counted_and_files_that_are_too_large_only_measured(tmp_path: Path) -> None:
    before = {"a.txt": "1\n2\n3\n", "bin": b"\0\1", "large": b"x\n" * 1_000_001}
    with created(tmp_path, before) as workspace:
        files = files_of(workspace, tmp_path)
        make_tree(files, {"a.txt": "1\ntwo\n3\n4", "bin": b"\0\2", "large": "y\n"})
        (files / "new").write_text("1\n2")
        found = {str(each.path): each for each in workspace.changeset().changes()}
        lines = {path: each.lines for path, each in found.items()}
        assert lines == {
            "a.txt": LineCounts(2, 1),
            "bin": LineCounts(is_binary=True),
            "large": None,
            "new": LineCounts(2, 0),
        }
        assert found["large"].n_bytes == 2


def test_a_preview_after_an_apply_shows_what_the_next_one_does(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        write(workspace, one="1\n")
        workspace.apply()
        assert workspace.source.preview().paths == ()
        write(workspace, two="2\n")
        assert workspace.source.preview().paths == ("two",)
        workspace.restore(1)
        (change,) = workspace.source.preview().changes()
        assert (str(change.path), change.status) == ("one", "removed")
        assert workspace.apply().paths == ("one",)


def test_apply_fails_if_the_changes_differ_from_the_preview(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        write(workspace, one="1\n")
        previewed = workspace.source.preview()
        (files_of(workspace, tmp_path) / "Makefile").write_text("all:\n")
        with pytest.raises(ConflictError, match="since its changes were shown"):
            workspace.apply(previewed=previewed)
        assert not (tmp_path / "source/one").exists()
        assert workspace.apply(previewed=workspace.source.preview()).paths == ("Makefile", "one")


def test_removed_directory_stays_if_it_contains_a_repository(tmp_path: Path) -> None:
    nested = {"gone/.git/HEAD": "h", "gone/y": "y", "file/.git/HEAD": "h", "file/z": "z"}
    with created(tmp_path, nested) as workspace:
        workspace.files.delete("gone", recursive=True)
        workspace.files.delete("file", recursive=True)
        workspace.files.write_text("file", "in its place")
        changes = workspace.changeset()
        assert changes.paths == ("gone/y",)
        assert {"gone/.git", "file"} <= set(left_out(changes))
        workspace.apply()
    source = tmp_path / "source"
    assert (source / "gone/.git/HEAD").exists()
    assert (source / "file/z").exists()


def random_tree(choose: random.Random) -> dict[str, str | bytes | None]:
    names = ("a", "b", "x.log", "out", ".git", "d")
    files: dict[str, str | bytes | None] = {}
    for _ in range(choose.randrange(1, 9)):
        path = "/".join(choose.choice(names) for _ in range(choose.randrange(1, 4)))
        parts = path.split("/")
        above = {"/".join(parts[:n]) for n in range(1, len(parts))}
        if above & files.keys() or any(each.startswith(f"{path}/") for each in files):
            continue
        files[path] = None if choose.random() < 0.15 else f"{choose.randrange(3)}\n"
    if choose.random() < 0.7:
        files[".gitignore"] = choose.choice(("*.log\n", "out/\n", "*.log\nout\n", "d\n!a\n"))
    return files


def test_the_tree_of_a_changeset_differs_from_its_base_only_by_its_changes(tmp_path: Path) -> None:
    """The list that is shown and the tree that is applied agree, whatever is left out."""
    choose = random.Random(12)
    Ledger.create(tmp_path / "ledger.git")
    with Ledger(tmp_path / "ledger.git") as ledger:
        n_left_out = 0
        for _ in range(60):
            base, wanted = (written(ledger, random_tree(choose)) for _ in range(2))
            rules = rules_in(ledger.store, wanted)
            imported = (ledger.store, base)
            with open_source_filter(tmp_path / "none", rules, imported=imported) as outside:
                changes = ChangeSet.between(ledger.store, base, wanted, outside)
            found = diff(ledger.store, base, changes.root())
            assert list(map(without_ids, found)) == list(map(without_ids, changes.trees))
            n_left_out += len(changes.left_out)
    assert n_left_out > 30


def without_ids(change: TreeChange) -> tuple[object, ...]:
    """A change without object ids of directories."""
    sides = (change.before, change.after)
    return change.path, *(
        side if side is None or side.kind is not FileKind.DIRECTORY else FileKind.DIRECTORY
        for side in sides
    )


def written(ledger: Ledger, files: Mapping[str, str | bytes | None]) -> str:
    entries = {
        parse_path(path): EMPTY_DIRECTORY
        if content is None
        else TreeEntry(FileKind.FILE, ledger.store.write_blob(str(content).encode()))
        for path, content in files.items()
    }
    return build(ledger.store, EMPTY_TREE_ID, entries)
