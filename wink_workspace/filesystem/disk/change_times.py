"""Which files are racily clean: their next change may leave their status as it is.

A filesystem takes the time of a change from the kernel's coarse clock, which ticks every few
milliseconds, and rounds it down to its own resolution, which is 2 s on FAT. So a second change in
the same tick does not alter the status.

Rule 1: a file whose status was read at the time *t* is racily clean if it changed at ``racy_ns`` or
later, where ``racy_ns`` was determined before *t*. Any other change gets another change time.
Rule 2: without further knowledge, ``racy_ns`` is 2 s ago by the clock of this process.
Rule 3: on a filesystem of this machine that stores times exactly, ``racy_ns`` is the present time
of the coarse clock: a later change cannot get an earlier time. Since Linux 6.13 some times are
finer, but none is earlier than the coarse clock.
Rule 4: the times of other filesystems (``DiskTree.keeps_times``) may be those of a server, whose
clock is late. So ``racy_ns`` is also not later than 2 s before the newest change that was read: the
server's clock was there already. Files that changed together last are read again each time.
"""

from __future__ import annotations

import os
import time
from typing import Final

from wink_workspace.clock import Clock, SystemClock
from wink_workspace.errors import FilesystemError
from wink_workspace.filesystem.paths import ROOT

from .tree import DiskTree

__all__ = ["COARSEST_TICK_NS", "ChangeTimes", "racy_from_ns"]

COARSEST_TICK_NS: Final = 2_000_000_000
_CLOCK_REALTIME_COARSE: Final = 5  # <linux/time.h>; the module ``time`` has no name for it


def racy_from_ns(clock: Clock) -> int:
    """``racy_ns`` for any filesystem."""
    return int(clock.now().timestamp() * 1e9) - COARSEST_TICK_NS


class ChangeTimes:
    """Determines ``racy_ns`` for the files of *tree*.

    Args:
        tree: The files.
        clock: The time. The kernel's clock is used only if this is the system's.
        is_local: Whether all files are on one filesystem, which takes its times from this machine.
    """

    def __init__(self, tree: DiskTree, clock: Clock, *, is_local: bool) -> None:
        self._clock = clock
        self.is_exact = is_local and isinstance(clock, SystemClock) and _stores_times_exactly(tree)

    def racy_from_ns(self) -> int:
        """``racy_ns`` for statuses that are read from now on."""
        if self.is_exact:
            return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
        return int(self._clock.now().timestamp() * 1e9) - COARSEST_TICK_NS  # inline: in each call


def _stores_times_exactly(tree: DiskTree) -> bool:
    """Whether a file that changes now gets the present time, not one rounded down.

    It is a file without a name, which no other process can find and no tracker notices.
    """
    try:
        with tree.opened(ROOT) as directory:
            file = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=directory)
            try:
                earliest_ns = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
                os.utime(file)
                return earliest_ns <= os.fstat(file).st_ctime_ns <= time.time_ns()
            finally:
                os.close(file)
    except (OSError, FilesystemError):  # the filesystem has no files without a name, as FAT
        return False
