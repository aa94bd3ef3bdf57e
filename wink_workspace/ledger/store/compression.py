"""Compression of objects as in git: zlib streams [RFC 1950], of whole contents and of long ones.

Contents that do not shrink are stored in zlib's format without compression. A long content is given
in pieces; the holes of a sparse file cost little more than their SHA-1.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Generator, Iterator
from functools import cache
from typing import Final, Literal, TypeVar, cast

T = TypeVar("T")

ObjectKind = Literal["blob", "tree", "commit"]

CHUNK_BYTES = 1_048_576
"""The size of the pieces in which large contents are read and written."""

_WORTH_COMPRESSING = 0.8
"""A content is worth compressing if it shrinks below this part of its size."""

_SMALL_BYTES = 4_096
_MOST_STORED_BYTES = 65_535  # of one block [RFC 1951]
_STORED = struct.Struct("<2sBHH")
_UNCOMPRESSED = b"\x18\x19"  # the header of zlib's format [RFC 1950]: a window of 512 bytes
_SAMPLE_BYTES = 16_384
STORED_START: Final = b"\x78\x01"
BLOCK_BYTES: Final = 65_535
BLOCK_HEADER: Final = b"\x00\xff\xff\x00\x00"


def run_steps(steps: Generator[None, None, T]) -> T:
    """Run *steps* to the end; their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)


def is_worth_compressing(content: bytes) -> bool:
    """Whether compression shrinks *content* noticeably, judged by its beginning."""
    sample = content[:_SAMPLE_BYTES]
    return len(zlib.compress(sample, 1)) < _WORTH_COMPRESSING * len(sample)


def compress(content: bytes, *, worth: bool) -> bytes:
    """*content* in zlib's format at the fastest level, or uncompressed if it is not *worth* it.

    The windows are as small as possible: preparing the usual one of 32 KiB takes 50 µs.
    """
    n_bytes = len(content)
    worth = worth and (n_bytes <= _SAMPLE_BYTES or is_worth_compressing(content))
    if not worth and n_bytes <= _MOST_STORED_BYTES:  # a compressor takes longer than a copy
        start = _STORED.pack(_UNCOMPRESSED, 1, n_bytes, n_bytes ^ 0xFFFF)
        return start + content + zlib.adler32(content).to_bytes(4)
    if not worth:
        compressor = zlib.compressobj(0, wbits=9, memLevel=1)
    elif n_bytes <= _SMALL_BYTES:
        compressor = zlib.compressobj(1, wbits=12, memLevel=4)
    else:
        return zlib.compress(content, 1)
    return compressor.compress(content) + compressor.flush()


_ZEROS: Final = bytes(CHUNK_BYTES)
_ADLER_MODULUS: Final = 65_521


@cache
def _deflated_zeros() -> bytes:
    """One chunk of zeros in the deflate format, ending at a byte, without a reference back."""
    compressor = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    return compressor.compress(_ZEROS) + compressor.flush(zlib.Z_FULL_FLUSH)


def has_hole(fd: int, start: int, size_bytes: int) -> bool:
    """Whether a part of a sparse file has no data."""
    try:
        return os.lseek(fd, start, os.SEEK_HOLE) < start + size_bytes
    except OSError:  # the file was truncated meanwhile
        return True


def file_pieces(fd: int, piece_bytes: int) -> Iterator[bytes]:
    """*fd* from its position to its end; the zeros of holes are not read."""
    data_from = 0
    at = os.lseek(fd, 0, os.SEEK_CUR)
    while True:
        if at >= data_from:
            try:
                data_from = os.lseek(fd, at, os.SEEK_DATA)
            except OSError as error:  # only a hole is left, or the filesystem knows of none
                data_from = os.fstat(fd).st_size if error.errno == errno.ENXIO else at
        is_hole = data_from - at >= CHUNK_BYTES
        piece = _ZEROS if is_hole else os.pread(fd, piece_bytes, at)
        if not piece:
            return
        at += len(piece)
        yield piece


class ZlibStream:
    """Compresses a long content in zlib's format [RFC 1950], with the holes of sparse files.

    A chunk of zeros is the same 1 KiB each time, so it is compressed only once for each process.
    The holes of a sparse file then cost little more than their SHA-1, also between contents that
    are not *worth* compressing.
    """

    def __init__(self, *, worth: bool) -> None:
        self._compressor = zlib.compressobj(1 if worth else 0, wbits=-zlib.MAX_WBITS)
        self._adler = 1
        self._start = b"\x78\x01"
        self._is_flushed = True

    def add(self, piece: bytes) -> bytes:
        """The next bytes of the stream; may be empty."""
        start, self._start = self._start, b""
        if piece == _ZEROS:
            if not self._is_flushed:
                start += self._compressor.flush(zlib.Z_FULL_FLUSH)
                self._is_flushed = True
            low, high = self._adler & 0xFFFF, self._adler >> 16  # as adler32 of the zeros
            self._adler = (high + len(piece) * low) % _ADLER_MODULUS << 16 | low
            return start + _deflated_zeros()
        self._adler = zlib.adler32(piece, self._adler)
        self._is_flushed = False
        return start + self._compressor.compress(piece)

    def end(self) -> bytes:
        """The last bytes of the stream."""
        return self._start + self._compressor.flush() + self._adler.to_bytes(4, "big")


class StoredStream:
    """A long content in zlib's format [RFC 1950], uncompressed, in blocks of the same size."""

    def __init__(self) -> None:
        self._adler = 1
        self._start = STORED_START
        self._rest = b""

    def add(self, piece: bytes) -> bytes:
        """The next bytes of the stream; may be empty."""
        self._adler = zlib.adler32(piece, self._adler)
        found = self._rest + piece if self._rest else piece
        n_whole = max(0, len(found) - 1) // BLOCK_BYTES * BLOCK_BYTES  # the last one is marked
        view = memoryview(found)
        parts: list[bytes | memoryview] = [self._start]
        for at in range(0, n_whole, BLOCK_BYTES):
            parts += (BLOCK_HEADER, view[at : at + BLOCK_BYTES])
        self._start, self._rest = b"", found[n_whole:]
        return b"".join(parts)

    def end(self) -> bytes:
        """The last bytes of the stream."""
        n_bytes = len(self._rest)
        sizes = n_bytes.to_bytes(2, "little") + (n_bytes ^ 0xFFFF).to_bytes(2, "little")
        return self._start + b"\x01" + sizes + self._rest + self._adler.to_bytes(4, "big")
