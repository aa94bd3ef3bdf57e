"""Writes one pack from the objects of others, in small steps.

Objects are copied as they are: nothing is decompressed, and a delta stays a delta of the same base.
A delta without its base in the new pack is stored in full. The generators pause often. One that is
closed leaves no file; one whose process died leaves an unfinished file, which is deleted later.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wink_workspace.errors import LedgerDamagedError

from .compression import CHUNK_BYTES
from .disk import ledger_failures
from .packs import (
    OBJECTS_PER_STEP,
    Pack,
    Packs,
    PackWriter,
    encode_object,
    entry_header,
    parse_entry_header,
    parse_offset_delta,
)

if TYPE_CHECKING:
    from .repository import GitRepository


_LONGEST_HEADER: Final = 64


@dataclass(frozen=True, slots=True)
class Source:
    """Objects to take from one pack; the base of a large file comes before its deltas."""

    pack: Pack
    ids: Iterable[str]


def repacking(
    repository: GitRepository, packs: Packs, sources: Collection[Source]
) -> Generator[None, None, Path | None]:
    """Write the objects of *sources*, each once, to one new pack; return its index.

    Raises:
        LedgerError: If an object is damaged, or the pack cannot be written.
    """
    taken: dict[str, Pack] = {}
    for source in sources:
        for n, object_id in enumerate(source.ids):
            taken.setdefault(object_id, source.pack)
            if n % OBJECTS_PER_STEP == 0:
                yield
    writer = PackWriter(packs)
    try:
        for source in sources:
            yield from _copying(repository, writer, source.pack, taken)
        return (yield from writer.finish_steps(durable=True))
    finally:
        writer.abandon()


def _copying(
    repository: GitRepository, writer: PackWriter, pack: Pack, taken: Mapping[str, Pack]
) -> Iterator[None]:
    with ledger_failures(f"pack {pack.path.stem} cannot be read"):
        fd = os.open(pack.path.with_suffix(".pack"), os.O_RDONLY | os.O_CLOEXEC)
    try:
        ids: dict[int, str] = {}  # of the objects up to the present one: a base is before its delta
        for object_id, offset in pack.offsets.items():
            ids[offset] = object_id
            if taken.get(object_id) is not pack:
                if len(ids) % OBJECTS_PER_STEP == 0:
                    yield
                continue
            length = pack.disk_bytes[object_id]
            start = os.pread(fd, min(length, _LONGEST_HEADER), offset)
            header = _header(start, offset, ids)
            if header is not None and header.base not in taken:
                writer.write(encode_object(*repository.read(object_id)))
                yield
                continue
            if header is not None:
                writer.append(header.as_reference)
                offset, length = offset + header.length, length - header.length
            for piece in _pieces(fd, offset, length):
                writer.append(piece)
                yield
            writer.end(object_id)
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class _DeltaHeader:
    base: str
    length: int
    as_reference: bytes


def _header(start: bytes, offset: int, ids: Mapping[int, str]) -> _DeltaHeader | None:
    """The header of a delta, ``None`` for another object."""
    by_offset = parse_offset_delta(start)
    if by_offset is not None:
        size_bytes, distance, length = by_offset
        base = ids[offset - distance]
        return _DeltaHeader(base, length, entry_header(None, size_bytes, base=base))
    kind, size_bytes, base, length = parse_entry_header(start)
    if kind is not None:
        return None
    return _DeltaHeader(base, length, entry_header(None, size_bytes, base=base))


def _pieces(fd: int, offset: int, length: int) -> Iterator[bytes]:
    while length:
        piece = os.pread(fd, min(length, CHUNK_BYTES), offset)
        if not piece:
            raise LedgerDamagedError("a pack is shorter than its index says")
        yield piece
        offset, length = offset + len(piece), length - len(piece)
