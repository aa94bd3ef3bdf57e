"""Contents of ``LARGE_BYTES`` or more: a pack for each, or what differs from one full version.

Such a content is the first object of a pack of its own, as in no other pack. A version that is
similar to an earlier one is a delta for a full version, the *base*. Deltas are appended to an open
pack beside their base (``OpenPacks.large``), so plain git can read them after ``gc``, which
joins both.

Rule 1: a content is never in memory as a whole, unless it is read as a whole.
Rule 2: a base is not compressed, so any part of it can be read. A delta refers to a base, never to
another delta.
Rule 3: a version whose predecessor is not stored like that becomes a base. A new base is due when
all deltas together take a certain part of its size.
Rule 4: a base stays as long as anything that refers to it does.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import LedgerDamagedError, LedgerError
from wink_workspace.filesystem.git_binary import (
    delta_instructions,
    delta_sizes,
    git_hash,
    object_header,
)

from .compression import (
    BLOCK_BYTES,
    BLOCK_HEADER,
    CHUNK_BYTES,
    STORED_START,
    StoredStream,
    ZlibStream,
    file_pieces,
    has_hole,
    is_worth_compressing,
)
from .deltas import DeltaBuilder, common_prefix, common_suffix
from .disk import ledger_failures
from .open_packs import DataFile, OpenPacks
from .packs import (
    LONGEST_HEADER,
    PACK_HEADER,
    Pack,
    Packs,
    PackWriter,
    entry_header,
    parse_entry_header,
)

LARGE_BYTES: Final = 8 * 1_048_576
"""Contents of this size or more are never in memory as a whole."""

_BLOCK_WITH_HEADER: Final = BLOCK_BYTES + len(BLOCK_HEADER)
_MOST_DELTA_PART: Final = 8
_MOST_DELTA_BYTES: Final = 4 * 1_048_576
_COMPARED_BYTES: Final = 16_384
_MOST_OFFSET: Final = 0xFFFF_FFFF
_MOST_WASTE: Final = 0.5


def is_large_pack(index: Path) -> bool:
    """Whether a pack has a large file."""
    try:
        with index.with_suffix(".pack").open("rb", buffering=0) as file:
            start = os.pread(file.fileno(), LONGEST_HEADER, PACK_HEADER.size)
    except FileNotFoundError:
        return False
    header = parse_entry_header(start) if start else None
    return header is not None and header.kind == "blob" and header.size_bytes >= LARGE_BYTES


class _StoredContent:
    """A content that ``StoredStream`` stored in a file, any part of which can be read.

    Args:
        file: The file.
        start: Where the stored stream begins.
        size_bytes: The size of the content.

    Raises:
        ValueError: If it is stored otherwise.
    """

    def __init__(self, file: DataFile, start: int, size_bytes: int) -> None:
        self._file = file
        self._start = start + len(STORED_START)
        self.size_bytes = size_bytes
        if os.pread(file.fd, len(STORED_START), start) != STORED_START:
            raise ValueError("it is not stored in blocks")

    def read(self, offset: int, n_bytes: int) -> bytes:
        """*n_bytes* of the content from *offset*; less outside of it.

        Raises:
            ValueError: If it is stored otherwise.
        """
        first = max(offset, 0)
        content = bytearray(max(0, min(offset + n_bytes, self.size_bytes) - first))
        self.read_into(first, content)
        return bytes(content)

    def read_into(self, offset: int, content: bytearray) -> None:
        """Fill *content* with what follows *offset*, without another copy.

        Raises:
            ValueError: If it is stored otherwise, or does not have so many bytes.
        """
        if not content:
            return
        block, within = divmod(offset, BLOCK_BYTES)
        ends = range((block + 1) * BLOCK_BYTES, offset + len(content), BLOCK_BYTES)
        headers = bytearray(len(ends) * len(BLOCK_HEADER))
        content_view, headers_view = memoryview(content), memoryview(headers)
        parts, at = [content_view[: BLOCK_BYTES - within]], BLOCK_BYTES - within
        for n in range(len(ends)):
            header_at = n * len(BLOCK_HEADER)
            parts.append(headers_view[header_at : header_at + len(BLOCK_HEADER)])
            parts.append(content_view[at : at + BLOCK_BYTES])
            at += BLOCK_BYTES
        start = self._start + block * _BLOCK_WITH_HEADER + len(BLOCK_HEADER) + within
        if os.preadv(self._file.fd, parts, start) != len(content) + len(headers):
            raise ValueError("it is truncated")
        # The last one differs
        n_checked = sum(end + BLOCK_BYTES < self.size_bytes for end in ends)
        if not headers.startswith(BLOCK_HEADER * n_checked):
            raise ValueError("it is not stored in blocks")


class _Comparison:
    """Makes the delta of a new content, which is given in pieces, for a base.

    Both begin and end alike: a part is looked for at its distance from the beginning, and at its
    distance from the end.
    """

    def __init__(self, base: _StoredContent, size_bytes: int) -> None:
        self._base = base
        self._shift: int = 0
        self._other: int = base.size_bytes - size_bytes
        self._at = 0
        self._buffer = bytearray()
        self.delta = DeltaBuilder(base.size_bytes, size_bytes)

    def add(self, piece: bytes) -> None:
        """Compare the next piece."""
        at = self._at + self._shift
        if self._is_in_base(at, piece):
            self.delta.copy(at, len(piece))
        else:
            for start in range(0, len(piece), _COMPARED_BYTES):
                self._add_part(self._at + start, piece[start : start + _COMPARED_BYTES])
        self._at += len(piece)

    def _is_in_base(self, at: int, piece: bytes) -> bool:
        if at < 0 or at + len(piece) > self._base.size_bytes:
            return False
        if len(self._buffer) != len(piece):
            self._buffer = bytearray(len(piece))
        self._base.read_into(at, self._buffer)
        return self._buffer.startswith(piece)

    def _add_part(self, at: int, part: bytes) -> None:
        found = self._found(at, part)
        n_same = common_prefix(part, found, min(len(part), len(found)))
        self.delta.copy(at + self._shift, n_same)
        at, part = at + n_same, part[n_same:]
        if not part:
            return
        n_here = self._same_end(at, part)
        self._shift, self._other = self._other, self._shift
        n_there = self._same_end(at, part)
        if n_there <= n_here:
            self._shift, self._other = self._other, self._shift
        n_same = max(n_here, n_there)
        self.delta.insert(part[: len(part) - n_same])
        self.delta.copy(at + len(part) - n_same + self._shift, n_same)

    def _found(self, at: int, part: bytes) -> bytes:
        return self._base.read(at + self._shift, len(part)) if at + self._shift >= 0 else b""

    def _same_end(self, at: int, part: bytes) -> int:
        end = at + self._shift + len(part)
        if end > self._base.size_bytes:
            return 0
        found = self._base.read(end - len(part), len(part))
        return common_suffix(part, found, len(found))


class LargeFiles:
    """The large contents of one repository.

    Args:
        packs: Its packs.
        open_packs: Its open packs.
    """

    def __init__(self, packs: Packs, open_packs: OpenPacks) -> None:
        self._packs = packs
        self._open_packs = open_packs
        self._known: dict[Path, Pack | None] = {}  # a pack never changes

    # Writing

    def writing(
        self, fd: int, size_bytes: int, *, piece_bytes: int, like: str | None
    ) -> Generator[None, None, str]:
        """Store *fd* from its position to its end, one piece for each step; return the blob's id.

        *like* is the version before, if there is one. Other objects may be written meanwhile.

        Raises:
            LedgerError: If that is not exactly *size_bytes* long, or cannot be written.
        """
        start, is_base = os.lseek(fd, 0, os.SEEK_CUR), False
        if like is not None:
            found = yield from self._comparing(file_pieces(fd, piece_bytes), size_bytes, like)
            if isinstance(found, str):
                return found
            is_base = found
            os.lseek(fd, start, os.SEEK_SET)
        pieces = file_pieces(fd, piece_bytes)
        piece = next(pieces, b"")
        is_base = is_base and not has_hole(fd, start, size_bytes)
        stream = StoredStream() if is_base else ZlibStream(worth=is_worth_compressing(piece))
        digest, n_bytes = git_hash(object_header("blob", size_bytes)), 0
        writer = PackWriter(self._packs)
        try:
            writer.append(entry_header("blob", size_bytes))
            while piece:
                n_bytes += len(piece)
                digest.update(piece)
                writer.append(stream.add(piece))
                yield
                piece = next(pieces, b"")
            writer.append(stream.end())
            if n_bytes != size_bytes:
                raise LedgerError(
                    f"a file of {size_bytes} bytes returned {n_bytes}",
                    hint="It changed while it was read; try again.",
                )
            object_id = digest.hexdigest()
            if not self._has_pack(object_id, is_base=is_base):
                writer.end(object_id)
                passed(KillPoint.LARGE_FILE_WRITTEN)
                yield from writer.finish_steps()
        finally:
            writer.abandon()
        return object_id

    def _has_pack(self, object_id: str, *, is_base: bool) -> bool:
        """Whether a pack has this content already, as a base if wanted; it is used again then."""
        if is_base and not isinstance(self._base_or_error(object_id), _StoredContent):
            return False
        pack = self._pack_of(object_id)
        with suppress(FileNotFoundError):
            if pack is not None and not pack.is_shared:
                os.utime(pack.path)  # a collection must not delete it
            return pack is not None
        return False

    def _comparing(
        self, pieces: Iterator[bytes], size_bytes: int, like: str
    ) -> Generator[None, None, str | bool]:
        """Compare a new content with the version *like*, a piece for each step.

        Returns:
            The id of the new version, which is stored then; or whether it should be a base.
        """
        version = self._version(like)
        base_id = like if version is None else version[0]
        base = self._base_or_error(base_id)
        if not isinstance(base, _StoredContent):
            return True
        if max(base.size_bytes, size_bytes) > _MOST_OFFSET:
            return False
        if self._deltas_bytes(base_id, base.size_bytes) > base.size_bytes * _MOST_WASTE:
            return True
        most = min(_MOST_DELTA_BYTES, size_bytes // _MOST_DELTA_PART)
        comparison = _Comparison(base, size_bytes)
        digest, n_bytes = git_hash(object_header("blob", size_bytes)), 0
        try:
            for piece in pieces:
                digest.update(piece)
                n_bytes += len(piece)
                comparison.add(piece)
                if len(comparison.delta) > most:
                    return False
                yield
        except ValueError:
            return True
        if n_bytes != size_bytes or not self._has_pack(base_id, is_base=True):
            return False
        object_id = digest.hexdigest()
        if object_id != base_id:
            self._open_packs.large(base_id).add_delta(
                object_id, base_id, comparison.delta.finished()
            )
        return object_id

    def _deltas_bytes(self, base_id: str, size_bytes: int) -> int:
        """The size of all deltas for a base."""
        pack = self._pack_of(base_id)
        in_pack = 0 if pack is None else sum(pack.disk_bytes.values()) - size_bytes
        return in_pack + self._open_packs.large_bytes(base_id)

    # Reading

    def chunks(self, object_id: str) -> Iterator[bytes] | None:
        """The content in pieces, ``None`` if no known pack has it.

        Raises ``LedgerDamagedError`` after the last piece if the content does not match the id,
        so use the pieces only after all of them were read.

        Raises:
            LedgerError: If a pack cannot be read.
        """
        with ledger_failures("a large file cannot be read"):
            for _ in range(2):
                with suppress(FileNotFoundError):  # another process replaced the pack
                    return self._chunks(object_id)
        return None

    def _chunks(self, object_id: str) -> Iterator[bytes] | None:
        version = self._version(object_id)
        if version is not None:
            base = self._base_or_error(version[0])
            if not isinstance(base, _StoredContent):
                raise LedgerDamagedError(
                    f"object {object_id} is damaged: its base {version[0]} cannot be read"
                ) from base
            size_bytes = delta_sizes(version[1])[1]
            return _checked(object_id, size_bytes, _made_from(version[1], base))
        pack = self._pack_of(object_id)
        if pack is None:
            return None
        file, start, size_bytes = _opened(pack, object_id)
        return _checked(object_id, size_bytes, _inflated(file, start))

    def _base_or_error(self, object_id: str) -> _StoredContent | Exception:
        """A base, or why there is none."""
        failure: Exception = FileNotFoundError(object_id)
        for _ in range(2):
            pack = self._pack_of(object_id)
            try:
                if pack is not None:
                    return _StoredContent(*_opened(pack, object_id))
            except (OSError, ValueError) as error:
                failure = error  # another process may have replaced the pack
        return failure

    def _version(self, object_id: str) -> tuple[str, bytes] | None:
        """The base and the delta of a version that is one, if there is one."""
        entry = self._open_packs.large_entry(object_id)
        if entry is None:
            pack = self._pack_of(object_id)
            if pack is None:
                return None
            file, length = DataFile(pack.path.with_suffix(".pack")), pack.disk_bytes[object_id]
            start = os.pread(file.fd, min(length, LONGEST_HEADER), pack.offsets[object_id])
            if parse_entry_header(start).kind is not None:
                return None
            entry = os.pread(file.fd, length, pack.offsets[object_id])
        header = parse_entry_header(entry)
        return header.base, zlib.decompress(entry[header.length :])

    def _pack_of(self, object_id: str) -> Pack | None:
        self._known = {path: self._loaded(path) for path in self._packs.paths()}
        for pack in self._known.values():
            if pack is not None and object_id in pack.offsets:
                return pack
        return None

    def _loaded(self, path: Path) -> Pack | None:
        if path in self._known:
            return self._known[path]
        with suppress(FileNotFoundError, LedgerError):  # deleted meanwhile, or damaged
            return self._packs.load(path) if is_large_pack(path) else None
        return None


def _opened(pack: Pack, object_id: str) -> tuple[DataFile, int, int]:
    """The file of a content in a pack, where its stream begins, and its size."""
    file, offset = DataFile(pack.path.with_suffix(".pack")), pack.offsets[object_id]
    header = parse_entry_header(os.pread(file.fd, LONGEST_HEADER, offset))
    if header.kind != "blob":
        raise ValueError("it is a delta")
    return file, offset + header.length, header.size_bytes


def _inflated(file: DataFile, at: int) -> Iterator[bytes]:
    inflater = zlib.decompressobj()
    while not inflater.eof:
        data = inflater.unconsumed_tail
        if not data:
            with ledger_failures("a large file cannot be read"):
                data = os.pread(file.fd, CHUNK_BYTES, at)
            at += len(data)
            if not data:
                raise ValueError("it is truncated")
        yield inflater.decompress(data, CHUNK_BYTES)


def _made_from(delta: bytes, base: _StoredContent) -> Iterator[bytes]:
    for part in delta_instructions(delta):
        if isinstance(part, bytes):
            yield part
            continue
        offset, n_bytes = part
        for at in range(offset, offset + n_bytes, CHUNK_BYTES):
            yield base.read(at, min(CHUNK_BYTES, offset + n_bytes - at))


def _checked(object_id: str, size_bytes: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    digest = git_hash(object_header("blob", size_bytes))
    try:
        for piece in pieces:
            digest.update(piece)
            yield piece
    except (ValueError, zlib.error, IndexError) as error:
        raise LedgerDamagedError(f"object {object_id} is damaged: {error}") from error
    if digest.hexdigest() != object_id:
        raise LedgerDamagedError(f"object {object_id} is damaged: its content differs")
