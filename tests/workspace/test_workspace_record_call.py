"""Edits of another program as one call: an entry that can be undone, and no loss if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from workspace_support import make_tree

from wink_workspace.errors import LedgerError, UsageError
from wink_workspace.ledger import EntryKind
from wink_workspace.session import Outcome, ToolInvoked
from wink_workspace.workspace import Workspace, WorkspaceStorage


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace.temporary(make_tree(tmp_path / "source", {"a.py": "a = 1\n"})) as opened:
        yield opened


def test_edits_become_one_entry_that_can_be_undone(workspace: Workspace) -> None:
    workspace.files.write_text("a.py", "a = 2\n")
    assert workspace.edit_activity()

    entry = workspace.record_call("edit", params={"n": 1}, value={"ok": True}, message="two")

    assert entry is not None
    assert (entry.kind, entry.outcome, entry.number) == (EntryKind.CALL, Outcome.COMMITTED, 2)
    assert workspace.edit_activity() == 0
    event = workspace.session[ToolInvoked].all()[-1]
    assert (event.params, event.value, event.message) == ({"n": 1}, {"ok": True}, "two")
    workspace.undo()
    assert workspace.diff() == ""


def test_activity_grows_with_each_edit_until_it_is_recorded(workspace: Workspace) -> None:
    workspace.files.write_text("a.py", "a = 2\n")
    first = workspace.edit_activity()
    assert workspace.edit_activity() == first
    workspace.files.write_text("a.py", "a = 3\n")
    assert workspace.edit_activity() > first


def test_a_call_without_edits_is_an_entry_unless_it_needs_changes(workspace: Workspace) -> None:
    assert workspace.record_call("idle", needs_changes=True) is None
    assert workspace.head.number == 1
    assert workspace.record_call("idle") is not None
    assert workspace.head.number == 2


def test_a_call_that_cannot_be_committed_leaves_the_edits_as_external(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise LedgerError("no")

    workspace.files.write_text("a.py", "a = 2\n")
    with monkeypatch.context() as patch:
        patch.setattr(workspace._journal, "commit", fail)
        with pytest.raises(LedgerError):
            workspace.record_call("edit")

    kinds = [entry.kind for entry in workspace.log()]
    assert kinds == [EntryKind.CALL, EntryKind.EXTERNAL, EntryKind.IMPORT]
    assert workspace.head.outcome is Outcome.ROLLED_BACK
    assert workspace.files.read_text("a.py").lines == ("a = 2",)
    assert not workspace.discarded()


def test_a_call_needs_no_recovery_after_a_crash(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no mark of it, whose recovery would undo the edits."""
    marks: list[object] = []
    commit = workspace._journal.commit

    def look(*arguments: object) -> None:
        marks.append(workspace._writer.pending())
        commit(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(workspace._journal, "commit", look)
    workspace.files.write_text("a.py", "a = 2\n")
    workspace.record_call("edit")
    with workspace.call("ours"):
        pass
    assert marks[0] is None
    assert marks[1] is not None


def test_it_is_refused_inside_a_call_and_in_place(workspace: Workspace, tmp_path: Path) -> None:
    with workspace.call("outer"):
        with pytest.raises(UsageError, match="cannot be a call here"):
            workspace.record_call("inner")
    in_place = make_tree(tmp_path / "in_place", {"a.py": "a = 1\n"})
    storage = WorkspaceStorage(tmp_path / "state")  # the user's own stays for later runs
    with Workspace.create(in_place, mode="in_place", storage=storage) as opened:
        with pytest.raises(UsageError, match="cannot be a call here"):
            opened.edit_activity()
