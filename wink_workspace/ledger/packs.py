"""Packs: many objects in one file, with an index beside it (gitformat-pack, version 2).

``PackWriter`` writes one object after the other, for a commit of many files: one file each for
10,000 objects takes seconds. It makes no deltas; ``GitRepository.pack`` makes them during garbage
collection. libgit2 reads single objects; this module reads indexes for the ids of a pack's objects
and their sizes on disk, which libgit2 does not provide.

Rule 1: a pack is valid once its ``.idx`` has its final name, and is ignored without it. So the
index is written last and deleted first.
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
from .loose import CHUNK_BYTES, ObjectKind, compress

__all__ = ["KEEP", "Pack", "PackWriter", "PackedObject", "Packs", "encode_object"]

_TYPE_OF_KIND: dict[ObjectKind, int] = {"commit": 1, "tree": 2, "blob": 3}
_PACK_HEADER = struct.Struct(">4sII")
_INDEX_MAGIC: Final = b"\xfftOc\x00\x00\x00\x02"
_FAN_OUT_BYTES: Final = 256 * 4
_ID_BYTES: Final = 20
_LARGE_OFFSET: Final = 1 << 31
KEEP: Final = ".keep"
"""The suffix of git's mark for a pack that is not rewritten."""

_TEMPORARY = "tmp_pack_"
_UNFINISHED = (_TEMPORARY + "*", "pack_git2_*", "*.lock")  # ours, and libgit2's


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack, with the size of each object on disk by id."""

    path: Path
    disk_bytes: dict[str, int]

    @property
    def is_shared(self) -> bool:
        """Whether it belongs to a base; see ``linking``."""
        return is_shared(self.path)


@dataclass(frozen=True, slots=True)
class PackedObject:
    """An object encoded for a pack; may be made in any thread."""

    id: str
    entry: bytes
    size_bytes: int


def encode_object(kind: ObjectKind, content: bytes) -> PackedObject:
    """Encode an object for a pack."""
    header = object_header(kind, len(content))
    object_id = git_hash(header + content).hexdigest()
    entry = _entry_header(kind, len(content)) + compress(content, worth=True)
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
        """Every pack, sorted by name.

        Raises:
            LedgerDamagedError: If an index is damaged.
        """
        indexes = sorted(self.directory.glob("*.idx"))
        return [Pack(path, _size_by_id(path)) for path in indexes if _has_pack(path)]

    def delete(self, pack: Pack) -> None:
        """Delete a pack, the index first; its objects must be elsewhere or unreachable."""
        with ledger_failures(f"pack {pack.path.stem} cannot be deleted"):
            for suffix in (".idx", ".rev", ".bitmap", ".mtimes", ".pack"):
                pack.path.with_suffix(suffix).unlink(missing_ok=True)

    def delete_leftovers(self) -> None:
        """Delete the unfinished files of dead writers, except packs without an index.

        libgit2 renames the index of a new pack before the pack. Also deletes the indexes over all
        packs and over all commits that plain git may have made, as they would name deleted packs
        and commits.
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
        """Delete packs whose index is missing because a writer died or a file was lost.

        Their objects must be elsewhere or unreachable, since git can rebuild an index from a pack.
        """
        for pack in self.directory.glob("*.pack"):
            if not pack.with_suffix(".idx").exists():
                pack.unlink(missing_ok=True)

    def disk_bytes(self) -> int:
        """The size of all packs but shared ones, indexes included."""
        return sum(path.stat().st_size for path in self.directory.iterdir() if not is_shared(path))


class PackWriter:
    """A pack that is being written; ``finish`` or ``abandon`` ends it.

    Its objects cannot be read before that.
    """

    def __init__(self, packs: Packs) -> None:
        self._packs = packs
        self._temporary = packs.directory / f"{_TEMPORARY}{secrets.token_hex(8)}"
        self._index = self._temporary.with_suffix(".idx")
        self._entries: dict[bytes, tuple[int, int]] = {}  # id -> offset and CRC
        with ledger_failures("a pack cannot be written"):
            self._file = self._temporary.open("xb+")
            self._file.write(_PACK_HEADER.pack(b"PACK", 2, 0))
        self._offset = _PACK_HEADER.size

    def write(self, made: PackedObject) -> None:
        """Add an object; a repeated one is ignored."""
        digest = bytes.fromhex(made.id)
        if digest not in self._entries:
            self._entries[digest] = (self._offset, zlib.crc32(made.entry))
            with ledger_failures("a pack cannot be written"):
                self._file.write(made.entry)
            self._offset += len(made.entry)

    def finish(self) -> None:
        """Rename the pack into place; delete it if it is empty or an error occurs."""
        try:
            with ledger_failures("a pack cannot be written"):
                if self._entries:
                    self._rename_into_place(self._complete())
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Discard the objects written, unless the pack is in place."""
        with suppress(OSError):  # closing flushes the buffer, which may fail
            self._file.close()
        for path in (self._temporary, self._index):
            path.unlink(missing_ok=True)

    def _rename_into_place(self, checksum: bytes) -> None:
        self._index.write_bytes(_index(self._entries, checksum))
        if self._packs.durable:
            sync(self._index)
        name = self._packs.directory / f"pack-{checksum.hex()}"
        self._temporary.rename(name.with_suffix(".pack"))
        self._index.rename(name.with_suffix(".idx"))
        if self._packs.durable:
            sync(self._packs.directory)

    def _complete(self) -> bytes:
        """Write the number of objects and append the checksum, which covers that number."""
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
    index_of_large = {offset: _LARGE_OFFSET | n for n, offset in enumerate(large)}
    body = b"".join(
        (
            _INDEX_MAGIC,
            struct.pack(">256I", *fan_out),
            *ids,
            struct.pack(f">{len(ids)}I", *(entries[object_id][1] for object_id in ids)),
            struct.pack(f">{len(ids)}I", *(index_of_large.get(at, at) for at in offsets)),
            struct.pack(f">{len(large)}Q", *large),
            pack_checksum,
        )
    )
    return body + git_hash(body).digest()


def is_shared(file: Path) -> bool:
    """Whether a file of a pack belongs to a base; see ``linking``."""
    return file.with_suffix(KEEP).exists()


def _has_pack(index: Path) -> bool:
    return index.with_suffix(".pack").exists()


def _size_by_id(path: Path) -> dict[str, int]:
    """The size of each object, from its offset to the next one, by id."""
    with ledger_failures(f"index {path.name} cannot be read"):
        data = path.read_bytes()
        pack_bytes = path.with_suffix(".pack").stat().st_size
    if not data.startswith(_INDEX_MAGIC):
        raise LedgerDamagedError(f"{path.name} is not a pack index of version 2")
    try:
        return _sizes_in_index(data, pack_bytes)
    except (struct.error, ValueError) as error:
        raise LedgerDamagedError(f"the index {path.name} is damaged: {error}") from error


def _sizes_in_index(data: bytes, pack_bytes: int) -> dict[str, int]:
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
