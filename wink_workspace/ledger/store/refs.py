"""The ref update that commits an entry.

The protocol is git's: the process that creates ``<ref>.lock`` may write, and renames it over the
ref. Unlike libgit2, this module reuses files for the lock. A new file for each commit takes up to
1.5 ms on ext4 (benchmarks/results.md has figures): ext4 flushes a file that replaces another at
once, and frees the other's block. So a branch has two *spare* files that take turns. The one that
is not the ref is overwritten and linked as the lock. No block is allocated or freed, and an update
takes 0.1 ms. After a loss of power it may hold an earlier value, but is never empty: a new file is
synced once. ``SpareFiles`` remembers which one the ref is, so that two moves need no ``stat``.
"""

# ruff: noqa: PTH105, PTH116, PTH119, PTH120 - done after every call, and a Path costs more than
# the call

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import LedgerError, LedgerMovedError

from .disk import ledger_failures, sync
from .leases import DeletionLock

if TYPE_CHECKING:
    from .repository import GitRepository


MAIN_BRANCH: Final = "main"

_log = logging.getLogger(__name__)


class SpareFiles:
    """The spare files of one ref; used only by the holder of its writer lock.

    Args:
        directory: Where they are.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.linked: str | None = None  # the one that the ref is, if that is known
        self.known = set[str]()  # those that are not empty

    def unused(self, ref: str) -> str:
        """The one that is not the file *ref*."""
        one, other = f"{self.directory}/spare-1", f"{self.directory}/spare-2"
        if self.linked is None:
            return other if _is_same(one, ref) else one
        return other if self.linked == one else one


class RefMover:
    """Moves refs atomically.

    Args:
        repository: The repository with the refs.
        lock: Held while a ref moves.
        check: Checks that the commit of a ref has all its objects, given the id of the new commit
            and of the one before. It is called if objects were deleted since the last move.
        durable: Whether a move survives a loss of power.
    """

    def __init__(
        self,
        repository: GitRepository,
        *,
        lock: DeletionLock,
        check: Callable[[str, str | None], object],
        durable: bool = False,
    ) -> None:
        self._repository = repository
        self._deletion = lock
        self._check = check
        self._directory = str(repository.directory)
        self._durable = durable

    @property
    def deletion(self) -> DeletionLock:
        """Nothing is deleted while it is held."""
        return self._deletion

    def move(
        self, name: str, *, expected: str | None, target: str, spares: SpareFiles | None = None
    ) -> None:
        """Move the ref *name* from *expected* to *target*.

        Args:
            name: The full name, such as ``refs/heads/main``.
            expected: The present commit id; ``None`` if the ref must not exist.
            target: The new commit id.
            spares: The spare files of the ref's writer; without, each move creates a new file.

        Raises:
            LedgerMovedError: If the ref is not at *expected*.
            LedgerError: If another program has locked the ref, or it cannot be written.
        """
        path = f"{self._directory}/{name}"
        lock = f"{path}.lock"
        with self._deletion as has_advanced, ledger_failures(f"ref {name} cannot be moved"):
            if has_advanced:
                self._check(target, expected)
                self._deletion.accept()
            line = target.encode() + b"\n"
            linked = self._lock(path, lock, line, spares, (expected or target).encode() + b"\n")
            try:
                if (found := self._repository.ref(name)) != expected:
                    raise LedgerMovedError(f"{name} is at {found}, not at {expected}")
                passed(KillPoint.REF_LOCKED)
                if spares is not None:
                    spares.linked = None  # if this fails, it is not known
                os.replace(lock, path)
                if spares is not None:
                    spares.linked = linked
            except BaseException:
                Path(lock).unlink(missing_ok=True)
                raise
        passed(KillPoint.REF_MOVED)
        if self._durable:
            self._sync_names(path)

    def _lock(
        self, path: str, lock: str, line: bytes, spares: SpareFiles | None, before: bytes
    ) -> str | None:
        """Take the lock, with *line* in it; the spare file that it is, if it is one.

        A new file has *before* on the device.
        """
        try:
            try:
                return self._lock_in_place(path, lock, line, spares, before)
            except FileNotFoundError:
                for directory in (os.path.dirname(lock), *([spares.directory] if spares else [])):
                    Path(directory).mkdir(parents=True, exist_ok=True)
                return self._lock_in_place(path, lock, line, spares, before)
        except FileExistsError as error:
            raise LedgerError(
                f"{os.path.basename(lock)} exists, so another program is moving this ref",
                hint="End that program; if there is none, delete the lock.",
            ) from error

    def _lock_in_place(
        self, path: str, lock: str, line: bytes, spares: SpareFiles | None, before: bytes
    ) -> str | None:
        if spares is not None:
            spare = spares.unused(path)
            try:
                self._write(spare, line, 0, b"" if spare in spares.known else before)
                spares.known.add(spare)
                self._link(spare, lock)
            except (FileExistsError, FileNotFoundError):
                raise
            except OSError:  # the filesystem has no hard links
                pass
            else:
                return spare
        self._create(lock, line, before)
        return None

    def _link(self, spare: str, lock: str) -> None:
        try:
            os.link(spare, lock)
        except FileExistsError:
            if not _is_same(lock, spare):  # otherwise a failed move of ours left it
                raise

    def _create(self, lock: str, line: bytes, before: bytes) -> None:
        """Create the lock as a new file, or leave no file."""
        try:
            self._write(lock, line, os.O_EXCL, before)
        except FileExistsError:
            raise
        except BaseException:
            Path(lock).unlink(missing_ok=True)
            raise

    def _write(self, file: str, line: bytes, flags: int, before: bytes) -> None:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
        try:
            if before and not self._durable and not os.fstat(fd).st_size:
                os.pwrite(fd, before, 0)
                os.fsync(fd)
            os.pwrite(fd, line, 0)
            if self._durable:
                os.fsync(fd)
        finally:
            os.close(fd)

    def _sync_names(self, path: str) -> None:
        try:
            sync(os.path.dirname(path))
        except OSError:  # after the commit point, where no error may be raised
            _log.exception(
                "A loss of power may undo the last move of %s: its directory cannot be synced", path
            )


def _is_same(one: str, other: str) -> bool:
    try:
        here, there = os.stat(one), os.stat(other)
    except FileNotFoundError:
        return False
    return (here.st_ino, here.st_dev) == (there.st_ino, there.st_dev)


def delete_stale_locks(directory: Path, *refs: str) -> None:
    """Delete the locks that a dead process left on *refs*; without any, on the whole repository.

    The caller must hold the writer locks of these refs.
    """
    with ledger_failures("a dead process's lock cannot be deleted"):
        if refs:
            stale = [directory / f"{ref}.lock" for ref in refs]
        else:
            stale = [*directory.glob("*.lock"), *directory.glob("refs/**/*.lock")]
        for lock in stale:
            lock.unlink(missing_ok=True)
