"""Git packs as streams: written to a file from the beginning to the end, and read from one.

They are the packs of git (gitformat-pack, version 2). A pack may be *thin*: a delta may refer to an
object that the reader has already.

Rule 1: a delta refers to an object that is known, or that comes earlier in the same pack, and a
chain has at most ``MAX_DEPTH`` deltas. So a reader needs bounded memory.
Rule 2: a content of ``LARGE_BYTES`` or more is whole, and is never in memory as a whole.
Rule 3: a reader does not trust what it reads. It checks every size before it allocates memory.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

from wink_workspace.errors import BundleError, LedgerDamagedError
from wink_workspace.filesystem.git_binary import apply_delta, git_hash, object_header

from .compression import CHUNK_BYTES, ObjectKind, compress
from .deltas import delta_between
from .large_files import LARGE_BYTES
from .objects import ObjectStore
from .packs import (
    PACK_HEADER,
    PackedObject,
    encode_object,
    entry_header,
    parse_entry_header,
)

MAX_DEPTH: Final = 16
_MIN_DELTA_BYTES: Final = 256
_MOST_CACHED_BYTES: Final = 32 * 1_048_576
_LONGEST_HEADER: Final = 64
_READ_BYTES: Final = 65_536
_CHECKSUM_BYTES: Final = 20


class PackOutput:
    """A pack that is being written to *file*, which can be read and sought.

    Attributes:
        n_objects: How many objects it has.
        n_bytes: The size of all contents.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._start = file.tell()
        self._depths: dict[str, int] = {}
        self.n_objects = 0
        self.n_bytes = 0
        file.write(PACK_HEADER.pack(b"PACK", 2, 0))

    def add(self, kind: ObjectKind, content: bytes) -> str:
        """Add an object; return its id."""
        made = encode_object(kind, content)
        self._write(made.entry, len(content))
        return made.id

    def add_like(
        self, object_id: str, kind: ObjectKind, content: bytes, like: tuple[str, bytes]
    ) -> None:
        """Add an object as a delta for *like*, the id and content of another one, if that helps."""
        base_id, base = like
        depth = self._depths.get(base_id, 0) + 1
        if depth <= MAX_DEPTH and min(len(base), len(content)) >= _MIN_DELTA_BYTES:
            delta = delta_between(base, content)
            if 2 * len(delta) < len(content):
                self._depths[object_id] = depth
                entry = entry_header(None, len(delta), base=base_id) + compress(delta, worth=True)
                self._write(entry, len(content))
                return
        self.add(kind, content)

    def add_large(self, size_bytes: int, pieces: Iterable[bytes]) -> None:
        """Add a blob in pieces."""
        self._write(entry_header("blob", size_bytes), size_bytes)
        compressor = zlib.compressobj(1)
        for piece in pieces:
            self._file.write(compressor.compress(piece))
        self._file.write(compressor.flush())

    def finish(self) -> None:
        """Write the number of objects and the checksum."""
        file = self._file
        file.seek(self._start)
        file.write(PACK_HEADER.pack(b"PACK", 2, self.n_objects))
        file.seek(self._start)
        digest = git_hash()
        while piece := file.read(CHUNK_BYTES):
            digest.update(piece)
        file.write(digest.digest())

    def _write(self, entry: bytes, size_bytes: int) -> None:
        self._file.write(entry)
        self.n_objects += 1
        self.n_bytes += size_bytes


def check_checksum(file: BinaryIO) -> int:
    """Check the pack from the position of *file* to its end; where its checksum begins.

    Raises:
        BundleError: If it is not what was written.
    """
    start = file.tell()
    end = file.seek(0, os.SEEK_END) - _CHECKSUM_BYTES
    file.seek(start)
    digest, left = git_hash(), end - start
    while left > 0 and (piece := file.read(min(CHUNK_BYTES, left))):
        digest.update(piece)
        left -= len(piece)
    if left or file.read(_CHECKSUM_BYTES) != digest.digest():
        raise BundleError("the bundle is damaged: its content does not have its checksum")
    file.seek(start)
    return end


class PackIngest:
    """Adds the objects of a pack to a store, inside a ``bulk``.

    Args:
        store: Gets the objects; a thin pack refers to those that it has.
        file: The pack, from its position on.
        end: Where its checksum begins.
        most_objects: A pack with more objects is refused.
        most_bytes: One whose contents are larger, together, is refused.
    """

    def __init__(
        self, store: ObjectStore, file: BinaryIO, end: int, *, most_objects: int, most_bytes: int
    ) -> None:
        self._store = store
        self._file = file
        self._end = end
        self._most_objects = most_objects
        self._most_bytes = most_bytes
        self._places: dict[str, tuple[int, int]] = {}  # offset, and depth of the chain
        self._unpacked: set[str] = set()
        self._cache: OrderedDict[str, tuple[ObjectKind, bytes]] = OrderedDict()
        self._cached_bytes = 0

    def run(self) -> None:
        """Add every object.

        Raises:
            BundleError: If something is damaged, or not allowed.
            LedgerError: If the store cannot be written.
        """
        start = self._file.read(PACK_HEADER.size)
        if len(start) != PACK_HEADER.size:
            raise _damaged("it ends too early")
        magic, version, n_objects = PACK_HEADER.unpack(start)
        if magic != b"PACK" or version != 2:
            raise _damaged("it has no pack of version 2")
        if n_objects > self._most_objects:
            raise BundleError(
                f"the bundle has {n_objects:,} objects, at most {self._most_objects:,} are allowed",
                hint="Import it with a higher limit only if you trust where it comes from.",
            )
        offset = self._file.tell()
        for _ in range(n_objects):
            offset = self._add(offset)
        if offset != self._end:
            raise _damaged("it has more than its objects")

    def _add(self, offset: int) -> int:
        """Add the object at *offset*; where the next one begins."""
        kind, size_bytes, base, start = self._header(offset)
        if kind is None:
            return self._add_delta(offset, size_bytes, base, start)
        self._count(size_bytes)
        if size_bytes >= LARGE_BYTES:
            return self._add_large(kind, size_bytes, start)
        content, end = self._inflated(start, size_bytes)
        object_id = git_hash(object_header(kind, size_bytes) + content).hexdigest()
        self._note(object_id, offset, 0)
        self._keep(object_id, kind, content, (offset, end))
        return end

    def _add_delta(self, offset: int, size_bytes: int, base: str, start: int) -> int:
        if size_bytes >= LARGE_BYTES:
            raise _damaged("it has a delta that is too large")
        depth = 1 + (self._places[base][1] if base in self._places else 0)
        if depth > MAX_DEPTH:
            raise _damaged(f"it has a chain of more than {MAX_DEPTH} deltas")
        delta, end = self._inflated(start, size_bytes)
        kind, content = self._applied(base, delta)
        self._count(len(content))
        object_id = git_hash(object_header(kind, len(content)) + content).hexdigest()
        self._note(object_id, offset, depth)
        if base in self._places and base not in self._unpacked:
            self._keep(object_id, kind, content, (offset, end))
        else:  # a pack in the store must have the base, too
            self._unpacked.add(object_id)
            self._remember(object_id, kind, content)
            self._store.write(kind, content)
        return end

    def _add_large(self, kind: ObjectKind, size_bytes: int, start: int) -> int:
        if kind != "blob":
            raise _damaged(f"it has a {kind} of {size_bytes:,} bytes")
        with tempfile.TemporaryFile(dir=self._store.repository.directory) as spooled:
            end = start
            for piece, end in self._pieces(start, size_bytes):  # noqa: B007 - the last is used
                spooled.write(piece)
            spooled.seek(0)
            object_id = self._store.write_blob_from(spooled.fileno())
        self._unpacked.add(object_id)
        return end

    def _keep(
        self, object_id: str, kind: ObjectKind, content: bytes, where: tuple[int, int]
    ) -> None:
        """Add an object whose entry may be copied as it is."""
        self._remember(object_id, kind, content)
        if kind == "blob" and isinstance(self._store.prepare_blob(content), bytes):
            self._unpacked.add(object_id)
            self._store.write_blob(content)
            return
        self._file.seek(where[0])
        entry = self._file.read(where[1] - where[0])
        self._store.write_prepared(PackedObject(object_id, entry, len(content)))

    def _note(self, object_id: str, offset: int, depth: int) -> None:
        if object_id in self._places:
            raise _damaged("it has an object twice")
        self._places[object_id] = offset, depth

    def _count(self, size_bytes: int) -> None:
        self._most_bytes -= size_bytes
        if self._most_bytes < 0:
            raise BundleError(
                "the contents of the bundle are larger than the limit",
                hint="Import it with a higher limit only if you trust where it comes from.",
            )

    # Contents

    def _applied(self, base: str, delta: bytes) -> tuple[ObjectKind, bytes]:
        kind, before = self._content(base)
        try:
            return kind, apply_delta(delta, before, max_bytes=LARGE_BYTES - 1)
        except (ValueError, IndexError) as error:
            raise _damaged(f"a delta cannot be applied: {error}") from error

    def _content(self, object_id: str) -> tuple[ObjectKind, bytes]:
        """The content of an object that came earlier, or that the store has."""
        if (known := self._cache.get(object_id)) is not None:
            self._cache.move_to_end(object_id)
            return known
        if object_id not in self._places:
            return self._known(object_id)
        kind, size_bytes, base, start = self._header(self._places[object_id][0])
        content, _ = self._inflated(start, size_bytes)
        found = (kind, content) if kind is not None else self._applied(base, content)
        self._remember(object_id, *found)
        return found

    def _known(self, object_id: str) -> tuple[ObjectKind, bytes]:
        try:
            kind, size_bytes = self._store.repository.header(object_id)
            if size_bytes < LARGE_BYTES:
                return kind, self._store.read(object_id, kind)
        except LedgerDamagedError as error:
            raise BundleError(
                f"the bundle continues a history that is not here: there is no object {object_id}",
                hint="Import the bundle that it was made to follow, then this one.",
            ) from error
        raise _damaged("it has a delta for an object that is too large")

    def _remember(self, object_id: str, kind: ObjectKind, content: bytes) -> None:
        self._cache[object_id] = kind, content
        self._cached_bytes += len(content)
        while self._cached_bytes > _MOST_CACHED_BYTES:
            _, (_, dropped) = self._cache.popitem(last=False)
            self._cached_bytes -= len(dropped)

    # Bytes

    def _header(self, offset: int) -> tuple[ObjectKind | None, int, str, int]:
        """Kind, size, base and start of the content of the object at *offset*."""
        self._file.seek(offset)
        start = self._file.read(min(_LONGEST_HEADER, self._end - offset))
        try:
            kind, size_bytes, base, length = parse_entry_header(start)
        except (LedgerDamagedError, IndexError) as error:
            raise _damaged("it has an object that a bundle cannot have") from error
        return kind, size_bytes, base, offset + length

    def _inflated(self, start: int, size_bytes: int) -> tuple[bytes, int]:
        """A content of that size, and where its compressed form ends."""
        pieces: list[bytes] = []
        end = start
        for piece, end in self._pieces(start, size_bytes):  # noqa: B007 - the last is used
            pieces.append(piece)
        return b"".join(pieces), end

    def _pieces(self, start: int, size_bytes: int) -> Iterator[tuple[bytes, int]]:
        """The content in pieces, each with where the compressed form ends if it is the last."""
        inflater = zlib.decompressobj()
        self._file.seek(start)
        left, at = size_bytes, start
        n_read = min(size_bytes + size_bytes // 1_000 + _LONGEST_HEADER, _READ_BYTES)
        while not inflater.eof:
            data = inflater.unconsumed_tail
            if not data:
                data = self._file.read(min(n_read, self._end - at))
                at += len(data)
                if not data:
                    raise _damaged("it ends too early")
            try:
                piece = inflater.decompress(data, min(left + 1, CHUNK_BYTES))
            except zlib.error as error:
                raise _damaged(str(error)) from error
            left -= len(piece)
            if left < 0:
                raise _damaged("an object is larger than its header says")
            yield piece, at - len(inflater.unused_data)
        if left:
            raise _damaged("an object is smaller than its header says")


def _damaged(why: str) -> BundleError:
    return BundleError(f"the bundle is damaged: {why}")
