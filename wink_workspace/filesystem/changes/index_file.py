"""Statuses as they are stored: packed in columns that a process maps and compares as bytes.

A file has a line of JSON (version, checksum, sizes, a note), then tables of 64-bit integers, then
the names::

    directories   for each: parent, flags, its name, its first entry and their number, the names
                  of its entries, and its own inode, modification and change time
    statuses      for each entry: the fields of ``Status``, sorted by directory and name
    racily clean  pairs of a directory's number and an entry's number in it
    linked        the same
    names         joined by a zero byte, which no name has

The cost of reading follows the number of directories; entries are decoded where they are needed.
"""

from __future__ import annotations

import json
import mmap
import os
import stat
import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from operator import attrgetter
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple

from wink_workspace.filesystem.disk.descriptors import Parts

__all__ = [
    "DirectoryStatus",
    "IndexContent",
    "IndexFile",
    "PackedEntries",
    "Status",
    "directory_status",
    "have_statuses",
    "status_of",
    "write_index",
]

_N_FIELDS = 6
"""The number of integers in a packed status."""
_unpacked = Struct("=qQqqqq").iter_unpack
_fields = attrgetter("st_mode", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_nlink")
_KIND = 0o170000
_MAY_BE_BARE = (stat.S_IFDIR, stat.S_IFCHR)
_FORMAT: Final = 3
_ENTRY_BYTES: Final = 8 * _N_FIELDS
_N_COLUMNS: Final = 11
_FIRST: Final = 4
_MAX_NAME_BYTES: Final = 255
_BLOCK: Final = 8 * _MAX_NAME_BYTES
_UNREADABLE, _IS_LISTED = 1, 2
_ENCODING, _ENCODING_ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_INODES: Final = 1 << 64


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
    """The part of a status that shows changes."""
    return Status(*_fields_of(found))


DirectoryStatus = tuple[int, int, int]
"""Inode, modification and change time of a directory, which change with its names."""


def directory_status(found: os.stat_result) -> DirectoryStatus:
    """The part of a directory's status that shows whether its names changed."""
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


@dataclass(frozen=True, slots=True, eq=False)
class PackedEntries:
    """The entries of one directory, by name."""

    joined_names: bytes | memoryview
    statuses: bytes | memoryview

    @classmethod
    def of_listing(cls, entries: Sequence[tuple[str, os.stat_result]]) -> PackedEntries:
        """Pack a listing, which is sorted by name."""
        names = _joined(name for name, _ in entries)
        return cls(names, _packed(_rows_of([found for _, found in entries])))

    @classmethod
    def of(cls, entries: Mapping[str, Status]) -> PackedEntries:
        """Pack entries in any order."""
        names = sorted(entries)
        return cls(_joined(names), _packed([entries[name] for name in names]))

    def __len__(self) -> int:
        return len(self.statuses) // _ENTRY_BYTES

    def equals(self, other: PackedEntries) -> bool:
        """Whether names and statuses are the same."""
        # Comparing the bytes of memoryviews takes many times as long as copying them
        return self is other or (
            bytes(self.statuses) == bytes(other.statuses)
            and bytes(self.joined_names) == bytes(other.joined_names)
        )

    def names(self) -> list[str]:
        """The names, sorted."""
        joined = bytes(self.joined_names).decode(_ENCODING, _ENCODING_ERRORS)
        return joined.split("\0") if len(self) else []

    def names_at(self, numbers: Iterable[int]) -> Iterator[str]:
        """The names with these ascending numbers; the others are counted, but not decoded.

        Raises:
            ValueError: If there are fewer names.
        """
        joined = bytes(self.joined_names)
        start = n_before = 0
        for number in numbers:
            while (n := joined.count(b"\0", start, start + _BLOCK)) < number - n_before:
                start = joined.rindex(b"\0", start, start + _BLOCK) + 1
                n_before += n
            near = joined[start : start + _BLOCK + _MAX_NAME_BYTES]
            name = near.split(b"\0", number - n_before + 1)[number - n_before]
            yield name.decode(_ENCODING, _ENCODING_ERRORS)

    def status(self, n: int) -> Status:
        """The status of the n-th entry."""
        (found,) = _decoded(self.statuses[n * _ENTRY_BYTES : (n + 1) * _ENTRY_BYTES])
        return found

    def entries(self) -> dict[str, Status]:
        """The statuses by name."""
        return dict(zip(self.names(), _decoded(self.statuses), strict=True))

    def column(self, n: int) -> array[int]:
        """A field of all statuses."""
        return array("q", bytes(self.statuses))[n::_N_FIELDS]

    def values(self, n: int) -> set[int]:
        """The different values of a field."""
        column = self.column(n)
        first = column[:1]  # mostly the only one; a set would look at each integer
        return set(first if column == first * len(column) else column)

    def pieces(self, n: int) -> Iterator[PackedEntries]:
        """The entries in pieces of at most *n*."""
        if 0 < len(self) <= n:
            yield self
            return
        names = bytes(self.joined_names).split(b"\0")
        for start in range(0, len(self), n):
            statuses = self.statuses[start * _ENTRY_BYTES : (start + n) * _ENTRY_BYTES]
            yield PackedEntries(b"\0".join(names[start : start + n]), statuses)

    def directories(self) -> list[str]:
        """The names of the directories among them."""
        if not any(map(stat.S_ISDIR, self.values(0))):
            return []
        modes = zip(self.names(), self.column(0), strict=True)
        return [name for name, mode in modes if stat.S_ISDIR(mode)]

    def file_sizes(self) -> array[int]:
        """The sizes in bytes of the regular files among them."""
        sizes = self.column(2)
        if all(map(stat.S_ISREG, self.values(0))):
            return sizes
        return array("q", compress(sizes, map(stat.S_ISREG, self.column(0))))


def _joined(names: Iterable[str]) -> bytes:
    return "\0".join(names).encode(_ENCODING, _ENCODING_ERRORS)


def _packed(rows: Sequence[tuple[int, ...]]) -> bytes:
    try:
        return array("q", chain.from_iterable(rows)).tobytes()
    except OverflowError:  # some filesystems use all 64 bits of an inode number
        return array("q", (_signed(value) for row in rows for value in row)).tobytes()


def _signed(value: int) -> int:
    """An inode number in the form in which it is stored."""
    return value - _INODES if value >= _INODES // 2 else value


def _decoded(statuses: bytes | memoryview) -> list[Status]:
    values = array("q", bytes(statuses))
    found = list(map(Status._make, zip(*[iter(values)] * _N_FIELDS, strict=True)))
    if any(inode < 0 for inode in values[1::_N_FIELDS]):
        found = [at._replace(inode=at.inode % _INODES) for at in found]
    return found


# Files


@dataclass(slots=True)
class IndexContent:
    """What a file stores, by directory; ``racily_clean`` and ``linked`` name entries of them."""

    entries: Mapping[Parts, PackedEntries]
    listed: Mapping[Parts, DirectoryStatus]
    unreadable: Iterable[Parts]
    racily_clean: Iterable[tuple[Parts, str]]
    linked: Iterable[tuple[Parts, str]]
    note: Mapping[str, Any] = field(
        default_factory=dict[str, Any]
    )  # Any: anything with a JSON form


def write_index(path: Path, content: IndexContent) -> None:
    """Store *content* in a file, which is replaced as a whole."""
    unreadable = set(content.unreadable)
    directories = array("q")
    statuses: list[bytes | memoryview] = []
    names = bytearray()
    numbers: dict[Parts, int] = {}
    n_entries = 0
    for parts in sorted({*content.entries, *unreadable}, key=lambda parts: (len(parts), parts)):
        if parts and parts[:-1] not in numbers:
            continue  # nothing leads to it
        numbers[parts] = len(numbers)
        entries = content.entries.get(parts, _NO_ENTRIES)
        own = content.listed.get(parts)
        name = _joined(parts[-1:])
        flags = _UNREADABLE * (parts in unreadable) | _IS_LISTED * (own is not None)
        place = (len(names), len(name), n_entries, len(entries), len(names) + len(name))
        names += name
        names += entries.joined_names
        parent = numbers[parts[:-1]]
        sizes = (*place, len(entries.joined_names))
        directories.extend((parent, flags, *sizes, *map(_signed, own or (0, 0, 0))))
        statuses.append(entries.statuses)
        n_entries += len(entries)
    pairs = [_pairs(content, numbers, keys) for keys in (content.racily_clean, content.linked)]
    body = b"".join((directories.tobytes(), *statuses, *(each.tobytes() for each in pairs), names))
    sizes = (len(numbers), n_entries, *(len(each) // 2 for each in pairs), len(names))
    note = json.dumps(dict(content.note))
    header = json.dumps([_FORMAT, sys.byteorder, _checksum(note, body), sizes, note]).encode()
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_bytes(header + b" " * (-(len(header) + 1) % 8) + b"\n" + body)
    unfinished.replace(path)


_NO_ENTRIES: Final = PackedEntries(b"", b"")


def _pairs(
    content: IndexContent, numbers: Mapping[Parts, int], keys: Iterable[tuple[Parts, str]]
) -> array[int]:
    by_directory: dict[Parts, set[str]] = {}
    for parts, name in keys:
        by_directory.setdefault(parts, set()).add(name)
    found = array("q")
    for parts, chosen in by_directory.items():
        if parts in numbers and parts in content.entries:
            number = numbers[parts]
            for n, name in enumerate(content.entries[parts].names()):
                if name in chosen:
                    found.extend((number, n))
    return found


def _checksum(note: str, body: bytes | memoryview) -> int:
    return zlib.crc32(body, zlib.crc32(note.encode()))


class IndexFile:
    """A mapped file.

    Args:
        path: The file.
        is_checked: Whether all of it is compared with its checksum.

    Attributes:
        note: The note.
        n_entries: The number of entries.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is damaged, or of another version.
    """

    def __init__(self, path: Path, *, is_checked: bool = True) -> None:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise ValueError("it is empty")
            self._mapped = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
            header = file.readline()
        try:
            version, byte_order, checksum, sizes, note = json.loads(header)
            if (version, byte_order) != (_FORMAT, sys.byteorder):
                raise ValueError("it is of another version")
            body = self._mapped[len(header) :]
            n_directories, self.n_entries, n_racy, n_linked, n_name_bytes = map(int, sizes)
            ends = [0]
            for n_bytes in (
                n_directories * _N_COLUMNS * 8,
                self.n_entries * _ENTRY_BYTES,
                n_racy * 16,
                n_linked * 16,
                n_name_bytes,
            ):
                ends.append(ends[-1] + n_bytes)
            if len(body) != ends[-1] or (is_checked and checksum != _checksum(note, body)):
                raise ValueError("it is damaged")
            self.note: dict[str, Any] = json.loads(note)
        except (TypeError, KeyError) as error:
            raise ValueError(f"it is damaged: {error}") from error
        self._directories = body[ends[0] : ends[1]].cast("q")
        self._statuses = body[ends[1] : ends[2]]
        self._racily_clean = body[ends[2] : ends[3]].cast("q")
        self._linked = body[ends[3] : ends[4]].cast("q")
        self._names = body[ends[4] :]
        self._n_directories = n_directories

    def content(self) -> IndexContent:
        """All of it; entries stay packed."""
        entries: dict[Parts, PackedEntries] = {}
        listed: dict[Parts, DirectoryStatus] = {}
        unreadable: list[Parts] = []
        known: list[Parts] = []
        for n in range(self._n_directories):
            row = self._row(n)
            parts: Parts = (*known[row.parent], self._name(row)) if known else ()
            known.append(parts)
            if row.flags & _UNREADABLE:
                unreadable.append(parts)
                continue
            entries[parts] = self._entries(row)
            if row.flags & _IS_LISTED:
                listed[parts] = (row.inode % _INODES, row.modified_ns, row.changed_ns)
        pairs = [self._keys(known, entries, table) for table in (self._racily_clean, self._linked)]
        return IndexContent(entries, listed, unreadable, *pairs, note=self.note)

    def sample(self, numbers: Iterable[int]) -> Iterator[tuple[Parts, str, Status]]:
        """The entries with these numbers; the cost does not follow the number of all entries."""
        by_directory: dict[int, list[int]] = {}
        firsts = self._directories[_FIRST::_N_COLUMNS]
        for number in sorted(numbers):
            by_directory.setdefault(bisect_right(firsts, number) - 1, []).append(number)
        for directory, chosen in by_directory.items():
            row = self._row(directory)
            parts = self._parts(directory)
            entries = self._entries(row)
            places = [number - row.first for number in chosen]
            for n, name in zip(places, entries.names_at(places), strict=True):
                yield parts, name, entries.status(n)

    def _row(self, n: int) -> _Row:
        return _Row._make(self._directories[n * _N_COLUMNS : (n + 1) * _N_COLUMNS].tolist())

    def _name(self, row: _Row) -> str:
        encoded = bytes(self._names[row.name : row.name + row.n_name_bytes])
        return encoded.decode(_ENCODING, _ENCODING_ERRORS)

    def _parts(self, n: int) -> Parts:
        names: list[str] = []
        while n:
            row = self._row(n)
            names.append(self._name(row))
            n = row.parent
        return tuple(reversed(names))

    def _entries(self, row: _Row) -> PackedEntries:
        names = self._names[row.names : row.names + row.n_names_bytes]
        end = row.first + row.n_entries
        return PackedEntries(names, self._statuses[row.first * _ENTRY_BYTES : end * _ENTRY_BYTES])

    @staticmethod
    def _keys(
        known: list[Parts], entries: Mapping[Parts, PackedEntries], table: memoryview
    ) -> Iterator[tuple[Parts, str]]:
        values = iter(table.tolist())
        names: dict[int, list[str]] = {}
        for number, n in zip(values, values, strict=True):
            if number not in names:
                names[number] = entries[known[number]].names()
            yield known[number], names[number][n]


class _Row(NamedTuple):
    """A directory in the table; the places of names are in bytes."""

    parent: int
    flags: int
    name: int
    n_name_bytes: int
    first: int
    n_entries: int
    names: int
    n_names_bytes: int
    inode: int
    modified_ns: int
    changed_ns: int


def _is_bare(found: os.stat_result) -> bool:
    """Whether only the mode of an entry counts, because the rest changes without it.

    In an upper layer of an overlay, a character device 0:0 marks a deleted name. All of them may be
    hard links of one device, whose times then change with every deletion.
    """
    return stat.S_ISDIR(found.st_mode) or (stat.S_ISCHR(found.st_mode) and found.st_rdev == 0)


def _fields_of(found: os.stat_result) -> tuple[int, ...]:
    """The integers of a status."""
    return (found.st_mode, 0, 0, 0, 0, 0) if _is_bare(found) else _fields(found)


def _rows_of(found: list[os.stat_result]) -> list[tuple[int, ...]]:
    """The integers of each status."""
    rows: list[tuple[int, ...]] = list(map(_fields, found))
    if any(mode & _KIND in _MAY_BE_BARE for mode in {row[0] for row in rows}):
        rows = [_fields_of(each) for each in found]
    return rows


def have_statuses(directory: int, names: list[str] | list[bytes], statuses: bytes) -> bool:
    """Whether the entries *names* of an open directory have these packed statuses."""
    status = os.stat
    try:
        found = [status(name, dir_fd=directory, follow_symlinks=False) for name in names]
    except OSError:
        return False
    known = list(_unpacked(statuses))
    # First as if all were files: known entries that are bare differ then
    return list(map(_fields, found)) == known or _rows_of(found) == known
