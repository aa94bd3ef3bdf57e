"""What every entry looked like when it was last looked at.

Rule 1: an entry whose status is the same has the same content, as every change of a file
gives it another change time. That does not hold for one that had just changed when it was
looked at, since the next change may fall into the same tick of the filesystem's clock: such
an entry is *racily_clean* and counts as changed the next time.
Rule 2: a stored index is a hint. One that is missing, damaged or of another version is as if
there were none, and then everything counts as changed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from wink_workspace.clock import Clock
from wink_workspace.errors import FilesystemError
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.tree import DiskTree, racy_from_ns
from wink_workspace.filesystem.paths import ROOT, WorkspacePath

from .dirty import Dirty

__all__ = ["FileIndex", "IndexedTree", "Place", "Status", "Watch", "came_or_went", "status_of"]

_log = logging.getLogger(__name__)

_FORMAT = 1
_MAX_SCANS = 5

Place = tuple[Parts, str]
"""A directory and a name in it."""

Watch = Callable[[Parts, int], None]


class Status(NamedTuple):
    """What tells whether an entry changed; of directories, only that they are there."""

    mode: int
    inode: int = 0
    size_bytes: int = 0
    modified_ns: int = 0
    changed_ns: int = 0
    n_links: int = 0

    @property
    def is_directory(self) -> bool:
        """Whether it is that of a directory."""
        return stat.S_ISDIR(self.mode)


def status_of(found: os.stat_result) -> Status:
    """What of a status tells whether the entry changed."""
    if stat.S_ISDIR(found.st_mode):
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

    ``linked`` are the files with several names, ``racily_clean`` those that had just changed,
    ``unreadable`` the directories of which nothing is known but that they are there.
    """

    directories: dict[Parts, dict[str, Status]] = field(
        default_factory=dict[Parts, dict[str, Status]]
    )
    linked: set[Place] = field(default_factory=set[Place])
    racily_clean: set[Place] = field(default_factory=set[Place])
    unreadable: set[Parts] = field(default_factory=set[Parts])

    def get(self, directory: Parts, name: str) -> Status | None:
        """The status of an entry; ``None`` if it was not there."""
        return self.directories.get(directory, {}).get(name)

    def put(self, directory: Parts, entries: dict[str, Status], racy_ns: int) -> None:
        """Add entries to a directory; they are settled if they changed before *racy_ns*."""
        self.directories.setdefault(directory, {}).update(entries)
        for name, at in entries.items():
            if at.n_links > 1:
                self.linked.add((directory, name))
            if at.changed_ns >= racy_ns:
                self.racily_clean.add((directory, name))

    def trust_older(self, racy_ns: int) -> None:
        """Count entries that changed before *racy_ns* as settled.

        To be used by who knows of every change that came after the entries were looked at and
        before that moment, with the tick of the clock in which it was.
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
            place = todo.pop()
            self.linked.discard(place)
            self.racily_clean.discard(place)
            below = (*place[0], place[1])
            self.unreadable.discard(below)
            if inside := self.directories.pop(below, None):
                todo += [(below, each) for each in inside]

    def differences(self, newer: FileIndex) -> Dirty:
        """What may have changed from this index to a *newer* one."""
        paths = {WorkspacePath((*directory, name)) for directory, name in self.racily_clean}
        prefixes = {WorkspacePath(parts) for parts in self.unreadable | newer.unreadable}
        for directory, new in newer.directories.items():
            # What is in one of them only lies below a directory that came or went.
            old = self.directories.get(directory, new)
            if old != new:
                for name in old.keys() | new.keys():
                    before, after = old.get(name), new.get(name)
                    if before != after:
                        whole = came_or_went(before, after)
                        (prefixes if whole else paths).add(WorkspacePath((*directory, name)))
        return Dirty(frozenset(paths), frozenset(prefixes))

    # Stored

    def save(self, path: Path) -> None:
        """Store the index in a file, which is replaced as a whole."""
        content = json.dumps(list(self._records()), separators=(",", ":")).encode()
        unfinished = path.with_name(path.name + ".unfinished")
        unfinished.write_bytes(json.dumps(_header(content)).encode() + b"\n" + content)
        unfinished.replace(path)

    @classmethod
    def load(cls, path: Path) -> FileIndex | None:
        """The index stored in a file; ``None`` if there is none that can be relied on."""
        try:
            header, _, content = path.read_bytes().partition(b"\n")
            if json.loads(header) != _header(content):
                raise ValueError("it is damaged, or of another version")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("the index in %s is not used: %s", path, error)
            return None
        return cls._of_records(json.loads(content))

    def _records(self) -> Iterator[tuple[int, str, dict[str, Status], list[str], bool]]:
        """Each directory: its parent's number, its name, its entries, what is not known of them.

        The names of those above are not repeated: 3,000 long ones on each other, for each of
        3,000 directories, would fill the memory.
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


def came_or_went(before: Status | None, after: Status | None) -> bool:
    """Whether there was a directory and is none, or the other way round."""
    was = before is not None and stat.S_ISDIR(before.mode)
    return was != (after is not None and stat.S_ISDIR(after.mode))


def _header(content: bytes) -> dict[str, object]:
    return {"format": _FORMAT, "sha256": hashlib.sha256(content).hexdigest()}


# Looking


class IndexedTree:
    """A tree, and the index of what was last seen of it.

    ``n_visited`` counts the entries that were looked at so far.
    """

    def __init__(self, tree: DiskTree, index: FileIndex | None, clock: Clock) -> None:
        self.tree = tree
        self.index = index
        self.n_visited = 0
        self._clock = clock

    def look_at_all(self, watch: Watch | None = None) -> Dirty:
        """What changed since each entry was last looked at; everything if there is no index.

        *watch* is called with each directory, and a descriptor of it, before it is listed.
        """
        before, self.index = self.index, None  # until it is known what is there
        problem = ""
        for _ in range(_MAX_SCANS):
            index = FileIndex()
            try:
                self._add_below(index, ROOT, watch)
            except FilesystemError as error:
                problem = error.message  # such as directories that somebody moves about
            else:
                self.index = index
                nothing_known = Dirty.all("nothing is known of an earlier state")
                return before.differences(index) if before else nothing_known
        return Dirty.all(f"not everything could be looked at: {problem}")

    def look_below(self, index: FileIndex, path: WorkspacePath, watch: Watch) -> None:
        """Bring what *index* knows of *path* and everything below it up to date.

        Raises:
            FilesystemError: If somebody is changing it; then the index knows too little.
        """
        index.forget(path.parent.parts, path.name)
        _, now = self.look_at(index, path.parent, [path.name])[path.name]
        if now is not None and now.is_directory:
            self._add_below(index, path, watch)

    def look_at(
        self, index: FileIndex, directory: WorkspacePath, names: Iterable[str]
    ) -> dict[str, tuple[Status | None, Status | None]]:
        """What entries were and are; *index* is brought up to date.

        What is below a directory that was not there before remains to be looked at.
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
            seen[name] = before, now
            # What is not in the index has nothing below it there, either
            if before is not None and (
                now is None or not (stat.S_ISDIR(before.mode) and stat.S_ISDIR(now.mode))
            ):
                index.forget(directory.parts, name)
            if now is not None:
                index.put(directory.parts, {name: now}, racy_ns)
        return seen

    def _add_below(self, index: FileIndex, top: WorkspacePath, watch: Watch | None) -> None:
        racy_ns = racy_from_ns(self._clock)

        def before(parts: Parts, descriptor: int) -> None:
            if watch is not None:
                watch(top.parts + parts, descriptor)

        def unreadable(parts: Parts) -> None:
            index.unreadable.add(top.parts + parts)

        for listing in self.tree.listings(top, before=before, unreadable=unreadable):
            entries = {name: status_of(status) for name, status in listing.entries}
            index.put(top.parts + listing.parts, entries, racy_ns)
            self.n_visited += len(entries)
