"""An index: the status of every entry when it was last read.

Rule 1: an entry with the same status has the same content, since every change of a file
alters its change time. This does not hold if the file had just changed when its status was
read: the next change may fall into the same tick of the filesystem's clock. Such an entry is
*racily clean* and counts as changed the next time.
Rule 2: a stored index is a hint. If it is missing, damaged or of another version, everything
counts as changed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from wink_workspace.clock import Clock
from wink_workspace.errors import FilesystemError
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.tree import DiskTree, racy_from_ns
from wink_workspace.filesystem.paths import ROOT, WorkspacePath

from .dirty import Dirty

__all__ = [
    "DirectoryForm",
    "EntryKey",
    "FileIndex",
    "IndexedTree",
    "Status",
    "Watch",
    "is_directory_change",
    "status_of",
]

_log = logging.getLogger(__name__)

_FORMAT = 2
_MAX_SCANS = 5

EntryKey = tuple[Parts, str]
"""The directory of an entry, and its name."""

Watch = Callable[[Parts, int], None]

DirectoryForm = Callable[[int], int]
"""What an open directory of an upper layer does to the base, as a number.

0 if it is merged with the directory of the same name in the base; any other number if it hides it,
or is merged with another one. A directory whose form changes is another directory.
"""


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

    In an upper layer of an overlay, a character device 0:0 marks a deleted name. All of them may be
    hard links of one device, whose times then change with every deletion.
    """
    is_mark = stat.S_ISCHR(found.st_mode) and found.st_rdev == 0
    if is_mark or stat.S_ISDIR(found.st_mode):
        return Status(found.st_mode)
    return Status(
        found.st_mode,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_nlink,
    )


# The index


@dataclass(slots=True)
class FileIndex:
    """The status of every entry, by directory and name.

    ``linked`` are the files with several names (hard links), ``racily_clean`` those that had just
    changed, and ``unreadable`` the directories whose entries are not known.
    """

    directories: dict[Parts, dict[str, Status]] = field(
        default_factory=dict[Parts, dict[str, Status]]
    )
    linked: set[EntryKey] = field(default_factory=set[EntryKey])
    racily_clean: set[EntryKey] = field(default_factory=set[EntryKey])
    unreadable: set[Parts] = field(default_factory=set[Parts])

    def get(self, directory: Parts, name: str) -> Status | None:
        """The status of an entry; ``None`` if it did not exist."""
        return self.directories.get(directory, {}).get(name)

    def put(self, directory: Parts, entries: dict[str, Status], racy_ns: int) -> None:
        """Add entries to a directory; those that changed at *racy_ns* or later are racily clean."""
        self.directories.setdefault(directory, {}).update(entries)
        for name, at in entries.items():
            if at.n_links > 1:
                self.linked.add((directory, name))
            if at.changed_ns >= racy_ns:
                self.racily_clean.add((directory, name))

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
            if inside := self.directories.pop(below, None):
                todo += [(below, each) for each in inside]

    def differences(self, newer: FileIndex) -> Dirty:
        """What may have changed from this index to a *newer* one."""
        paths = {WorkspacePath((*directory, name)) for directory, name in self.racily_clean}
        prefixes = {WorkspacePath(parts) for parts in self.unreadable | newer.unreadable}
        for directory, new in newer.directories.items():
            # A directory that is only in one index lies below one that was added or deleted.
            old = self.directories.get(directory, new)
            if old != new:
                for name in old.keys() | new.keys():
                    before, after = old.get(name), new.get(name)
                    if before != after:
                        whole = is_directory_change(before, after)
                        (prefixes if whole else paths).add(WorkspacePath((*directory, name)))
        return Dirty(frozenset(paths), frozenset(prefixes))

    # Stored

    def save(self, path: Path, *, note: Mapping[str, Any] | None = None) -> None:
        """Store the index in a file, which is replaced as a whole, with a note in JSON."""
        content = json.dumps([dict(note or {}), *self._records()], separators=(",", ":")).encode()
        unfinished = path.with_name(path.name + ".unfinished")
        unfinished.write_bytes(json.dumps(_header(content)).encode() + b"\n" + content)
        unfinished.replace(path)

    @classmethod
    def load(cls, path: Path) -> FileIndex | None:
        """The index stored in a file; ``None`` if it is missing, damaged or of another version."""
        found = cls.load_noted(path)
        return None if found is None else found[0]

    @classmethod
    def load_noted(cls, path: Path) -> tuple[FileIndex, dict[str, Any]] | None:
        """As ``load``, with the note."""
        try:
            header, _, content = path.read_bytes().partition(b"\n")
            if json.loads(header) != _header(content):
                raise ValueError("it is damaged, or of another version")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("ignoring the file index %s: %s", path, error)
            return None
        note, *records = json.loads(content)
        return cls._of_records(records), note

    @classmethod
    def load_note(cls, path: Path) -> dict[str, Any] | None:
        """The note alone."""
        found = cls.load_noted(path)
        return None if found is None else found[1]

    def _records(self) -> Iterator[tuple[int, str, dict[str, Status], list[str], bool]]:
        """For each directory: its parent's number, its name, its entries, and the uncertain ones.

        Full paths would fill the memory: 3,000 nested directories with long names have 3,000
        paths of up to 3,000 names.
        """
        todo: list[tuple[int, Parts]] = [(0, ())]
        number = 0
        while todo:
            parent, directory = todo.pop()
            entries = self.directories.get(directory, {})
            racily_clean = [name for name in entries if (directory, name) in self.racily_clean]
            yield (
                parent,
                "".join(directory[-1:]),
                entries,
                racily_clean,
                directory in self.unreadable,
            )
            below = [name for name, at in entries.items() if at.is_directory]
            todo += [(number, (*directory, name)) for name in below]
            number += 1

    @classmethod
    def _of_records(cls, records: list[Any]) -> FileIndex:  # Any: read back as it was written
        index = cls()
        known: list[Parts] = []
        for parent, name, entries, racily_clean, unreadable in records:
            directory: Parts = (*known[int(parent)], str(name)) if known else ()
            known.append(directory)
            if unreadable:
                index.unreadable.add(directory)
                continue
            index.put(directory, {each: Status(*entries[each]) for each in entries}, sys.maxsize)
            index.racily_clean.update((directory, each) for each in racily_clean)
        return index


def is_directory_change(before: Status | None, after: Status | None) -> bool:
    """Whether exactly one of the two is a directory, or both are and their forms differ."""
    was = before is not None and stat.S_ISDIR(before.mode)
    now = after is not None and stat.S_ISDIR(after.mode)
    if before is not None and after is not None and was and now:
        return before.inode != after.inode
    return was != now


def _header(content: bytes) -> dict[str, object]:
    return {"format": _FORMAT, "sha256": hashlib.sha256(content).hexdigest()}


# Reading the tree


class IndexedTree:
    """A tree, and the index of its last known state.

    ``n_visited`` counts the entries whose status was read so far.
    """

    def __init__(
        self,
        tree: DiskTree,
        index: FileIndex | None,
        clock: Clock,
        *,
        form: DirectoryForm | None = None,
    ) -> None:
        self.tree = tree
        self.index = index
        self.n_visited = 0
        self._clock = clock
        self._form = form

    def look_at_all(self, watch: Watch | None = None) -> Dirty:
        """Read the status of all entries; the changes since the index, or everything without one.

        *watch* is called with each directory, and a descriptor of it, before it is listed.
        """
        before, self.index = self.index, None  # until all is read
        problem = ""
        for _ in range(_MAX_SCANS):
            index = FileIndex()
            try:
                self._add_below(index, ROOT, watch)
            except FilesystemError as error:
                problem = error.message  # such as directories that another process moves
            else:
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
        racy_ns = racy_from_ns(self._clock)
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
                now is None or not before.is_directory or is_directory_change(before, now)
            ):
                index.forget(directory.parts, name)
            if now is not None:
                index.put(directory.parts, {name: now}, racy_ns)
        return seen

    def _add_below(self, index: FileIndex, top: WorkspacePath, watch: Watch | None) -> None:
        racy_ns = racy_from_ns(self._clock)
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
            entries = {name: status_of(status) for name, status in listing.entries}
            index.put(top.parts + listing.parts, entries, racy_ns)
            self.n_visited += len(entries)
