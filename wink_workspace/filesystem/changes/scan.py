"""Which paths may have moved, without walking the tree.

A *tracker* collects what may have changed below a root and hands it over, in ``drain``, as a
``Dirty``. Rule 1: a path that changed before ``drain`` was called is in its answer; paths
that did not change may be. Rule 2: code that changes something through this
package calls ``note``, also when the change failed half-way.

What no tracker sees, and why that is acceptable:

* Writes through a shared memory mapping of a process that still runs. They show once the
  mapping is gone; a drain that decides something comes after the death of all processes of
  a call.
* Writes to a file of the workspace through a hard link outside of it, made before tracking
  began. Confined code sees nothing outside and cannot make one.

``ScanTracker`` looks at every entry: slower than ``inotify``, and right everywhere.
``open_tracker`` takes the tracker that the system notifies of changes where there is one.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.filesystem.disk.tree import ChangeObserver, DiskTree, HiddenPaths
from wink_workspace.filesystem.paths import WorkspacePath

from .dirty import Dirty, Noted
from .index import FileIndex, IndexedTree

__all__ = ["ChangeTracker", "ScanTracker", "open_tracker"]

_log = logging.getLogger(__name__)


class ChangeTracker(ChangeObserver, Protocol):
    """Knows what may have changed below one root; what a tree changes is reported to it."""

    @property
    def n_visited(self) -> int:
        """How many entries were looked at so far."""
        ...

    @property
    def index(self) -> FileIndex | None:
        """What everything looked like in the last drain, to be stored; ``None`` if unknown."""
        ...

    def drain(self) -> Dirty:
        """What may have changed since the last drain; the next one begins here.

        A caller that cannot use the answer gives it back with ``note``.
        """
        ...

    def close(self) -> None:
        """Stop tracking."""
        ...


class ScanTracker:
    """Compares the status of every entry with an index, in each ``drain``.

    Args:
        root: The directory to track.
        index: What it looked like at some moment; changes count from there. Without one
            the first ``drain`` tells that everything may have changed.
        reason: Why it is not tracked by events; in each ``Dirty``.
        make_accessible: Change the mode of directories that keep their owner out; otherwise they
            count as changed each time.
        hidden: Paths whose changes are nobody's business here.
        clock: Tells how old files are.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        index: FileIndex | None = None,
        reason: str = "every entry is looked at each time",
        make_accessible: bool = False,
        hidden: HiddenPaths | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._reason = reason
        self._tree = DiskTree(root, make_accessible=make_accessible, hidden=hidden)
        self._seen = IndexedTree(self._tree, index, clock)
        self._noted = Noted()
        self._lock = threading.Lock()

    @property
    def n_visited(self) -> int:
        """How many entries were looked at so far."""
        return self._seen.n_visited

    @property
    def index(self) -> FileIndex | None:
        """What everything looked like in the last drain, if all could be looked at."""
        return self._seen.index

    def drain(self) -> Dirty:
        """What may have changed since the last drain."""
        with self._lock:
            found = self._seen.look_at_all()
            return Dirty(reason=self._reason) | self._noted.take() | found

    def note(self, path: WorkspacePath, *, below: bool = False) -> None:
        """Count *path* as changed."""
        with self._lock:
            self._noted.add(path, below=below)

    def expect(self, name: str) -> None:
        """Nothing: a file of ours is found like any other."""

    def made(self, path: WorkspacePath) -> None:
        """Nothing: a directory of ours is found like any other."""

    def left(self, directories: Sequence[WorkspacePath]) -> None:
        """Nothing: a directory that is gone is found like any other."""

    def close(self) -> None:
        """Let go of the directory."""
        self._tree.close()


def open_tracker(
    root: str | os.PathLike[str],
    *,
    index: FileIndex | None = None,
    force_scan: bool = False,
    make_accessible: bool = False,
    hidden: HiddenPaths | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> ChangeTracker:
    """The best tracker for a directory; the arguments are those of ``ScanTracker``.

    With *force_scan* it is always the one that looks at everything.
    """
    reason = "every entry is looked at each time"
    if not force_scan:
        try:
            from .inotify import InotifyTracker
        except ImportError:
            reason = "this system tells of no changes, so every entry is looked at"
            _log.warning("%s: %s", Path(root), reason)
        else:
            return InotifyTracker(
                root, index=index, make_accessible=make_accessible, hidden=hidden, clock=clock
            )
    return ScanTracker(
        root,
        index=index,
        reason=reason,
        make_accessible=make_accessible,
        hidden=hidden,
        clock=clock,
    )
