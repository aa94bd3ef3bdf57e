"""One writer for each line of history, and nobody at work while objects are deleted.

Rule 1: the lock is the kernel's (``flock`` on a file that is closed on exec), so it ends with
the process, however that ends. The text in the file only says whose it is.
Rule 2: the file is never deleted. An owner that ends in peace empties it; one found with text
in it died, and may have left locks of git behind. On a full disk the text cannot be written, and
the bit that makes the file executable stands for it.
Rule 3: a forked child does not keep its parent's lock: it closes the file at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from wink_workspace.errors import LedgerBusyError, LedgerError

from .disk import is_disk_full, ledger_failures

__all__ = ["Owner", "SharedLock", "WriterLock", "looking_at"]

_NO_OWNER: Final = 0o600
_SILENT_OWNER: Final = 0o100


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that has a lock; ``started`` tells it from a later one with the same number."""

    pid: int
    host: str
    started: str
    since: str

    @classmethod
    def this_process(cls, now: datetime) -> Owner:
        """The present process, taking a lock at *now*."""
        pid = os.getpid()
        return cls(pid, socket.gethostname(), _start_of(pid), now.isoformat(timespec="seconds"))

    @property
    def is_gone(self) -> bool:
        """Whether the process has certainly ended; of another host's nobody here knows."""
        return self.host == socket.gethostname() and _start_of(self.pid) != self.started

    @property
    def is_this_process(self) -> bool:
        """Whether it is the present one."""
        return self.pid == os.getpid() and self.host == socket.gethostname() and not self.is_gone

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


def _start_of(pid: int) -> str:
    """When *pid* started, in clock ticks since the boot that is named; empty if it is not there."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return f"{boot}/{fields[19]}"


_held: weakref.WeakSet[_LockFile] = weakref.WeakSet()


def _close_in_child() -> None:
    for lock in tuple(_held):
        lock.close()


class _LockFile:
    """An open file to lock; forked children close theirs."""

    _fork_hook_is_set = False

    def __init__(self, path: Path) -> None:
        with ledger_failures(f"the lock {path} cannot be opened"):
            # Not all that is missing: a workspace that was removed meanwhile would come back.
            for directory in (path.parent.parent, path.parent):
                directory.mkdir(exist_ok=True)
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _NO_OWNER)
        _held.add(self)
        if not _LockFile._fork_hook_is_set:
            os.register_at_fork(after_in_child=_close_in_child)
            _LockFile._fork_hook_is_set = True

    def try_lock(self, how: int) -> bool:
        """Lock it if nobody else has; whether that worked."""
        with ledger_failures("a lock of the ledger cannot be had"):
            try:
                fcntl.flock(self.fd, how | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    @property
    def is_open(self) -> bool:
        return self.fd >= 0

    def close(self) -> None:
        """Give the lock back; once is enough."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


class WriterLock:
    """The right to write one line of history, from construction to ``release``.

    Args:
        path: The lock's file.
        what: What it is for, as a message says it: ``the main line``.
        now: The moment, for the messages to others.
        hint: What to do when another has it.

    Attributes:
        owner_died: Whether the owner before this one ended without giving the lock back.

    Raises:
        LedgerBusyError: If another has it; the message says who.
        LedgerError: If the file cannot be written.
    """

    def __init__(self, path: Path, *, what: str, now: datetime, hint: str | None = None) -> None:
        self._path = path
        self._file = _LockFile(path)
        if not self._file.try_lock(fcntl.LOCK_EX):
            self._file.close()
            raise _busy(what, read_owner(path), hint)
        try:
            status = os.fstat(self._file.fd)
            self.owner_died = status.st_size > 0 or bool(status.st_mode & _SILENT_OWNER)
            self._write_owner(now)
        except BaseException:
            self._file.close()
            raise

    @property
    def is_held(self) -> bool:
        """Whether this process still has the lock: not after ``release``, not in a forked child."""
        return self._file.fd >= 0

    def release(self) -> None:
        """Give the lock back; once is enough."""
        if self.is_held:
            self._write(b"")
            self._set_mode(_NO_OWNER)
            self._file.close()

    def abandon(self) -> None:
        """Give the lock back as if this owner had died, for the next one to put things in order."""
        self._file.close()

    def _write_owner(self, now: datetime) -> None:
        text = json.dumps(asdict(Owner.this_process(now))).encode()
        try:
            self._write(text)
        except LedgerError as error:
            if not is_disk_full(error):
                raise
            self._set_mode(_NO_OWNER | _SILENT_OWNER)

    def _set_mode(self, mode: int) -> None:
        with ledger_failures(f"the lock {self._path} cannot be changed"):
            if os.fstat(self._file.fd).st_mode & 0o777 != mode:
                os.fchmod(self._file.fd, mode)

    def _write(self, text: bytes) -> None:
        with ledger_failures(f"the lock {self._path} cannot be written"):
            os.ftruncate(self._file.fd, 0)
            os.pwrite(self._file.fd, text, 0)


def read_owner(path: Path) -> Owner | None:
    """Whose lock *path* says it is, ``None`` if it does not say."""
    try:
        return Owner(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _busy(what: str, owner: Owner | None, hint: str | None) -> LedgerBusyError:
    if owner is None:
        return LedgerBusyError(f"{what} is in use by another process", hint=hint)
    if owner.is_gone:
        return LedgerBusyError(
            f"{what} is in use by what {owner}, which has ended, left running",
            hint="End its remaining processes, then try again.",
        )
    if owner.is_this_process:
        return LedgerBusyError(
            f"{what} is in use by {owner}, which is this one", hint="Close it first, or use that."
        )
    return LedgerBusyError(f"{what} is in use by {owner}", hint=hint)


@contextmanager
def looking_at(path: Path) -> Generator[bool]:
    """Whether nobody has the writer lock in *path*, which then stays so during the block."""
    file = _LockFile(path)
    try:
        yield file.try_lock(fcntl.LOCK_SH)
    finally:
        file.close()


class SharedLock:
    """Held by everyone who writes, so that nobody deletes objects meanwhile.

    Raises:
        LedgerBusyError: If somebody is deleting objects at this moment.
    """

    def __init__(self, path: Path) -> None:
        self._file = _LockFile(path)
        if not self._file.try_lock(fcntl.LOCK_SH):
            self._file.close()
            raise LedgerBusyError(
                "old history is being deleted by another process", hint="Try again in a moment."
            )

    @contextmanager
    def alone(self) -> Generator[bool]:
        """Whether nobody else holds it, which then stays so during the block.

        The lock is let go of for an instant before and after, so somebody else may have deleted
        objects, whatever the answer is.
        """
        try:
            yield self._file.try_lock(fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._file.fd, fcntl.LOCK_SH)

    @property
    def is_held(self) -> bool:
        """Whether this process still has it: not after ``release``, not in a forked child."""
        return self._file.is_open

    def release(self) -> None:
        """Give the lock back; once is enough."""
        self._file.close()
