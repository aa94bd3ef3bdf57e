"""Writes one pack from the objects of others, in small steps.

Objects are copied as they are: nothing is decompressed, and a delta stays a delta of the same base.
A delta without its base in the new pack is stored in full. The generators pause often. One that is
closed leaves no file; one whose process died leaves an unfinished file, which is deleted later.
"""

from __future__ import annotations

import os
import secrets
import zlib
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wink_workspace.errors import LedgerDamagedError
from wink_workspace.filesystem.git_binary import git_hash

from .disk import ledger_failures, sync_pack
from .large_deltas import StoredContent, StoredStream, read_checked
from .loose import CHUNK_BYTES
from .packs import (
    OBJECTS_PER_STEP,
    PACK_HEADER,
    Pack,
    PackedObject,
    Packs,
    encode_object,
    entry_header,
    index_steps,
    parse_entry_header,
    parse_offset_delta,
)

if TYPE_CHECKING:
    from .repository import GitRepository

__all__ = ["Source", "repacking", "repacking_large"]

_LONGEST_HEADER: Final = 64


@dataclass(frozen=True, slots=True)
class Source:
    """Objects to take from one pack; from loose files if there is no pack."""

    pack: Pack | None
    ids: Iterable[str]


def repacking(
    repository: GitRepository, packs: Packs, sources: Collection[Source]
) -> Generator[None, None, Path | None]:
    """Write the objects of *sources*, each once, to one new pack; return its index.

    Raises:
        LedgerError: If an object is damaged, or the pack cannot be written.
    """
    taken: dict[str, Pack | None] = {}
    for source in sources:
        for n, object_id in enumerate(source.ids):
            taken.setdefault(object_id, source.pack)
            if n % OBJECTS_PER_STEP == 0:
                yield
    if not taken:
        return None
    writer = _Writer(packs, len(taken))
    try:
        for source in sources:
            if source.pack is not None:
                yield from _copying(repository, writer, source.pack, taken)
                continue
            for object_id in source.ids:
                if taken[object_id] is None:
                    writer.add(object_id, [encode_object(*repository.read(object_id)).entry])
                    yield
        return (yield from writer.finishing())
    finally:
        writer.close()


def repacking_large(
    repository: GitRepository, packs: Packs, base: str, deltas: Iterable[str], old: Source | None
) -> Generator[None, None, Path]:
    """Write a large file to one new pack: its *base*, and versions that are loose deltas.

    *old* is the pack that has the base already, with what is to be kept of it.

    Raises:
        LedgerError: As ``repacking``.
    """
    taken = {} if old is None else dict.fromkeys([base, *old.ids], old.pack)
    new = [each for each in deltas if each not in taken]
    writer = _Writer(packs, len(taken.keys() | {base}) + len(new))
    try:
        if old is None or old.pack is None:
            content = _opened(repository, base)
            yield from writer.add_steps(base, _stored(base, content))
        else:
            yield from _copying(repository, writer, old.pack, taken)
        for object_id in new:
            delta = repository.loose.deltas.load(object_id).delta
            header = entry_header(None, len(zlib.decompress(delta)), base=base)
            writer.add(object_id, [header, delta])
            yield
        return (yield from writer.finishing())
    finally:
        writer.close()


def _opened(repository: GitRepository, base: str) -> StoredContent:
    try:
        return repository.loose.deltas.opened(base)
    except (OSError, ValueError) as error:
        raise LedgerDamagedError(f"the large file {base} cannot be read: {error}") from error


def _stored(object_id: str, content: StoredContent) -> Iterator[bytes]:
    stream = StoredStream()
    yield entry_header("blob", content.size_bytes)
    for piece in read_checked(object_id, content):
        yield stream.add(piece)
    yield stream.end()


def _copying(
    repository: GitRepository, writer: _Writer, pack: Pack, taken: Mapping[str, Pack | None]
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
            if header is None:
                yield from writer.add_steps(object_id, _pieces(fd, offset, length))
            elif header.base in taken:
                rest = _pieces(fd, offset + header.length, length - header.length)
                writer.add(object_id, [header.as_reference, *rest])
            else:
                writer.add(object_id, [_in_full(repository, object_id).entry])
            yield
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


def _in_full(repository: GitRepository, object_id: str) -> PackedObject:
    return encode_object(*repository.read(object_id))


def _pieces(fd: int, offset: int, length: int) -> Iterator[bytes]:
    while length:
        piece = os.pread(fd, min(length, CHUNK_BYTES), offset)
        if not piece:
            raise LedgerDamagedError("a pack is shorter than its index says")
        yield piece
        offset, length = offset + len(piece), length - len(piece)


class _Writer:
    """A pack whose number of objects is known from the beginning."""

    def __init__(self, packs: Packs, n_objects: int) -> None:
        self._packs = packs
        self._name = packs.directory / f"tmp_pack_{secrets.token_hex(8)}"
        self._entries: dict[bytes, tuple[int, int]] = {}
        self._n_objects = n_objects
        self._digest = git_hash()
        self._offset = 0
        with ledger_failures("a pack cannot be written"):
            self._file = self._name.open("xb")
        self._write(PACK_HEADER.pack(b"PACK", 2, n_objects))

    def add(self, object_id: str, entry: Iterable[bytes]) -> None:
        for _ in self.add_steps(object_id, entry):
            pass

    def add_steps(self, object_id: str, entry: Iterable[bytes]) -> Iterator[None]:
        offset, crc = self._offset, 0
        for piece in entry:
            crc = zlib.crc32(piece, crc)
            self._write(piece)
            yield
        self._entries[bytes.fromhex(object_id)] = (offset, crc)

    def _write(self, data: bytes) -> None:
        with ledger_failures("a pack cannot be written"):
            self._file.write(data)
        self._digest.update(data)
        self._offset += len(data)

    def finishing(self) -> Generator[None, None, Path]:
        """Give it its name; return its index."""
        if len(self._entries) != self._n_objects:
            raise LedgerDamagedError("a new pack does not contain the objects that it should")
        name = self._packs.directory / f"pack-{self._digest.hexdigest()}"
        index = self._name.with_suffix(".idx")
        content = yield from index_steps(self._entries, self._digest.digest())
        with ledger_failures("a pack cannot be written"):
            self._file.write(self._digest.digest())
            self._file.flush()
            index.write_bytes(content)
            self._name.rename(name.with_suffix(".pack"))
            index.rename(name.with_suffix(".idx"))
            sync_pack(name.with_suffix(".idx"))
        return name.with_suffix(".idx")

    def close(self) -> None:
        """Close the file; delete it unless it has its final name."""
        with suppress(OSError):  # closing flushes the buffer, which may fail
            self._file.close()
        for path in (self._name, self._name.with_suffix(".idx")):
            path.unlink(missing_ok=True)
