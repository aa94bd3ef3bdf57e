"""Locks: one writer for each branch, and no writer while objects are deleted.

Rule 1: the kernel holds the lock (``flock`` on a file that is closed on exec), so it ends with the
process, however that ends. The text in the file only names the owner.
Rule 2: the file is deleted only with what it locks; a new owner then finds that its file is not in
place. An owner that releases the lock empties it. If a new owner finds text in it, the previous one
died and may have left git's locks. On a full disk the text cannot be written; the file's executable
bit is set instead. A loss of power may take the text, but not another bit: ext4 writes the mode
before what the owner does later.
Rule 3: a forked child closes the file at once, so it does not keep its parent's lock.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Final

from wink_workspace.clock import SYSTEM_CLOCK
from wink_workspace.errors import LedgerBusyError, LedgerError

from .disk import is_disk_full, ledger_failures

MAX_LOCK_TRIES: Final = 100
"""How often a file that other processes delete is created again before that is an error."""

_ENDED: Final = ("Z", "X")
"""The states of a process that has ended."""
_NO_OWNER: Final = 0o600
_OWNER_WITHOUT_TEXT: Final = 0o100
_HAS_OWNER: Final = 0o010
_CHILD_LOOKS: Final = 100
_CHILD_LOOK_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class LockOwner:
    """The process that has a lock; ``started`` distinguishes it from later ones with its pid."""

    pid: int
    host: str
    started: str
    since: str

    @classmethod
    def this_process(cls, now: datetime) -> LockOwner:
        """Describe this process as the owner of a lock taken at *now*."""
        pid = os.getpid()
        return cls(pid, socket.gethostname(), _own_start(pid), now.isoformat(timespec="seconds"))

    @property
    def is_gone(self) -> bool:
        """Whether the process is known to have ended; always false for another host's process."""
        return self.host == socket.gethostname() and _start_of(self.pid) != self.started

    @property
    def is_this_process(self) -> bool:
        """Whether it is this process."""
        return self.pid == os.getpid() and self.host == socket.gethostname() and not self.is_gone

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


def _start_of(pid: int) -> str:
    """The boot id and the start of *pid* in clock ticks since boot; empty if it has ended.

    A process that has ended may still be listed, until its parent asks for its status.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in _ENDED else f"{_boot_id()}/{fields[19]}"


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@cache
def _own_start(pid: int) -> str:
    """``_start_of`` this process, whose pid is the key because a forked child is another one."""
    return _start_of(pid)


def _open(path: Path, *, or_read_only: bool) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _NO_OWNER)
    except OSError as error:
        if not or_read_only or error.errno not in (errno.EROFS, errno.EACCES):
            raise
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise error from None


_held: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _close_in_child() -> None:
    for lock in tuple(_held):
        lock.close()


class LockFile:
    """An open lock file, created if it is missing; a forked child closes its copy.

    Args:
        path: The file.
        or_read_only: Whether to open an existing file that cannot be written for reading only. It
            can be locked.
    """

    _fork_hook_is_set = False

    def __init__(self, path: Path, *, or_read_only: bool = False) -> None:
        self.path = path
        with ledger_failures(f"the lock {path} cannot be opened"):
            # Not all parents: that would bring back a workspace that was removed meanwhile.
            path.parent.parent.mkdir(exist_ok=True)
            self.fd = -1
            for _ in range(MAX_LOCK_TRIES):
                with suppress(FileExistsError):
                    path.parent.mkdir()
                with suppress(FileNotFoundError):  # the directory was deleted at this instant
                    self.fd = _open(path, or_read_only=or_read_only)
                    break
            else:
                raise LedgerError(
                    f"the lock {path} cannot be opened: its directory cannot be found",
                    hint=f"If {path.parent} is a link, restore what it leads to, or delete it.",
                )
        _held.add(self)
        if not LockFile._fork_hook_is_set:
            os.register_at_fork(after_in_child=_close_in_child)
            LockFile._fork_hook_is_set = True

    def try_lock(self, operation: int) -> bool:
        """Lock the file without waiting; return whether that worked."""
        with ledger_failures("a lock of the ledger cannot be taken"):
            try:
                fcntl.flock(self.fd, operation | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def lock(self, operation: int) -> None:
        """Lock the file; waits until that is possible."""
        with ledger_failures("a lock of the ledger cannot be taken"):
            fcntl.flock(self.fd, operation)

    def unlock(self) -> None:
        """Unlock the file; it stays open."""
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def try_lock_exclusively(self) -> bool:
        """As ``try_lock``; then no other process has the lock."""
        return self.try_lock(fcntl.LOCK_EX)

    @property
    def is_in_place(self) -> bool:
        """Whether the path still leads to this file; another process may have deleted it."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self.fd))

    @property
    def is_open(self) -> bool:
        """Whether it was not closed."""
        return self.fd >= 0

    def release(self) -> None:
        """Unlock the file and close it; may be repeated.

        Closing alone would not unlock it while a child that has not called exec yet has a copy of
        the descriptor.
        """
        if self.fd >= 0:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_UN)
            finally:
                self.close()

    def close(self) -> None:
        """Close this process's descriptor, as a forked child must; may be repeated."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def never_in_place(directory: Path) -> LedgerError:
    """The error for a lock file in *directory* that is never in place once it is locked."""
    return LedgerError(
        f"a lock in {directory} cannot be taken: its name never leads to the file that was opened",
        hint="Keep the folder of workspaces on a local filesystem, such as ext4 or XFS.",
    )


class WriterLock:
    """An exclusive lock on one branch, held from construction to ``release``.

    Args:
        path: The lock's file.
        what: What is locked, for messages: ``the workspace``.
        now: The time, for the messages of other processes.
        hint: The hint of ``LedgerBusyError``.
        wait: Waits for a number of seconds.

    Attributes:
        owner_died: Whether the previous owner ended without releasing the lock.
        lost_power: Whether it ended with the machine, so that its last writes may be lost.

    Raises:
        LedgerBusyError: If another process has it; the message names it.
        LedgerError: If the file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        *,
        what: str,
        now: datetime,
        hint: str | None = None,
        wait: Callable[[float], object] = SYSTEM_CLOCK.wait,
    ) -> None:
        self._path = path
        self._file = LockFile(path)
        try:
            if not (self._file.try_lock(fcntl.LOCK_EX) or self._is_soon_free(wait)):
                raise _busy(what, read_owner(path), hint)
            status = os.fstat(self._file.fd)
            owner, mode = read_owner(path), status.st_mode
            self.lost_power = bool(mode & _HAS_OWNER) and not (
                mode & _OWNER_WITHOUT_TEXT
                or (owner and owner.started.startswith(_boot_id()) and _boot_id())
            )
            self.owner_died = status.st_size > 0 or bool(mode & (_OWNER_WITHOUT_TEXT | _HAS_OWNER))
            self._set_mode(_NO_OWNER | _HAS_OWNER)
            self._write_owner(now)
        except BaseException:
            with suppress(OSError):  # the error that led here is raised
                self._file.release()
            raise

    def _is_soon_free(self, wait: Callable[[float], object]) -> bool:
        """Take the lock of an owner that was killed while it started a child.

        Until it calls exec, the child has a copy of the descriptor.
        """
        for _ in range(_CHILD_LOOKS):
            owner = read_owner(self._path)
            if owner is None or not owner.is_gone:
                return False
            wait(_CHILD_LOOK_S)
            if self._file.try_lock(fcntl.LOCK_EX):
                return True
        return False

    @property
    def is_held(self) -> bool:
        """Whether this process still has the lock; false in a forked child."""
        return self._file.fd >= 0

    @property
    def is_in_place(self) -> bool:
        """Whether the path still leads to the locked file; see ``LockFile``."""
        return self._file.is_in_place

    def release(self) -> None:
        """Release the lock; may be repeated.

        Raises:
            LedgerError: If the file cannot be emptied. The lock is released, and the next owner
                cleans up as if this one had died.
        """
        if self.is_held:
            try:
                self._write(b"")
                self._set_mode(_NO_OWNER)
            finally:
                self._file.release()

    def abandon(self) -> None:
        """Release the lock as if this owner had died, so that the next owner cleans up."""
        self._file.release()

    def _write_owner(self, now: datetime) -> None:
        text = json.dumps(asdict(LockOwner.this_process(now))).encode()
        try:
            self._write(text)
        except LedgerError as error:
            if not is_disk_full(error):
                raise
            self._set_mode(_NO_OWNER | _OWNER_WITHOUT_TEXT | _HAS_OWNER)

    def _set_mode(self, mode: int) -> None:
        with ledger_failures(f"the lock {self._path} cannot be changed"):
            if os.fstat(self._file.fd).st_mode & 0o777 != mode:
                os.fchmod(self._file.fd, mode)

    def _write(self, text: bytes) -> None:
        with ledger_failures(f"the lock {self._path} cannot be written"):
            os.ftruncate(self._file.fd, 0)
            os.pwrite(self._file.fd, text, 0)


def read_owner(path: Path) -> LockOwner | None:
    """The owner named in the lock file *path*, ``None`` if it names none."""
    try:
        return LockOwner(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _busy(what: str, owner: LockOwner | None, hint: str | None) -> LedgerBusyError:
    if owner is None:
        return LedgerBusyError(f"{what} is in use by another process", hint=hint)
    if owner.is_gone:
        return LedgerBusyError(
            f"{what} is in use by a child of {owner}, which has ended",
            hint="End its remaining processes, then try again.",
        )
    if owner.is_this_process:
        return LedgerBusyError(
            f"{what} is in use by {owner}, which is this one",
            hint="Close it first, or use that one.",
        )
    return LedgerBusyError(f"{what} is in use by {owner}", hint=hint)


@contextmanager
def try_read_lock(path: Path) -> Generator[bool]:
    """Whether the writer lock in *path* is free; then it stays free during the block."""
    file = LockFile(path)
    try:
        yield file.try_lock(fcntl.LOCK_SH)
    finally:
        file.release()


class SharedLock:
    """Held by every writer, so that others know of it."""

    def __init__(self, path: Path) -> None:
        self._file = LockFile(path)
        try:
            self._file.lock(fcntl.LOCK_SH)
        except BaseException:
            with suppress(OSError):  # the error that led here is raised
                self._file.release()
            raise

    @contextmanager
    def alone(self) -> Generator[bool]:
        """Whether no other process holds it; others wait for the end of the block."""
        try:
            yield self._file.try_lock(fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._file.fd, fcntl.LOCK_SH)

    @property
    def is_held(self) -> bool:
        """Whether this process still has the lock; false in a forked child."""
        return self._file.is_open

    def release(self) -> None:
        """Release the lock; may be repeated."""
        self._file.release()
