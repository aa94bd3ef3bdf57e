"""Inotify instances; one that is no longer used is kept for the next tracker.

The kernel closes an instance that has had watches only after all processors have seen that these
ended, which takes some 10 ms. Ending a watch takes microseconds. So a process keeps one instance
without watches. Numbers of watches are not used again [inotify(7)], so an old event has no effect.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from collections.abc import Collection
from contextlib import suppress
from typing import Final, Protocol, cast

import inotify_simple  # pyright: ignore[reportMissingTypeStubs] - has none

_MOST_WATCHES: Final = 1_000
"""Ending more watches one by one would take as long as closing the instance."""
_READ_BYTES: Final = 65_536


class _Inotify(Protocol):
    """The part of ``inotify_simple.INotify`` that is used, which has no types."""

    def add_watch(self, path: str, mask: int) -> int: ...
    def rm_watch(self, wd: int) -> None: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


_idle: list[_Inotify] = []
# Otherwise it looks for the C library with programs, which it starts in the working directory.
inotify_simple._libc = ctypes.CDLL(None, use_errno=True)  # noqa: SLF001 - it has no other way


def take() -> _Inotify:
    """An instance without watches and events; ``OSError`` if the system provides no further one."""
    try:
        return _idle.pop()
    except IndexError:
        return cast("_Inotify", inotify_simple.INotify(nonblocking=True))


def give_back(instance: _Inotify, watches: Collection[int]) -> None:
    """End *watches*, which are all that *instance* has, and keep or close it."""
    if _idle or len(watches) > _MOST_WATCHES:
        instance.close()
        return
    for watch in watches:
        with suppress(OSError):  # it ended with its directory
            instance.rm_watch(watch)
    try:
        while True:
            os.read(instance.fileno(), _READ_BYTES)
    except BlockingIOError:
        _idle.append(instance)
    except OSError:  # what it still has would reach the next tracker
        instance.close()


def _close_idle() -> None:
    while _idle:
        _idle.pop().close()


atexit.register(_close_idle)
os.register_at_fork(after_in_child=_close_idle)  # a child shares the events with its parent
