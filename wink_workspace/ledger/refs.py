"""The one update of a ref that makes a commit count.

The protocol is git's own: whoever holds ``<ref>.lock`` may write, and renames it over the ref.
What differs from libgit2 is how the lock gets its content. A new file for each commit costs
ext4 up to 1.5 ms (docs/design/005 has the measurement): it writes the block of a file that
replaces another at once, and gives the other's block back to the device. So a line has two
*spare* files that take turns: the one that is not the ref is overwritten and linked as the lock,
nothing is allocated and nothing freed, and 0.1 ms are enough.
"""

# ruff: noqa: PTH105, PTH116, PTH119, PTH120 - done after every call, and a Path costs more than what is asked of it

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import LedgerError, LedgerMovedError

from .disk import ledger_failures, sync

if TYPE_CHECKING:
    from .repository import GitRepository

__all__ = ["RefMover", "delete_stale_locks"]

_log = logging.getLogger(__name__)


class RefMover:
    """Moves refs, each move all or nothing.

    Args:
        repository: Where the refs are.
        durable: Whether a move survives a loss of power.
    """

    def __init__(
        self,
        repository: GitRepository,
        *,
        durable: bool = False,
    ) -> None:
        self._repository = repository
        self._directory = str(repository.directory)
        self._durable = durable

    def move(
        self, name: str, *, expected: str | None, target: str, spares: str | None = None
    ) -> None:
        """Make the ref *name* stand for *target*, if it still stands for *expected*.

        Args:
            name: The whole name, such as ``refs/heads/main``.
            expected: What it stands for now; ``None`` if it must not exist.
            target: What it shall stand for.
            spares: A directory for the spare files, of this ref's one writer alone; without
                one, each move makes a new file.

        Raises:
            LedgerMovedError: If it stands for something else.
            LedgerError: If another program has it locked, or it cannot be written.
        """
        path = f"{self._directory}/{name}"
        lock = f"{path}.lock"
        with ledger_failures(f"ref {name} cannot be moved"):
            self._lock(path, lock, target.encode() + b"\n", spares)
            try:
                if (found := self._repository.ref(name)) != expected:
                    raise LedgerMovedError(f"{name} is at {found}, not at {expected}")
                passed(KillPoint.REF_LOCKED)
                os.replace(lock, path)
            except BaseException:
                Path(lock).unlink(missing_ok=True)
                raise
        passed(KillPoint.REF_MOVED)
        if self._durable:
            self._sync_names(path)

    def _lock(self, path: str, lock: str, line: bytes, spares: str | None) -> None:
        try:
            try:
                self._lock_in_place(path, lock, line, spares)
            except FileNotFoundError:
                for directory in (os.path.dirname(lock), *([spares] if spares else [])):
                    Path(directory).mkdir(parents=True, exist_ok=True)
                self._lock_in_place(path, lock, line, spares)
        except FileExistsError as error:
            raise LedgerError(
                f"{os.path.basename(lock)} is there, so another program is moving this ref",
                hint="End that program; if there is none, delete the lock.",
            ) from error

    def _lock_in_place(self, path: str, lock: str, line: bytes, spares: str | None) -> None:
        if spares is None or not self._linked(path, lock, line, spares):
            self._create(lock, line)

    def _linked(self, path: str, lock: str, line: bytes, spares: str) -> bool:
        """Whether a spare file became the lock; not every filesystem has hard links."""
        try:
            one, other = f"{spares}/spare-1", f"{spares}/spare-2"
            spare = other if _is_same(one, path) else one  # the one that is not the ref
            self._write(spare, line, 0)
            if not _is_same(lock, spare):  # else it is ours, left by a move that failed
                os.link(spare, lock)
        except (FileExistsError, FileNotFoundError):
            raise
        except OSError:
            return False
        return True

    def _create(self, lock: str, line: bytes) -> None:
        """Make the lock a new file, or nothing."""
        try:
            self._write(lock, line, os.O_EXCL)
        except FileExistsError:
            raise
        except BaseException:
            Path(lock).unlink(missing_ok=True)
            raise

    def _write(self, file: str, line: bytes, flags: int) -> None:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
        try:
            os.pwrite(fd, line, 0)
            if self._durable:
                os.fsync(fd)
        finally:
            os.close(fd)

    def _sync_names(self, path: str) -> None:
        try:
            sync(os.path.dirname(path))
        except OSError:  # past the point of no return, where nothing may be called a failure
            _log.exception("A loss of power may take back the last move of %s", path)


def _is_same(one: str, other: str) -> bool:
    try:
        here, there = os.stat(one), os.stat(other)
    except FileNotFoundError:
        return False
    return (here.st_ino, here.st_dev) == (there.st_ino, there.st_dev)


def delete_stale_locks(directory: Path, *refs: str) -> None:
    """Delete the locks that a dead process left: on *refs* alone or, without any, on everything.

    Only the holder of the writer lock that goes with them may do that.
    """
    with ledger_failures("a dead process's lock cannot be deleted"):
        if refs:
            stale = [directory / f"{ref}.lock" for ref in refs]
        else:
            stale = [*directory.glob("*.lock"), *directory.glob("refs/**/*.lock")]
        for lock in stale:
            lock.unlink(missing_ok=True)
