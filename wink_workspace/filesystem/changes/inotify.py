"""A change tracker with inotify.

``drain`` returns the paths that may have changed since the last drain. Its time depends on the
number of changes, not on the size of the tree.

Every directory is watched. An event names a directory and an entry of it, and the queue keeps the
order of events [inotify(7)]. The system queues the events of an operation before the operation
returns. ``drain`` changes a *canary*, a marker file that no other process can reach, and reads
events up to the canary's own. So it reads the events of all operations that ended before it began.

A *scan* reads the status of every entry and compares it with the index of the last drain. It needs
no events, and finds every change of a status. ``index`` says when an equal status is not enough
(racily clean).

What events do not report, and how each gap is closed:

* Changes in a directory before it is watched. If another process created the directory or moved
  it in, the drain scans. A directory that this process creates is watched at once. Another process
  could change it only between these two steps; code in a sandbox does not run during our writes.
* The new path of a moved directory: its watch still reports the old path. Everything below both
  paths counts as changed, and is watched again under the new path.
* A change of a file through another of its names (hard links). Known files with several names are
  checked in each drain. A drain scans (a) if an existing file got a new name; (b) if a name was
  added and deleted since the last drain, as it may have been a hard link; (c) if a name was
  written and its file did not change. Temporary names that this process uses are excluded.
* Lost events: the queue overflowed, or the canary's event did not come.
* Changes that another machine makes to a network filesystem. There, every drain scans.

A drain also scans if inotify is not available, a directory cannot be watched or read, files change
while they are read, everything was noted as changed, or the last drain was interrupted.
"""

from __future__ import annotations

import array
import errno
import fcntl
import logging
import os
import select
import struct
import sys
import termios
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from inotify_simple import flags  # pyright: ignore[reportMissingTypeStubs] - has none

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import FilesystemError
from wink_workspace.filesystem.disk.descriptors import Parts, prefix_of_points_below, read_mounts
from wink_workspace.filesystem.disk.tree import DiskTree, HiddenPaths
from wink_workspace.filesystem.paths import WorkspacePath
from wink_workspace.processes import OwnProcess

from .index import (
    NOTHING,
    DirectoryForm,
    Dirty,
    EntryKey,
    FileIndex,
    IndexedTree,
    Leaves,
    NotedChanges,
    Status,
    is_directory_change,
)
from .instances import give_back, take

_log = logging.getLogger(__name__)

_MASK: Final = int(
    flags.CREATE
    | flags.DELETE
    | flags.MOVED_FROM
    | flags.MOVED_TO
    | flags.MODIFY
    | flags.ATTRIB
    | flags.CLOSE_WRITE  # the only event for writes through a shared memory mapping
    | flags.ONLYDIR
)
_EVENT = struct.Struct("iIII")
_ENCODING, _ENCODING_ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_CANARY_WAIT_MS = 1_000
_READ_BYTES = 65_536
_MAX_EVENT_BYTES = _EVENT.size + 256  # the name has up to 255 bytes and ends with a zero
# Plain integers, since the operators of ``flags`` would dominate the time for an event
_CREATE, _DELETE = int(flags.CREATE), int(flags.DELETE)
_MOVED_FROM, _MOVED_TO = int(flags.MOVED_FROM), int(flags.MOVED_TO)
_MODIFY, _ATTRIB = int(flags.MODIFY), int(flags.ATTRIB)
_CLOSE_WRITE = int(flags.CLOSE_WRITE)
_ISDIR, _IGNORED = int(flags.ISDIR), int(flags.IGNORED)
_UNMOUNT = int(flags.UNMOUNT)
_OVERFLOW = _EVENT.pack(-1, int(flags.Q_OVERFLOW), 0, 0)
# Filesystems on which another machine, or a server in user space, changes files without events.
_REMOTE = ("nfs", "cifs", "smb", "9p", "virtiofs", "ceph", "afs", "fuse")

_NEW_DIRECTORY = "a directory was added that was not watched from the start"
_UNREPORTED_DIRECTORY = "a directory was added or deleted that no event reported"
_NEW_LINK = "a file has a new hard link"
_ADDED_AND_DELETED = "a name was added and deleted that may have been a hard link of another file"
_LOST_NAME = "a name was written and its file did not change; the written file may have other names"
_UNREADABLE = "a directory cannot be read"
_INTERRUPTED = "the last drain was interrupted"
_ASKED_FOR = "everything was noted as changed"


class _LostEventsError(Exception):
    """Events were lost, and a new queue is needed."""


_Event = tuple[int, Parts, str, int, int]
"""The watch, its directory, the name in it, the mask and the cookie [inotify(7)]."""


class _Queue:
    """Watched directories, and their events.

    Raises:
        OSError: If the system provides no further queue, or no further watches.
    """

    def __init__(self, max_watches: int | None) -> None:
        self._max_watches = max_watches
        self._directories: dict[int, Parts] = {}
        self._renewed: set[int] = set()
        self._inotify = take()
        self._canary = os.memfd_create("canary")
        try:
            self._canary_watch = self._inotify.add_watch(_proc(self._canary), flags.ATTRIB)
        except OSError:
            self._inotify.close()
            os.close(self._canary)
            raise
        # The bytes that are read if nothing happened, the usual case [inotify(7)]
        self._canary_alone = struct.pack("iIII", self._canary_watch, _ATTRIB, 0, 0)

    def close(self) -> None:
        give_back(self._inotify, [self._canary_watch, *self._directories])
        os.close(self._canary)

    def watch(self, directory: Parts, descriptor: int) -> None:
        """Watch an open directory; if it is already watched, record its path."""
        watch = self._inotify.add_watch(_proc(descriptor), _MASK)
        self._directories[watch] = directory
        self._renewed.add(watch)
        if self._max_watches is not None and len(self._directories) > self._max_watches:
            raise OSError(errno.ENOSPC, f"at most {self._max_watches} directories allowed")

    def unwatch_below(self, tops: set[Parts]) -> None:
        """Stop watching *tops* and every directory below them."""
        for watch, directory in list(self._directories.items()):
            if _is_below(directory, tops):
                del self._directories[watch]
                with suppress(OSError):  # it was removed with its directory
                    self._inotify.rm_watch(watch)

    def begin_renewal(self) -> None:
        """Begin to watch all directories again, before a scan calls ``watch`` for each."""
        self._renewed.clear()

    def end_renewal(self) -> None:
        """Stop watching directories that were not watched again since ``begin_renewal``."""
        for watch in self._directories.keys() - self._renewed:
            del self._directories[watch]
            with suppress(OSError):  # it was removed with its directory
                self._inotify.rm_watch(watch)

    def read(self) -> list[_Event]:
        """All events of operations that ended before this call.

        Raises:
            _LostEventsError: If events were lost.
        """
        os.utime(self._canary)
        events: list[_Event] = []
        while (data := self._read_available()) != self._canary_alone:
            if _OVERFLOW in data:  # found before thousands of events are parsed
                raise _LostEventsError("more changed at once than the system can queue")
            canary_seen = False
            for watch, mask, cookie, name in _parsed(data):
                if mask & _UNMOUNT:
                    raise _LostEventsError("the filesystem was unmounted")
                canary_seen |= watch == self._canary_watch
                if mask & _IGNORED:
                    self._directories.pop(watch, None)
                elif watch in self._directories and name:  # no name: the parent reports it, too
                    events.append((watch, self._directories[watch], name, mask, cookie))
            if canary_seen:
                break
        return events

    def _read_available(self) -> bytes:
        """All complete events that wait; the system never splits one."""
        queue = self._inotify.fileno()
        try:
            data = os.read(queue, _READ_BYTES)
        except BlockingIOError:
            poller = select.poll()
            poller.register(queue, select.POLLIN)
            if not poller.poll(_CANARY_WAIT_MS):
                raise _LostEventsError("no event arrived in time") from None
            data = os.read(queue, _READ_BYTES)
        if len(data) > _READ_BYTES - _MAX_EVENT_BYTES:  # the next one may not have fitted
            waiting = array.array("i", [0])
            fcntl.ioctl(queue, termios.FIONREAD, waiting)
            if waiting[0]:
                data += os.read(queue, waiting[0])
        return data


class _EventSummary:
    """The changes that a sequence of events reports.

    ``dirty`` returns the changed paths. ``written`` returns the names that were written but not
    created or moved in.
    ``reason`` is set if there may be further changes, so that a scan is needed.

    Args:
        made: Directories that this process created and watched at once.
        left: Directories that this process moved out, and no longer watches.
        expected: Names of new files of this process.
        hidden: Paths that are not tracked. A directory that moves between tracked and hidden
            paths counts as moved in or out of the root.
        writes: The events of a write to a file. A close is one of them in an overlay: there, a
            write through a mapping is reported for the name by which the kernel first saw the file,
            which may be deleted or belong to another file now.
    """

    def __init__(
        self,
        made: set[Parts],
        left: set[Parts],
        expected: set[str],
        hidden: HiddenPaths | None = None,
        *,
        writes: int,
    ) -> None:
        self._writes = writes
        self.reason: str | None = None
        self._hidden = hidden
        self._made = made
        self._left = left
        self._expected = expected
        self.paths: set[Parts] = set()
        self.prefixes: set[Parts] = set()
        self._written: set[EntryKey] = set()
        self._created_or_moved_in: set[EntryKey] = set()
        # Names that other processes added since the last drain, by watch: after a move, two
        # watches may have the same path.
        self._added: set[tuple[int, str]] = set()
        self._moving: dict[int, bool] = {}  # by cookie, whether a moved file is in _added
        self._moving_directories: set[int] = set()

    def add(self, events: Iterable[_Event]) -> None:
        for event in events:
            watch, directory, name, mask, cookie = event
            path = (*directory, name)
            if mask & _ISDIR:
                if self._hidden is None or not self._hidden.hides(path):
                    self._add_directory(path, mask, cookie)
                continue
            self.paths.add(path)  # a hidden file has no status, so it is not reported
            watched_name, key = (watch, name), (directory, name)
            if mask & (_CREATE | _MOVED_TO):
                self._created_or_moved_in.add(key)
            if mask & self._writes:
                self._written.add(key)
            elif mask & _MOVED_FROM:
                self._moving[cookie] = watched_name in self._added
                self._added.discard(watched_name)
            elif mask & (_MOVED_TO | _DELETE):
                if watched_name in self._added:
                    self._added.discard(watched_name)
                    self.reason = _ADDED_AND_DELETED
                if mask & _MOVED_TO and self._moving.pop(cookie, True):
                    self._added.add(watched_name)
            elif mask & _CREATE and name in self._expected:
                self._expected.discard(name)
            elif mask & _CREATE:
                self._added.add(watched_name)
        if any(self._moving.values()) or self._moving_directories:
            self.reason = _ADDED_AND_DELETED  # moved out of the root

    def dirty(self) -> Dirty:
        return Dirty(
            frozenset(map(WorkspacePath, self.paths)), frozenset(map(WorkspacePath, self.prefixes))
        )

    def written(self) -> set[EntryKey]:
        return self._written - self._created_or_moved_in

    def _add_directory(self, path: Parts, mask: int, cookie: int) -> None:
        moved_or_new = not mask & _ATTRIB
        (self.prefixes if moved_or_new else self.paths).add(path)
        if not moved_or_new:
            return
        ours = path in self._made
        self._made.discard(path)
        if mask & _MOVED_FROM:
            if path not in self._left:
                self._moving_directories.add(cookie)
            self._left.discard(path)
        elif mask & _MOVED_TO and cookie in self._moving_directories:
            self._moving_directories.discard(cookie)
        elif mask & (_MOVED_TO | _CREATE) and not ours:
            self.reason = _NEW_DIRECTORY


class InotifyTracker:
    """Tracks changes with inotify; see the module.

    Args:
        root: The directory to track.
        index: An earlier state; changes are reported since then. Without one, the first
            ``drain`` reports that everything may have changed.
        make_accessible: Change the mode of directories that deny access to their owner;
            otherwise each drain is a scan while such a directory exists.
        max_watches: Most directories to watch (by default, the limit of the system); if the
            tree has more, each drain is a scan.
        hidden: As for ``ScanTracker``; hidden directories are not watched.
        form: As for ``ScanTracker``.
        clock: Measures the age of files.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        index: FileIndex | None = None,
        make_accessible: bool = False,
        max_watches: int | None = None,
        hidden: HiddenPaths | None = None,
        form: DirectoryForm | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._tree = DiskTree(root, make_accessible=make_accessible, hidden=hidden)
        self._writes = _MODIFY | _ATTRIB | (_CLOSE_WRITE if form is not None else 0)
        self._max_watches = max_watches
        self._noted = NotedChanges()
        self._made: set[Parts] = set()
        self._left: set[Parts] = set()
        self._expected: set[str] = set()
        self._warned: set[str] = set()
        self._complete_before_ns: int | None = None
        self._lock = threading.RLock()
        self._queue: _Queue | None = None
        self._process = OwnProcess(f"the watch on {self._tree.root}")
        mounts = _Mounts.of(self._tree.root)
        self._scan_reason: str | None = mounts.why_incomplete
        if self._scan_reason is not None:
            self._warn(self._scan_reason)
        self._seen = IndexedTree(self._tree, index, clock, form=form, is_local=mounts.is_local)
        self._pending = self._scan("it was not watched until now")

    @property
    def n_visited(self) -> int:
        """The number of entries whose status was read so far."""
        return self._seen.n_visited

    @property
    def index(self) -> FileIndex | None:
        """The index as of the last drain; ``None`` if not every entry could be read."""
        if self._seen.index is not None and self._complete_before_ns is not None:
            self._seen.index.trust_older(self._complete_before_ns)
        return self._seen.index

    def note(self, path: WorkspacePath, *, below: bool = False) -> None:
        """Record that *path*, with *below* also everything below it, may have changed."""
        with self._lock:
            self._noted.add(path, below=below)

    def expect(self, name: str) -> None:
        """The next new file with this *name* belongs to this process."""
        with self._lock:
            self._expected.add(name)

    def changing(self, path: WorkspacePath) -> None:
        """Do nothing: every directory is watched before this process changes it."""

    def directory_made(self, path: WorkspacePath) -> None:
        """Watch a directory that this process just created."""
        with self._lock, suppress(FilesystemError), self._tree.opened(path) as descriptor:
            self._watch(path.parts, descriptor)
            self._made.add(path.parts)

    def directories_left(self, directories: Sequence[WorkspacePath]) -> None:
        """Stop watching directories that this process just moved out."""
        with self._lock:
            self._left.update(path.parts for path in directories)
            if self._queue is not None:
                self._queue.unwatch_below(self._left)

    def finish(self) -> None:
        """Do nothing: ``directories_left`` did all."""

    def drain(self, leaves: Leaves | None = None, *, finishes: bool = False) -> Dirty:
        """What may have changed since the last drain; ``ForkedProcessError`` in a forked child."""
        del finishes
        self._process.check()  # a child would consume the events of the parent
        with self._lock:
            try:
                return self._drain(leaves)
            except BaseException:
                self._seen.index = None  # it may be partly updated
                raise

    def close(self) -> None:
        """Stop watching."""
        if self._process.is_present:  # in a forked child, the lock may be held forever
            with self._lock:
                self._close_queue()
                self._tree.close()

    # Following events

    def _drain(self, leaves: Leaves | None) -> Dirty:
        pending, self._pending = self._pending, NOTHING
        complete_before_ns, self._complete_before_ns = self._complete_before_ns, None
        racy_ns = self._seen.times.racy_from_ns()
        noted, summary = self._noted.take(), self._read_events()
        index = self._seen.index
        reason = self._scan_reason or summary.reason
        if index is None:
            reason = _INTERRUPTED
        elif noted.prefixes and noted.everything:
            reason = _ASKED_FOR
        elif index.unreadable:
            reason = _UNREADABLE
        elif reason is None:
            if noted is not NOTHING:
                summary.paths.update([path.parts for path in noted.paths])
                summary.prefixes.update([path.parts for path in noted.prefixes])
                # Report it even if its status is equal: a caller may have returned it
                pending = noted if pending is NOTHING else pending | noted
            followed = self._follow(index, summary, racy_ns)
            return followed if pending is NOTHING else pending | followed
        if index is not None and complete_before_ns is not None:
            index.trust_older(complete_before_ns)  # else all of them would count as changed
        return pending | noted | summary.dirty() | self._scan(reason, leaves)

    def _read_events(self) -> _EventSummary:
        summary = _EventSummary(
            self._made, self._left, self._expected, self._tree.hidden, writes=self._writes
        )
        if self._queue is not None:
            try:
                events = self._queue.read()
                if events:
                    summary.add(events)
            except (_LostEventsError, OSError) as error:
                summary.reason = f"events were lost: {error}"
                self._warn(summary.reason)
                self._close_queue()  # the scan opens a new one
        self._made.clear()
        self._left.clear()
        self._expected.clear()
        return summary

    def _follow(self, index: FileIndex, summary: _EventSummary, racy_ns: int) -> Dirty:
        """The paths that may have changed, from *summary* and the index; updates *index*."""
        tops = summary.prefixes
        if not summary.paths and not tops and not index.linked:
            self._complete_before_ns = racy_ns
            return NOTHING
        keys: set[EntryKey] = set()
        for path in summary.paths:
            if not tops or not _is_below(path, tops):
                keys.add((path[:-1], "".join(path[-1:])))
        changed = NotedChanges()
        try:
            reason = self._look_below(index, tops) if tops else self._scan_reason
            reason = reason or self._look_at(index, keys, index.linked, summary.written(), changed)
        except FilesystemError as error:
            reason = f"files changed while they were read: {error.message}"
        found = changed.take()
        if tops:
            found |= Dirty(prefixes=frozenset(map(WorkspacePath, tops)))
        if reason is not None:
            return found | summary.dirty() | self._scan(reason)
        self._complete_before_ns = racy_ns
        return found

    def _look_below(self, index: FileIndex, tops: set[Parts]) -> str | None:
        """Update *index* for everything below *tops*; the reason if a scan is needed."""
        for top in tops:
            if not _is_below(top[:-1], tops):
                self._seen.look_below(index, WorkspacePath(top), self._watch)
        if any(_is_below((*directory, name), tops) for directory, name in index.linked):
            return _NEW_LINK
        return self._scan_reason

    def _look_at(
        self,
        index: FileIndex,
        keys: set[EntryKey],
        checked: set[EntryKey],
        written: set[EntryKey],
        changed: NotedChanges,
    ) -> str | None:
        """Add the entries that changed or are racily clean; the reason if a scan is needed.

        An entry of *keys*, which has an event, is added even if its status is equal.
        """
        reason: str | None = None
        for directory, names in _by_directory(keys | checked).items():
            racily_clean = {name for name in names if (directory, name) in index.racily_clean}
            seen = self._seen.look_at(index, WorkspacePath(directory), names)
            for name, (before, now) in seen.items():
                key = (directory, name)
                below = before is not now and is_directory_change(before, now)
                reported = key in keys and (before or now) is not None
                if reported or before != now or name in racily_clean:
                    changed.add(WorkspacePath((*directory, name)), below=below)
                if below:
                    reason = _UNREPORTED_DIRECTORY
                elif now is not None and now.n_links > 1 and _is_new_link(before, now):
                    reason = _NEW_LINK
                elif before == now and key in written:
                    reason = _LOST_NAME
        return reason

    # Scanning

    def _scan(self, reason: str, leaves: Leaves | None = None) -> Dirty:
        """The changes since the last drain, found by a scan; watches all directories again."""
        if self._queue is None and self._scan_reason is None:
            self._open_queue()
        if self._queue is not None:
            self._queue.begin_renewal()
        found = self._seen.look_at_all(self._watch, leaves)
        if self._queue is not None:
            self._queue.end_renewal()
        if self._seen.index is not None and self._seen.index.unreadable:
            self._warn(_UNREADABLE)
        return Dirty(reason=self._scan_reason or reason) | found

    def _watch(self, directory: Parts, descriptor: int) -> None:
        if self._queue is not None:
            try:
                self._queue.watch(directory, descriptor)
            except OSError as error:
                self._stop_watching(f"not every directory can be watched: {error.strerror}")

    def _open_queue(self) -> None:
        try:
            self._queue = _Queue(self._max_watches)
        except OSError as error:
            self._stop_watching(f"inotify is not available: {error.strerror}")

    def _stop_watching(self, reason: str) -> None:
        self._scan_reason = f"{reason}; every entry is checked instead"
        self._warn(self._scan_reason)
        self._close_queue()

    def _close_queue(self) -> None:
        if self._queue is not None:
            self._queue.close()
            self._queue = None

    def _warn(self, reason: str) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            _log.warning("%s: %s", self._tree.root, reason)


def _is_new_link(before: Status | None, now: Status) -> bool:
    """Whether a name of a file with several names was not its name before."""
    return before is None or before.inode != now.inode


def _parsed(data: bytes) -> list[tuple[int, int, int, str]]:
    """Watch, mask, cookie and name of each event; parsed here for speed: it runs in each call."""
    events: list[tuple[int, int, int, str]] = []
    start, end = 0, len(data)
    while start < end:
        watch, mask, cookie, n_name_bytes = _EVENT.unpack_from(data, start)
        start += _EVENT.size + n_name_bytes
        name = data[start - n_name_bytes : start].rstrip(b"\0")  # padded [inotify(7)]
        events.append((watch, mask, cookie, name.decode(_ENCODING, _ENCODING_ERRORS)))
    return events


def _proc(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _is_below(directory: Parts, tops: set[Parts]) -> bool:
    return any(directory[:n] in tops for n in range(len(directory) + 1))


def _by_directory(keys: Iterable[EntryKey]) -> dict[Parts, set[str]]:
    names: defaultdict[Parts, set[str]] = defaultdict(set)
    for directory, name in keys:
        names[directory].add(name)
    return names


class _Mounts(NamedTuple):
    """What the mounts of this machine say about a root.

    ``why_incomplete`` is set if other machines may change files. ``is_local`` is true if they
    cannot, and nothing is mounted below the root.
    """

    why_incomplete: str | None
    is_local: bool

    @classmethod
    def of(cls, root: Path) -> _Mounts:
        try:
            mounts = read_mounts()
        except OSError:
            return cls("the type of the filesystem is not known", is_local=False)
        why = remote_filesystem(root.stat().st_dev, mounts)
        return cls(why, is_local=why is None and not has_mount_below(root.resolve(), mounts))


def has_mount_below(root: Path, mounts: str) -> bool:
    """Whether anything is mounted below *root*, from lines as in ``/proc/self/mountinfo``."""
    below = prefix_of_points_below(root)
    return any(line.split()[4].startswith(below) for line in mounts.splitlines())


def remote_filesystem(device: int, mounts: str) -> str | None:
    """Why events for a device are incomplete; ``None`` for filesystems of this machine.

    Args:
        device: A number as in ``st_dev``.
        mounts: Lines as in ``/proc/self/mountinfo`` [proc(5)].
    """
    number = f"{os.major(device)}:{os.minor(device)}"
    for mount in mounts.splitlines():
        fields, _, kind = mount.partition(" - ")
        if fields.split()[2] == number and kind.startswith(_REMOTE):
            return f"other machines may change files on {kind.split()[0]} without events"
    return None
