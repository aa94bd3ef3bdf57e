"""An index: the status of every entry when it was last read.

Rule 1: an entry with the same status has the same content, since every change of a file
alters its change time. This does not hold if the file had just changed when its status was
read: the next change may get the same time. Such an entry is *racily clean* (``ChangeTimes``) and
counts as changed the next time.
Rule 2: a stored index is a hint. If it is missing, damaged or of another version, everything
counts as changed. Its file has a line of JSON (version, checksum, size, note), then the index in
the form of ``marshal``, which is read ten times as fast as JSON.
"""

from __future__ import annotations

import json
import logging
import marshal
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from wink_workspace._collector import CollectorPaused
from wink_workspace.clock import Clock
from wink_workspace.errors import FilesystemError
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.fingerprint_cache import COARSEST_TICK_NS, ChangeTimes
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.paths import ROOT, WorkspacePath

# ------------------------------------------------------------------------------------------ dirty


@dataclass(frozen=True, slots=True)
class Dirty:
    """The paths that may have changed.

    Each of ``paths`` stands for itself alone: a directory among them was added, deleted or
    changed its mode, and its entries are listed separately. Each of ``prefixes`` stands for
    itself and everything that is or was below it. ``reason`` is set if notes and events were
    not enough: the status of all entries was read, or, if ``everything``, nothing is known.
    """

    paths: frozenset[WorkspacePath] = frozenset()
    prefixes: frozenset[WorkspacePath] = frozenset()
    reason: str | None = None

    @classmethod
    def all(cls, reason: str) -> Dirty:
        """Everything may have changed, for this reason."""
        return cls(prefixes=frozenset((ROOT,)), reason=reason)

    @property
    def everything(self) -> bool:
        """Whether any path may have changed."""
        return ROOT in self.prefixes

    def __bool__(self) -> bool:
        return bool(self.paths or self.prefixes)

    def __or__(self, other: Dirty) -> Dirty:
        if not (other.paths or other.prefixes or other.reason):
            return self
        if not (self.paths or self.prefixes or self.reason):
            return other
        reason = self.reason or other.reason
        if self.reason and other.reason:
            reason = f"{self.reason}; {other.reason}"
        return Dirty(self.paths | other.paths, self.prefixes | other.prefixes, reason)


NOTHING = Dirty()


class NotedChanges:
    """The paths noted since the last ``take``."""

    def __init__(self) -> None:
        self._paths: set[WorkspacePath] = set()
        self._prefixes: set[WorkspacePath] = set()

    def add(self, path: WorkspacePath, *, below: bool) -> None:
        """Note *path*, with *below* also everything below it."""
        (self._prefixes if below else self._paths).add(path)

    def take(self) -> Dirty:
        """All noted paths, which are then forgotten."""
        if not self._paths and not self._prefixes:
            return NOTHING
        taken = Dirty(frozenset(self._paths), frozenset(self._prefixes))
        self._paths.clear()
        self._prefixes.clear()
        return taken


# ------------------------------------------------------------------------------------------ index

_fields = attrgetter("st_mode", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_nlink")
_FORMAT: Final = 5
_MARSHAL_FORMAT: Final = 2  # the same for every Python: processes of several may share a base
_Stored = tuple[dict[Parts, dict[str, tuple[int, ...]]], list[list[Any]]]  # Any: keys or parts


class Status(NamedTuple):
    """The part of a status that shows changes; for a directory, only its mode.

    In an upper layer of an overlay, the inode of a directory is its form (see ``DirectoryForm``).
    """

    mode: int
    inode: int = 0
    size_bytes: int = 0
    modified_ns: int = 0
    changed_ns: int = 0
    n_links: int = 0

    @property
    def is_directory(self) -> bool:
        """Whether the entry is a directory."""
        return stat.S_ISDIR(self.mode)


def status_of(found: os.stat_result) -> Status:
    """The part of a status that shows changes.

    Only the mode counts where the rest changes without the entry. In an upper layer of an overlay,
    a character device 0:0 marks a deleted name. All of them may be hard links of one device, whose
    times then change with every deletion.
    """
    mode = found.st_mode
    if stat.S_ISDIR(mode) or (stat.S_ISCHR(mode) and found.st_rdev == 0):
        return Status(mode)
    return Status._make(_fields(found))


_log = logging.getLogger(__name__)

_MAX_SCANS = 5

EntryKey = tuple[Parts, str]
"""The directory of an entry, and its name."""

Watch = Callable[[Parts, int], None]

Leaves = Callable[[Parts], bool]
"""Whether the caller of a drain removes a new directory, so that nothing below it is read."""


DirectoryForm = Callable[[int], int]
"""What an open directory of an upper layer does to the base, as a number.

0 if it is merged with the directory of the same name in the base; any other number if it hides it,
or is merged with another one. A directory whose form changes is another directory.
"""


# The index


class FileIndex:
    """The status of every entry, by directory and name.

    Attributes:
        directories: The entries of each directory.
        linked: The files with several names (hard links).
        racily_clean: The files that had just changed.
        unreadable: The directories whose entries are not known.
    """

    def __init__(self) -> None:
        self.directories: dict[Parts, dict[str, Status]] = {}
        self.linked: set[EntryKey] = set()
        self.racily_clean: set[EntryKey] = set()
        self.unreadable: set[Parts] = set()

    @property
    def n_bytes(self) -> int:
        """The total size of all files."""
        return sum(at.size_bytes for _, at in self._all())

    def _all(self) -> Iterator[tuple[EntryKey, Status]]:
        for parts, entries in self.directories.items():
            for name, at in entries.items():
                yield (parts, name), at

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, FileIndex) else NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType] - it changes

    def get(self, directory: Parts, name: str) -> Status | None:
        """The status of an entry; ``None`` if it did not exist."""
        return self.directories.get(directory, {}).get(name)

    def put(
        self, directory: Parts, entries: Mapping[str, Status], racy_ns: int = sys.maxsize
    ) -> None:
        """Add *entries*, by name, to a directory.

        Those that changed at *racy_ns* or later are racily clean.
        """
        self.directories.setdefault(directory, {}).update(entries)
        for name, at in entries.items():
            if at.n_links > 1:
                self.linked.add((directory, name))
            if at.changed_ns >= racy_ns:
                self.racily_clean.add((directory, name))

    def put_listing(
        self,
        directory: Parts,
        entries: Iterable[tuple[str, os.stat_result]],
        racy_ns: int = sys.maxsize,
    ) -> None:
        """As ``put`` for entries that were just listed."""
        self.put(directory, {name: status_of(found) for name, found in entries}, racy_ns)

    def newest_ns(self) -> int:
        """When anything last changed; 0 if there is nothing."""
        return max((at.changed_ns for _, at in self._all()), default=0)

    def doubt(self, racy_ns: int) -> None:
        """Count all that changed at *racy_ns* or later as racily clean, too."""
        self.racily_clean.update(key for key, at in self._all() if at.changed_ns >= racy_ns)

    def doubt_newest(self) -> None:
        """Count all that changed up to 2 s before the newest change as racily clean, too.

        For a tree that does not keep times; see ``fingerprint_cache``.
        """
        self.doubt(self.newest_ns() - COARSEST_TICK_NS)

    def trust_older(self, racy_ns: int) -> None:
        """No longer count entries that changed before *racy_ns* as racily clean.

        The caller must know of every change between the reading of the status and that time,
        also of those in the same tick of the clock.
        """
        self.racily_clean = {
            (directory, name)
            for directory, name in self.racily_clean
            if self.directories[directory][name].changed_ns >= racy_ns
        }

    def forget(self, directory: Parts, name: str) -> None:
        """Forget an entry and everything below it."""
        self.directories.get(directory, {}).pop(name, None)
        todo = [(directory, name)]
        while todo:
            key = todo.pop()
            self.linked.discard(key)
            self.racily_clean.discard(key)
            below = (*key[0], key[1])
            self.unreadable.discard(below)
            todo += [(below, each) for each in self.directories.pop(below, ())]

    def copy(self, other: FileIndex, directory: Parts, name: str) -> None:
        """Have what *other* has of an entry and of everything below it."""
        self.forget(directory, name)
        todo = [(directory, name)]
        while todo:
            parts, each = todo.pop()
            status = other.get(parts, each)
            if status is None:
                continue
            self.put(parts, {each: status})
            self.racily_clean |= other.racily_clean & {(parts, each)}
            if status.is_directory:
                below = (*parts, each)
                self.put(below, {})
                self.unreadable |= other.unreadable & {below}
                todo += [(below, inner) for inner in other.directories.get(below, ())]

    def differences(self, newer: FileIndex) -> Dirty:
        """What may have changed from this index to a *newer* one."""
        paths = {WorkspacePath((*directory, name)) for directory, name in self.racily_clean}
        prefixes = {WorkspacePath(parts) for parts in self.unreadable | newer.unreadable}
        for directory, new in newer.directories.items():
            # A directory that is only in one index lies below one that was added or deleted.
            old = self.directories.get(directory)
            if old is None or old == new:
                continue
            for name, after in (*new.items(), *((name, None) for name in old.keys() - new.keys())):
                before = old.get(name)
                if before != after:
                    whole = is_directory_change(before, after)
                    (prefixes if whole else paths).add(WorkspacePath((*directory, name)))
        return Dirty(frozenset(paths), frozenset(prefixes))

    # Stored

    def save(self, path: Path, *, note: Mapping[str, Any] | None = None) -> None:
        """Store the index in the file *path*, replaced as a whole, with *note* as JSON."""
        directories = {
            parts: {name: tuple(at) for name, at in entries.items()}
            for parts, entries in self.directories.items()
        }
        sets = [list(each) for each in (self.linked, self.racily_clean, self.unreadable)]
        write_index(path, (directories, sets), dict(note or {}))

    @classmethod
    def load(cls, path: Path) -> FileIndex | None:
        """The index in the file *path*; ``None`` if missing, damaged or of another version."""
        found = cls.load_noted(path)
        return None if found is None else found[0]

    @classmethod
    def load_noted(cls, path: Path) -> tuple[FileIndex, dict[str, Any]] | None:
        """As ``load``, with the note by its keys; empty if ``save`` got none."""
        index = cls()
        try:
            (directories, sets), note = read_index(path)
            with CollectorPaused():
                index.directories = {
                    parts: dict(zip(entries, map(Status._make, entries.values()), strict=True))
                    for parts, entries in directories.items()
                }
            index.linked, index.racily_clean, index.unreadable = map(set, sets)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, EOFError, TypeError) as error:
            _log.warning("ignoring the file index %s: %s", path, error)
            return None
        return index, note


def write_index(path: Path, stored: _Stored, note: dict[str, Any]) -> None:
    """Store an index and a note, with a JSON form, in a file, which is replaced as a whole."""
    body, text = marshal.dumps(stored, _MARSHAL_FORMAT), json.dumps(note)
    header = json.dumps([_FORMAT, _checksum(text, body), len(body), text]).encode()
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_bytes(header + b"\n" + body)
    unfinished.replace(path)


def _checksum(note: str, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(note.encode()))


def read_note(path: Path) -> dict[str, Any]:
    """The note of an index; the rest of the file is not read.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is damaged, or of another version.
    """
    with path.open("rb") as file:
        return json.loads(_header(file)[1])


def _header(file: BufferedReader) -> tuple[int, str]:
    """The checksum and the note; raises ``ValueError``."""
    try:
        version, checksum, n_bytes, note = json.loads(file.readline())
        if version != _FORMAT:
            raise ValueError("it is of another version")
        if file.tell() + n_bytes != os.fstat(file.fileno()).st_size:
            raise ValueError("it is damaged")
    except TypeError as error:
        raise ValueError(f"it is damaged: {error}") from error
    return checksum, note


def read_index(path: Path) -> tuple[_Stored, dict[str, Any]]:
    """All of a file; raises as ``read_note``."""
    with path.open("rb") as file:
        checksum, note = _header(file)
        body = file.read()
    if checksum != _checksum(note, body):
        raise ValueError("it is damaged")
    return marshal.loads(body), json.loads(note)  # noqa: S302 - our own file, with its checksum


def is_directory_change(before: Status | None, after: Status | None) -> bool:
    """Whether exactly one of the two is a directory, or both are and their forms differ."""
    was = before is not None and stat.S_ISDIR(before.mode)
    now = after is not None and stat.S_ISDIR(after.mode)
    if before is not None and after is not None and was and now:
        return before.inode != after.inode
    return was != now


# Reading the tree


class IndexedTree:
    """A tree, and the index of its last known state.

    ``n_visited`` counts the entries whose status was read so far. *is_local* is that of
    ``ChangeTimes``.
    """

    def __init__(
        self,
        tree: DiskTree,
        index: FileIndex | None,
        clock: Clock,
        *,
        form: DirectoryForm | None = None,
        is_local: bool = False,
    ) -> None:
        self.tree = tree
        self.index = index
        self.n_visited = 0
        self.times = ChangeTimes(tree, clock, is_local=is_local)
        self._form = form

    def look_at_all(self, watch: Watch | None = None, leaves: Leaves | None = None) -> Dirty:
        """Read the status of all entries; the changes since the index, or everything without one.

        *watch* is called with each directory, and a descriptor of it, before it is listed.
        *leaves* is that of ``ChangeTracker.drain``.
        """
        before, self.index = self.index, None  # until all is read
        problem = ""
        with CollectorPaused():
            for _ in range(_MAX_SCANS):
                index = FileIndex()
                try:
                    self._add_below(index, ROOT, watch, leaves, earlier=before)
                except FilesystemError as error:
                    problem = error.message  # such as directories that another process moves
                else:
                    if not self.tree.keeps_times:
                        index.doubt_newest()
                    self.index = index
                    nothing_known = Dirty.all("there is no earlier state to compare with")
                    return before.differences(index) if before else nothing_known
        return Dirty.all(f"not every entry could be read: {problem}")

    def look_below(self, index: FileIndex, path: WorkspacePath, watch: Watch) -> None:
        """Update *index* for *path* and everything below it.

        Raises:
            FilesystemError: If another process is changing it; the index is then incomplete.
        """
        index.forget(path.parent.parts, path.name)
        _, now = self.look_at(index, path.parent, [path.name])[path.name]
        if now is not None and now.is_directory:
            self._add_below(index, path, watch)

    def look_at(
        self, index: FileIndex, directory: WorkspacePath, names: Iterable[str]
    ) -> dict[str, tuple[Status | None, Status | None]]:
        """The old and new status of entries; updates *index*.

        Entries below a new directory are not read.
        """
        seen: dict[str, tuple[Status | None, Status | None]] = {}
        racy_ns = self.times.racy_from_ns()
        wanted = list(names)
        known = index.directories.get(directory.parts, {})
        found = self.tree.statuses(directory, wanted)
        self.n_visited += len(wanted)
        for name in wanted:
            before = known.get(name)
            now = status_of(found[name]) if name in found else None
            if self._form is not None and now is not None and now.is_directory:
                with self.tree.entered(directory / name) as entered:
                    now = now._replace(inode=self._form(entered))
            seen[name] = before, now
            # An entry that is not in the index has nothing below it there
            if before is not None and (
                now is None
                or not (stat.S_ISDIR(before.mode) and stat.S_ISDIR(now.mode))
                or before.inode != now.inode
            ):
                index.forget(directory.parts, name)
            if now is not None:
                index.put(directory.parts, {name: now}, racy_ns)
        return seen

    def _add_below(
        self,
        index: FileIndex,
        top: WorkspacePath,
        watch: Watch | None,
        leaves: Leaves | None = None,
        *,
        earlier: FileIndex | None = None,
    ) -> None:
        """Add *top* and everything below it, but nothing below a directory that leaves."""
        racy_ns = self.times.racy_from_ns()
        form = self._form

        def before(parts: Parts, descriptor: int) -> None:
            directory = top.parts + parts
            if watch is not None:
                watch(directory, descriptor)
            if form is not None and directory:
                entries = index.directories[directory[:-1]]
                status = entries[directory[-1]]
                entries[directory[-1]] = status._replace(inode=form(descriptor))

        def unreadable(parts: Parts) -> None:
            index.unreadable.add(top.parts + parts)

        for listing in self.tree.listings(top, before=before, unreadable=unreadable):
            directory = top.parts + listing.parts
            self.n_visited += len(listing.entries)
            index.put_listing(directory, listing.entries, racy_ns)
            if leaves is not None and earlier is not None:
                listing.entries[:] = [
                    (name, status)
                    for name, status in listing.entries
                    if not stat.S_ISDIR(status.st_mode)
                    or not _is_new_and_leaves(earlier, (*directory, name), leaves)
                ]


def _is_new_and_leaves(earlier: FileIndex, directory: Parts, leaves: Leaves) -> bool:
    """Whether a directory is new since *earlier*, so that nothing else changed, and leaves."""
    known = earlier.get(directory[:-1], directory[-1])
    return (known is None or not known.is_directory) and leaves(directory)
