"""Undo, redo and restore: later edits stay, or the conflict is reported and nothing changes."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from in_place_rig import begun, source_of
from workspace_rig import assert_same, calls, doing, folder, made, picture, reopened

from wink_workspace.errors import ConflictError, EntryMissingError, FileMissingError, ReducerError
from wink_workspace.ledger import LARGE_BYTES, EntryKind
from wink_workspace.prompt import ToolResult
from wink_workspace.sections import Plan
from wink_workspace.session import (
    Append,
    ExternalChange,
    Replace,
    SliceView,
    ToolInvoked,
    WorkspaceRestored,
)

LINES = "".join(f"line {n}\n" for n in range(20))


@pytest.mark.behaviour(83)
def test_undo_keeps_what_a_person_did_afterwards_in_the_same_file_and_in_others(
    tmp_path: Path,
) -> None:
    with made(tmp_path, {"a.txt": LINES.encode(), "b.txt": b"b\n"}) as workspace:
        root = folder(tmp_path).files
        with calls(workspace) as call:
            call("read_file", file_path="a.txt")
            call("edit_file", file_path="a.txt", old_string="line 2\n", new_string="TWO\n")
        by_hand = (root / "a.txt").read_text().replace("line 17\n", "by hand\n")
        (root / "a.txt").write_text(by_hand)
        (root / "b.txt").write_text("also by hand\n")
        workspace.undo()
        assert (root / "a.txt").read_text() == LINES.replace("line 17\n", "by hand\n")
        assert (root / "b.txt").read_text() == "also by hand\n"
        workspace.redo()
        assert (root / "a.txt").read_text() == by_hand


@pytest.mark.behaviour(85)
def test_undo_that_meets_a_later_edit_changes_neither_files_nor_session(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"one\n"}) as workspace:
        root = folder(tmp_path).files
        with calls(workspace) as call:
            call("planning_setup_plan", objective="Ship")
            call("read_file", file_path="a.txt")
            call("edit_file", file_path="a.txt", old_string="one", new_string="two")
        (root / "a.txt").write_text("by hand\n")
        files, state = picture(root), workspace.session.dump_state()
        with pytest.raises(ConflictError, match=r"a\.txt"):
            workspace.undo()
        assert_same(files, picture(root))
        assert workspace.session.dump_state() == state
        assert next(workspace.log()).kind is EntryKind.EXTERNAL


@dataclass(frozen=True)
class Edited:
    """STATE that a reducer makes of external edits."""

    paths: tuple[str, ...]


def add_edited(view: SliceView[Edited], event: ExternalChange) -> Append[Edited]:
    return Append(Edited(event.paths))


def drop_edited(view: SliceView[Edited], event: WorkspaceRestored) -> Replace[Edited]:
    raise ValueError("this reducer always fails")


def test_external_edits_before_an_undo_reach_the_session_and_their_state_stays(
    tmp_path: Path,
) -> None:
    with made(tmp_path, {"a.txt": b"one\n", "b.txt": b"b\n"}) as workspace:
        workspace.session[Edited].register(ExternalChange, add_edited)
        published: list[ExternalChange] = []
        workspace.session.dispatcher.subscribe(ExternalChange, published.append)
        with calls(workspace) as call:
            call("write_file", file_path="new.txt", content="new")
        (folder(tmp_path).files / "b.txt").write_text("by hand\n")
        workspace.undo()
        assert [event.paths for event in published] == [("b.txt",)]
        assert workspace.session[ExternalChange].all() == tuple(published)
        assert workspace.session[Edited].all() == (Edited(("b.txt",)),)
        assert not workspace.files.exists("new.txt")
    with reopened(tmp_path, slices=[Edited]) as workspace:
        assert workspace.session[Edited].all() == (Edited(("b.txt",)),)


def test_an_undo_that_fails_leaves_files_state_and_history_as_after_the_edits(
    tmp_path: Path,
) -> None:
    with made(tmp_path, {"b.txt": b"b\n"}) as workspace:
        root = folder(tmp_path).files
        workspace.session[Edited].register(ExternalChange, add_edited)
        workspace.session[Edited].register(WorkspaceRestored, drop_edited)
        with calls(workspace) as call:
            call("write_file", file_path="new.txt", content="new")
        (root / "b.txt").write_text("by hand\n")
        files = picture(root)
        with pytest.raises(ReducerError, match="always fails"):
            workspace.undo()
        assert_same(files, picture(root))
        assert workspace.session[Edited].all() == (Edited(("b.txt",)),)
        assert workspace.head.kind is EntryKind.EXTERNAL
        assert not (folder(tmp_path).ledger / "wink/lines/main/pending").exists()
        workspace.run(workspace.files.write_text, "later.txt", "x")
        assert workspace.session[Edited].all() == (Edited(("b.txt",)),)


def test_ctrl_c_during_an_undo_is_raised_after_it_is_complete(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"one\n"}) as workspace:
        with calls(workspace) as call:
            call("write_file", file_path="new.txt", content="new")

        def interrupt(event: WorkspaceRestored) -> None:
            signal.raise_signal(signal.SIGINT)

        unsubscribe = workspace.session.dispatcher.subscribe(WorkspaceRestored, interrupt)
        with pytest.raises(KeyboardInterrupt):
            workspace.undo()
        assert workspace.head.kind is EntryKind.UNDO
        unsubscribe()
        assert not workspace.files.exists("new.txt")
        workspace.redo()
        assert workspace.files.exists("new.txt")


def test_undo_skips_calls_that_only_read(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"one\n", "b.txt": b"b\n"}) as workspace:
        with calls(workspace) as call:
            call("write_file", file_path="new.txt", content="new")
            call("read_file", file_path="a.txt")
            call("read_file", file_path="b.txt")
            call("ls", path=".")
        workspace.undo()
        assert not (folder(tmp_path).files / "new.txt").exists()
        with pytest.raises(EntryMissingError):
            workspace.undo()


def test_undo_reverts_the_plan_and_keeps_the_log(tmp_path: Path) -> None:
    with made(tmp_path) as workspace, calls(workspace) as call:
        call("planning_setup_plan", objective="First")
        call("planning_setup_plan", objective="Second")
        with pytest.raises(EntryMissingError, match="nothing to undo"):
            workspace.undo()  # no file changed
        workspace.undo(3)
        assert workspace.session[Plan].latest().objective == "First"
        assert len(workspace.session[ToolInvoked].all()) == 2
        assert len(workspace.session[WorkspaceRestored].all()) == 1
        workspace.redo()
        assert workspace.session[Plan].latest().objective == "Second"


def test_file_that_an_undo_changed_must_be_read_again(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"one\n"}) as workspace, calls(workspace) as call:
        call("read_file", file_path="a.txt")
        call("edit_file", file_path="a.txt", old_string="one", new_string="two")
        workspace.undo()
        refused = call("edit_file", file_path="a.txt", old_string="one", new_string="three")
        assert not refused.result.success
        call("read_file", file_path="a.txt")
        again = call("edit_file", file_path="a.txt", old_string="one", new_string="three")
        assert again.result.success


@pytest.mark.behaviour(84)
def test_everything_can_be_undone_and_redone_also_after_opening_again(tmp_path: Path) -> None:
    pictures = []
    with made(tmp_path, {"a.txt": b"one\n"}) as workspace, calls(workspace) as call:
        root = folder(tmp_path).files
        pictures.append(picture(root))
        for n in range(3):
            call("write_file", file_path=f"new/{n}.txt", content=f"{n}\n")
            pictures.append(picture(root))
        workspace.undo()
    with reopened(tmp_path) as workspace:
        for n in (1, 0):
            workspace.undo()
            assert_same(pictures[n], picture(root))
        with pytest.raises(EntryMissingError):
            workspace.undo()
        for n in (1, 2, 3):
            workspace.redo()
            assert_same(pictures[n], picture(root))
        with pytest.raises(EntryMissingError):
            workspace.redo()


def test_undo_and_redo_name_the_call_that_they_change(tmp_path: Path) -> None:
    with made(tmp_path) as workspace, calls(workspace) as call:
        call("write_file", file_path="a.txt", content="a\n")
        (entry,) = workspace.log(limit=1)
        for action in ("undo", "redo", "undo", "redo"):
            moved = workspace.undo() if action == "undo" else workspace.redo()
            assert moved.subject == f"{action} of entry {entry.number}: {entry.subject}"


@pytest.mark.behaviour(68)
def test_partial_restore_changes_only_the_named_paths(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"one\n", "sub/b.txt": b"b\n"}) as workspace:
        root = folder(tmp_path).files

        def change() -> None:
            (root / "a.txt").write_bytes(b"two\n")
            (root / "sub/b.txt").unlink()
            (root / "sub/new.txt").write_bytes(b"new\n")

        with calls(workspace, doing(change)) as call:
            call("planning_setup_plan", objective="Ship")
            call("act")
        untouched = (root / "a.txt").stat()
        workspace.restore(1, paths=["sub"])
        assert picture(root).keys() == {b"a.txt", b"sub", b"sub/b.txt"}
        assert (root / "a.txt").stat() == untouched
        assert (root / "a.txt").read_bytes() == b"two\n"
        assert workspace.session[Plan].latest().objective == "Ship"


def test_restore_of_an_unknown_path_is_refused_and_makes_no_entry(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"one\n"}) as workspace:
        with pytest.raises(FileMissingError, match=r"typo\.txt is neither in the workspace nor in"):
            workspace.restore(1, paths=["a.txt", "typo.txt"])
        assert workspace.head.number == 1


def test_restore_of_everything_includes_the_plan_and_can_be_reverted(
    tmp_path: Path,
) -> None:
    with made(tmp_path) as workspace, calls(workspace) as call:
        call("planning_setup_plan", objective="Ship")
        call("write_file", file_path="a.txt", content="x")
        workspace.restore(1)
        assert workspace.session[Plan].latest() is None
        assert not (folder(tmp_path).files / "a.txt").exists()
        workspace.restore(3)
        assert workspace.session[Plan].latest().objective == "Ship"
        assert (folder(tmp_path).files / "a.txt").read_text() == "x"


def test_large_file_that_grows_in_place_is_stored_as_what_was_added(tmp_path: Path) -> None:
    large = b"".join(b"%07d a line\n" % n for n in range(LARGE_BYTES // 15 + 1))
    with begun(tmp_path, {"log": large}) as workspace:
        for n in range(6):
            with workspace.call("append"):
                workspace.files.write_text("log", f"{n} more\n", mode="append")
        assert workspace.maintain().disk_bytes < 3 * LARGE_BYTES
        for _ in range(6):
            workspace.undo()
    assert (source_of(tmp_path) / "log").read_bytes() == large


def test_every_call_that_lets_a_large_file_grow_can_be_undone(tmp_path: Path) -> None:
    large = b"".join(b"%07d a line\n" % n for n in range(LARGE_BYTES // 15 + 1))
    with made(tmp_path, {"log": large}) as workspace:
        log = folder(tmp_path).files / "log"

        def grow() -> None:
            with log.open("ab") as file:
                file.write(b"one more line\n")

        sizes = [len(large)]
        with calls(workspace, doing(grow)) as call:
            for _ in range(6):
                call("act")
                sizes.append(log.stat().st_size)
        assert workspace.maintain().disk_bytes < 3 * LARGE_BYTES
        for size in reversed(sizes[:-1]):
            workspace.undo()
            assert log.stat().st_size == size
        assert log.read_bytes() == large


@pytest.mark.parametrize("move", ["undo", "redo", "restore", "merge"])
def test_a_move_does_what_its_preview_shows_or_nothing(tmp_path: Path, move: str) -> None:
    with made(tmp_path, {"a.txt": b"one\n"}) as workspace:
        workspace.fork("other", at=1)
        with reopened(tmp_path, branch="other") as other, other.call("write") as call:
            call.files.write_text("other.txt", "other\n")
        with workspace.call("write") as call:
            call.files.write_text("a.txt", "two\n")
        if move == "redo":
            workspace.undo()
        given = {"restore": ("1",), "merge": ("other",)}.get(move, ())
        owner = workspace.branches if move == "merge" else workspace
        outdated = getattr(owner, f"preview_{move}")(*given)
        workspace.files.write_text("later.txt", "later\n")
        n_entries = len(list(workspace.log()))
        with pytest.raises(ConflictError, match="since its changes were shown"):
            getattr(workspace, move)(*given, previewed=outdated)
        assert [entry.kind for entry in workspace.log()][:-n_entries] == [EntryKind.EXTERNAL]
        previewed = getattr(owner, f"preview_{move}")(*given)
        shown = previewed.changes.text()
        entry = getattr(workspace, move)(*given, previewed=previewed)
        assert (entry.subject, entry.files) == (previewed.subject, previewed.files)
        assert workspace.review_of(entry).text() == shown
        assert shown


def test_a_preview_names_the_effects_outside_that_an_undo_leaves(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"one\n"}) as workspace:
        with workspace.call("write") as call:
            call.files.write_text("a.txt", "two\n")
            call.tool_result = ToolResult.ok("done", outside_effects=("mail to a@b",))
        assert workspace.preview_undo().stays == ("mail to a@b",)
        workspace.undo()
        assert workspace.preview_redo().stays == ()


@pytest.mark.behaviour(84)
def test_undo_of_a_named_entry_keeps_the_later_ones(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"".join(b"%d\n" % n for n in range(20))}) as workspace:
        for line in (2, 9, 16):
            with workspace.call("edit") as call:
                call.files.edit("a.txt", f"\n{line}\n", f"\nline {line}\n")
        before = workspace.files.read_bytes("a.txt")
        assert workspace.preview_undo(2).subject == "undo of entry 2: edit: committed"
        undone = workspace.undo(2)
        assert undone.target == 2
        assert workspace.files.read_bytes("a.txt") == before.replace(b"line 2", b"2")
        with pytest.raises(
            EntryMissingError, match="entry 2 cannot be undone: it is undone already"
        ):
            workspace.undo("2")
        assert workspace.undo().target == 4
        assert workspace.undo().target == 3
        with pytest.raises(EntryMissingError, match="nothing to undo"):
            workspace.undo()
        assert [workspace.redo().target for _ in range(3)] == [3, 4, 2]
        assert workspace.files.read_bytes("a.txt") == before
        with pytest.raises(EntryMissingError, match="it reverted entry 2"):
            workspace.undo(5)
        with pytest.raises(EntryMissingError, match="it is the import"):
            workspace.undo(1)


def test_undo_after_a_restore_undoes_the_restore_and_then_older_calls(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"0"}) as workspace, calls(workspace) as call:
        for text in ("1", "2"):
            with workspace.call("write") as edit:
                edit.files.write_text("a.txt", text)
        call("planning_setup_plan", objective="Ship")
        workspace.restore(2)
        assert workspace.session[Plan].latest() is None
        assert workspace.undo().target == 5
        assert workspace.files.read_bytes("a.txt") == b"2"
        assert workspace.session[Plan].latest().objective == "Ship"
        assert workspace.undo().target == 3
        assert workspace.redo().target == 3
        assert workspace.redo().target == 5
        assert workspace.files.read_bytes("a.txt") == b"1"


def test_external_edit_is_undone_only_if_it_is_named(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"0"}) as workspace:
        (folder(tmp_path).files / "a.txt").write_bytes(b"by hand")
        workspace.commit_edits()
        with pytest.raises(EntryMissingError):
            workspace.undo()
        workspace.undo(2)
        assert workspace.files.read_bytes("a.txt") == b"0"
