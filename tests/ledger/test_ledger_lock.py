"""One writer for each branch; the next one takes over the locks of a dead writer."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from ledger_support import (
    NOW,
    call,
    imported,
    killed_in_child,
    new_ledger,
    open_below,
    reopened,
)

from wink_workspace.errors import (
    EntryMissingError,
    ForkedProcessError,
    LedgerBusyError,
    LedgerError,
)
from wink_workspace.ledger import EMPTY_TREE_ID, Ledger, LogEntry, Retention
from wink_workspace.ledger.store.leases import DeletionLock
from wink_workspace.ledger.store.lock import LockFile, LockOwner, SharedLock, WriterLock

HOLD = """
import sys
from pathlib import Path
from wink_workspace.ledger import Ledger
with Ledger(Path(sys.argv[1])) as ledger, ledger.write(*sys.argv[2:]) as writer:
    print(writer.ref, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    with new_ledger(tmp_path) as ledger:
        yield ledger


class Holder:
    """Another process that has a branch open until ``with`` ends."""

    def __init__(self, directory: Path, *branch: str) -> None:
        self._arguments = [str(directory / "ledger.git"), *branch]

    def __enter__(self) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self.process.stdout.readline()
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.communicate()


def test_a_second_process_gets_an_error_that_names_the_first(ledger, tmp_path) -> None:
    with Holder(tmp_path) as process:
        with pytest.raises(LedgerBusyError, match=f"in use by process {process.pid} on ") as caught:
            ledger.write()
        assert "fork the workspace" in str(caught.value)
        assert ledger.branch().head is None  # reading is still possible
    ledger.write().close()


def test_a_second_object_in_one_process_is_refused_too(ledger, tmp_path) -> None:
    with ledger.write(), reopened(tmp_path) as other:
        with pytest.raises(LedgerBusyError, match=f"process {os.getpid()} "):
            other.write()
    reopened(tmp_path).write().close()


def test_branches_are_written_by_different_processes_at_the_same_time(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        first = imported(writer, {})
        ledger.fork("try", first)
        with Holder(tmp_path, "try"):
            call(writer, EMPTY_TREE_ID)
            with pytest.raises(LedgerBusyError, match="the fork 'try' is in use"):
                ledger.delete_fork("try")
        ledger.delete_fork("try")


def branch_files(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "ledger.git/wink/lines").iterdir())


def test_a_deleted_fork_leaves_neither_lock_nor_mark(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        ledger.fork("try", imported(writer, {}))
        with ledger.write("try") as fork:
            fork.begin("never finished", "shell", NOW)
        ledger.delete_fork("try")
    assert branch_files(tmp_path) == ["main"]
    assert not list((tmp_path / "ledger.git/refs/wink").rglob("try*"))


@pytest.mark.behaviour(40)
@pytest.mark.parametrize("cleans", ["fork", "gc"])
def test_what_a_killed_deletion_leaves_is_deleted_later(ledger, tmp_path, cleans) -> None:
    with ledger.write() as writer:
        first = imported(writer, {})
        ledger.fork("try", first)
        with ledger.write("try") as fork:
            fork.begin("never finished", "shell", NOW)

    def delete() -> None:
        with reopened(tmp_path) as child:
            child.delete_fork("try")

    assert killed_in_child(delete, at_step=1)
    (tmp_path / "ledger.git/wink/lines/other~0badcafe").mkdir()  # a kill during the deletion
    assert branch_files(tmp_path) == ["main", "other~0badcafe", "try"]
    with pytest.raises(EntryMissingError):
        ledger.write("try")
    if cleans == "fork":
        ledger.fork("try", first)
        with ledger.write("try") as again:
            assert again.pending() is None
    else:
        ledger.maintain(Retention())
        assert branch_files(tmp_path) == ["main"]


def test_a_fork_that_is_opened_while_it_is_deleted_has_one_writer_at_most(ledger, tmp_path) -> None:
    """Its lock is deleted with it, and other processes may have opened the lock before."""
    with ledger.write() as writer:
        first = imported(writer, {})
    writing, has_ended, opened = threading.Lock(), threading.Event(), list[LogEntry]()
    unexpected: list[BaseException] = []

    def open_fork() -> None:
        with reopened(tmp_path) as own:
            while not has_ended.is_set():
                try:
                    with suppress(EntryMissingError, LedgerBusyError), own.write("try") as fork:
                        assert writing.acquire(blocking=False), "a second writer"
                        opened.append(call(fork, EMPTY_TREE_ID))
                        writing.release()
                except BaseException as error:  # noqa: BLE001 - the test shows it
                    unexpected.append(error)
                    return

    threads = [threading.Thread(target=open_fork) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for n in range(3_000):
            if n >= 30 and len(opened) >= 3:
                break
            while "try" not in ledger.forks():
                with suppress(LedgerBusyError):
                    ledger.fork("try", first)
            while "try" in ledger.forks():
                with suppress(LedgerBusyError):
                    ledger.delete_fork("try")
    finally:
        has_ended.set()
        for thread in threads:
            thread.join()
    assert unexpected == []
    assert len(opened) >= 3
    assert branch_files(tmp_path) == ["main"]


@pytest.mark.behaviour(40)
def test_the_locks_of_a_killed_owner_are_taken_over(ledger, tmp_path) -> None:
    with Holder(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    stale = tmp_path / "ledger.git/refs/heads/main.lock"
    stale.parent.mkdir(exist_ok=True)
    stale.touch()
    (tmp_path / "ledger.git/packed-refs.lock").touch()
    with ledger.write() as writer:
        imported(writer, {})
    assert not list((tmp_path / "ledger.git").rglob("*.lock"))


@pytest.mark.behaviour(40)
def test_ref_locks_of_a_branch_that_is_open_elsewhere_are_not_removed(ledger, tmp_path) -> None:
    refs = tmp_path / "ledger.git/refs"
    with ledger.write() as writer, reopened(tmp_path) as other:
        ledger.fork("try", imported(writer, {}))
        assert killed_in_child(lambda: open_and_die(tmp_path, "try"))
        (refs / "heads/main.lock").touch()
        (refs / "wink/forks/try.lock").touch()
        other.write("try").close()
    assert [path.name for path in refs.rglob("*.lock")] == ["main.lock"]


def open_and_die(directory: Path, branch: str) -> None:
    """Open a branch and die."""
    reopened(directory).write(branch)
    os.kill(os.getpid(), signal.SIGKILL)


def test_no_lock_is_removed_after_an_owner_that_ended_normally(ledger, tmp_path) -> None:
    ledger.write().close()
    lock = tmp_path / "ledger.git/config.lock"
    lock.touch()
    ledger.write().close()
    assert lock.exists()


def test_a_forked_child_neither_keeps_the_lock_nor_may_write(tmp_path) -> None:
    """Otherwise a child that outlives its killed parent would keep the branch locked."""
    ledger = new_ledger(tmp_path)
    writer = ledger.write()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            call(writer, EMPTY_TREE_ID)
            os.write(writing, b"it could write")
        except ForkedProcessError as error:
            os.write(writing, str(error).encode())
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    try:
        assert b"was opened by process" in os.read(reading, 1_000)
        os.waitpid(pid, os.WUNTRACED)
        ledger.close()
        reopened(tmp_path).write().close()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)


def test_a_released_lock_is_free_while_a_child_that_is_starting_has_its_descriptor(
    tmp_path: Path,
) -> None:
    """Between fork and exec a child of any thread has a copy of every descriptor."""
    path = tmp_path / "wink" / "writer.lock"
    path.parent.mkdir()
    lock = WriterLock(path, what="the workspace", now=NOW)
    (fd,) = (int(each.name) for each in Path("/proc/self/fd").iterdir() if each.resolve() == path)
    with subprocess.Popen(
        [sys.executable, "-Sc", "input()"], stdin=subprocess.PIPE, pass_fds=[fd]
    ) as child:
        lock.release()
        WriterLock(path, what="the workspace", now=NOW).release()
        assert child.poll() is None
        child.communicate(b"\n")


def test_the_lock_of_a_killed_process_is_free_once_its_child_has_started(tmp_path: Path) -> None:
    path = tmp_path / "wink" / "writer.lock"
    path.parent.mkdir()
    held = LockFile(path)
    assert held.try_lock_exclusively()
    owner = {"pid": 2**22 + 1, "host": os.uname().nodename, "started": "x", "since": "then"}
    path.write_text(json.dumps(owner))
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            held.close()  # as exec does

    lock = WriterLock(path, what="the workspace", now=NOW, wait=wait)
    assert lock.owner_died
    assert len(waits) == 3
    lock.release()


def test_a_forked_child_may_open_a_branch_of_its_own(ledger) -> None:
    with ledger.write() as writer:
        ledger.fork("child", imported(writer, {}))

        def work() -> None:
            with ledger.write("child") as own:
                call(own, EMPTY_TREE_ID, call_id="of the child")

        assert not killed_in_child(work)
        assert ledger.branch("child").head.call_id == "of the child"


def test_a_closed_writer_refuses_to_write(ledger) -> None:
    writer = ledger.write()
    writer.close()
    writer.close()
    for attempt in (
        lambda: call(writer, EMPTY_TREE_ID),
        lambda: writer.begin("c", "t", NOW),
        lambda: writer.discard(EMPTY_TREE_ID, reason="r", call_id="c", at=NOW),
    ):
        with pytest.raises(LedgerError, match="no longer open for writing"):
            attempt()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "in use by another process"),
        (b"garbage", "in use by another process"),
        (b"{}", "in use by another process"),
        (
            json.dumps(
                {"pid": 2**22 + 1, "host": os.uname().nodename, "started": "x", "since": "then"}
            ).encode(),
            "by a child of process 4194305 on .* since then, which has ended",
        ),
        (
            json.dumps({"pid": 1, "host": "elsewhere", "started": "x", "since": "then"}).encode(),
            "in use by process 1 on elsewhere since then",
        ),
    ],
)
def test_the_message_names_the_owner_as_far_as_the_lock_does(tmp_path, text, message) -> None:
    path = tmp_path / "locks" / "lock"
    lock = WriterLock(path, what="the workspace", now=NOW)
    path.write_bytes(text)
    with pytest.raises(LedgerBusyError, match=message):
        WriterLock(path, what="the workspace", now=NOW, wait=lambda _: None)
    lock.release()
    lock.release()
    assert not lock.is_held


def test_an_owner_is_gone_if_another_process_has_its_pid() -> None:
    this = LockOwner.this_process(NOW)
    assert not this.is_gone
    assert LockOwner(this.pid, this.host, "an earlier start", this.since).is_gone


@pytest.mark.parametrize("function", ["ftruncate", "fchmod"])
def test_closing_releases_every_lock_and_packs_objects_though_no_lock_can_be_written(
    ledger, tmp_path, monkeypatch, function: str
) -> None:
    """Some filesystems need space to truncate a file or to change its mode."""
    real = getattr(os, function)

    def fail_for_locks(fd: int, value: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink().name == "lock":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(fd, value)

    ledger.fork("try", imported(ledger.write(), {"f": b"1"}))
    call(ledger.write("try"), EMPTY_TREE_ID)
    for branch in ("main", "try"):
        (tmp_path / f"ledger.git/wink/lines/{branch}/lock").chmod(0o700)
    monkeypatch.setattr(os, function, fail_for_locks)
    with pytest.raises(LedgerError, match=r"lock cannot be .*: No space left on device"):
        ledger.close()
    monkeypatch.undo()
    assert not list((tmp_path / "ledger.git/wink/open").iterdir())
    with reopened(tmp_path) as other, other.write() as writer, other.write("try"):
        call(writer, EMPTY_TREE_ID)
        assert other.maintain(Retention()).ran


def test_a_lock_that_cannot_be_created_is_a_ledger_error(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match="cannot be opened"):
        WriterLock(tmp_path / "file" / "lock", what="the workspace", now=NOW)


@pytest.mark.parametrize(
    "take", [SharedLock, lambda path: WriterLock(path, what="the workspace", now=NOW)]
)
def test_a_lock_that_cannot_be_taken_closes_its_file(tmp_path, monkeypatch, take) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", fail)
        with pytest.raises(LedgerError, match="cannot be taken: No locks available"):
            take(tmp_path / "wink" / "lock")
    assert open_below(tmp_path) == []


def test_waiting_for_a_lock_that_is_interrupted_closes_its_file(tmp_path: Path) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "wink" / "lock"
    held = LockFile(path)
    assert held.try_lock_exclusively()
    owner = {"pid": 2**22 + 1, "host": os.uname().nodename, "started": "x", "since": "then"}
    path.write_text(json.dumps(owner))
    with pytest.raises(KeyboardInterrupt):
        WriterLock(path, what="the workspace", now=NOW, wait=interrupt)
    held.release()
    assert open_below(tmp_path) == []


def test_a_branch_that_cannot_be_read_releases_its_lock_and_leaves_recovery_to_the_next(
    ledger, tmp_path
) -> None:
    """The next writer then removes what an earlier one left behind."""
    with ledger.write() as writer:
        imported(writer, {})
    refs = tmp_path / "ledger.git/refs/heads"
    head = (refs / "main").read_text()
    (refs / "main").unlink()
    (refs / "main").write_text("f" * 40 + "\n")
    with pytest.raises(LedgerError, match="ffff"):
        ledger.write()
    (refs / "main").write_text(head)
    (refs / "main.lock").touch()
    with ledger.write() as writer:
        call(writer, EMPTY_TREE_ID)


# Deleting objects


def test_maintenance_runs_while_another_process_has_a_branch_open(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        ledger.fork("try", imported(writer, {}))
        with Holder(tmp_path, "try"):
            assert ledger.maintain(Retention()).ran
        call(writer, EMPTY_TREE_ID)


# Deleting, and the size of the ledger


def test_a_deletion_waits_until_a_ref_has_moved(tmp_path) -> None:
    moving = DeletionLock(tmp_path / "wink" / "deletion")
    moving.__enter__()
    waited: list[float] = []

    def end_the_move(seconds: float) -> None:
        waited.append(seconds)
        moving.__exit__(None, None, None)

    with DeletionLock(tmp_path / "wink" / "deletion", wait=end_the_move).exclusively() as locked:
        assert locked
    assert waited == [0.001]


def test_a_deletion_gives_up_for_now_while_a_ref_moves(tmp_path) -> None:
    moving = DeletionLock(tmp_path / "wink" / "deletion")
    with moving, DeletionLock(tmp_path / "wink" / "deletion").exclusively() as locked:
        assert not locked


@pytest.mark.parametrize("damage", [bytes(20), b"garbage", b"\xff" * 20])
def test_a_damaged_generation_counts_as_another_one_until_the_next_deletion(
    tmp_path, damage: bytes
) -> None:
    path = tmp_path / "wink" / "deletion"
    before, asleep = DeletionLock(path), DeletionLock(path)
    before.prepare()
    path.write_bytes(damage)
    opened = DeletionLock(path)
    with opened as has_changed:
        assert not has_changed
    with before as has_changed:
        assert has_changed
        before.accept()
    with before as has_changed:
        assert not has_changed
    with opened.exclusively() as is_locked:
        assert is_locked
        opened.advance()
    assert not opened.have_others_deleted()
    for each in (before, asleep, opened):
        with each as has_changed:
            assert has_changed
            each.accept()
        with each as has_changed:
            assert not has_changed


@pytest.mark.parametrize("damage", [bytes(20), b"garbage"])
def test_a_ledger_with_a_damaged_generation_is_used_as_before(tmp_path, damage: bytes) -> None:
    path = tmp_path / "ledger.git/wink/deletion"
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"f": b"1"})
        path.write_bytes(damage)
        call(writer, EMPTY_TREE_ID)
    with reopened(tmp_path) as ledger, ledger.write() as writer:
        call(writer, EMPTY_TREE_ID)
        assert ledger.maintain(Retention()).ran
        call(writer, EMPTY_TREE_ID)
        assert len(list(ledger.branch().log())) == 4


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OSError(errno.EIO, os.strerror(errno.EIO)), LedgerError), (KeyboardInterrupt(), None)],
)
def test_a_generation_that_cannot_be_read_leaves_objects_unlocked(
    tmp_path, monkeypatch, error: BaseException, raised: type[BaseException] | None
) -> None:
    def fail(*_: object) -> None:
        raise error

    moving = DeletionLock(tmp_path / "wink" / "deletion")
    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", fail)
        with pytest.raises(raised or type(error)), moving:
            pass
    with DeletionLock(tmp_path / "wink" / "deletion").exclusively() as is_locked:
        assert is_locked
