"""Rebuilds the index of a pack, which a loss of power can leave missing, empty or short.

An index has only what the pack itself says: the id, the place and the CRC of each object. Earlier
versions of the program deleted the rows of an open pack before its index was on the disk.
"""

from __future__ import annotations

import logging
import secrets
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from wink_workspace.errors import LedgerDamagedError
from wink_workspace.filesystem.git_binary import apply_delta, git_hash, object_header

from .compression import ObjectKind
from .deltas import delta_sizes
from .packs import (
    PACK_HEADER,
    TEMPORARY,
    Packs,
    pack_index,
    parse_entry_header,
    parse_offset_delta,
)

_log = logging.getLogger(__name__)

_CHECKSUM_BYTES: Final = 20
_LONGEST_HEADER: Final = 64
_READ_BYTES: Final = 16_384
_MOST_CACHED: Final = 64
_DAMAGE: Final = (ValueError, LookupError, zlib.error, LedgerDamagedError)


def rebuild_indexes(packs: Packs) -> int:
    """Write the index of each pack that has none, or a broken one; how many.

    A pack that is damaged itself is logged, and stays as it is.
    """
    n_rebuilt = 0
    for pack in packs.directory.glob("pack-*.pack"):
        try:
            if not _is_whole(pack.with_suffix(".idx"), pack):
                unfinished = pack.with_name(f"{TEMPORARY}{secrets.token_hex(8)}.idx")
                unfinished.write_bytes(_Contents(pack.read_bytes(), {}).index())
                unfinished.rename(pack.with_suffix(".idx"))
                n_rebuilt += 1
                _log.warning("The index of %s was missing or broken, and is rebuilt.", pack)
        except FileNotFoundError:  # another process deleted the pack
            continue
        except (OSError, *_DAMAGE) as error:
            _log.warning("The index of %s is broken and cannot be rebuilt: %s", pack, error)
    return n_rebuilt


def is_whole_pack(pack: Path) -> bool:
    """Whether a pack has the checksum at its end."""
    digest, n_left = git_hash(), pack.stat().st_size - _CHECKSUM_BYTES
    with pack.open("rb") as file:
        while n_left > 0 and (piece := file.read(min(n_left, _READ_BYTES))):
            digest.update(piece)
            n_left -= len(piece)
        return digest.digest() == file.read()


def readable_objects(
    pack: Path, offsets: Mapping[str, int]
) -> Iterator[tuple[str, ObjectKind, bytes]]:
    """The id, kind and content of each object of a damaged pack that can be read.

    Without *offsets*, from its index, those before the damage.
    """
    contents = _Contents(pack.read_bytes() if pack.exists() else b"", offsets)
    if not offsets:
        with suppress(*_DAMAGE):
            for object_id, kind, content, _, _ in contents.objects():
                yield object_id, kind, content
    for object_id, at in offsets.items():
        with suppress(*_DAMAGE):
            found, kind, content, _ = contents.object(at)
            if found == object_id:
                yield object_id, kind, content


def _is_whole(index: Path, pack: Path) -> bool:
    """Whether an index was written to its end, and for this pack."""
    with pack.open("rb") as file:
        file.seek(-_CHECKSUM_BYTES, 2)
        checksum = file.read()
    try:
        content = index.read_bytes()
    except FileNotFoundError:
        return False
    body, end = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
    is_whole = body.endswith(checksum) and git_hash(body).digest() == end
    return is_whole and not index.is_symlink()


class _Contents:
    """The objects of a pack, each with its place. All of it is in memory, large files as well."""

    def __init__(self, data: bytes, offsets: Mapping[str, int]) -> None:
        self._data = data
        self._offsets = dict(offsets)
        self._read = lru_cache(maxsize=_MOST_CACHED)(self._read_at)

    def index(self) -> bytes:
        """The content of the index."""
        checksum = self._data[-_CHECKSUM_BYTES:]
        if git_hash(self._data[:-_CHECKSUM_BYTES]).digest() != checksum:
            raise LedgerDamagedError("the pack does not have its checksum")
        entries = {
            bytes.fromhex(object_id): (at, zlib.crc32(self._data[at:end]))
            for object_id, _, _, at, end in self.objects()
        }
        return pack_index(entries, checksum)

    def objects(self) -> Iterator[tuple[str, ObjectKind, bytes, int, int]]:
        """The id, kind and content of each object, and where its entry begins and ends."""
        at = PACK_HEADER.size
        while at < len(self._data) - _CHECKSUM_BYTES:
            object_id, kind, content, end = self.object(at)
            self._offsets[object_id] = at
            yield object_id, kind, content, at, end
            at = end

    def object(self, at: int) -> tuple[str, ObjectKind, bytes, int]:
        """The id, kind and content of the object at an offset, and where its entry ends."""
        kind, content, end = self._read(at)
        return git_hash(object_header(kind, len(content)) + content).hexdigest(), kind, content, end

    def _read_at(self, at: int) -> tuple[ObjectKind, bytes, int]:
        """Kind and content of the object at an offset, and where its entry ends."""
        header = self._data[at : at + _LONGEST_HEADER]
        if (by_offset := parse_offset_delta(header)) is not None:
            kind, base, length = None, at - by_offset[1], by_offset[2]
        else:
            kind, _, base_id, length = parse_entry_header(header)
            base = self._offsets[base_id] if kind is None else at
        inflater, content, end = zlib.decompressobj(), bytearray(), at + length
        while not inflater.eof:
            if end >= len(self._data):
                raise LedgerDamagedError("an object of the pack ends too early")
            piece = self._data[end : end + _READ_BYTES]
            content += inflater.decompress(piece)
            end += len(piece) - len(inflater.unused_data)
        if kind is not None:
            return kind, bytes(content), end
        kind, before, _ = self._read(base)
        delta = bytes(content)
        return kind, apply_delta(delta, before, max_bytes=delta_sizes(delta)[1]), end
