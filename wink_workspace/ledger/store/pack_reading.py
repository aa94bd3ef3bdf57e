"""Reads packs themselves, without an index: those of bundles, and those whose index is damaged.

A loss of power can leave an index missing, empty or short. It has only what the pack itself says:
the id, the place and the CRC of each object. Earlier versions of the program deleted the rows of an
open pack before its index was on the disk.

Rule 1: a base comes before its delta, in the same pack.
Rule 2: nothing that is read is trusted. Every size is checked before memory is allocated.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from wink_workspace.errors import LedgerDamagedError
from wink_workspace.filesystem.git_binary import apply_delta, git_hash, object_header

from .compression import CHUNK_BYTES, ObjectKind
from .packs import (
    LONGEST_HEADER,
    PACK_HEADER,
    TEMPORARY,
    EntryHeader,
    Packs,
    is_shared,
    pack_index,
    parse_entry_header,
)

_log = logging.getLogger(__name__)

_CHECKSUM_BYTES: Final = 20
_READ_BYTES: Final = 65_536
_MOST_CACHED_BYTES: Final = 32 * 1_048_576
_DAMAGE: Final = (LedgerDamagedError, RecursionError)


class ReadObject(NamedTuple):
    """An object, where its entry ends, and how many deltas its content is made of."""

    id: str
    kind: ObjectKind
    content: bytes
    end: int
    depth: int


class PackReader:
    """The objects of a pack.

    Args:
        file: The pack, which can be sought.
        end: Where its checksum begins.
        offsets: Where objects are, by id; those that were read are added.
        most_bytes: A larger content is refused.

    Every method raises ``LedgerDamagedError`` if the pack is damaged.
    """

    def __init__(
        self,
        file: BinaryIO,
        end: int,
        *,
        offsets: Mapping[str, int] | None = None,
        most_bytes: int = sys.maxsize,
    ) -> None:
        self._file = file
        self._end = end
        self.offsets = dict(offsets or {})
        self._most_bytes = most_bytes
        self._cache: OrderedDict[int, ReadObject] = OrderedDict()
        self._cached_bytes = 0

    def header(self, at: int) -> EntryHeader:
        """The header of the object at an offset."""
        self._file.seek(at)
        try:
            return parse_entry_header(self._read(at, LONGEST_HEADER))
        except IndexError as error:
            raise LedgerDamagedError("it ends too early") from error

    def object(self, at: int) -> ReadObject:
        """The object at an offset."""
        known = self._cache.get(at)
        if known is not None:
            self._cache.move_to_end(at)
            return known
        header, depth = self.header(at), 0
        if header.size_bytes > self._most_bytes:
            raise LedgerDamagedError("it has a delta that is too large")
        pieces, end = list[bytes](), at
        for piece, end in self.pieces(at + header.length, header.size_bytes):  # noqa: B007 - last
            pieces.append(piece)
        kind, content = header.kind, b"".join(pieces)
        if kind is None:
            before = at - header.distance if header.distance else self.offsets.get(header.base)
            if before is None or not 0 <= before < at:
                raise LedgerDamagedError(f"it lacks the object {header.base}, a base of a delta")
            base = self.object(before)
            kind, depth = base.kind, base.depth + 1
            try:
                content = apply_delta(content, base.content, max_bytes=self._most_bytes)
            except (ValueError, IndexError) as error:
                raise LedgerDamagedError(f"a delta cannot be applied: {error}") from error
        object_id = git_hash(object_header(kind, len(content)) + content).hexdigest()
        found = self._cache[at] = ReadObject(object_id, kind, content, end, depth)
        self.offsets.setdefault(object_id, at)
        self._cached_bytes += len(content)
        while self._cached_bytes > _MOST_CACHED_BYTES:
            self._cached_bytes -= len(self._cache.popitem(last=False)[1].content)
        return found

    def pieces(self, start: int, size_bytes: int) -> Iterator[tuple[bytes, int]]:
        """A content in pieces, each with where the compressed form ends if it is the last."""
        inflater = zlib.decompressobj()
        self._file.seek(start)
        left, at = size_bytes, start
        n_read = min(size_bytes + size_bytes // 1_000 + LONGEST_HEADER, _READ_BYTES)
        while not inflater.eof:
            data = inflater.unconsumed_tail
            if not data:
                data = self._read(at, n_read)
                at += len(data)
                if not data:
                    raise LedgerDamagedError("it ends too early")
            try:
                piece = inflater.decompress(data, min(left + 1, CHUNK_BYTES))
            except zlib.error as error:
                raise LedgerDamagedError(str(error)) from error
            left -= len(piece)
            if left < 0:
                raise LedgerDamagedError("an object is larger than its header says")
            yield piece, at - len(inflater.unused_data)
        if left:
            raise LedgerDamagedError("an object is smaller than its header says")

    def _read(self, at: int, n_bytes: int) -> bytes:
        """The bytes at the position of the file, which is *at*; none from the checksum."""
        return self._file.read(max(0, min(n_bytes, self._end - at)))

    def objects(self) -> Iterator[tuple[int, ReadObject]]:
        """Every object with its offset."""
        at = PACK_HEADER.size
        while at < self._end:
            found = self.object(at)
            yield at, found
            at = found.end


def check_checksum(file: BinaryIO) -> int:
    """Check the pack from the position of *file* to its end; where its checksum begins.

    Raises:
        LedgerDamagedError: If it is not what was written.
    """
    start = file.tell()
    end = file.seek(0, os.SEEK_END) - _CHECKSUM_BYTES
    file.seek(start)
    digest, left = git_hash(), end - start
    while left > 0 and (piece := file.read(min(CHUNK_BYTES, left))):
        digest.update(piece)
        left -= len(piece)
    if left or file.read(_CHECKSUM_BYTES) != digest.digest():
        raise LedgerDamagedError("its content does not have its checksum")
    file.seek(start)
    return end


def is_whole_pack(pack: Path) -> bool:
    """Whether a pack has the checksum at its end."""
    with pack.open("rb") as file, suppress(LedgerDamagedError):
        return check_checksum(file) > 0
    return False


def rebuild_indexes(packs: Packs) -> int:
    """Write the index of each pack that has none, or a broken one; how many.

    A pack that is damaged itself is logged, and stays as it is. One that another process is sealing
    has a second link, and gets its index from that process.
    """
    n_rebuilt = 0
    for pack in packs.directory.glob("pack-*.pack"):
        try:
            # In this order: a writer writes the index before it deletes the other link
            is_sealed = pack.stat().st_nlink == 1 or is_shared(pack)
            if is_sealed and not _has_whole_index(pack):
                unfinished = pack.with_name(f"{TEMPORARY}{secrets.token_hex(8)}.idx")
                unfinished.write_bytes(_index_of(pack))
                unfinished.rename(pack.with_suffix(".idx"))
                n_rebuilt += 1
                _log.warning("The index of %s was missing or broken, and is rebuilt.", pack)
        except FileNotFoundError:  # another process deleted the pack
            continue
        except (OSError, *_DAMAGE) as error:
            _log.warning("The index of %s is broken and cannot be rebuilt: %s", pack, error)
    return n_rebuilt


def readable_objects(
    pack: Path, offsets: Mapping[str, int]
) -> Iterator[tuple[str, ObjectKind, bytes]]:
    """The id, kind and content of each object of a damaged pack that can be read.

    Without *offsets*, from its index, those before the damage.
    """
    if not pack.exists():
        return
    with pack.open("rb") as file:
        end = file.seek(0, os.SEEK_END) - _CHECKSUM_BYTES
        reader = PackReader(file, end, offsets=offsets)
        if not offsets:
            with suppress(*_DAMAGE):
                for _, found in reader.objects():
                    yield found.id, found.kind, found.content
        for object_id, at in offsets.items():
            with suppress(*_DAMAGE):
                found = reader.object(at)
                if found.id == object_id:
                    yield object_id, found.kind, found.content


def _has_whole_index(pack: Path) -> bool:
    """Whether the index of a pack was written to its end, and for this pack."""
    with pack.open("rb") as file:
        file.seek(-_CHECKSUM_BYTES, os.SEEK_END)
        checksum = file.read()
    index = pack.with_suffix(".idx")
    try:
        content = index.read_bytes()
    except FileNotFoundError:
        return False
    body, end = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
    is_whole = body.endswith(checksum) and git_hash(body).digest() == end
    return is_whole and not index.is_symlink()


def _index_of(pack: Path) -> bytes:
    """The content of the index of a pack. A large content is in memory as a whole."""
    with pack.open("rb") as file:
        end = check_checksum(file)
        entries: dict[bytes, tuple[int, int]] = {}
        for at, found in PackReader(file, end).objects():
            file.seek(at)
            entries[bytes.fromhex(found.id)] = at, zlib.crc32(file.read(found.end - at))
        file.seek(end)
        return pack_index(entries, file.read())
