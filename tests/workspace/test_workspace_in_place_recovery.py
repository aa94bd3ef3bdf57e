"""Recovery in place: interrupted effects, unreadable or lost files, missing system calls."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from in_place_rig import begun, files_of, source_of, unfinished_in
from workspace_rig import assert_same, calls, die, doing, folder, reopened, storage

from wink_workspace.errors import FilesystemError, LedgerError, MountError, ReadOnlyError
from wink_workspace.filesystem import FileKind, parse_path
from wink_workspace.ledger import Effect, EntryKind, TreeEntry
from wink_workspace.session import ExternalChange, Outcome
from wink_workspace.workspace import Workspace
from wink_workspace.workspace.in_place import in_place_tree as in_place_tree

FILES = {"a.txt": b"one\n", "b.txt": b"b\n"}
TEMPORARY = ".wink-tmp-00"


def interrupted(
    tmp_path: Path, *, after: bytes | None, now: bytes | None, aside: bytes, marked: bool
) -> None:
    """Make the state of a process that died while it replaced or deleted ``a.txt``."""
    workspace = begun(tmp_path, FILES)
    store, journal = workspace._ledger.store, workspace._writer.effects
    before = TreeEntry(FileKind.FILE, store.write_blob(b"one\n"))
    planned = None if after is None else TreeEntry(FileKind.FILE, store.write_blob(after))
    if marked:
        workspace._writer.begin("c1", "act", workspace._clock.now())
    journal.add_unfinished(parse_path(TEMPORARY))
    journal.add([Effect(parse_path("a.txt"), before, planned, 0o644, TEMPORARY)])
    path = source_of(tmp_path) / "a.txt"
    path.unlink()
    if now is not None:
        path.write_bytes(now)
    (source_of(tmp_path) / TEMPORARY).write_bytes(aside)
    die(workspace)


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("after", [b"agent\n", None])
def test_replaced_version_of_the_user_is_restored_by_the_recovery(
    tmp_path: Path, after: bytes | None, marked: bool
) -> None:
    interrupted(tmp_path, after=after, now=after, aside=b"by hand\n", marked=marked)
    with reopened(tmp_path) as workspace, calls(workspace) as call:
        assert (source_of(tmp_path) / "a.txt").read_bytes() == b"by hand\n"
        assert unfinished_in(source_of(tmp_path)) == []
        call("ls")
        external = workspace.session[ExternalChange].latest()
        assert external is not None
        assert external.paths == ("a.txt",)


def test_both_versions_of_the_user_are_kept_if_there_are_two(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    interrupted(tmp_path, after=b"agent\n", now=b"newer\n", aside=b"older\n", marked=True)
    with caplog.at_level(logging.WARNING), reopened(tmp_path):
        assert (source_of(tmp_path) / "a.txt").read_bytes() == b"newer\n"
        assert (source_of(tmp_path) / TEMPORARY).read_bytes() == b"older\n"
    assert "earlier version" in caplog.text


@pytest.mark.parametrize("now", [b"agent\n", None])
def test_renamed_file_has_the_same_inode_after_the_recovery(
    tmp_path: Path, now: bytes | None
) -> None:
    interrupted(tmp_path, after=now, now=now, aside=b"one\n", marked=True)
    inode = (source_of(tmp_path) / TEMPORARY).stat().st_ino
    with reopened(tmp_path) as workspace:
        assert (source_of(tmp_path) / "a.txt").stat().st_ino == inode
        assert next(workspace.log()).outcome is Outcome.UNKNOWN


def test_unfinished_file_that_cannot_be_removed_does_not_stop_the_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    interrupted(tmp_path, after=b"agent\n", now=b"agent\n", aside=b"one\n", marked=False)

    def finish(*_: Any, **__: Any) -> None:
        raise FilesystemError("the device is broken")

    monkeypatch.setattr(in_place_tree.InPlaceTree, "finish", finish)
    with caplog.at_level(logging.WARNING), reopened(tmp_path) as workspace:
        assert workspace.files.exists("a.txt")
    assert "cannot remove" in caplog.text


def test_directory_on_a_filesystem_without_exchange_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_place_tree, "exchange_names", lambda *_: False)
    with begun(tmp_path, FILES) as workspace:
        before = files_of(tmp_path)
        act = doing(lambda: workspace.files.write_text("a.txt", "agent\n"), fails=True)
        with calls(workspace, act) as call:
            call("act")
            assert_same(before, files_of(tmp_path))
        workspace.files.write_text("a.txt", "agent\n")
        assert (source_of(tmp_path) / "a.txt").read_bytes() == b"agent\n"


def test_unreadable_file_is_not_part_of_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = in_place_tree.InPlaceTree.open

    def opening(self: Any, path: Any) -> Any:
        if str(path) == "secret":
            raise ReadOnlyError("secret is out of reach: permission denied")
        return real(self, path)

    monkeypatch.setattr(in_place_tree.InPlaceTree, "open", opening)
    with begun(tmp_path, {**FILES, "secret": b"s"}) as workspace, calls(workspace) as call:
        assert workspace.record(workspace.entry(1)).data["skipped"] == ["secret"]
        assert call("ls").result.success
        for change in ("rm", "read_file"):
            arguments = {"path": "secret"} if change == "rm" else {"file_path": "secret"}
            assert "out of reach" in call(change, **arguments).text
        assert (source_of(tmp_path) / "secret").read_bytes() == b"s"


def test_file_that_changes_during_each_read_fails_one_call_and_the_next_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begun(tmp_path, FILES) as workspace, calls(workspace) as call:
        call("ls")
        (source_of(tmp_path) / "a.txt").write_bytes(b"by hand\n")

        def changing(*_: Any, **__: Any) -> str:
            raise LedgerError("a file of 1 bytes gave 2")

        with monkeypatch.context() as busy:
            busy.setattr(type(workspace._ledger.store), "write_blob_from", changing)
            with pytest.raises(LedgerError, match="gave 2"):
                call("ls")
        assert call("ls").result.success
        external = workspace.session[ExternalChange].latest()
        assert external is not None
        assert external.paths == ("a.txt",)


def test_only_a_directory_can_be_worked_in(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for path in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(MountError, match="not a directory"):
            Workspace.create(path, storage=storage(tmp_path), mode="in_place")
    assert list(storage(tmp_path).all()) == []


def test_restore_of_an_older_snapshot_is_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wink_workspace.errors import FileChangedError, SnapshotError

    with begun(tmp_path, FILES) as workspace, calls(workspace) as call:
        token = workspace.files.snapshot()
        call("write_file", file_path="n.txt", content="x")
        call("ls")
        workspace.files.restore(token)
        assert not (source_of(tmp_path) / "n.txt").exists()
        with pytest.raises(SnapshotError):
            workspace.files.restore(object())
        call("write_file", file_path="d/n.txt", content="x")
        real = in_place_tree.InPlaceTree.delete

        def delete(self: Any, path: Any, *, recursive: bool) -> None:
            real(self, path, recursive=recursive)
            (source_of(tmp_path) / "d/mine.txt").write_bytes(b"mine")

        with monkeypatch.context() as racing:
            racing.setattr(in_place_tree.InPlaceTree, "delete", delete)
            with pytest.raises(FileChangedError):
                workspace.files.restore(token)
        assert (source_of(tmp_path) / "d/n.txt").read_bytes() == b"x"
        assert (source_of(tmp_path) / "d/mine.txt").read_bytes() == b"mine"
    assert folder(tmp_path).ledger.is_dir()


def test_file_that_a_failed_move_replaced_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = in_place_tree.rename_to_free

    def renaming(source: str, old: int, destination: str, new: int) -> None:
        if (source, destination) == ("b.txt", "a.txt"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(source, old, destination, new)

    with begun(tmp_path, {**FILES, "b.txt": b"two\n"}) as workspace, calls(workspace) as call:
        before, inode = files_of(tmp_path), (source_of(tmp_path) / "a.txt").stat().st_ino
        monkeypatch.setattr(in_place_tree, "rename_to_free", renaming)
        with pytest.raises(FilesystemError):
            workspace.files.move("b.txt", "a.txt", overwrite=True)
        assert_same(before, files_of(tmp_path))
        assert (source_of(tmp_path) / "a.txt").stat().st_ino == inode
        assert call("ls").result.success
        assert workspace.head.kind is not EntryKind.EXTERNAL


def test_unfinished_file_of_a_failed_write_is_removed_once_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.unlink

    def unlink(path: Any, **options: Any) -> None:
        if str(path).startswith(".wink-tmp-"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(path, **options)

    def write_all(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with begun(tmp_path, FILES) as workspace, calls(workspace) as call:
        with monkeypatch.context() as failing:
            failing.setattr(in_place_tree, "write_all", write_all)
            failing.setattr(os, "unlink", unlink)
            assert not call("write_file", file_path="new.txt", content="new").result.success
            assert not call("write_file", file_path="new.txt", content="new").result.success
        assert len(unfinished_in(source_of(tmp_path))) == 2
        assert call("ls").result.success
        assert unfinished_in(source_of(tmp_path)) == []
        assert not workspace.files.exists("new.txt")


def test_directory_that_cannot_be_removed_is_an_error_and_its_content_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.rmdir

    def rmdir(path: Any, **options: Any) -> None:
        if path == "d":
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        real(path, **options)

    with begun(tmp_path, {**FILES, "d/x.txt": b"x"}) as workspace, calls(workspace) as call:
        before = files_of(tmp_path)
        monkeypatch.setattr(os, "rmdir", rmdir)
        assert not call("rm", path="d").result.success
        assert_same(before, files_of(tmp_path))
