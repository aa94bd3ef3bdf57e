"""The status of an entry, and the file in which an index of many is stored.

A file has a line of JSON (version, checksum, note), then the directories in the form of
``marshal``. The entries of each are encoded on their own: a directory is compared as bytes, and
decoded where its entries are needed.
"""

from __future__ import annotations

import json
import marshal
import os
import stat
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from wink_workspace.filesystem.disk.descriptors import Parts

__all__ = [
    "DirectoryStatus",
    "IndexContent",
    "Row",
    "Status",
    "decoded",
    "directory_status",
    "encoded",
    "read_index",
    "read_note",
    "row_of",
    "status_of",
    "write_index",
]

DirectoryStatus = tuple[int, int, int]
"""Inode, modification and change time of a directory, which change with its names."""

Row = tuple[int, ...]
"""The fields of a ``Status``."""

_fields = attrgetter("st_mode", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_nlink")
_FORMAT: Final = 4  # the same for every Python: processes of several may share a base
_Stored = tuple[
    list[tuple[int, Parts, bytes | None, DirectoryStatus | None]], list[list[tuple[int, str]]]
]
_SAME_BYTES: Final = 2  # of marshal; later versions encode equal values differently


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


def row_of(found: os.stat_result) -> Row:
    """The fields of a status.

    Only the mode counts where the rest changes without the entry. In an upper layer of an overlay,
    a character device 0:0 marks a deleted name. All of them may be hard links of one device, whose
    times then change with every deletion.
    """
    mode = found.st_mode
    if stat.S_ISDIR(mode) or (stat.S_ISCHR(mode) and found.st_rdev == 0):
        return mode, 0, 0, 0, 0, 0
    return _fields(found)


def status_of(found: os.stat_result) -> Status:
    """The part of a status that shows changes."""
    return Status(*row_of(found))


def directory_status(found: os.stat_result) -> DirectoryStatus:
    """The part of a directory's status that shows whether its names changed."""
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def encoded(entries: Mapping[str, Row]) -> bytes:
    """The entries of a directory; equal ones in the same order have equal bytes."""
    return marshal.dumps({name: tuple(row) for name, row in entries.items()}, _SAME_BYTES)


def decoded(entries: bytes) -> dict[str, Row]:
    """The entries of which ``encoded`` made these bytes."""
    return marshal.loads(entries)  # noqa: S302 - made by this process, or in its own file


@dataclass(slots=True)
class IndexContent:
    """What a file stores, by directory; ``racily_clean`` and ``linked`` name entries of them."""

    entries: Mapping[Parts, bytes]
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
    numbers: dict[Parts, int] = {}
    directories: list[tuple[int, Parts, bytes | None, DirectoryStatus | None]] = []
    for parts in sorted({*content.entries, *unreadable}, key=lambda parts: (len(parts), parts)):
        if parts and parts[:-1] not in numbers:
            continue  # nothing leads to it
        numbers[parts] = len(numbers)
        entries = None if parts in unreadable else content.entries[parts]
        own = content.listed.get(parts)
        directories.append((numbers[parts[:-1]], parts[-1:], entries, own))
    pairs = [
        [(numbers[parts], name) for parts, name in keys if parts in numbers]
        for keys in (content.racily_clean, content.linked)
    ]
    stored: _Stored = directories, pairs
    body = marshal.dumps(stored, _SAME_BYTES)
    note = json.dumps(dict(content.note))
    header = json.dumps([_FORMAT, _checksum(note, body), len(body), note]).encode()
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


def read_index(path: Path) -> IndexContent:
    """All of a file; raises as ``read_note``."""
    with path.open("rb") as file:
        checksum, note = _header(file)
        body = file.read()
    if checksum != _checksum(note, body):
        raise ValueError("it is damaged")
    stored: _Stored = marshal.loads(body)  # noqa: S302 - in our own file, with its checksum
    directories, pairs = stored
    known: list[Parts] = []
    entries: dict[Parts, bytes] = {}
    listed: dict[Parts, DirectoryStatus] = {}
    unreadable: list[Parts] = []
    for parent, name, found, own in directories:
        parts = (*known[parent], *name) if known else ()
        known.append(parts)
        if found is None:
            unreadable.append(parts)
            continue
        entries[parts] = found
        if own is not None:
            listed[parts] = own
    racily_clean, linked = ([(known[n], name) for n, name in each] for each in pairs)
    return IndexContent(entries, listed, unreadable, racily_clean, linked, json.loads(note))
