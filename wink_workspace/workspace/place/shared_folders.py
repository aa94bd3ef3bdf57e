"""Folders that processes share: made once, used by many, and deleted when no process uses them.

::

    <root>/
        <name>/             a folder: complete from the moment it has this name
            lock            locked, shared, by every process that uses it
        new-<random>/       one that a process is making
        old-<random>/       one that lost its name and is to be deleted
        claims              locked for an instant when a folder is found, named or retired

Rule 1: a folder appears and disappears by one rename, so a crash leaves only directories with
other names. ``collect`` deletes those, unless the process that makes them is alive.
Rule 2: a folder that a process uses is not deleted. The process holds its lock.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import FilesystemError
from wink_workspace.filesystem import WorkspacePath
from wink_workspace.filesystem.os_errors import translate_os_error

_log = logging.getLogger(__name__)

_NEW, _OLD = "new-", "old-"
_LOCK: Final = "lock"


@dataclass(slots=True)
class NewFolder:
    """A folder that this process makes, under a temporary name."""

    path: Path
    _lock: int | None

    def place(self, path: Path) -> int:
        """Give it its name, for a caller that has the claims; a descriptor with its lock."""
        self.path.rename(path)
        lock, self._lock = self._lock, None
        assert lock is not None  # noqa: S101 - it is placed once
        return lock

    def drop(self) -> None:
        """Delete it, unless it is placed."""
        if self._lock is not None:
            os.close(self._lock)
            with suppress(FilesystemError):  # otherwise ``collect`` deletes it
                delete_tree(self.path)


class SharedFolders:
    """The folders below *root* whose names match *pattern*."""

    def __init__(self, root: Path, pattern: str) -> None:
        self.root = root
        self._pattern = pattern

    def claimed(self) -> AbstractContextManager[None]:
        """As the function ``claimed``, for these folders."""
        return claimed(self.root)

    @staticmethod
    def hold(path: Path) -> int | None:
        """Use a folder, for a caller that has the claims: a descriptor with its lock.

        ``None`` if there is none, or another user made it.
        """
        return lock_file(path / _LOCK, shared=True)

    @contextmanager
    def making(self) -> Generator[NewFolder]:
        """A new folder; deleted at the end of the block if it was not placed."""
        with claimed(self.root):
            path = self.root / f"{_NEW}{secrets.token_hex(8)}"
            path.mkdir(mode=0o755)
            made = NewFolder(path, self.hold(path))
        try:
            yield made
        finally:
            made.drop()

    def retire(self, path: Path) -> Path:
        """Take its name from a folder; it is deleted when no process uses it."""
        retired = path.rename(self.root / f"{_OLD}{secrets.token_hex(8)}")
        passed(KillPoint.FOLDER_RETIRED)
        return retired

    def collect(self, in_use: Callable[[], set[str]]) -> int:
        """Delete what no process uses and *in_use* does not name, and what dead processes left.

        Returns the number of folders that were retired. What cannot be deleted is logged, and
        stays.

        Args:
            in_use: Called when no other process can find or make a folder.

        Raises:
            FilesystemError: If a folder cannot be locked or retired; the next call tries again.
        """
        if not self.root.is_dir():
            return 0
        unused: list[Path] = []
        with ExitStack() as locks:
            with translate_os_error(self.root), claimed(self.root):
                named = in_use()
                unnamed = [*self.root.glob(f"{_NEW}*"), *self.root.glob(f"{_OLD}*")]
                retiring = {path for path in self.all() if path.name not in named}
                for path in (*retiring, *unnamed):
                    lock = lock_file(path / _LOCK, waits=False)
                    if lock is None:
                        retiring.discard(path)
                        continue
                    locks.callback(os.close, lock)
                    unused.append(self.retire(path) if path in retiring else path)
            for path in unused:
                try:
                    delete_tree(path)
                except FilesystemError as error:
                    _log.warning("cannot delete %s, which nothing uses: %s", path, error)
        return len(retiring)

    def all(self) -> Iterator[Path]:
        """The folders with a name."""
        return self.root.glob(self._pattern)


@contextmanager
def claimed(root: Path) -> Generator[None]:
    """Exclude others that find, name or retire what is in *root*; for a few system calls only."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (root / "claims").open("wb") as claims:
        fcntl.flock(claims, fcntl.LOCK_EX)
        yield


def lock_file(path: Path, *, shared: bool = False, waits: bool = True) -> int | None:
    """A descriptor with the lock of a file, which is made if its directory exists.

    ``None`` if its directory was deleted, it belongs to another user or, unless this *waits*,
    another process has the lock.
    """
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(path, flags, 0o600)
    except (FileNotFoundError, PermissionError):
        return None
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(lock, how if waits else how | fcntl.LOCK_NB)
    except BaseException as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return lock


def delete_tree(path: Path) -> None:
    """Delete a directory, whatever the modes inside of it; it need not exist.

    Raises:
        FilesystemError: If something cannot be deleted.
    """
    if not path.parent.is_dir():
        return
    from wink_workspace.filesystem.disk.tree import DiskTree  # on use: readers delete nothing

    above = DiskTree(path.parent)
    try:
        above.remove(WorkspacePath((path.name,)))
    finally:
        above.close()
