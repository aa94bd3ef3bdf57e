"""Versions of large files, each stored as what differs from one full version, the *base*.

A base is a loose blob that is not compressed, so any part of it can be read. A version that is
similar to it is one file below ``wink/large``: a line with the base, the size of the version and
the size of all deltas for this base until then; and a delta as in packs of git, compressed.

Rule 1: a delta refers to a base, never to another delta.
Rule 2: a delta appears under its name complete or not at all; it exists if its base exists.
Rule 3: a new base is due when all deltas together take a certain part of its size.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import LedgerDamagedError
from wink_workspace.filesystem.git_binary import git_hash, object_header

from .deltas import DeltaBuilder, common_prefix, common_suffix, delta_instructions, delta_sizes
from .disk import ledger_failures

__all__ = [
    "LargeDeltas",
    "LargeVersion",
    "Packed",
    "StoredContent",
    "StoredStream",
    "made_from",
    "read_checked",
]

_STORED_START: Final = b"\x78\x01"
_BLOCK_BYTES: Final = 65_535
_BLOCK_HEADER: Final = b"\x00\xff\xff\x00\x00"
_BLOCK_WITH_HEADER: Final = _BLOCK_BYTES + len(_BLOCK_HEADER)
_CHECKSUM_BYTES: Final = 4
_PIECE_BYTES: Final = 1_048_576
_MOST_DELTA_PART: Final = 8
_MOST_DELTA_BYTES: Final = 4 * 1_048_576
_COMPARED_BYTES: Final = 16_384
_MOST_OFFSET: Final = 0xFFFF_FFFF
_MOST_WASTE: Final = 0.5
_TEMPORARY: Final = "tmp_delta_"
_HEADER: Final = re.compile(rb"delta ([0-9a-f]{40}) ([0-9]+) ([0-9]+)\n")
_MOST_HEADER_BYTES: Final = 128


class StoredStream:
    """A long content in zlib's format [RFC 1950], uncompressed, in blocks of the same size."""

    def __init__(self) -> None:
        self._adler = 1
        self._start = _STORED_START
        self._rest = b""

    def add(self, piece: bytes) -> bytes:
        """The next bytes of the stream; may be empty."""
        self._adler = zlib.adler32(piece, self._adler)
        found = self._rest + piece if self._rest else piece
        n_whole = max(0, len(found) - 1) // _BLOCK_BYTES * _BLOCK_BYTES  # the last one is marked
        view = memoryview(found)
        parts: list[bytes | memoryview] = [self._start]
        for at in range(0, n_whole, _BLOCK_BYTES):
            parts += (_BLOCK_HEADER, view[at : at + _BLOCK_BYTES])
        self._start, self._rest = b"", found[n_whole:]
        return b"".join(parts)

    def end(self) -> bytes:
        """The last bytes of the stream."""
        n_bytes = len(self._rest)
        sizes = n_bytes.to_bytes(2, "little") + (n_bytes ^ 0xFFFF).to_bytes(2, "little")
        return self._start + b"\x01" + sizes + self._rest + self._adler.to_bytes(4, "big")


class StoredContent:
    """A content that ``StoredStream`` stored in a file, any part of which can be read.

    Args:
        file: The file; ``close`` closes it.
        start: Where the stored stream begins.
        n_before: How many bytes of the stream are before the content.
        size_bytes: The size of the content.

    Raises:
        ValueError: If it is stored otherwise.
    """

    def __init__(self, file: BinaryIO, start: int, n_before: int, size_bytes: int) -> None:
        self._file = file
        self._start = start + len(_STORED_START)
        self._n_before = n_before
        self.size_bytes = size_bytes
        self._end = n_before + size_bytes
        begin = os.pread(file.fileno(), len(_STORED_START), start)
        if begin != _STORED_START:
            raise ValueError("it is not stored in blocks")

    @classmethod
    def of_loose(cls, path: str) -> StoredContent:
        """That of a loose blob; raises ``OSError`` if there is none, ``ValueError`` as above."""
        file = open(path, "rb", buffering=0)  # noqa: PTH123, SIM115 - the object closes it
        try:
            skipped = len(_STORED_START) + len(_BLOCK_HEADER)
            start = os.pread(file.fileno(), skipped + _MOST_HEADER_BYTES, 0)[skipped:]
            kind, _, rest = start.partition(b" ")
            number, end, _ = rest.partition(b"\0")
            if kind != b"blob" or not end or not number.isdigit():
                raise ValueError("it is not stored in blocks")
            size_bytes = int(number)
            n_before = len(kind) + 1 + len(number) + 1
            n_blocks = max(1, -(-(n_before + size_bytes) // _BLOCK_BYTES))
            expected = len(_STORED_START) + n_blocks * len(_BLOCK_HEADER) + n_before + size_bytes
            if os.fstat(file.fileno()).st_size != expected + _CHECKSUM_BYTES:
                raise ValueError("it is not stored in blocks")
            return cls(file, 0, n_before, size_bytes)
        except BaseException:
            file.close()
            raise

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
        first = offset + self._n_before
        last = first + len(content)
        block, within = divmod(first, _BLOCK_BYTES)
        ends = range((block + 1) * _BLOCK_BYTES, last, _BLOCK_BYTES)
        headers = bytearray(len(ends) * len(_BLOCK_HEADER))
        content_view, headers_view = memoryview(content), memoryview(headers)
        parts, at = [content_view[: _BLOCK_BYTES - within]], _BLOCK_BYTES - within
        for n in range(len(ends)):
            header_at = n * len(_BLOCK_HEADER)
            parts.append(headers_view[header_at : header_at + len(_BLOCK_HEADER)])
            parts.append(content_view[at : at + _BLOCK_BYTES])
            at += _BLOCK_BYTES
        start = self._start + block * _BLOCK_WITH_HEADER + len(_BLOCK_HEADER) + within
        if os.preadv(self._file.fileno(), parts, start) != len(content) + len(headers):
            raise ValueError("it is truncated")
        n_checked = sum(end + _BLOCK_BYTES < self._end for end in ends)  # the last one differs
        if not headers.startswith(_BLOCK_HEADER * n_checked):
            raise ValueError("it is not stored in blocks")

    def pieces(self) -> Iterator[bytes]:
        """All of the content."""
        for at in range(0, self.size_bytes, _PIECE_BYTES):
            yield self.read(at, _PIECE_BYTES)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Comparison:
    """Makes the delta of a new content, which is given in pieces, for a base.

    Both begin and end alike: a part is looked for at its distance from the beginning, and at its
    distance from the end.
    """

    def __init__(self, base: StoredContent, size_bytes: int) -> None:
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


@dataclass(frozen=True, slots=True)
class LargeVersion:
    """A version that is stored as a delta.

    ``total_bytes`` is the size of all deltas for its base until then, ``delta`` is compressed.
    """

    base: str
    size_bytes: int
    total_bytes: int
    delta: bytes

    @classmethod
    def of(cls, base: str, total_bytes: int, delta: bytes) -> LargeVersion:
        """The version whose size *delta* states."""
        start = zlib.decompressobj().decompress(delta, _MOST_HEADER_BYTES)
        return cls(base, delta_sizes(start)[1], total_bytes, delta)


class Packed(Protocol):
    """The versions in packs; see ``LargePacks``."""

    def opened(self, object_id: str) -> StoredContent:
        """A base; raises ``FileNotFoundError``, or ``ValueError`` if it is not a base."""
        ...

    def version(self, object_id: str) -> LargeVersion | None:
        """A version that is a delta, if there is one."""
        ...


class LargeDeltas:
    """The versions of one repository that are stored as deltas.

    Args:
        directory: Where they are.
        path_of_loose: The path of a loose object by its id.
        packed: The versions in packs.
    """

    def __init__(
        self, directory: str, path_of_loose: Callable[[str], str], packed: Packed | None
    ) -> None:
        self._directory = directory
        self._path_of_loose = path_of_loose
        self._packed = packed

    def __contains__(self, object_id: str) -> bool:
        try:
            self.opened(self.load(object_id).base).close()
        except (OSError, ValueError):
            return False
        return True

    def opened(self, object_id: str) -> StoredContent:
        """A base; raises ``OSError``, or ``ValueError`` if it cannot be one."""
        try:
            return StoredContent.of_loose(self._path_of_loose(object_id))
        except FileNotFoundError:
            if self._packed is None:
                raise
            return self._packed.opened(object_id)

    def path(self, object_id: str) -> str:
        """The file of a version."""
        return f"{self._directory}/{object_id}"

    def load(self, object_id: str) -> LargeVersion:
        """Read a version; raises ``FileNotFoundError`` if there is none."""
        with open(self.path(object_id), "rb") as file:  # noqa: PTH123 - as in loose.py
            content = file.read()
        header = _HEADER.match(content)
        if header is None:
            raise LedgerDamagedError(f"object {object_id} is damaged: it has no header")
        size_bytes, total_bytes = int(header[2]), int(header[3])
        return LargeVersion(header[1].decode(), size_bytes, total_bytes, content[header.end() :])

    def chunks(self, object_id: str) -> Iterator[bytes]:
        """The content in pieces; checked as ``LooseObjects.chunks`` does.

        Raises:
            FileNotFoundError: If there is no such version.
        """
        version = self.load(object_id)
        return made_from(object_id, version, self.opened)

    def ids(self) -> list[str]:
        """The id of every version."""
        with suppress(FileNotFoundError):
            return [name for name in os.listdir(self._directory) if len(name) == 40]  # noqa: PTH208
        return []

    def bases(self, known: dict[str, str]) -> dict[str, str]:
        """The base of every version; those that are *known* are not read again."""
        found: dict[str, str] = {}
        for object_id in self.ids():
            with suppress(FileNotFoundError):
                found[object_id] = known.get(object_id) or self.load(object_id).base
        return found

    def comparing(
        self, pieces: Iterator[bytes], size_bytes: int, like: str
    ) -> Generator[None, None, tuple[str, LargeVersion] | bool]:
        """Compare a new content with the version *like*, a piece for each step.

        Returns:
            The new version, or whether it should be stored so that it can be a base.
        """
        try:
            before = self.load(like)
        except FileNotFoundError:
            found = self._packed.version(like) if self._packed else None
            before = found or LargeVersion(like, 0, 0, b"")
        try:
            base = self.opened(before.base)
        except (OSError, ValueError):
            return True
        try:
            if max(base.size_bytes, size_bytes) > _MOST_OFFSET:
                return False
            if before.total_bytes > base.size_bytes * _MOST_WASTE:
                return True
            most = min(_MOST_DELTA_BYTES, size_bytes // _MOST_DELTA_PART)
            comparison = _Comparison(base, size_bytes)
            digest, n_bytes = git_hash(object_header("blob", size_bytes)), 0
            for piece in pieces:
                digest.update(piece)
                n_bytes += len(piece)
                comparison.add(piece)
                if len(comparison.delta) > most:
                    return False
                yield
        except ValueError:
            return True
        finally:
            base.close()
        if n_bytes != size_bytes:
            return False
        delta = zlib.compress(comparison.delta.finished(), 1)
        total = before.total_bytes + len(delta)
        return digest.hexdigest(), LargeVersion(before.base, size_bytes, total, delta)

    def write(self, object_id: str, version: LargeVersion) -> None:
        """Store a version."""
        path = self.path(object_id)
        unfinished = f"{self._directory}/{_TEMPORARY}{os.getpid()}-{object_id}"
        header = b"delta %b %d %d\n" % (
            version.base.encode(),
            version.size_bytes,
            version.total_bytes,
        )
        with ledger_failures("an object cannot be written"):
            os.makedirs(self._directory, exist_ok=True)  # noqa: PTH103 - as in loose.py
            try:
                with open(unfinished, "wb") as file:  # noqa: PTH123 - as in loose.py
                    file.write(header + version.delta)
                passed(KillPoint.LARGE_DELTA_WRITTEN)
                os.replace(unfinished, path)  # noqa: PTH105 - as in loose.py
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(unfinished)  # noqa: PTH108 - as in loose.py
                raise

    def delete_leftovers(self, before: float) -> None:
        """Delete unfinished files that were last written before the filesystem's time *before*."""
        with suppress(FileNotFoundError):
            for entry in list(os.scandir(self._directory)):
                with suppress(FileNotFoundError):
                    if entry.name.startswith(_TEMPORARY) and entry.stat().st_mtime < before:
                        os.unlink(entry.path)  # noqa: PTH108 - as in loose.py


def read_checked(object_id: str, content: StoredContent) -> Iterator[bytes]:
    """All of a base; closes it. Raises ``LedgerDamagedError`` at the end if it is damaged."""
    digest = git_hash(object_header("blob", content.size_bytes))
    try:
        for piece in content.pieces():
            digest.update(piece)
            yield piece
    except ValueError as error:
        raise LedgerDamagedError(f"object {object_id} is damaged: {error}") from error
    finally:
        content.close()
    if digest.hexdigest() != object_id:
        raise LedgerDamagedError(f"object {object_id} is damaged: its content differs")


def made_from(
    object_id: str, version: LargeVersion, opened: Callable[[str], StoredContent]
) -> Iterator[bytes]:
    """The content of a version in pieces; checked as in ``read_checked``."""
    try:
        base = opened(version.base)
    except (OSError, ValueError) as error:
        raise LedgerDamagedError(
            f"object {object_id} is damaged: its base {version.base} cannot be read"
        ) from error
    digest = git_hash(object_header("blob", version.size_bytes))
    try:
        for part in delta_instructions(zlib.decompress(version.delta)):
            if isinstance(part, bytes):
                digest.update(part)
                yield part
                continue
            offset, n_bytes = part
            for at in range(offset, offset + n_bytes, _PIECE_BYTES):
                piece = base.read(at, min(_PIECE_BYTES, offset + n_bytes - at))
                digest.update(piece)
                yield piece
    except (ValueError, zlib.error, IndexError) as error:
        raise LedgerDamagedError(f"object {object_id} is damaged: {error}") from error
    finally:
        base.close()
    if digest.hexdigest() != object_id:
        raise LedgerDamagedError(f"object {object_id} is damaged: its content differs")
