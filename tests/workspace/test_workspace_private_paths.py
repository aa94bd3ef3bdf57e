"""A workspace in place that keeps ignored files and secrets out of its history."""

from __future__ import annotations

from pathlib import Path

import pytest
from in_place_rig import repository, source_of
from workspace_rig import storage

from wink_workspace.errors import UncertainChangesError
from wink_workspace.filesystem import parse_path
from wink_workspace.filesystem.paths import DERIVED_NAMES, SECRET_NAMES
from wink_workspace.ledger import EntryKind
from wink_workspace.workspace import ImportConfig, Workspace, WorkspaceConfig

CONFIG = WorkspaceConfig(imported=ImportConfig(exclude=DERIVED_NAMES, derived=SECRET_NAMES))


def guarded(directory: Path) -> Workspace:
    source = repository(directory, {"a.txt": b"a\n", "b.txt": b"b\n", ".gitignore": b"/data/\n"})
    (source / ".env").write_text("KEY=secret\n")
    (source / "data").mkdir()
    (source / "data/set.csv").write_text("1\n")
    (source / "node_modules").mkdir()
    (source / "node_modules/x.js").write_text("x")
    return Workspace.create(source, storage=storage(directory), mode="in_place", config=CONFIG)


def named(workspace: Workspace) -> set[str]:
    """Every path that an entry names."""
    return {str(change.path) for entry in workspace.log() for change in workspace.changes_of(entry)}


def reopened(directory: Path) -> Workspace:
    (info,) = storage(directory).all()
    return Workspace.open(info.id, storage=storage(directory), config=CONFIG)


def test_history_names_neither_ignored_files_nor_secrets(tmp_path: Path) -> None:
    with guarded(tmp_path) as workspace:
        source = source_of(tmp_path)
        (source / ".env").write_text("KEY=other\n")
        (source / "data/set.csv").write_text("2\n")
        (source / "node_modules/y.js").write_text("y")
        (source / "a.txt").write_text("changed\n")
        workspace.commit_edits()
        assert named(workspace) == {"a.txt", "b.txt", ".gitignore"}
        assert [entry.kind for entry in workspace.log()] == [EntryKind.EXTERNAL, EntryKind.IMPORT]


@pytest.mark.parametrize("reopens", [False, True])
def test_removed_ignored_files_are_restored_from_their_discards(
    tmp_path: Path, reopens: bool
) -> None:
    source = source_of(tmp_path)
    workspace = guarded(tmp_path)
    if reopens:
        workspace.close()
    else:
        workspace.commit_edits()
    (source / ".env").unlink()
    (source / "data/set.csv").unlink()
    (source / "data").rmdir()
    with reopened(tmp_path) if reopens else workspace as again:
        again.commit_edits()
        (discard,) = again.discarded()
        assert discard.reason == "changed"
        again.restore_discarded(discard.discard)
        assert (source / ".env").read_text() == "KEY=secret\n"
        assert (source / "data/set.csv").read_text() == "1\n"
        again.commit_edits()
        assert named(again) == {"a.txt", "b.txt", ".gitignore"}


def test_overwritten_secret_is_restored_and_the_newer_one_kept(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    with guarded(tmp_path) as workspace:
        (source / ".env").write_text("KEY=other\n")
        workspace.commit_edits()
        workspace.restore_discarded(1)
        assert (source / ".env").read_text() == "KEY=secret\n"
        workspace.restore_discarded(2)
        assert (source / ".env").read_text() == "KEY=other\n"


def test_path_stays_public_when_a_rule_ignores_it_later(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    with guarded(tmp_path) as workspace:
        (source / "notes.log").write_text("1")
        workspace.commit_edits()
        (source / ".gitignore").write_text("/data/\n*.log\n")
        (source / "notes.log").write_text("2")
        (source / "more.log").write_text("3")
        workspace.commit_edits()
        assert "notes.log" in named(workspace)
        assert "more.log" not in named(workspace)


def test_call_has_only_the_paths_that_are_named_and_undo_keeps_the_others(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    with guarded(tmp_path) as workspace:
        (source / "a.txt").write_text("agent\n")
        (source / "b.txt").write_text("person\n")
        assert list(map(str, workspace.edited_paths())) == ["a.txt", "b.txt"]
        entry = workspace.record_call("Edit", paths=[parse_path("a.txt")], lasted_s=2.0)
        assert entry is not None
        assert [str(change.path) for change in workspace.changes_of(entry)] == ["a.txt"]
        workspace.commit_edits()
        workspace.undo(entry.number)
        assert (source / "a.txt").read_text() == "a\n"
        assert (source / "b.txt").read_text() == "person\n"


def test_undo_keeps_uncertain_paths_unless_they_are_chosen(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    with guarded(tmp_path) as workspace:
        (source / "a.txt").write_text("agent\n")
        (source / "b.txt").write_text("who?\n")
        a, b = map(parse_path, ("a.txt", "b.txt"))
        entry = workspace.record_call("Bash", paths=[a, b], uncertain=[b])
        assert entry is not None
        workspace.undo()
        assert (source / "a.txt").read_text() == "a\n"
        assert (source / "b.txt").read_text() == "who?\n"
        workspace.redo()
        workspace.undo(entry.number, uncertain=True)
        assert (source / "b.txt").read_text() == "b\n"


def test_undo_of_uncertain_paths_alone_is_refused(tmp_path: Path) -> None:
    with guarded(tmp_path) as workspace:
        (source_of(tmp_path) / "b.txt").write_text("who?\n")
        b = parse_path("b.txt")
        workspace.record_call("Bash", paths=[b], uncertain=[b])
        with pytest.raises(UncertainChangesError, match=r"b\.txt"):
            workspace.undo()
