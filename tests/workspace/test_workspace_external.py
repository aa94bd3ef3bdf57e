"""Changes that people and other programs make to a workspace's files are always kept."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from workspace_rig import assert_same, calls, die, doing, folder, made, picture, reopened

from wink_workspace.clock import ManualClock
from wink_workspace.ledger import EntryKind
from wink_workspace.session import ExternalChange, ToolInvoked


@pytest.mark.behaviour(83)
def test_edit_between_two_calls_becomes_a_separate_entry_and_event(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"one\n"}) as workspace, calls(workspace) as call:
        call("ls")
        (folder(tmp_path).files / "a.txt").write_bytes(b"by hand\n")
        (folder(tmp_path).files / "b.txt").write_bytes(b"new\n")
        call("ls")
        assert workspace.session[ExternalChange].latest().paths == ("a.txt", "b.txt")
        kinds = [entry.kind for entry in workspace.log()]
        assert kinds == [EntryKind.CALL, EntryKind.EXTERNAL, EntryKind.CALL, EntryKind.IMPORT]


@pytest.mark.behaviour(83)
def test_failed_call_after_an_edit_by_hand_leaves_the_edit(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"one\n"}) as workspace:
        path = folder(tmp_path).files / "a.txt"
        overwrite = doing(lambda: path.write_bytes(b"overwritten"), fails=True)
        with calls(workspace, overwrite) as call:
            path.write_bytes(b"by hand\n")
            assert not call("act").result.success
        assert path.read_bytes() == b"by hand\n"


def test_edit_after_a_fork_becomes_an_entry_before_the_next_call(tmp_path: Path) -> None:
    """The look that the fork needed is not reused by what comes later."""
    with made(tmp_path, {"a.txt": b"one\n"}) as workspace, calls(workspace) as call:
        call("ls")
        workspace.fork("try")
        (folder(tmp_path).files / "a.txt").write_bytes(b"by hand\n")
        call("ls")
        assert [entry.kind for entry in workspace.log(limit=2)] == [
            EntryKind.CALL,
            EntryKind.EXTERNAL,
        ]


@pytest.mark.behaviour(58)
def test_file_edited_by_hand_since_it_was_read_must_be_read_again(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"one\n"}) as workspace, calls(workspace) as call:
        call("read_file", file_path="a.txt")
        (folder(tmp_path).files / "a.txt").write_bytes(b"by hand\n")
        refused = call("write_file", file_path="a.txt", content="lost update")
        assert not refused.result.success
        assert (folder(tmp_path).files / "a.txt").read_bytes() == b"by hand\n"


@pytest.mark.parametrize("look", [True, False])
def test_edit_made_while_open_is_found_after_close_with_or_without_a_diff(
    tmp_path: Path, look: bool
) -> None:
    """A diff must not put changes into the stored index that the history does not have."""
    in_an_hour = ManualClock(
        datetime.now(UTC) + timedelta(hours=1)
    )  # so that no file is racily clean
    with made(tmp_path, {"a.txt": b"one\n"}, clock=in_an_hour) as workspace:
        (folder(tmp_path).files / "a.txt").write_bytes(b"by hand\n")
        if look:
            assert "by hand" in workspace.diff()
    with reopened(tmp_path) as workspace, calls(workspace) as call:
        call("ls")
        by_hand = list(workspace.log(limit=2))[1]
        assert by_hand.kind is EntryKind.EXTERNAL
        assert by_hand.subject == "1 path changed outside of any call"


def test_edits_made_while_closed_are_found(tmp_path: Path) -> None:
    made(tmp_path, {"a.txt": b"one\n", "gone.txt": b"x"}).close()
    (folder(tmp_path).files / "a.txt").write_bytes(b"by hand\n")
    (folder(tmp_path).files / "gone.txt").unlink()
    with reopened(tmp_path) as workspace, calls(workspace) as call:
        call("ls")
        assert workspace.session[ExternalChange].latest().paths == ("a.txt", "gone.txt")


def test_deletion_of_a_file_that_is_younger_than_the_stored_index_is_found(tmp_path: Path) -> None:
    """The index is from the last clean close; the file was added and deleted since."""
    workspace = made(tmp_path, {"a.txt": b"one\n"})
    with calls(workspace) as call:
        call("write_file", file_path="young.txt", content="x")
    die(workspace)
    (folder(tmp_path).files / "young.txt").unlink()
    with reopened(tmp_path) as workspace, calls(workspace) as call:
        call("ls")
        assert workspace.session[ExternalChange].latest().paths == ("young.txt",)


@pytest.mark.behaviour(31)
def test_failed_call_removes_its_nested_repository_and_restores_an_old_one(
    tmp_path: Path,
) -> None:
    old = {"sub/.git/HEAD": b"ref: refs/heads/main\n", "sub/.git/config": b"[core]\n"}
    with made(tmp_path, {"a.txt": b"one\n", **old}) as workspace:
        root = folder(tmp_path).files
        before = picture(root)

        def damage() -> None:
            (root / "new/.git").mkdir(parents=True)
            (root / "new/.git/HEAD").write_bytes(b"x")
            (root / "sub/.git/HEAD").write_bytes(b"spoilt")
            (root / "sub/.git/config").unlink()

        with calls(workspace, doing(damage, fails=True)) as call:
            call("act")
        assert_same(before, picture(root))


def test_regular_file_that_replaced_a_pipe_survives_a_later_failed_call(
    tmp_path: Path,
) -> None:
    with made(tmp_path) as workspace:
        path = folder(tmp_path).files / "p"
        pipe = doing(lambda: os.mkfifo(path), name="pipe")
        file = doing(lambda: (path.unlink(), path.write_bytes(b"kept")), name="file")
        with calls(workspace, pipe, file, doing(lambda: None, name="fail", fails=True)) as call:
            call("pipe")
            call("file")
            call("fail")
        assert path.read_bytes() == b"kept"


def test_mode_set_by_a_person_is_not_reset_by_a_later_failed_call(tmp_path: Path) -> None:
    with made(tmp_path, {"key": b"secret"}) as workspace:
        path = folder(tmp_path).files / "key"
        with calls(workspace, doing(lambda: None, fails=True)) as call:
            path.chmod(0o600)
            call("act")
        assert path.stat().st_mode & 0o777 == 0o600


def test_names_that_are_not_utf_8_are_read_back_from_the_record(tmp_path: Path) -> None:
    with made(tmp_path) as workspace, calls(workspace) as call:
        name = os.fsdecode(b"caf\xe9 \n.txt")
        (folder(tmp_path).files / name).write_bytes(b"x")
        call("ls")
        external = [entry for entry in workspace.log() if entry.kind is EntryKind.EXTERNAL]
        assert workspace.record(external[0]).event.paths == (name,)


def test_history_is_loaded_on_open(tmp_path: Path) -> None:
    """Plans, the reads that the policy knows, and the record of every call."""
    from wink_workspace.sections import Plan

    with made(tmp_path, {"a.txt": b"one\n"}) as workspace, calls(workspace) as call:
        call("planning_setup_plan", objective="Ship", initial_steps=["one"])
        call("read_file", file_path="a.txt")
    with reopened(tmp_path) as workspace, calls(workspace) as call:
        assert workspace.session[Plan].latest().objective == "Ship"
        edited = call("edit_file", file_path="a.txt", old_string="one", new_string="two")
        assert edited.result.success
        events = [workspace.record(entry).event for entry in workspace.log()]
        assert [e.tool for e in events if isinstance(e, ToolInvoked)] == [
            "edit_file",
            "read_file",
            "planning_setup_plan",
        ]
