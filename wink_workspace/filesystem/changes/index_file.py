"""The status of an entry, and the file in which an index of many is stored.

A file has a line of JSON (version, checksum, size, note), then the index in the form of
``marshal``: it is read ten times as fast as JSON.
"""

from __future__ import annotations

import json
import marshal
import os
import stat
import zlib
from io import BufferedReader
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from wink_workspace.filesystem.disk.descriptors import Parts

__all__ = ["Status", "read_index", "read_note", "status_of", "write_index"]

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
