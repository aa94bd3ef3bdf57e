"""The record of the trees that were applied to the source."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from workspace_support import created, state

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.errors import LedgerDamagedError, LedgerError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.ledger import EMPTY_TREE_ID, Ledger, TreeEntry, build
from wink_workspace.workspace import Workspace
from wink_workspace.workspace.changes.applied_trees import AppliedTrees
from wink_workspace.workspace.in_place.in_place_tree import InPlaceTree


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe\0", b"null", b"[]", b"{}"])
def test_unreadable_note_prevents_apply_but_not_opening(tmp_path: Path, garbage: bytes) -> None:
    with created(tmp_path, {"a": "a"}) as workspace:
        workspace.files.write_text("b", "b")
        workspace.apply()
        applied = workspace._folder.applied
    applied.write_bytes(garbage)
    with Workspace.open(workspace.info.id, storage=state(tmp_path)) as again:
        with pytest.raises(LedgerDamagedError, match="Delete it"):
            again.apply()
        applied.unlink()
        assert again.apply().paths == ()


@pytest.mark.parametrize("is_damaged", [False, True])
def test_maintenance_with_an_unreadable_note_deletes_no_tree_of_an_interrupted_apply(
    tmp_path: Path, is_damaged: bool
) -> None:
    with created(tmp_path, {"a": "a"}) as workspace, Ledger(workspace._folder.ledger) as ledger:
        path, note = WorkspacePath(("a",)), workspace._folder.applied
        blob = ledger.store.write_blob(b"written by an apply")
        tree = build(ledger.store, EMPTY_TREE_ID, {path: TreeEntry(FileKind.FILE, blob)})
        ledger.store.open_packs.seal()
        AppliedTrees(note).begin(workspace.head.files, tree)
    readable = note.read_bytes()
    if is_damaged:
        note.write_bytes(b"garbage")
    else:
        note.unlink()
        note.mkdir()
    with Workspace.open(workspace.info.id, storage=state(tmp_path)) as again:
        assert again.source.has_unfinished_apply
        with pytest.raises(LedgerError, match="records what was applied to the source"):
            again.maintain()
    if not is_damaged:
        note.rmdir()
    note.write_bytes(readable)
    with Workspace.open(workspace.info.id, storage=state(tmp_path)) as again:
        assert again.apply().paths == ()


def test_running_apply_is_not_reported_as_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def look() -> bool:
        caplog.clear()
        with Workspace.open(workspace.info.id, storage=state(tmp_path), branch="try") as fork:
            reported = fork.source.has_unfinished_apply
        assert reported is ("apply again" in caplog.text)
        return reported

    seen: list[bool] = []
    real = InPlaceTree.write_file

    def writing(tree: InPlaceTree, *args: Any, **options: Any) -> None:
        monkeypatch.undo()
        seen.append(look())
        real(tree, *args, **options)

    with created(tmp_path, {"a": "a"}) as workspace:
        workspace.fork("try")
        workspace.files.write_text("b", "b")
        monkeypatch.setattr(InPlaceTree, "write_file", writing)
        workspace.apply()
        assert seen == [False]
        AppliedTrees(workspace._folder.applied).begin(EMPTY_TREE_ID, EMPTY_TREE_ID)
        assert look(), "no apply is running"


def test_fork_that_is_deleted_during_an_apply_does_not_undo_what_the_apply_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion reads the note during the apply, and would write it after that."""
    deletes, has_read, has_ended = threading.local(), threading.Event(), threading.Event()
    real = AppliedTrees._read

    def read_then_wait(trees: AppliedTrees) -> Any:
        note = real(trees)
        if getattr(deletes, "here", False):
            has_read.set()
            has_ended.wait(1)  # in vain if the apply waits for the deletion
        return note

    def delete(other: Workspace) -> None:
        deletes.here = True
        other.branches.delete("try")

    with ExitStack() as opened:
        workspace = opened.enter_context(created(tmp_path, {"a": "a"}))

        def branch(name: str) -> Workspace:
            workspace.fork(name)
            there = Workspace.open(workspace.info.id, storage=state(tmp_path), branch=name)
            return opened.enter_context(there)

        fork, other = branch("try"), branch("other")
        fork.files.write_text("try", "try")
        fork.apply()
        fork.close()
        workspace.files.write_text("b", "b")
        # The deletion waits between its read and its write
        monkeypatch.setattr(AppliedTrees, "_read", read_then_wait)
        another = opened.enter_context(ThreadPoolExecutor())

        def begin_deletion(point: KillPoint) -> None:
            if point is KillPoint.SOURCE_WRITTEN:
                deletion.append(another.submit(delete, other))
                assert has_read.wait(10)

        deletion: list[Future[None]] = []
        with calling(begin_deletion):
            workspace.apply()
        has_ended.set()
        deletion[0].result()
        assert not workspace.source.has_unfinished_apply
        assert set(real(AppliedTrees(workspace._folder.applied)).branches) == {"main"}
