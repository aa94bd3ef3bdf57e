"""What lets processes delete history while others write and read it.

``DeletionLock`` is held for the instant in which a ref moves (shared) or objects are deleted
(exclusive). Deletion first marks what the refs lead to at that instant, and then increases the
*generation*. A writer that finds another generation checks, before it moves a ref, that the new
commit has all its objects. So a call of any length holds no lock; in the rare case that it used an
object that was deleted meanwhile, it fails and is rolled back.

``MaintenanceLease`` lets one process at a time do maintenance, in steps between its calls. The
owner renews it with each step. It expires, so that a process without calls blocks no other.

``next_number`` numbers the discards of all branches.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from wink_workspace.clock import SYSTEM_CLOCK

from .disk import ledger_failure, ledger_failures
from .lock import LockFile

_EXPIRES_AFTER: Final = timedelta(seconds=10)
_MOST_BYTES: Final = 200
_NUMBER_BYTES: Final = 20
_DAMAGED: Final = -1
"""The generation of a damaged file: another one than before, until the next deletion."""
_MOST_LOOKS: Final = 50_000
_WAIT_S: Final = 0.001


class DeletionLock:
    """Excludes moving a ref and deleting objects from one another.

    Args:
        path: The lock's file; its content is the generation.
        wait: Waits for some seconds.
    """

    def __init__(self, path: Path, *, wait: Callable[[float], object] = SYSTEM_CLOCK.wait) -> None:
        self._path = path
        self._wait = wait
        self._file: LockFile | None = None
        self._seen = self._explained = self._generation() if path.exists() else 0

    def __enter__(self) -> bool:
        """Hold it to move a ref; waits for a deletion to end.

        Returns whether objects were deleted since ``accept``.
        """
        file = self._file
        if file is None or file.fd < 0:
            file = self._opened()
        try:
            fcntl.flock(file.fd, fcntl.LOCK_SH)
            return int(os.pread(file.fd, _NUMBER_BYTES, 0) or b"0") != self._seen
        except ValueError:
            return self._seen != _DAMAGED
        except BaseException as problem:
            with suppress(OSError):  # the error that led here is raised
                file.unlock()
            if isinstance(problem, OSError):
                raise ledger_failure("a lock of the ledger cannot be taken", problem) from problem
            raise

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            fcntl.flock(self._file.fd, fcntl.LOCK_UN)

    @contextmanager
    def exclusively(self) -> Generator[bool]:
        """Whether it could be taken to delete objects; waits a millisecond at most.

        Without this wait a caller that repeats it would only compete for the processor with the
        process that holds the lock.
        """
        file = self._opened()
        is_locked = file.try_lock_exclusively()
        if not is_locked:
            self._wait(_WAIT_S)
            is_locked = file.try_lock_exclusively()
        try:
            yield is_locked
        finally:
            if is_locked:
                file.unlock()

    def prepare(self) -> None:
        """Make the file, so that a deletion needs no space on a full disk."""
        with ledger_failures("the generation of the ledger cannot be written"):
            if not os.fstat(self._opened().fd).st_size:
                os.pwrite(self._opened().fd, b"%020d" % 0, 0)

    def accept(self) -> None:
        """Take note of the present generation."""
        self._seen = self._generation()

    def advance(self) -> None:
        """Increase the generation, before objects are deleted.

        After damage the next one is random, because others may have seen any number before it.
        """
        present = self._generation()
        following = secrets.randbits(63) if present == _DAMAGED else present + 1
        self._explained += following - present
        with ledger_failures("the generation of the ledger cannot be written"):
            os.pwrite(self._opened().fd, b"%020d" % following, 0)

    def have_others_deleted(self) -> bool:
        """Whether another process deleted objects since this object was made."""
        with ledger_failures("the generation of the ledger cannot be read"):
            return self._path.exists() and self._generation() != self._explained

    def filesystem_time(self) -> float:
        """The filesystem's present time, with which the times of its files can be compared."""
        with ledger_failures("the time of the ledger's filesystem cannot be read"):
            fd = self._opened().fd
            os.utime(fd)
            return os.fstat(fd).st_mtime

    def wait_for_next_tick(self) -> None:
        """Wait some milliseconds, until files that exist now are older than new ones."""
        now = self.filesystem_time()
        for _ in range(_MOST_LOOKS):
            if self.filesystem_time() > now:
                return

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.release()

    def _generation(self) -> int:
        content = os.pread(self._opened().fd, _NUMBER_BYTES, 0)
        try:
            return int(content or b"0")
        except ValueError:
            return _DAMAGED

    def _opened(self) -> LockFile:
        if self._file is None or self._file.fd < 0:
            # Reading needs the generation only, also of a ledger that cannot be written
            self._file = LockFile(self._path, or_read_only=True)
        return self._file


def next_number(path: Path, known: int) -> int:
    """A number that is higher than *known*, and than each that any process got before.

    A damaged file counts as 0, and on a full disk another process may use the same number.
    """
    file = LockFile(path)
    try:
        file.lock(fcntl.LOCK_EX)
        with suppress(ValueError, OSError):
            known = max(known, int(os.pread(file.fd, _NUMBER_BYTES, 0) or b"0"))
        with suppress(OSError):  # the disk is full
            os.pwrite(file.fd, b"%020d" % (known + 1), 0)
    finally:
        file.release()
    return known + 1


class MaintenanceLease:
    """The right to do maintenance, kept in a file with its owner and its last renewal.

    Args:
        path: The file.

    Attributes:
        was_mine: Whether no other process had it between the last step before and this one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = secrets.token_hex(8)
        self.was_mine = False

    @contextmanager
    def step(self, now: datetime, *, is_urgent: bool = False) -> Generator[bool]:
        """Whether this process may do a step; no other can until the block ends.

        It may if it has the lease, if the lease is free or expired, or if *is_urgent*; then it
        waits for the end of another process's step.
        """
        file = LockFile(self._path)
        try:
            if is_urgent:
                file.lock(fcntl.LOCK_EX)
            may = file.try_lock_exclusively() and (
                is_urgent or self._owner(file, now) in (None, self._name)
            )
            if may:
                self.was_mine = self._read(file)[0] == self._name
                with suppress(OSError):  # the disk is full; the lock is enough for this step
                    self._write(file, [self._name, now.isoformat()])
            yield may
        finally:
            file.release()

    def end(self) -> None:
        """Give the lease back, if this process has it."""
        file = LockFile(self._path)
        try:
            if file.try_lock_exclusively() and self._read(file)[0] == self._name:
                with suppress(OSError):  # it expires
                    self._write(file, [])
        finally:
            file.release()

    def _owner(self, file: LockFile, now: datetime) -> str | None:
        """Who has it, ``None`` if it is free or expired."""
        name, renewed = self._read(file)
        is_valid = renewed is not None and abs(now - renewed) < _EXPIRES_AFTER
        return name if is_valid else None

    @staticmethod
    def _read(file: LockFile) -> tuple[str | None, datetime | None]:
        try:
            name, renewed = json.loads(os.pread(file.fd, _MOST_BYTES, 0))
            return str(name), datetime.fromisoformat(renewed)
        except (ValueError, TypeError):  # it is free, or a full disk truncated it
            return None, None

    @staticmethod
    def _write(file: LockFile, content: list[str]) -> None:
        os.pwrite(file.fd, json.dumps(content).encode().ljust(_MOST_BYTES), 0)
