"""Merge of branches and sync with the source: one entry each, which can be undone."""

from __future__ import annotations

from pathlib import Path

import pytest
from workspace_support import created, make_tree, state, tree_of, write

from wink_workspace.errors import ConflictError, EntryMissingError, UsageError
from wink_workspace.workspace import Workspace

LINES = "".join(f"{n}\n" for n in range(1, 10))


def with_line(n: int, text: str, lines: str = LINES) -> str:
    """*lines* with line *n* replaced."""
    found = lines.splitlines()
    found[n - 1] = text
    return "\n".join(found) + "\n"


def fork(workspace: Workspace, tmp_path: Path, name: str = "bold") -> Workspace:
    if name not in workspace.forks():
        workspace.fork(name)
    return Workspace.open(workspace.info.id, storage=state(tmp_path), branch=name)


def put(workspace: Workspace, **contents: str) -> None:
    """Edit files outside of any call, and commit them as an external entry."""
    for path, text in contents.items():
        workspace.files.write_text(path, text)
    workspace.commit_edits()


def files_of(workspace: Workspace) -> dict[str, object]:
    return tree_of(workspace._folder.files)


# Branches


def test_merge_adds_the_changes_of_the_other_branch_to_ours_in_the_same_file(
    tmp_path: Path,
) -> None:
    with created(tmp_path, {"a.txt": LINES, "gone": "x\n"}) as workspace:
        with fork(workspace, tmp_path) as other:
            other.files.delete("gone")
            put(other, **{"a.txt": with_line(9, "theirs"), "new.txt": "new\n"})
        put(workspace, **{"a.txt": with_line(1, "ours")})
        entry = workspace.merge("bold")
        assert entry
        assert (workspace._folder.files / "a.txt").read_text() == with_line(
            9, "theirs", with_line(1, "ours")
        )
        assert entry
        assert entry.kind == "merge"
        assert not (workspace._folder.files / "gone").exists()
        assert (workspace._folder.files / "new.txt").read_text() == "new\n"


def test_merge_is_undone_and_redone_as_one_entry(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        with fork(workspace, tmp_path) as other:
            put(other, **{"a.txt": with_line(9, "theirs"), "b.txt": "b\n"})
        before = files_of(workspace)
        workspace.merge("bold")
        merged = files_of(workspace)
        workspace.undo()
        assert files_of(workspace) == before
        workspace.redo()
        assert files_of(workspace) == merged


def test_second_merge_applies_only_changes_since_the_first(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        with fork(workspace, tmp_path) as other:
            put(other, **{"a.txt": with_line(5, "first")})
        workspace.merge("bold")
        put(workspace, **{"a.txt": with_line(5, "ours after it")})
        assert workspace.merge("bold") is None
        with fork(workspace, tmp_path) as other:
            write(other, **{"b.txt": "second\n"})
        workspace.merge("bold")
        assert (workspace._folder.files / "a.txt").read_text() == with_line(5, "ours after it")
        assert (workspace._folder.files / "b.txt").read_text() == "second\n"


def test_merge_there_and_back_takes_the_merge_as_the_base(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        with fork(workspace, tmp_path) as other:
            put(other, **{"a.txt": with_line(5, "of the fork")})
        workspace.merge("bold")
        put(workspace, **{"a.txt": with_line(5, "of main, later")})
        with fork(workspace, tmp_path) as other:
            other.merge("main")
            assert (other._folder.files / "a.txt").read_text() == with_line(5, "of main, later")


def test_merge_that_was_undone_can_be_done_again(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        with fork(workspace, tmp_path) as other:
            write(other, **{"b.txt": "b\n"})
        workspace.merge("bold")
        workspace.undo()
        workspace.merge("bold")
        assert (workspace._folder.files / "b.txt").read_text() == "b\n"


@pytest.mark.behaviour(88)
def test_merge_of_the_same_lines_is_shown_by_hunk_and_changes_nothing(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        with fork(workspace, tmp_path) as other:
            put(other, **{"a.txt": with_line(5, "theirs"), "b.txt": "b\n"})
        put(workspace, **{"a.txt": with_line(5, "ours")})
        before, head = files_of(workspace), workspace.head
        with pytest.raises(ConflictError) as caught:
            workspace.merge("bold")
        ((conflict,), (hunk,)) = caught.value.conflicts, caught.value.conflicts[0].hunks
        assert conflict.path == "a.txt"
        assert (hunk.ours_line, hunk.base, hunk.ours, hunk.theirs) == (
            *(5, "5\n"),
            *("ours\n", "theirs\n"),
        )
        assert (files_of(workspace), workspace.head) == (before, head)


def test_merge_stays_after_the_deletion_of_the_merged_branch(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        with fork(workspace, tmp_path) as other:
            write(other, **{"b.txt": "b\n"})
        merged = workspace.merge("bold")
        workspace.branches.delete("bold")
        assert workspace.maintain().ran
        assert workspace.undo().target == workspace.head.number - 1
        assert merged


@pytest.mark.parametrize("line", ["main", "nowhere", "imported"])
def test_merge_of_a_name_that_is_not_another_branch_is_refused(tmp_path: Path, line: str) -> None:
    with (
        created(tmp_path, {"a.txt": LINES}) as workspace,
        pytest.raises((UsageError, EntryMissingError)),
    ):
        workspace.merge(line)


# The source


def test_sync_merges_later_changes_of_the_source_and_diff_shows_only_our_own(
    tmp_path: Path,
) -> None:
    with created(tmp_path, {"a.txt": LINES, "gone": "x\n"}) as workspace:
        put(workspace, **{"a.txt": with_line(1, "ours")})
        source = make_tree(tmp_path / "source", {"a.txt": with_line(9, "theirs"), "new": "n\n"})
        (source / "gone").unlink()
        entry = workspace.sync()
        assert entry
        assert entry.kind == "sync"
        both = with_line(9, "theirs", with_line(1, "ours"))
        assert (workspace._folder.files / "a.txt").read_text() == both
        assert not (workspace._folder.files / "gone").exists()
        assert [str(change.path) for change in workspace.changes()] == ["a.txt"]
        assert "+theirs" not in workspace.diff()
        assert workspace.apply().paths == ("a.txt",)
        assert (source / "a.txt").read_text() == both
        assert workspace.sync() is None


def test_undo_of_a_sync_also_restores_the_base_and_redo_reverts_that(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        write(workspace, **{"b.txt": "b\n"})
        make_tree(tmp_path / "source", {"a.txt": with_line(9, "theirs")})
        workspace.sync()
        write(workspace, **{"c.txt": "c\n"})
        workspace.undo()
        workspace.undo()
        assert (workspace._folder.files / "a.txt").read_text() == LINES
        assert [str(change.path) for change in workspace.changes()] == ["b.txt"]
        workspace.redo()
        assert (workspace._folder.files / "a.txt").read_text() == with_line(9, "theirs")
        assert [str(change.path) for change in workspace.changes()] == ["b.txt"]
        workspace.restore(2)
        assert [str(change.path) for change in workspace.changes()] == ["b.txt"]


def test_sync_does_not_restore_a_change_that_was_applied_and_then_undone(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        write(workspace, **{"b.txt": "b\n"})
        workspace.apply()
        workspace.undo()
        make_tree(tmp_path / "source", {"c.txt": "c\n"})
        workspace.sync()
        assert sorted(files_of(workspace)) == ["a.txt", "c.txt"]
        assert workspace.apply().removed == ("b.txt",)
        assert sorted(tree_of(tmp_path / "source")) == ["a.txt", "c.txt"]


@pytest.mark.behaviour(88)
def test_sync_over_the_same_lines_is_a_conflict_and_changes_nothing(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        put(workspace, **{"a.txt": with_line(5, "ours")})
        make_tree(tmp_path / "source", {"a.txt": with_line(5, "theirs"), "b": "b\n"})
        before = files_of(workspace)
        with pytest.raises(ConflictError, match=r"a\.txt") as caught:
            workspace.sync()
        assert ">>>>>>> source" in caught.value.details
        assert files_of(workspace) == before


def test_sync_leaves_out_the_repository_of_the_source(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        make_tree(tmp_path / "source", {".git/HEAD": "ref: refs/heads/main\n", "b.txt": "b\n"})
        workspace.sync()
        assert sorted(files_of(workspace)) == ["a.txt", "b.txt"]


def test_merge_of_a_synced_branch_takes_its_base_too(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        make_tree(tmp_path / "source", {"b.txt": "of the source\n"})
        with fork(workspace, tmp_path) as other:
            other.sync()
            write(other, **{"c.txt": "c\n"})
        workspace.merge("bold")
        assert [str(change.path) for change in workspace.changes()] == ["c.txt"]


def test_workspace_in_place_refuses_to_merge_and_sync(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {"a.txt": LINES})
    with Workspace.create(source, storage=state(tmp_path), mode="in_place") as workspace:
        workspace.fork("bold")
        for act in (workspace.sync, lambda: workspace.merge("bold")):
            with pytest.raises(UsageError, match="are those of"):
                act()
        write(workspace, **{"b.txt": "b\n"})
        with fork(workspace, tmp_path) as other:
            other.merge("main")
            assert (other._folder.files / "b.txt").read_text() == "b\n"
