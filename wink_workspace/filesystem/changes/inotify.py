"""Changes told by Linux (inotify), so that a drain costs what changed, not what there is.

Every directory is watched. An event names a directory and an entry of it, and the queue of
events keeps their order [inotify(7)]. ``drain`` makes an event of its own, on a *canary*
that nobody else can reach, and reads until it comes. An operation queues its events before
it returns, so those of everything that was over before the drain began are in front of the
canary: when it has been read, so have they.

What events do not tell, and how each gap is closed:

* What happens in a directory before it is watched. One that somebody else made or moved in
  leads to a scan. One that we made is watched at once; only a process that runs at that very
  instant could use what is left of the gap, and confined code does not run while we write.
* Which directory is meant after one was moved: its watch goes on under the old path. All
  below both paths counts as changed, and is watched again under its new name.
* That a file changed through another of its names (hard links). Files that have several are
  looked at in each drain, and a new name of an old file leads to a scan. So does a name that
  came and went in between, as it may have been one, and a write under a name whose file did
  not change: a scan finds what was written. Names that we give our unfinished files are
  known, and do not count.
* Events that were lost: the queue overflowed, or the canary did not come.
* What another machine does to a network filesystem. There, every drain scans; as it does
  when a directory cannot be watched or read.

A *scan* looks at the status of every entry and compares it with the index that is kept of
the last drain; it needs no events, so nothing is missed.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import struct
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, cast

from inotify_simple import (  # pyright: ignore[reportMissingTypeStubs] - has none
    INotify,
    flags,
)

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import FilesystemError
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.tree import DiskTree, HiddenPaths, racy_from_ns
from wink_workspace.filesystem.paths import WorkspacePath
from wink_workspace.processes import OwnProcess

from .dirty import NOTHING, Dirty, Noted
from .index import FileIndex, IndexedTree, Place, Status, came_or_went

__all__ = ["InotifyTracker", "remote_filesystem"]

_log = logging.getLogger(__name__)

_MASK = (
    flags.CREATE
    | flags.DELETE
    | flags.MOVED_FROM
    | flags.MOVED_TO
    | flags.MODIFY
    | flags.ATTRIB
    | flags.CLOSE_WRITE  # of a shared memory mapping nothing else tells
    | flags.ONLYDIR
)
_EVENT = struct.Struct("iIII")
_ENCODING, _ENCODING_ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_CANARY_WAIT_MS = 1_000
_READ_BYTES = 65_536
# Plain numbers, as the operators of ``flags`` take longer than all else for an event
_CREATE, _DELETE = int(flags.CREATE), int(flags.DELETE)
_MOVED_FROM, _MOVED_TO = int(flags.MOVED_FROM), int(flags.MOVED_TO)
_MODIFY, _ATTRIB = int(flags.MODIFY), int(flags.ATTRIB)
_ISDIR, _IGNORED = int(flags.ISDIR), int(flags.IGNORED)
_LOST = int(flags.Q_OVERFLOW | flags.UNMOUNT)
# Where another machine, or a server in user space, changes files without telling this one.
_REMOTE = ("nfs", "cifs", "smb", "9p", "virtiofs", "ceph", "afs", "fuse")

_NEW_DIRECTORY = "a directory came that was not watched from the start"
_NEW_LINK = "a file got another name"
_CAME_AND_WENT = "a name came and went that may have been another one of some file"
_LOST_NAME = "a file was written whose name is gone, and which may have others"
_UNREADABLE = "there is a directory that cannot be read"
_INTERRUPTED = "the last drain did not come to its end"
_ASKED_FOR = "everything was noted as changed"


class _LostEventsError(Exception):
    """Events were lost; a new queue may do better."""


class _Inotify(Protocol):
    """The part of ``inotify_simple.INotify`` that is used, which has no types."""

    def add_watch(self, path: str, mask: int) -> int: ...
    def rm_watch(self, wd: int) -> None: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


_Event = tuple[int, Parts, str, int, int]
"""The watch, its directory, the name in it, the mask and the cookie [inotify(7)]."""


class _Queue:
    """Watched directories, and the events in them.

    Raises:
        OSError: If the system has no queue for us, or watches no more directories.
    """

    def __init__(self, max_watches: int | None) -> None:
        self._max_watches = max_watches
        self._places: dict[int, Parts] = {}
        self._renewed: set[int] = set()
        self._inotify = cast("_Inotify", INotify(nonblocking=True))
        self._canary = os.memfd_create("canary")
        try:
            self._canary_watch = self._inotify.add_watch(_proc(self._canary), flags.ATTRIB)
        except OSError:
            self.close()
            raise
        # What is read when nothing happened, by far the most often [inotify(7)]
        self._canary_alone = struct.pack("iIII", self._canary_watch, _ATTRIB, 0, 0)

    def close(self) -> None:
        self._inotify.close()
        os.close(self._canary)

    def watch(self, directory: Parts, descriptor: int) -> None:
        """Watch an open directory; one that is watched already is known under its new path."""
        watch = self._inotify.add_watch(_proc(descriptor), _MASK)
        self._places[watch] = directory
        self._renewed.add(watch)
        if self._max_watches is not None and len(self._places) > self._max_watches:
            raise OSError(errno.ENOSPC, f"at most {self._max_watches} are to be watched")

    def unwatch_below(self, tops: set[Parts]) -> None:
        """Stop watching *tops* and every directory below them."""
        for watch, place in list(self._places.items()):
            if _is_below(place, tops):
                del self._places[watch]
                with suppress(OSError):  # it went with its directory
                    self._inotify.rm_watch(watch)

    def begin_renewal(self) -> None:
        self._renewed.clear()

    def end_renewal(self) -> None:
        """Stop watching what was not watched again since it began."""
        for watch in self._places.keys() - self._renewed:
            del self._places[watch]
            with suppress(OSError):  # it went with its directory
                self._inotify.rm_watch(watch)

    def read(self) -> list[_Event]:
        """All events of what has happened before.

        Raises:
            _LostEventsError: If not all of them could be had.
        """
        os.utime(self._canary)
        events: list[_Event] = []
        while (told := self._told()) != self._canary_alone:
            canary_came = False
            for watch, mask, cookie, name in _parsed(told):
                if mask & _LOST:
                    raise _LostEventsError("more changed at once than the system can queue")
                canary_came |= watch == self._canary_watch
                if mask & _IGNORED:
                    self._places.pop(watch, None)
                elif watch in self._places and name:  # without one it is told above, too
                    events.append((watch, self._places[watch], name, mask, cookie))
            if canary_came:
                break
        return events

    def _told(self) -> bytes:
        """Some whole events; the system never ends in the middle of one."""
        queue = self._inotify.fileno()
        try:
            return os.read(queue, _READ_BYTES)
        except BlockingIOError:
            poller = select.poll()
            poller.register(queue, select.POLLIN)
            if not poller.poll(_CANARY_WAIT_MS):
                raise _LostEventsError("the queue of changes gives no answer") from None
            return os.read(queue, _READ_BYTES)


class _Story:
    """What a sequence of events says.

    ``told`` is what changed, ``written`` the files among it that were not new; ``reason`` is
    set if that may not be all.

    Args:
        made: Directories that we made and watched at once.
        left: Directories that we moved out, and watch no longer.
        expected: Names that only files made by us begin with.
    """

    def __init__(self, made: set[Parts], left: set[Parts], expected: set[str]) -> None:
        self.reason: str | None = None
        self._made = made
        self._left = left
        self._expected = expected
        self.paths: set[Parts] = set()
        self.prefixes: set[Parts] = set()
        self._written: set[Place] = set()
        self._begun: set[Place] = set()
        # Names that others have given since the last drain. Two watches may have one path
        # here, after a move, so they are known by their watch.
        self._born: set[tuple[int, str]] = set()
        self._moving: dict[int, bool] = {}  # files on their way by cookie, and if they were born
        self._moving_directories: set[int] = set()

    def tell(self, events: Iterable[_Event]) -> None:
        for event in events:
            watch, directory, name, mask, cookie = event
            path = (*directory, name)
            if mask & _ISDIR:
                self._tell_of_directory(path, mask, cookie)
                continue
            self.paths.add(path)
            born, place = (watch, name), (directory, name)
            if mask & (_CREATE | _MOVED_TO):
                self._begun.add(place)
            if mask & (_MODIFY | _ATTRIB):
                self._written.add(place)
            elif mask & _MOVED_FROM:
                self._moving[cookie] = born in self._born
                self._born.discard(born)
            elif mask & (_MOVED_TO | _DELETE):
                if born in self._born:
                    self._born.discard(born)
                    self.reason = _CAME_AND_WENT
                if mask & _MOVED_TO and self._moving.pop(cookie, True):
                    self._born.add(born)
            elif mask & _CREATE and name in self._expected:
                self._expected.discard(name)
            elif mask & _CREATE:
                self._born.add(born)
        if any(self._moving.values()) or self._moving_directories:
            self.reason = _CAME_AND_WENT  # out of the root, with all that was born in them

    def told(self) -> Dirty:
        return Dirty(
            frozenset(map(WorkspacePath, self.paths)), frozenset(map(WorkspacePath, self.prefixes))
        )

    def written(self) -> set[Place]:
        return self._written - self._begun

    def _tell_of_directory(self, path: Parts, mask: int, cookie: int) -> None:
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
        elif mask & _MOVED_TO or (mask & _CREATE and not ours):
            self.reason = _NEW_DIRECTORY


class InotifyTracker:
    """Is told of changes by the system.

    Args:
        root: The directory to track.
        index: What it looked like at some moment; changes count from there. Without one
            the first ``drain`` tells that everything may have changed.
        make_accessible: Change the mode of directories that keep their owner out; otherwise each
            drain is a scan while there are any.
        max_watches: Directories to watch, at most (by default what the system allows); with
            more, each drain is a scan.
        hidden: As for ``ScanTracker``; hidden directories are not watched.
        clock: Tells how old files are.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        index: FileIndex | None = None,
        make_accessible: bool = False,
        max_watches: int | None = None,
        hidden: HiddenPaths | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._tree = DiskTree(root, make_accessible=make_accessible, hidden=hidden)
        self._seen = IndexedTree(self._tree, index, clock)
        self._clock = clock
        self._max_watches = max_watches
        self._noted = Noted()
        self._made: set[Parts] = set()
        self._left: set[Parts] = set()
        self._expected: set[str] = set()
        self._said: set[str] = set()
        self._told_before_ns: int | None = None
        self._lock = threading.RLock()
        self._queue: _Queue | None = None
        self._process = OwnProcess(f"the watch on {self._tree.root}")
        self._deaf: str | None = _reason_not_to_listen(self._tree.root)
        if self._deaf is not None:
            self._warn(self._deaf)
        self._owed = self._scanned("it was not watched until now")

    @property
    def n_visited(self) -> int:
        """How many entries were looked at so far."""
        return self._seen.n_visited

    @property
    def index(self) -> FileIndex | None:
        """What everything looked like in the last drain, if all could be looked at."""
        if self._seen.index is not None and self._told_before_ns is not None:
            self._seen.index.trust_older(self._told_before_ns)
        return self._seen.index

    def note(self, path: WorkspacePath, *, below: bool = False) -> None:
        """Count *path*, with *below* also everything under it, as changed."""
        with self._lock:
            self._noted.add(path, below=below)

    def expect(self, name: str) -> None:
        """Know the next file that appears as *name* for one of ours."""
        with self._lock:
            self._expected.add(name)

    def made(self, path: WorkspacePath) -> None:
        """Watch a directory of ours, of which nobody has been told yet."""
        with self._lock, suppress(FilesystemError), self._tree.opened(path) as descriptor:
            self._watch(path.parts, descriptor)
            self._made.add(path.parts)

    def left(self, directories: Sequence[WorkspacePath]) -> None:
        """Stop watching what we have just moved out."""
        with self._lock:
            self._left.update(path.parts for path in directories)
            if self._queue is not None:
                self._queue.unwatch_below(self._left)

    def drain(self) -> Dirty:
        """What may have changed since the last drain; ``ForkedProcessError`` in a forked child."""
        self._process.check()  # a child would take the events away
        with self._lock:
            try:
                return self._drained()
            except BaseException:
                self._seen.index = None  # it may be half of before, half of now
                raise

    def close(self) -> None:
        """Stop watching."""
        if self._process.is_present:  # in a child another thread of the parent may hold the lock
            with self._lock:
                self._close_queue()
                self._tree.close()

    # Following events

    def _drained(self) -> Dirty:
        owed, self._owed = self._owed, NOTHING
        self._told_before_ns = None
        racy_ns = racy_from_ns(self._clock)
        noted, story = self._noted.take(), self._story()
        index = self._seen.index
        reason = self._deaf or story.reason
        if index is None:
            reason = _INTERRUPTED
        elif noted.prefixes and noted.everything:
            reason = _ASKED_FOR
        elif index.unreadable:
            reason = _UNREADABLE
        elif reason is None:
            if noted is not NOTHING:
                story.paths.update([path.parts for path in noted.paths])
                story.prefixes.update([path.parts for path in noted.prefixes])
                # It is told even if it looks the same: it may have been handed back
                owed = noted if owed is NOTHING else owed | noted
            followed = self._followed(index, story, racy_ns)
            return followed if owed is NOTHING else owed | followed
        return owed | noted | story.told() | self._scanned(reason)

    def _story(self) -> _Story:
        story = _Story(self._made, self._left, self._expected)
        if self._queue is not None:
            try:
                events = self._queue.read()
                if events:
                    story.tell(events)
            except (_LostEventsError, OSError) as error:
                story.reason = f"changes were not told: {error}"
                self._warn(story.reason)
                self._close_queue()  # and begin with an empty one
        self._made.clear()
        self._left.clear()
        self._expected.clear()
        return story

    def _followed(self, index: FileIndex, story: _Story, racy_ns: int) -> Dirty:
        """What of the things told did change; *index* is brought up to date."""
        tops = story.prefixes
        if not story.paths and not tops and not index.linked:
            self._told_before_ns = racy_ns
            return NOTHING
        places: set[Place] = set()
        for path in story.paths:
            if not tops or not _is_below(path, tops):
                places.add((path[:-1], "".join(path[-1:])))
        changed = Noted()
        try:
            reason = self._look_below(index, tops) if tops else self._deaf
            reason = reason or self._look_at(index, places, story.written(), changed)
        except FilesystemError as error:
            reason = f"files change while they are looked at: {error.message}"
        found = changed.take()
        if tops:
            found |= Dirty(prefixes=frozenset(map(WorkspacePath, tops)))
        if reason is not None:
            return found | story.told() | self._scanned(reason)
        self._told_before_ns = racy_ns
        return found

    def _look_below(self, index: FileIndex, tops: set[Parts]) -> str | None:
        """Look at all that is below *tops*; the reason, if that may not be all."""
        for top in tops:
            if not _is_below(top[:-1], tops):
                self._seen.look_below(index, WorkspacePath(top), self._watch)
        if any(_is_below(directory, tops) for directory, _ in index.linked):
            return _NEW_LINK
        return self._deaf

    def _look_at(
        self, index: FileIndex, places: set[Place], written: set[Place], changed: Noted
    ) -> str | None:
        """Note what did change; the reason, if that may not be all."""
        reason: str | None = None
        for directory, names in _by_directory(places | index.linked).items():
            racily_clean = {name for name in names if (directory, name) in index.racily_clean}
            seen = self._seen.look_at(index, WorkspacePath(directory), names)
            for name, (before, now) in seen.items():
                place = (directory, name)
                whole = before is not now and came_or_went(before, now)
                told = place in places and (before or now) is not None
                if told or before != now or name in racily_clean:
                    changed.add(WorkspacePath((*directory, name)), below=whole)
                if whole:
                    reason = _NEW_DIRECTORY
                elif now is not None and now.n_links > 1 and _is_new_link(before, now):
                    reason = _NEW_LINK
                elif before == now and place in written:
                    reason = _LOST_NAME
        return reason

    # Scanning

    def _scanned(self, reason: str) -> Dirty:
        """What changed since the last drain, found without events; everything is watched anew."""
        if self._queue is None and self._deaf is None:
            self._open_queue()
        if self._queue is not None:
            self._queue.begin_renewal()
        found = self._seen.look_at_all(self._watch)
        if self._queue is not None:
            self._queue.end_renewal()
        if self._seen.index is not None and self._seen.index.unreadable:
            self._warn(_UNREADABLE)
        return Dirty(reason=self._deaf or reason) | found

    def _watch(self, directory: Parts, descriptor: int) -> None:
        if self._queue is not None:
            try:
                self._queue.watch(directory, descriptor)
            except OSError as error:
                self._stop_listening(f"not every directory can be watched: {error.strerror}")

    def _open_queue(self) -> None:
        try:
            self._queue = _Queue(self._max_watches)
        except OSError as error:
            self._stop_listening(f"the system does not tell of changes: {error.strerror}")

    def _stop_listening(self, reason: str) -> None:
        self._deaf = f"{reason}; every entry is looked at instead"
        self._warn(self._deaf)
        self._close_queue()

    def _close_queue(self) -> None:
        if self._queue is not None:
            self._queue.close()
            self._queue = None

    def _warn(self, reason: str) -> None:
        if reason not in self._said:
            self._said.add(reason)
            _log.warning("%s: %s", self._tree.root, reason)


def _is_new_link(before: Status | None, now: Status) -> bool:
    """Whether the name of a file with several names was not a name of it before."""
    return before is None or before.inode != now.inode


def _parsed(told: bytes) -> list[tuple[int, int, int, str]]:
    """Watch, mask, cookie and name of each event; by hand, as it runs after each call."""
    events: list[tuple[int, int, int, str]] = []
    start, end = 0, len(told)
    while start < end:
        watch, mask, cookie, n_name_bytes = _EVENT.unpack_from(told, start)
        start += _EVENT.size + n_name_bytes
        name = told[start - n_name_bytes : start].rstrip(b"\0")  # padded [inotify(7)]
        events.append((watch, mask, cookie, name.decode(_ENCODING, _ENCODING_ERRORS)))
    return events


def _proc(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _is_below(directory: Parts, tops: set[Parts]) -> bool:
    return any(directory[:n] in tops for n in range(len(directory) + 1))


def _by_directory(places: Iterable[Place]) -> dict[Parts, set[str]]:
    names: defaultdict[Parts, set[str]] = defaultdict(set)
    for directory, name in places:
        names[directory].add(name)
    return names


def _reason_not_to_listen(root: Path) -> str | None:
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return "it is not known on which filesystem this is"
    return remote_filesystem(root.stat().st_dev, mounts)


def remote_filesystem(device: int, mounts: str) -> str | None:
    """Why not all changes on a device are told; ``None`` for those of this machine.

    Args:
        device: A number as in ``st_dev``.
        mounts: Lines as in ``/proc/self/mountinfo`` [proc(5)].
    """
    number = f"{os.major(device)}:{os.minor(device)}"
    for mount in mounts.splitlines():
        fields, _, kind = mount.partition(" - ")
        if fields.split()[2] == number and kind.startswith(_REMOTE):
            return f"others may change files on {kind.split()[0]} without telling this machine"
    return None
