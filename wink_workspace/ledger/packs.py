"""Packs: many objects in one file, with an index beside it (gitformat-pack, version 2).

``PackWriter`` writes one object after the other, for a commit of many files: making a file for
each of 10,000 objects takes seconds. It makes no deltas; ``GitRepository.pack`` does, when old
objects are collected. Reading single objects is libgit2's part; here an index is read for what
libgit2 does not tell: which objects a pack has, and how much room each of them takes.

Rule 1: a pack counts from the moment its ``.idx`` has its name, and is not looked at without.
So the index is written last and deleted first.
"""

from __future__ import annotations

import os
import secrets
import shutil
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from wink_workspace.errors import LedgerDamagedError
from wink_workspace.filesystem.git_binary import git_hash, object_header

from .disk import ledger_failures, sync
from .loose import CHUNK_BYTES, ObjectKind, compressed

__all__ = ["Pack", "PackWriter", "PackedObject", "Packs", "packed"]

_TYPE_OF_KIND: dict[ObjectKind, int] = {"commit": 1, "tree": 2, "blob": 3}
_PACK_HEADER = struct.Struct(">4sII")
_INDEX_MAGIC: Final = b"\xfftOc\x00\x00\x00\x02"
_FAN_OUT_BYTES: Final = 256 * 4
_ID_BYTES: Final = 20
_LARGE_OFFSET: Final = 1 << 31
_TEMPORARY = "tmp_pack_"
_UNFINISHED = (_TEMPORARY + "*", "pack_git2_*", "*.lock")  # ours, and libgit2's


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack and what is in it: the room that each object takes, by its id."""

    path: Path
    disk_bytes: dict[str, int]


@dataclass(frozen=True, slots=True)
class PackedObject:
    """An object as it is in a pack; made in any thread."""

    id: str
    entry: bytes
    size_bytes: int


def packed(kind: ObjectKind, content: bytes) -> PackedObject:
    """What a pack has of an object."""
    header = object_header(kind, len(content))
    object_id = git_hash(header + content).hexdigest()
    entry = _entry_header(kind, len(content)) + compressed(content, worth=True)
    return PackedObject(object_id, entry, len(content))


class Packs:
    """The packs of a repository.

    Args:
        objects: Its ``objects`` directory.
        durable: Whether new packs are synced to the device.
    """

    def __init__(self, objects: Path, *, durable: bool = False) -> None:
        self.directory = objects / "pack"
        self.durable = durable

    def listed(self) -> list[Pack]:
        """Every pack, in the order of their names.

        Raises:
            LedgerDamagedError: If an index is not one.
        """
        indexes = sorted(self.directory.glob("*.idx"))
        return [Pack(path, _room_by_id(path)) for path in indexes if _has_pack(path)]

    def delete(self, pack: Pack) -> None:
        """Delete a pack, the index first; what it holds must be elsewhere or not be needed."""
        with ledger_failures(f"pack {pack.path.stem} cannot be deleted"):
            for suffix in (".idx", ".rev", ".bitmap", ".mtimes", ".pack"):
                pack.path.with_suffix(suffix).unlink(missing_ok=True)

    def delete_leftovers(self) -> None:
        """Delete what writers that died left behind, but for packs without index.

        libgit2 names the index of a new pack before the pack. Also what plain git may have made:
        its indexes over all packs and over all commits, which would name packs and commits that
        are gone.
        """
        (self.directory / "multi-pack-index").unlink(missing_ok=True)
        (self.directory.parent / "info" / "commit-graph").unlink(missing_ok=True)
        shutil.rmtree(self.directory.parent / "info" / "commit-graphs", ignore_errors=True)
        for path in [path for names in _UNFINISHED for path in self.directory.glob(names)]:
            if not path.with_suffix(".idx").exists():
                path.unlink(missing_ok=True)
        for index in self.directory.glob("*.idx"):
            if not _has_pack(index):
                index.unlink(missing_ok=True)

    def delete_unindexed(self) -> None:
        """Delete packs whose index is missing, since their writer died or something is damaged.

        What they hold must be elsewhere or not be needed: from a pack git can make its index anew.
        """
        for pack in self.directory.glob("*.pack"):
            if not pack.with_suffix(".idx").exists():
                pack.unlink(missing_ok=True)

    def disk_bytes(self) -> int:
        """The room that all packs take, indexes included."""
        return sum(path.stat().st_size for path in self.directory.iterdir())


class PackWriter:
    """A pack that is being written; ``finish`` or ``abandon`` ends it.

    The objects cannot be read before.
    """

    def __init__(self, packs: Packs) -> None:
        self._packs = packs
        self._temporary = packs.directory / f"{_TEMPORARY}{secrets.token_hex(8)}"
        self._index = self._temporary.with_suffix(".idx")
        self._entries: dict[bytes, tuple[int, int]] = {}  # id -> its offset and its CRC
        with ledger_failures("a pack cannot be written"):
            self._file = self._temporary.open("xb+")
            self._file.write(_PACK_HEADER.pack(b"PACK", 2, 0))
        self._offset = _PACK_HEADER.size

    def write(self, made: PackedObject) -> None:
        """Add an object, once."""
        digest = bytes.fromhex(made.id)
        if digest not in self._entries:
            self._entries[digest] = (self._offset, zlib.crc32(made.entry))
            with ledger_failures("a pack cannot be written"):
                self._file.write(made.entry)
            self._offset += len(made.entry)

    def finish(self) -> None:
        """Put the pack in place; one without objects vanishes, and so does one that fails."""
        try:
            with ledger_failures("a pack cannot be written"):
                if self._entries:
                    self._put_in_place(self._complete())
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Forget the objects written, unless they are in place."""
        with suppress(OSError):  # closing writes what is left, which nobody wants any more
            self._file.close()
        for path in (self._temporary, self._index):
            path.unlink(missing_ok=True)

    def _put_in_place(self, checksum: bytes) -> None:
        self._index.write_bytes(_index(self._entries, checksum))
        if self._packs.durable:
            sync(self._index)
        name = self._packs.directory / f"pack-{checksum.hex()}"
        self._temporary.rename(name.with_suffix(".pack"))
        self._index.rename(name.with_suffix(".idx"))
        if self._packs.durable:
            sync(self._packs.directory)

    def _complete(self) -> bytes:
        """Fill in the number of objects and append the checksum, which covers that number."""
        self._file.seek(0)
        self._file.write(_PACK_HEADER.pack(b"PACK", 2, len(self._entries)))
        self._file.seek(0)
        digest = git_hash()
        while piece := self._file.read(CHUNK_BYTES):
            digest.update(piece)
        self._file.write(digest.digest())
        self._file.flush()
        if self._packs.durable:
            os.fsync(self._file.fileno())
        return digest.digest()


def _entry_header(kind: ObjectKind, size_bytes: int) -> bytes:
    """Type and size in 7-bit groups, the type in the first."""
    group = _TYPE_OF_KIND[kind] << 4 | size_bytes & 15
    size_bytes >>= 4
    header = bytearray()
    while size_bytes:
        header.append(group | 128)
        group = size_bytes & 127
        size_bytes >>= 7
    header.append(group)
    return bytes(header)


def _index(entries: dict[bytes, tuple[int, int]], pack_checksum: bytes) -> bytes:
    ids = sorted(entries)
    per_byte = [0] * 256
    for object_id in ids:
        per_byte[object_id[0]] += 1
    fan_out = [sum(per_byte[: n + 1]) for n in range(256)]
    offsets = [entries[object_id][0] for object_id in ids]
    large = [offset for offset in offsets if offset >= _LARGE_OFFSET]
    place_of_large = {offset: _LARGE_OFFSET | n for n, offset in enumerate(large)}
    body = b"".join(
        (
            _INDEX_MAGIC,
            struct.pack(">256I", *fan_out),
            *ids,
            struct.pack(f">{len(ids)}I", *(entries[object_id][1] for object_id in ids)),
            struct.pack(f">{len(ids)}I", *(place_of_large.get(at, at) for at in offsets)),
            struct.pack(f">{len(large)}Q", *large),
            pack_checksum,
        )
    )
    return body + git_hash(body).digest()


def _has_pack(index: Path) -> bool:
    return index.with_suffix(".pack").exists()


def _room_by_id(path: Path) -> dict[str, int]:
    """From one object's offset to the next, by the id of the object there."""
    with ledger_failures(f"index {path.name} cannot be read"):
        data = path.read_bytes()
        pack_bytes = path.with_suffix(".pack").stat().st_size
    if not data.startswith(_INDEX_MAGIC):
        raise LedgerDamagedError(f"{path.name} is not an index of version 2")
    try:
        return _room_told_by(data, pack_bytes)
    except (struct.error, ValueError) as error:
        raise LedgerDamagedError(f"the index {path.name} is damaged: {error}") from error


def _room_told_by(data: bytes, pack_bytes: int) -> dict[str, int]:
    start = len(_INDEX_MAGIC) + _FAN_OUT_BYTES
    (n,) = struct.unpack_from(">I", data, start - 4)
    ids = [data[at : at + _ID_BYTES].hex() for at in range(start, start + n * _ID_BYTES, _ID_BYTES)]
    after_checksums = start + n * (_ID_BYTES + 4)
    offsets = struct.unpack_from(f">{n}I", data, after_checksums)
    after_offsets = after_checksums + n * 4
    placed = sorted(
        (
            offset
            if offset < _LARGE_OFFSET
            else struct.unpack_from(">Q", data, after_offsets + 8 * (offset - _LARGE_OFFSET))[0],
            object_id,
        )
        for offset, object_id in zip(offsets, ids, strict=True)
    )
    end = (pack_bytes - _ID_BYTES, "")
    return {object_id: after - at for (at, object_id), (after, _) in pairwise([*placed, end])}
