"""Stops a command that fills the disk, because there is no quota.

Walking the tree is too slow to be repeated all the time. So the watch reads the free space of the
disk, which is cheap, and walks the tree only when the free space has shrunk by a part of what the
workspace may still grow. Deleted files that are still open are not in the tree; the watch finds
them among the open files of the command's processes. If the disk is nearly full, the command is
stopped in any case. If the tree or the open files cannot be counted (no permission, changes during
the walk, too many), the loss of free space alone decides.

This is best effort. Data written between two checks is not prevented. A deleted file that is mapped
and not open counts only when the disk is nearly full. Other programs may fill the disk at the same
time, and a command may be stopped for that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from wink_workspace.errors import FilesystemError
from wink_workspace.filesystem.disk import DiskTree

_PARTS: Final = 8
"""The tree is walked again after this fraction of the remaining room is used."""
_RESERVE_BYTES: Final = 256 * 1_048_576
_RESERVE_PARTS: Final = 20
_MOST_OPEN_FILES: Final = 20_000


class Usage(NamedTuple):
    """The size of a tree; ``n_bytes`` includes the holes of sparse files."""

    n_bytes: int
    n_entries: int


def usage_of(
    directory: Path, *, most: Usage, unreadable: Callable[[object], None] = lambda _: None
) -> Usage:
    """The size of *directory*; counting stops when it is above *most*.

    ``unreadable`` is called for each directory that cannot be read.
    """
    n_bytes = n_entries = 0
    with DiskTree(directory) as tree:
        for listing in tree.listings(unreadable=unreadable):
            n_entries += len(listing.entries)
            n_bytes += sum(_size(status) for _, status in listing.entries)
            if n_bytes > most.n_bytes or n_entries > most.n_entries:
                break
    return Usage(n_bytes, n_entries)


def _size(status: os.stat_result) -> int:
    if not stat.S_ISREG(status.st_mode):
        return 0
    return max(status.st_size, status.st_blocks * 512) // max(1, status.st_nlink)


class DiskWatch:
    """Watches a directory while one command runs.

    Args:
        directory: The directory.
        most: Its largest allowed size.
        free: Returns the free bytes and entries of its disk.
        first_pid: Returns the first process of the command's container; ``None`` if there is no
            container yet.
    """

    def __init__(
        self,
        directory: Path,
        *,
        most: Usage,
        free: Callable[[Path], tuple[int, int]] | None = None,
        first_pid: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._directory = directory
        self._most = most
        self._free = free or _free
        self._first_pid = first_pid
        self._bytes_at_start, self._entries_at_start = self._free(directory)
        self._reserve = min(_RESERVE_BYTES, self._bytes_at_start // _RESERVE_PARTS)
        self._walk_below = self._thresholds(Usage(most.n_bytes // 2, most.n_entries // 2))

    def __call__(self) -> str | None:
        """Why the command must be stopped, or ``None``."""
        free_bytes, free_entries = self._free(self._directory)
        if free_bytes < self._reserve:
            return "the disk is nearly full"
        least_bytes, least_entries = self._walk_below
        if free_bytes >= least_bytes and free_entries >= least_entries:
            return None
        return self.walk()

    def walk(self) -> str | None:
        """As ``__call__``, but always with a walk of the tree."""
        unread: list[object] = []
        try:
            usage = usage_of(self._directory, most=self._most, unreadable=unread.append)
        except FilesystemError:
            return self._check_loss()  # it changes too fast; the next check walks it again
        first_pid = self._first_pid()
        deleted = 0 if first_pid is None else _deleted_bytes(first_pid, self._directory)
        if deleted is None:
            return self._check_loss()
        if usage.n_bytes + deleted > self._most.n_bytes:
            return f"the workspace grew beyond {self._most.n_bytes:,} bytes"
        if usage.n_entries > self._most.n_entries:
            return f"the workspace grew beyond {self._most.n_entries:,} files and directories"
        self._walk_below = self._thresholds(usage)
        return self._check_loss() if unread else None

    def _check_loss(self) -> str | None:
        """Why the command must be stopped, by the free space that the disk lost since its start."""
        free_bytes, free_entries = self._free(self._directory)
        if (
            self._bytes_at_start - free_bytes > self._most.n_bytes
            or self._entries_at_start - free_entries > self._most.n_entries
        ):
            return (
                "the disk lost more free space than the workspace may use, and it cannot be counted"
            )
        return None

    def _thresholds(self, usage: Usage) -> tuple[int, int]:
        """The free space below which the tree is walked again, if its size is *usage*."""
        free_bytes, free_entries = self._free(self._directory)
        return (
            free_bytes - max(1, (self._most.n_bytes - usage.n_bytes) // _PARTS),
            free_entries - max(1, (self._most.n_entries - usage.n_entries) // _PARTS),
        )


def _deleted_bytes(first_pid: int, directory: Path) -> int | None:
    """The size of deleted files that the container's processes have open on *directory*'s disk.

    ``None`` if they have too many files open.
    """
    sizes: dict[int, int] = {}
    n_seen = 0
    with suppress(OSError):  # the container has ended
        device = directory.stat().st_dev
        namespace = Path(f"/proc/{first_pid}/ns/pid").stat().st_ino
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # the process has ended, or is another user's
                if (process / "ns/pid").stat().st_ino != namespace:
                    continue
                for opened in (process / "fd").iterdir():
                    n_seen += 1
                    if n_seen > _MOST_OPEN_FILES:
                        return None
                    with suppress(OSError):
                        status = opened.stat()
                        if status.st_nlink == 0 and status.st_dev == device:
                            sizes[status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def _free(directory: Path) -> tuple[int, int]:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize, status.f_favail
