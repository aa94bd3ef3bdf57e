"""Copies objects between packs, in small steps.

Objects are copied as they are: nothing is decompressed, and a delta stays a delta of the same base.
A delta whose base does not come before it in the new pack is stored in full, so a reader needs one
pass. The generators pause often. One that is closed leaves no file; one whose process died leaves
an unfinished file, which is deleted later.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wink_workspace.errors import LedgerDamagedError, LedgerError

from .compression import CHUNK_BYTES
from .disk import ledger_failures
from .packs import (
    LONGEST_HEADER,
    OBJECTS_PER_STEP,
    Pack,
    Packs,
    PackStream,
    PackWriter,
    encode_object,
    entry_header,
    parse_entry_header,
)

if TYPE_CHECKING:
    from .repository import GitRepository

MAX_DEPTH: Final = 64
"""The most deltas in a chain of a pack that was copied; libgit2 makes at most 50."""


@dataclass(frozen=True, slots=True)
class Source:
    """Objects to take from one pack; the base of a large file comes before its deltas."""

    pack: Pack
    ids: Collection[str]


def repacking(
    repository: GitRepository, packs: Packs, sources: Collection[Source]
) -> Generator[None, None, Path | None]:
    """Write the objects of *sources*, each once, to one new pack; return its index.

    Raises:
        LedgerError: If an object is damaged, or the pack cannot be written.
    """
    writer = PackWriter(packs)
    try:
        depths = dict[str, int]()
        for source in sources:
            with ledger_failures(f"pack {source.pack.path.stem} cannot be read"):
                yield from _copying(repository, writer, source, depths)
        return (yield from writer.finish_steps(durable=True))
    finally:
        writer.abandon()


def copying(
    repository: GitRepository, packs: Packs, writer: PackStream, ids: Collection[str]
) -> Generator[None]:
    """Copy the objects *ids*, wherever they are; another process may replace packs meanwhile.

    Raises:
        LedgerError: If an object is damaged.
    """
    found, left, depths = list[Pack](), set(ids), dict[str, int]()
    for path in packs.paths():
        with suppress(LedgerError):  # replaced, or damaged
            found.append(packs.load(path))
    for pack in (*found, *repository.open_packs.listed()):
        here = left & pack.offsets.keys()
        left -= here
        with suppress(FileNotFoundError):
            yield from _copying(repository, writer, Source(pack, here), depths)
    for object_id in ids:
        if object_id not in depths:
            writer.write(encode_object(*repository.read(object_id)))
            yield


def _copying(
    repository: GitRepository, writer: PackStream, source: Source, depths: dict[str, int]
) -> Iterator[None]:
    """Copy from one pack; *depths* has the length of each chain of deltas that was written."""
    pack, wanted = source.pack, set(source.ids)
    fd = os.open(pack.path.with_suffix(".pack"), os.O_RDONLY | os.O_CLOEXEC)
    try:
        ids: dict[int, str] = {}  # of the objects up to the present one: a base is before its delta
        for object_id, offset in pack.offsets.items():
            ids[offset] = object_id
            if object_id not in wanted or object_id in depths:
                if len(ids) % OBJECTS_PER_STEP == 0:
                    yield
                continue
            at, length, depth = offset, pack.disk_bytes[object_id], 0
            header = parse_entry_header(os.pread(fd, min(length, LONGEST_HEADER), at))
            if header.kind is None:
                base = ids[offset - header.distance] if header.distance else header.base
                depth = depths.get(base, MAX_DEPTH) + 1
                if depth <= MAX_DEPTH:
                    writer.append(entry_header(None, header.size_bytes, base=base))
                    at, length = at + header.length, length - header.length
            if depth > MAX_DEPTH:
                depth = 0
                writer.write(encode_object(*repository.read(object_id)))
                yield
            else:
                for piece in _pieces(fd, at, length):
                    writer.append(piece)
                    yield
                writer.end(object_id)
            depths[object_id] = depth
    finally:
        os.close(fd)


def _pieces(fd: int, offset: int, length: int) -> Iterator[bytes]:
    while length:
        piece = os.pread(fd, min(length, CHUNK_BYTES), offset)
        if not piece:
            raise LedgerDamagedError("a pack is shorter than its index says")
        yield piece
        offset, length = offset + len(piece), length - len(piece)
