"""Rebuilds the index of a pack, which a loss of power can leave missing, empty or short.

An index has only what the pack itself says: the id, the place and the CRC of each object.
"""

from __future__ import annotations

import logging
import mmap
import secrets
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Final

from wink_workspace.errors import LedgerDamagedError
from wink_workspace.filesystem.git_binary import apply_delta, git_hash, object_header

from .compression import ObjectKind
from .deltas import delta_sizes
from .large_files import LARGE_BYTES
from .packs import (
    PACK_HEADER,
    TEMPORARY,
    Packs,
    pack_index,
    parse_entry_header,
    parse_offset_delta,
)

__all__ = ["rebuild_indexes"]

_log = logging.getLogger(__name__)

_CHECKSUM_BYTES: Final = 20
_LONGEST_HEADER: Final = 64
_READ_BYTES: Final = 16_384
_MOST_CACHED: Final = 64


def rebuild_indexes(packs: Packs) -> int:
    """Write the index of each pack that has none, or a broken one; how many.

    A pack that is damaged itself is logged, and stays as it is.
    """
    n_rebuilt = 0
    for pack in packs.directory.glob("pack-*.pack"):
        try:
            if not _is_whole(pack.with_suffix(".idx"), pack):
                unfinished = pack.with_name(f"{TEMPORARY}{secrets.token_hex(8)}.idx")
                with pack.open("rb") as file:
                    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                unfinished.write_bytes(_Contents(memoryview(data)).index())
                unfinished.rename(pack.with_suffix(".idx"))
                n_rebuilt += 1
                _log.warning("The index of %s was missing or broken, and is rebuilt.", pack)
        except FileNotFoundError:  # another process deleted the pack
            continue
        except (OSError, ValueError, LookupError, zlib.error, LedgerDamagedError) as error:
            _log.warning("The index of %s is broken and cannot be rebuilt: %s", pack, error)
    return n_rebuilt


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
    return body.endswith(checksum) and git_hash(body).digest() == end


class _Contents:
    """The objects of a pack, each with its place.

    A large file is not in memory as a whole. Deltas for one cannot be read: their pack is never on
    the disk without its index.
    """

    def __init__(self, data: memoryview) -> None:
        self._data, self._checksum = data, bytes(data[-_CHECKSUM_BYTES:])
        if git_hash(data[:-_CHECKSUM_BYTES]).digest() != self._checksum:
            raise LedgerDamagedError("the pack does not have its checksum")
        self._offsets: dict[str, int] = {}
        self._object = lru_cache(maxsize=_MOST_CACHED)(self._read)

    def index(self) -> bytes:
        """The content of the index."""
        entries: dict[bytes, tuple[int, int]] = {}
        at = PACK_HEADER.size
        while at < len(self._data) - _CHECKSUM_BYTES:
            *_, object_id, end = self._object(at)
            self._offsets[object_id.hex()] = at
            entries[object_id] = at, zlib.crc32(self._data[at:end])
            at = end
        return pack_index(entries, self._checksum)

    def _read(self, at: int) -> tuple[ObjectKind, bytes, bytes, int]:
        """Kind, content and id of the object at an offset, and where its entry ends."""
        header, size_bytes = bytes(self._data[at : at + _LONGEST_HEADER]), 0
        if (by_offset := parse_offset_delta(header)) is not None:
            kind, base, length = None, at - by_offset[1], by_offset[2]
        else:
            kind, size_bytes, base_id, length = parse_entry_header(header)
            base = self._offsets[base_id] if kind is None else at
        inflater, content, end = zlib.decompressobj(), bytearray(), at + length
        digest = git_hash() if kind is None else git_hash(object_header(kind, size_bytes))
        while not inflater.eof:
            if end >= len(self._data):
                raise LedgerDamagedError("an object of the pack ends too early")
            piece = self._data[end : end + _READ_BYTES]
            part = inflater.decompress(piece)
            digest.update(part)
            if kind is None or size_bytes < LARGE_BYTES:
                content += part
            end += len(piece) - len(inflater.unused_data)
        if kind is not None:
            return kind, bytes(content), digest.digest(), end
        kind, before, *_ = self._object(base)
        delta = bytes(content)
        made = apply_delta(delta, before, max_bytes=delta_sizes(delta)[1])
        return kind, made, git_hash(object_header(kind, len(made)) + made).digest(), end
