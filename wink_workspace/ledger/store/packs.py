"""Packs: many objects in one file, with an index beside it (gitformat-pack, version 2).

``PackWriter`` writes one object after the other, for a commit of many files, a large file, or the
objects of other packs; ``PackStream`` does for a bundle. libgit2 computes deltas
during garbage collection. ``PackedObjects`` reads single objects; this module reads indexes for the
ids of a pack's objects and their sizes on disk.

Rule 1: a pack is valid once its ``.idx`` has its final name, and is ignored without it. So the
index is written last and deleted first.
"""

from __future__ import annotations

import os
import secrets
import shutil
import struct
import zlib
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from heapq import merge
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from wink_workspace.errors import LedgerDamagedError
from wink_workspace.filesystem.git_binary import git_hash, object_header

from .compression import CHUNK_BYTES, ObjectKind, compress, run_steps
from .disk import file_sizes, ledger_failure, ledger_failures, sync_pack, write_whole

TYPE_OF_KIND: dict[ObjectKind, int] = {"commit": 1, "tree": 2, "blob": 3}
_KIND_OF_TYPE: dict[int, ObjectKind] = {number: kind for kind, number in TYPE_OF_KIND.items()}
_OFFSET_DELTA: Final = 6
_REF_DELTA: Final = 7
PACK_HEADER = struct.Struct(">4sII")
"""The beginning of a pack: ``PACK``, the version and the number of objects."""
LONGEST_HEADER: Final = 64
"""More bytes than the header of an object has."""
INDEX_MAGIC: Final = b"\xfftOc\x00\x00\x00\x02"
_FAN_OUT_BYTES: Final = 256 * 4
_ID_BYTES: Final = 20
_LARGE_OFFSET: Final = 1 << 31
OBJECTS_PER_STEP: Final = 256
"""After how many objects of a pack maintenance may pause."""
ENDED_CALLS: Final = 0.0
"""The time of a pack with objects of ended calls only."""
KEEP: Final = ".keep"
"""The suffix of git's mark for a pack that is not rewritten."""

TEMPORARY: Final = "tmp_pack_"
"""With what the names of unfinished files of packs begin."""
_UNFINISHED = (TEMPORARY + "*", "pack_git2_*", "*.lock")  # ours, and libgit2's


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack.

    ``path`` is that of its index. ``made`` is the filesystem's time at which it was written: a call
    in progress may use objects of a new pack to which no ref leads. It is ``ENDED_CALLS`` if no
    call in progress does.
    ``disk_bytes`` and ``offsets`` have each object's size in the file and its offset, by id, in the
    order of the file.
    """

    path: Path
    made: float
    disk_bytes: dict[str, int]
    offsets: dict[str, int]

    @property
    def is_shared(self) -> bool:
        """Whether it belongs to a base or to the import; see ``linking``."""
        return is_shared(self.path)


class PackedObject(NamedTuple):
    """An object encoded for a pack; may be made in any thread."""

    id: str
    entry: bytes
    size_bytes: int


def encode_object(kind: ObjectKind, content: bytes) -> PackedObject:
    """Encode an object for a pack."""
    header = object_header(kind, len(content))
    object_id = git_hash(header + content).hexdigest()
    entry = entry_header(kind, len(content)) + compress(content, worth=True)
    return PackedObject(object_id, entry, len(content))


def _invalid(index: Path) -> Path:
    """The name of a pack without an index that is about to be deleted."""
    return index.with_name(f"{TEMPORARY}{index.stem}.pack")


class Packs:
    """The packs of a repository.

    Args:
        objects: Its ``objects`` directory.
        durable: Whether new packs are synced to the device.
    """

    def __init__(self, objects: Path, *, durable: bool = False) -> None:
        self.directory = objects / "pack"
        self.durable = durable

    def paths(self) -> list[Path]:
        """The index of every pack, sorted by name."""
        return sorted(path for path in self.directory.glob("pack-*.idx") if _has_pack(path))

    def load(self, index: Path) -> Pack:
        """Read an index.

        Raises:
            LedgerDamagedError: If it is damaged.
        """
        return run_steps(self.loading(index))

    def loading(self, index: Path) -> Generator[None, None, Pack]:
        """As ``load``; pauses often."""
        with ledger_failures(f"index {index.name} cannot be read"):
            made = index.stat().st_mtime
        sizes, offsets = yield from _places_by_id(index)
        return Pack(index, made, sizes, offsets)

    def listed(self) -> list[Pack]:
        """Every pack, sorted by name; raises as ``load``."""
        return [self.load(path) for path in self.paths()]

    def has_deltas(self, index: Path) -> bool:
        """Whether deltas were computed for a pack; ``note_deltas`` notes it."""
        try:
            return index.stem in self._with_deltas.read_text().split()
        except FileNotFoundError:
            return False

    def note_deltas(self, index: Path) -> None:
        """Note that deltas were computed for a pack. A lost note costs time only."""
        present = {path.stem for path in self.paths() if self.has_deltas(path)} | {index.stem}
        with ledger_failures("the list of packs with deltas cannot be written"):
            write_whole(self._with_deltas, "\n".join(sorted(present)).encode(), durable=False)

    @property
    def _with_deltas(self) -> Path:
        return self.directory.parent.parent / "wink" / "packs-with-deltas"

    def set_made(self, index: Path, made: float) -> None:
        """Set the time of a pack that is in place; see ``Pack``. A crash before it is harmless."""
        with ledger_failures(f"the time of pack {index.stem} cannot be set"):
            os.utime(index, (made, made))

    def correct_times(self, is_wrong: Callable[[float], bool], right: float) -> None:
        """Set each wrong time of a file to *right*, also if it is unfinished; skip shared packs."""
        with ledger_failures("the times of packs cannot be set"):
            for path in self.directory.iterdir():
                with suppress(FileNotFoundError):  # another process renamed it
                    if not is_shared(path) and is_wrong(path.stat().st_mtime):
                        os.utime(path, (right, right))

    def invalidate(self, index: Path) -> None:
        """Delete the index of a pack, so that its objects cannot be found any more.

        The pack gets the name of an unfinished one: its index must not be rebuilt.
        """
        with ledger_failures(f"index {index.name} cannot be deleted"):
            index.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                index.with_suffix(".pack").rename(_invalid(index))

    def delete(self, index: Path) -> None:
        """Delete a pack, the index first; its objects must be elsewhere or unreachable."""
        with ledger_failures(f"pack {index.stem} cannot be deleted"):
            for suffix in (".idx", ".rev", ".bitmap", ".mtimes", ".pack"):
                index.with_suffix(suffix).unlink(missing_ok=True)
            _invalid(index).unlink(missing_ok=True)

    def keep(self) -> None:
        """Mark every pack that is in place: it stays, and does not count towards the budget."""
        with ledger_failures("a pack cannot be marked"):
            for index in self.paths():
                index.with_suffix(KEEP).touch()

    def delete_leftovers(self, before: float) -> None:
        """Delete unfinished files of dead writers, except packs without an index.

        Those are files that were last written before the filesystem's time *before*.
        libgit2 renames the index of a new pack before the pack. Also deletes the indexes
        over all packs and over all commits that plain git may have made, as they would name
        deleted packs and commits.
        """
        (self.directory / "multi-pack-index").unlink(missing_ok=True)
        (self.directory.parent / "info" / "commit-graph").unlink(missing_ok=True)
        shutil.rmtree(self.directory.parent / "info" / "commit-graphs", ignore_errors=True)
        for path in [path for names in _UNFINISHED for path in self.directory.glob(names)]:
            if _is_older(path, before):
                path.unlink(missing_ok=True)
        for index in self.directory.glob("*.idx"):
            if not _has_pack(index) and _is_older(index, before):
                index.unlink(missing_ok=True)

    def delete_unindexed(self, before: float) -> None:
        """Delete packs whose index is missing because a writer died or a file was lost.

        Those are packs that were last written before the filesystem's time *before*. A newer one
        may belong to a writer that is about to write its index. So may one with a second link,
        which is an open pack, if the clock was set back. The objects must be elsewhere or
        unreachable, since git can rebuild an index from a pack.
        """
        for pack in self.directory.glob("*.pack"):
            with suppress(FileNotFoundError):
                # In this order: a writer writes the index before it deletes the other link
                found = pack.stat()
                is_linked = found.st_nlink > 1
                if found.st_mtime < before and not (is_linked or pack.with_suffix(".idx").exists()):
                    pack.unlink()

    def file_sizes(self) -> dict[int, int]:
        """The size of each file but those of shared packs, by inode; indexes included."""
        return file_sizes(path for path in self.directory.iterdir() if not is_shared(path))


class PackStream:
    """A pack that is written to *file* from its position on, one object after the other.

    Attributes:
        entries: The offset and the CRC of each object, by its id.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._start = file.tell()
        self.entries: dict[bytes, tuple[int, int]] = {}
        self._begun, self._crc = PACK_HEADER.size, 0
        self._offset = PACK_HEADER.size
        file.write(PACK_HEADER.pack(b"PACK", 2, 0))

    def write(self, made: PackedObject) -> None:
        """Add an object; a repeated one is ignored."""
        if bytes.fromhex(made.id) not in self.entries:
            self.append(made.entry)
            self.end(made.id)

    def append(self, data: bytes) -> None:
        """Continue the entry of the present object, which ``end`` ends."""
        self._file.write(data)
        self._offset += len(data)
        self._crc = zlib.crc32(data, self._crc)

    def end(self, object_id: str) -> None:
        """Give the present object its id."""
        self.entries[bytes.fromhex(object_id)] = (self._begun, self._crc)
        self._begun, self._crc = self._offset, 0

    def complete(self) -> Generator[None, None, bytes]:
        """Write the number of objects and the checksum, which covers that number; pauses often."""
        self._file.seek(self._start)
        self._file.write(PACK_HEADER.pack(b"PACK", 2, len(self.entries)))
        self._file.seek(self._start)
        digest = git_hash()
        while piece := self._file.read(CHUNK_BYTES):
            digest.update(piece)
            yield
        self._file.write(digest.digest())
        self._file.flush()
        return digest.digest()


class PackWriter(PackStream):
    """A pack of a repository that is being written; ``finish`` or ``abandon`` ends it.

    Its objects cannot be read before that.
    """

    def __init__(self, packs: Packs) -> None:
        self._packs = packs
        self._temporary = packs.directory / f"{TEMPORARY}{secrets.token_hex(8)}"
        self._index = self._temporary.with_suffix(".idx")
        with ledger_failures("a pack cannot be written"):
            super().__init__(self._temporary.open("xb+"))

    def append(self, data: bytes) -> None:
        """As ``PackStream.append``; raises ``LedgerError``."""
        try:
            super().append(data)
        except OSError as error:
            raise ledger_failure("a pack cannot be written", error) from error

    def finish(self) -> None:
        """Rename the pack into place; delete it if it is empty or an error occurs."""
        run_steps(self.finish_steps())

    def finish_steps(self, *, durable: bool = False) -> Generator[None, None, Path | None]:
        """As ``finish``, with its index; pauses often. Deletes the pack if it is closed early.

        It would survive a loss of power if the repository is durable, or with *durable*.
        """
        try:
            with ledger_failures("a pack cannot be written"):
                if not self.entries:
                    return None
                checksum = yield from self.complete()
                self._index.write_bytes((yield from index_steps(self.entries, checksum)))
                name = self._packs.directory / f"pack-{checksum.hex()}"
                self._temporary.rename(name.with_suffix(".pack"))
                self._index.rename(name.with_suffix(".idx"))
                if durable or self._packs.durable:
                    sync_pack(name.with_suffix(".idx"))
                return name.with_suffix(".idx")
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Discard the objects written, unless the pack is in place."""
        with suppress(OSError):  # closing flushes the buffer, which may fail
            self._file.close()
        for path in (self._temporary, self._index):
            path.unlink(missing_ok=True)


def entry_header(kind: ObjectKind | None, size_bytes: int, *, base: str = "") -> bytes:
    """Type and size in 7-bit groups, the type in the first.

    Without a kind it is the header of a delta for the object *base*.
    """
    group = (_REF_DELTA if kind is None else TYPE_OF_KIND[kind]) << 4 | size_bytes & 15
    size_bytes >>= 4
    header = bytearray()
    while size_bytes:
        header.append(group | 128)
        group = size_bytes & 127
        size_bytes >>= 7
    header.append(group)
    return bytes(header) + bytes.fromhex(base)


class EntryHeader(NamedTuple):
    """The header of an object in a pack, with its length; a delta has no kind.

    The base of a delta is named by its id, or by its distance, as in the packs of git.
    """

    kind: ObjectKind | None
    size_bytes: int
    length: int
    base: str = ""
    distance: int = 0


def parse_entry_header(entry: bytes) -> EntryHeader:
    """The header with which *entry* begins.

    Raises:
        LedgerDamagedError: If the type is unknown.
        IndexError: If it is not complete.
    """
    at, size_bytes, shift = 0, entry[0] & 15, 4
    while entry[at] > 127:
        at += 1
        size_bytes |= (entry[at] & 127) << shift
        shift += 7
    number, at = entry[0] >> 4 & 7, at + 1
    if number == _REF_DELTA:
        return EntryHeader(None, size_bytes, at + _ID_BYTES, entry[at : at + _ID_BYTES].hex())
    if number == _OFFSET_DELTA:
        distance = entry[at] & 127
        while entry[at] > 127:
            at += 1
            distance = (distance + 1) << 7 | entry[at] & 127
        return EntryHeader(None, size_bytes, at + 1, distance=distance)
    if number not in _KIND_OF_TYPE:
        raise LedgerDamagedError(f"an object in a pack has the unknown type {number}")
    return EntryHeader(_KIND_OF_TYPE[number], size_bytes, at)


def pack_index(entries: dict[bytes, tuple[int, int]], pack_checksum: bytes) -> bytes:
    """The index of a pack, given the offset and the CRC of each object."""
    return run_steps(index_steps(entries, pack_checksum))


def index_steps(
    entries: dict[bytes, tuple[int, int]], pack_checksum: bytes
) -> Generator[None, None, bytes]:
    """As ``pack_index``; pauses often."""
    by_byte: list[list[bytes]] = [[] for _ in range(256)]
    for n, object_id in enumerate(entries):
        by_byte[object_id[0]].append(object_id)
        if n % OBJECTS_PER_STEP == 0:
            yield
    ids, checksums, offsets, large = bytearray(), bytearray(), bytearray(), bytearray()
    n_large = 0
    for part in by_byte:
        part.sort()
        for n, object_id in enumerate(part):
            offset, checksum = entries[object_id]
            if offset >= _LARGE_OFFSET:
                large += offset.to_bytes(8, "big")
                offset, n_large = _LARGE_OFFSET | n_large, n_large + 1
            ids += object_id
            checksums += checksum.to_bytes(4, "big")
            offsets += offset.to_bytes(4, "big")
            if n % OBJECTS_PER_STEP == 0:
                yield
    fan_out = struct.pack(">256I", *accumulate(map(len, by_byte)))
    body = b"".join((INDEX_MAGIC, fan_out, ids, checksums, offsets, large, pack_checksum))
    return body + git_hash(body).digest()


def _is_older(path: Path, before: float) -> bool:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime < before
    return False


def is_shared(file: Path) -> bool:
    """Whether a file of a pack belongs to a base or to the import; see ``linking``."""
    return file.with_suffix(KEEP).exists()


def _has_pack(index: Path) -> bool:
    return index.with_suffix(".pack").exists()


def _places_by_id(path: Path) -> Generator[None, None, tuple[dict[str, int], dict[str, int]]]:
    """The size of each object, from its offset to the next one, and its offset, by id."""
    with ledger_failures(f"index {path.name} cannot be read"):
        data = path.read_bytes()
        pack_bytes = path.with_suffix(".pack").stat().st_size
    if not data.startswith(INDEX_MAGIC):
        raise LedgerDamagedError(f"{path.name} is not a pack index of version 2")
    try:
        return (yield from _places_in_index(data, pack_bytes))
    except (struct.error, ValueError) as error:
        raise LedgerDamagedError(f"the index {path.name} is damaged: {error}") from error


def _places_in_index(
    data: bytes, pack_bytes: int
) -> Generator[None, None, tuple[dict[str, int], dict[str, int]]]:
    start = len(INDEX_MAGIC) + _FAN_OUT_BYTES
    (n,) = struct.unpack_from(">I", data, start - 4)
    after_checksums = start + n * (_ID_BYTES + 4)
    after_offsets = after_checksums + n * 4
    parts: list[list[tuple[int, str]]] = []  # sorting everything at once would be a long step
    for first in range(0, n, OBJECTS_PER_STEP):
        n_here = min(OBJECTS_PER_STEP, n - first)
        at = start + first * _ID_BYTES
        part: list[tuple[int, str]] = []
        for offset in struct.unpack_from(f">{n_here}I", data, after_checksums + first * 4):
            if offset >= _LARGE_OFFSET:
                large_at = after_offsets + 8 * (offset - _LARGE_OFFSET)
                (offset,) = struct.unpack_from(">Q", data, large_at)
            part.append((offset, data[at : at + _ID_BYTES].hex()))
            at += _ID_BYTES
        parts.append(sorted(part))
        yield
    sizes: dict[str, int] = {}
    offsets: dict[str, int] = {}
    before, before_at = "", 0
    for offset, object_id in merge(*parts):
        sizes[before] = offset - before_at
        offsets[object_id] = offset
        before, before_at = object_id, offset
        if len(sizes) % OBJECTS_PER_STEP == 0:
            yield
    sizes[before] = pack_bytes - _ID_BYTES - before_at
    del sizes[""]
    return sizes, offsets
