"""Discards of a rollback: moved to a folder, kept within a limit, listed and restored."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from workspace_rig import (
    assert_fsck_clean,
    assert_same,
    calls,
    die,
    doing,
    folder,
    made,
    picture,
    reopened,
)

from wink_workspace.errors import EntryMissingError, FileMissingError, FilesystemError
from wink_workspace.ledger import Retention, find_discarded
from wink_workspace.workspace import Workspace, WorkspaceConfig
from wink_workspace.workspace.files.pending_discards import PendingDiscards

MIB = 1_048_576


def kept_up_to(n_bytes: int) -> WorkspaceConfig:
    return WorkspaceConfig(retention=Retention(discard_bytes=n_bytes))


def contents(workspace: Workspace, which: int = 1) -> dict[str, bytes | None]:
    """The contents of a discard by path; ``None`` for deleted paths and directories."""
    changes = workspace.discarded_changes(workspace.find_discarded(which))
    return {
        str(each.path): each.after.data if each.after and each.after.data else None
        for each in changes
    }


@pytest.mark.parametrize(("most_bytes", "dropped"), [(1_600, []), (1_599, ["new/large"])])
def test_the_smallest_files_are_kept_and_those_over_the_limit_named(
    most_bytes: int, dropped: list[str], tmp_path: Path
) -> None:
    with made(tmp_path, {"a.txt": b"a"}, config=kept_up_to(most_bytes)) as workspace:
        root = folder(tmp_path).files
        before = picture(root)

        def fill() -> None:
            (root / "new").mkdir()
            (root / "new/large").write_bytes(b"2" * 900)
            (root / "new/small").write_bytes(b"1" * 600)
            (root / "a.txt").write_bytes(b"b" * 100)

        with calls(workspace, doing(fill, fails=True)) as call:
            call("act")
        assert_same(before, picture(root))
        (found,) = workspace.discarded()
        assert [each.path for each in found.dropped.named] == dropped
        assert found.dropped.n_bytes == 900 * len(dropped)
        kept = {"a.txt", "new", "new/small", "new/large"} - set(dropped)
        assert contents(workspace).keys() == kept
        notes = workspace.record(workspace.head).event.notes
        assert [note for note in notes if "new/large (900 bytes, over the limit" in note] == [
            *notes
        ]
        assert len(notes) == len(dropped)
        if dropped:
            with pytest.raises(FileMissingError, match="new/large was not kept in discard 1: 900"):
                workspace.restore_discarded(1, paths=["new/large"])


def test_a_discard_is_found_by_the_leading_digits_of_its_id(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"a"}) as workspace:
        file = folder(tmp_path).files / "a.txt"
        with calls(workspace, doing(lambda: file.write_bytes(b"b"), fails=True)) as call:
            call("act")
        (first,) = workspace.discarded()
    second = replace(first, id="187613" + first.id[6:], discard=2)
    assert find_discarded([first, second], "187613") == second
    assert find_discarded([first, second], "2") == second


def test_file_that_the_user_saved_during_a_failing_call_is_listed_and_restored(
    tmp_path: Path,
) -> None:
    with made(tmp_path, {"a.txt": b"a", "gone.txt": b"gone"}) as workspace:
        root = folder(tmp_path).files

        def save() -> None:
            (root / "a.txt").write_bytes(b"spoilt")
            (root / "mine.txt").write_bytes(b"an hour's work")
            (root / "gone.txt").unlink()

        with calls(workspace, doing(save, fails=True)) as call:
            failed = call("act")
            call("write_file", file_path="later.txt", content="later")
        (found,) = workspace.discarded()
        assert (found.reason, found.call_id, found.number) == (
            "rolled back",
            failed.call.id,
            1,
        )
        assert contents(workspace) == {
            "a.txt": b"spoilt",
            "gone.txt": None,
            "mine.txt": b"an hour's work",
        }
        assert found.removed == workspace.find_discarded(found.id[:8]).removed
        before = picture(root)
        workspace.restore_discarded(1, paths=["mine.txt"])
        assert (root / "mine.txt").read_bytes() == b"an hour's work"
        assert (root / "a.txt").read_bytes() == b"a"
        workspace.undo()
        assert_same(before, picture(root))
        entry = workspace.restore_discarded(1)
        assert entry.subject == "restore of discard 1"
        assert (root / "a.txt").read_bytes() == b"spoilt"
        assert (root / "gone.txt").exists()  # a deletion is repeated only if the path is named
        workspace.restore_discarded(1, paths=["gone.txt"])
        assert not (root / "gone.txt").exists()
        workspace.undo()
        workspace.undo()
        assert_same(before, picture(root))
        for which in (2, "ffff", "1f", "9" * 5_000):
            with pytest.raises(EntryMissingError, match="no discard that is kept has"):
                workspace.restore_discarded(which)
        with pytest.raises(FileMissingError, match=r"later\.txt is not in discard 1"):
            workspace.restore_discarded(1, paths=["a.txt", "later.txt"])
        assert_same(before, picture(root))


def test_restoring_a_new_directory_keeps_later_files_in_it(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"a"}) as workspace:
        root = folder(tmp_path).files

        def fill() -> None:
            (root / "d/empty").mkdir(parents=True)
            (root / "d/theirs").write_bytes(b"theirs")

        with calls(workspace, doing(fill, fails=True)) as call:
            call("act")
            call("write_file", file_path="d/later", content="later")
        workspace.restore_discarded(1)
        assert {path.name for path in (root / "d").iterdir()} == {"empty", "theirs", "later"}


def test_call_that_only_deleted_leaves_a_discard_without_files(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"a"}) as workspace:
        root = folder(tmp_path).files
        with calls(workspace, doing((root / "a.txt").unlink, fails=True)) as call:
            call("act")
        assert [str(path) for path in workspace.find_discarded(1).removed] == ["a.txt"]
        with pytest.raises(EntryMissingError, match="discard 1 has no file to restore"):
            workspace.restore_discarded(1)


def test_rollback_moves_discarded_files_and_records_them_when_they_are_listed(
    tmp_path: Path,
) -> None:
    with made(tmp_path, {"a.txt": b"a", "d/b.txt": b"b"}) as workspace:
        root, discard_folder = folder(tmp_path).files, folder(tmp_path).discarded
        store = workspace._ledger.store
        inodes: set[int] = set()

        def fill() -> None:
            (root / "junk").mkdir()
            for n in range(20):
                (root / "junk" / str(n)).write_bytes(os.urandom(MIB // 4))
            (root / "d/b.txt").write_bytes(b"B" * MIB)
            inodes.update(at.stat().st_ino for at in (root / "junk").iterdir())

        with calls(workspace, doing(fill, fails=True)) as call:
            written_bytes = store.written_bytes
            call("act")
            assert store.written_bytes - written_bytes < 10_000
            held = [path for path in discard_folder.rglob("*") if path.is_file()]
            assert inodes <= {path.stat().st_ino for path in held}
            assert workspace._ledger.discarded() == ()
            assert call("ls").result.success
            assert len(workspace.discarded()) == 1
            workspace.maintain()
            assert list(discard_folder.iterdir()) == []
        assert len(contents(workspace)) == 22
        assert len(contents(workspace)["d/b.txt"] or b"") == MIB
    assert_fsck_clean(folder(tmp_path).ledger)


def test_large_discard_is_listed_after_the_workspace_was_closed_and_opened(tmp_path: Path) -> None:
    with made(tmp_path) as workspace:
        root = folder(tmp_path).files
        fill = doing(lambda: (root / "big").write_bytes(os.urandom(2 * MIB)), fails=True)
        with calls(workspace, fill) as call:
            call("act")
        assert workspace._ledger.discarded() == ()
    with reopened(tmp_path) as workspace:
        assert len(contents(workspace)["big"] or b"") == 2 * MIB


def test_trees_with_odd_modes_are_discarded_and_files_that_cannot_be_kept_named(
    tmp_path: Path,
) -> None:
    odd = os.fsdecode(b"\xff\n%")
    with made(tmp_path, {"d/b.txt": b"b", "tool": b"#!", "link": b""}) as workspace:
        root = folder(tmp_path).files
        before = picture(root)

        def fill() -> None:
            (root / odd).write_bytes(b"odd")
            (root / "tool").chmod(0o755)
            (root / "shut").mkdir()
            (root / "shut/in").write_bytes(b"in")
            (root / "shut/in").chmod(0)
            (root / "shut").chmod(0)
            (root / "d/b.txt").unlink()
            (root / "d").rmdir()
            (root / "d").symlink_to("/")
            (root / "link").unlink()
            (root / "link").mkdir()
            os.mkfifo(root / "link/pipe")
            deep = root / "deep"
            deep.mkdir()
            top = os.open(deep, os.O_RDONLY)
            for _ in range(258):
                os.mkdir("x", dir_fd=top)
                below = os.open("x", os.O_RDONLY, dir_fd=top)
                os.close(top)
                top = below
            os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=top))
            os.close(top)

        with calls(workspace, doing(fill, fails=True)) as call:
            call("act")
            assert_same(before, picture(root))
            call("ls")
        (found,) = workspace.discarded()
        kept = contents(workspace)
        assert (kept[odd], kept["shut/in"], kept["d"]) == (b"odd", b"in", b"/")
        assert {"tool", "link", "deep", "d/b.txt"} <= kept.keys()
        reasons = {each.path.rpartition("/")[2]: each.reason for each in found.dropped.named}
        assert reasons["pipe"] == "a pipe, socket or device"
        assert reasons["bottom"] == "in too many nested directories"
        workspace.restore_discarded(1)
        assert (root / "tool").stat().st_mode & 0o777 == 0o755
        assert (root / "shut/in").read_bytes() == b"in"
        assert not list((root / "link").iterdir())


def test_path_that_cannot_be_renamed_is_removed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a path on another filesystem that is mounted in the copy."""
    real = os.rename

    def rename(old: object, new: object, **where: object) -> None:
        if old == "other-disk":
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        real(old, new, **where)  # type: ignore[arg-type] - what the system call takes

    with made(tmp_path, {"a.txt": b"a"}) as workspace:
        root = folder(tmp_path).files
        before = picture(root)

        def fill() -> None:
            (root / "other-disk").write_bytes(b"12345")
            (root / "here").write_bytes(b"here")
            monkeypatch.setattr(os, "rename", rename)

        with calls(workspace, doing(fill, fails=True)) as call:
            call("act")
        assert_same(before, picture(root))
        assert contents(workspace) == {"here": b"here"}
        (dropped,) = workspace.find_discarded(1).dropped.named
        assert (dropped.path, dropped.size_bytes) == ("other-disk", 5)
        assert dropped.reason.startswith("cannot be moved: ")
        assert (
            "other-disk (5 bytes, cannot be moved"
            in workspace.record(workspace.head).event.notes[0]
        )


@pytest.mark.parametrize(("code", "fails"), [(errno.EMFILE, True), (errno.ENOSPC, False)])
def test_recovery_that_cannot_move_files_aside_fails_and_keeps_them_unless_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, fails: bool
) -> None:
    def move(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    workspace = made(tmp_path, {"a.txt": b"a"})
    root = folder(tmp_path).files
    before = picture(root)
    workspace._writer.begin("call-1", "act", datetime.now(UTC))
    (root / "notes.txt").write_bytes(b"by hand")
    die(workspace)
    with monkeypatch.context() as patched:
        patched.setattr(PendingDiscards, "move", move)
        if fails:
            with pytest.raises(FilesystemError, match="cannot be moved aside") as caught:
                reopened(tmp_path)
            assert "open the workspace again" in caught.value.hint
        else:
            reopened(tmp_path).close()
    with reopened(tmp_path) as workspace:
        assert_same(before, picture(root))
        kept = [contents(workspace, found.number) for found in workspace.discarded()]
        assert ({"notes.txt": b"by hand"} in kept) is fails


def test_directory_that_a_rollback_discards_causes_no_scan(tmp_path: Path) -> None:
    files = {f"d{n}/{n}.txt": b"" for n in range(300)}
    with made(tmp_path, files) as workspace:

        def fill() -> None:
            workspace.files.mkdir("ours/below", parents=True)
            workspace.files.write_text("ours/below/x", "x")

        with calls(workspace, doing(fill, fails=True)) as call:
            call("ls")
            n_visited = workspace._opened.tracker.n_visited
            call("act")
            call("ls")
            assert workspace._opened.tracker.n_visited - n_visited < 50
            (folder(tmp_path).files / "d0/0.txt").write_bytes(b"still watched")
            call("ls")
            assert next(workspace.log()).number == 6  # ls, act, ls, the edit, ls
