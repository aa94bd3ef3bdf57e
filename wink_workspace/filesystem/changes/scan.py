"""Change trackers: the protocol, and a tracker that scans.

A *tracker* collects the paths below a root that may have changed, and returns them from ``drain``
as a ``Dirty``. Rule 1: the answer contains every path that changed before ``drain`` was called;
it may contain paths that did not change. Rule 2: code that changes files through this package
calls ``note``, also if the change failed.

What no tracker sees, and why that is acceptable:

* Writes through a shared memory mapping of a process that still runs. They become visible when
  the mapping is closed. All processes of a call are dead before the drain of that call.
* Writes to a file of the workspace through a hard link outside of it, created before tracking
  began. Confined code sees nothing outside and cannot create one.

``ScanTracker`` reads the status of every entry: slower than inotify, but correct everywhere.
``open_tracker`` uses inotify where the system has it.
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

from .index import DirectoryForm, Dirty, FileIndex, IndexedTree, Leaves, NotedChanges

_log = logging.getLogger(__name__)


class ChangeTracker(ChangeObserver, Protocol):
    """Knows which paths below a root may have changed; a ``DiskTree`` reports its changes to it."""

    @property
    def n_visited(self) -> int:
        """The number of entries whose status was read so far."""
        ...

    @property
    def index(self) -> FileIndex | None:
        """The index as of the last drain, for storing; ``None`` if unknown."""
        ...

    def drain(self, leaves: Leaves | None = None, *, finishes: bool = False) -> Dirty:
        """What may have changed since the last drain.

        A caller that cannot use the answer returns it with ``note``. One that removes every new
        directory for which *leaves* is true spares the tracker from reading them; if it fails
        to remove one, it notes that everything may have changed. With *leaves* or *finishes*,
        the caller also calls ``finish`` before other code may change files; with *finishes*, only
        if the answer has a ``reason``.
        """
        ...

    def finish(self) -> None:
        """Record that the caller of ``drain`` has read what changed and removed what leaves."""
        ...

    def close(self) -> None:
        """Stop tracking."""
        ...


class ScanTracker:
    """Compares the status of every entry with an index, in each ``drain``.

    Args:
        root: The directory to track.
        index: An earlier state; changes are reported since then. Without one, the first
            ``drain`` reports that everything may have changed.
        reason: Why it does not use inotify; the reason of each ``Dirty``.
        make_accessible: Change the mode of directories that deny access to their owner;
            otherwise they count as changed in each drain.
        hidden: Paths that are not tracked.
        form: The form of directories, if *root* is an upper layer of an overlay.
        clock: Measures the age of files.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        index: FileIndex | None = None,
        reason: str = "every entry is checked each time",
        make_accessible: bool = False,
        hidden: HiddenPaths | None = None,
        form: DirectoryForm | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._reason = reason
        self._tree = DiskTree(root, make_accessible=make_accessible, hidden=hidden)
        self._seen = IndexedTree(self._tree, index, clock, form=form)
        self._noted = NotedChanges()
        self._lock = threading.Lock()

    @property
    def n_visited(self) -> int:
        """The number of entries whose status was read so far."""
        return self._seen.n_visited

    @property
    def index(self) -> FileIndex | None:
        """The index as of the last drain; ``None`` if not every entry could be read."""
        return self._seen.index

    def drain(self, leaves: Leaves | None = None, *, finishes: bool = False) -> Dirty:
        """What may have changed since the last drain."""
        del finishes
        with self._lock:
            found = self._seen.look_at_all(leaves=leaves)
            return Dirty(reason=self._reason) | self._noted.take() | found

    def note(self, path: WorkspacePath, *, below: bool = False) -> None:
        """Record that *path* may have changed."""
        with self._lock:
            self._noted.add(path, below=below)

    def expect(self, name: str) -> None:
        """Do nothing: a scan finds all files."""

    def changing(self, path: WorkspacePath) -> None:
        """Do nothing for *path*: a scan finds every change."""

    def directory_made(self, path: WorkspacePath) -> None:
        """Do nothing for *path*: a scan finds all directories."""

    def directories_left(self, directories: Sequence[WorkspacePath]) -> None:
        """Do nothing: a scan finds deleted directories."""

    def finish(self) -> None:
        """Do nothing: there are no events."""

    def close(self) -> None:
        """Close the directory."""
        self._tree.close()


def open_tracker(
    root: str | os.PathLike[str],
    *,
    index: FileIndex | None = None,
    force_scan: bool = False,
    make_accessible: bool = False,
    hidden: HiddenPaths | None = None,
    form: DirectoryForm | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> ChangeTracker:
    """The best tracker for a directory; the arguments are those of ``ScanTracker``.

    With *force_scan*, it is always a ``ScanTracker``.
    """
    reason = "every entry is checked each time"
    if not force_scan:
        try:
            from .inotify import InotifyTracker
        except ImportError:
            reason = "this system has no inotify, so every entry is checked"
            _log.warning("%s: %s", Path(root), reason)
        else:
            return InotifyTracker(
                root,
                index=index,
                make_accessible=make_accessible,
                hidden=hidden,
                form=form,
                clock=clock,
            )
    return ScanTracker(
        root,
        index=index,
        reason=reason,
        make_accessible=make_accessible,
        hidden=hidden,
        form=form,
        clock=clock,
    )
