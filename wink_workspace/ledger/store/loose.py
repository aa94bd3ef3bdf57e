"""Loose objects: one compressed file each, written and read without libgit2.

libgit2 is slower above 16 KiB, does not report a full disk, and never returns from reading a
truncated object (benchmarks/results.md has figures). The format is git's (gitformat-loose): zlib
over the kind, the size and the content, in a file named by the SHA-1 of these.

Rule 1: an object appears under its name complete or not at all.
Rule 2: objects are stored uncompressed if compression gains nothing: incompressible contents,
trees, which are mostly ids, and objects of up to 4 KiB, whose file takes a block of the disk in any
case. Packing compresses trees and small objects later.
Rule 3: a large blob that is similar to the version before is stored as a delta, which counts as a
loose object (``large_deltas.py``). Plain git cannot read it before ``gc``.
Rule 4: a durable store syncs files and directories together in ``sync``, before the ref to them
is moved.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import struct
import zlib
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Literal, TypeVar, cast

from wink_workspace.errors import LedgerDamagedError, LedgerError
from wink_workspace.filesystem.git_binary import git_hash, object_header

from .disk import ledger_failure, ledger_failures, sync
from .large_deltas import LargeDeltas, LargeVersion, Packed, StoredStream

__all__ = [
    "CHUNK_BYTES",
    "WORTH_COMPRESSING",
    "LooseObject",
    "LooseObjects",
    "ObjectKind",
    "compress",
    "is_worth_compressing",
    "run_steps",
]

T = TypeVar("T")

ObjectKind = Literal["blob", "tree", "commit"]

CHUNK_BYTES = 1_048_576
"""The size of the pieces in which large contents are read and written."""

WORTH_COMPRESSING = 0.8
"""A content is worth compressing if it shrinks below this part of its size."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_SMALL_BYTES = 4_096
_MOST_STORED_BYTES = 65_535  # of one block [RFC 1951]
_STORED = struct.Struct("<2sBHH")
_UNCOMPRESSED = b"\x18\x19"  # the header of zlib's format [RFC 1950]: a window of 512 bytes
_SAMPLE_BYTES = 16_384
_LONGEST_HEADER = 64
_HEADER = re.compile(rb"(blob|tree|commit) ([0-9]+)\0")
_FAN_OUT = re.compile("[0-9a-f]{2}")
_REST = re.compile("[0-9a-f]{38}")
_TEMPORARY = "tmp_obj_"
_UNFINISHED = "tmp_obj*"  # libgit2's, too


@dataclass(frozen=True, slots=True)
class LooseObject:
    """An object in its own file, with the file's size and inode.

    ``used`` is the filesystem's time at which it was last written, also if it existed already.
    A shared one belongs to a base, too; see ``linking``. For a delta see ``large_deltas``.
    """

    id: str
    disk_bytes: int
    inode: int
    used: float
    is_shared: bool = False
    is_delta: bool = False


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
    return len(zlib.compress(sample, 1)) < WORTH_COMPRESSING * len(sample)


def compress(content: bytes, *, worth: bool) -> bytes:
    """*content* in zlib's format at the fastest level, or uncompressed if not *worth* it.

    The windows are as small as possible: preparing the usual one of 32 KiB takes 50 µs.
    """
    n_bytes = len(content)
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


class LooseObjects:
    """The loose objects of a repository.

    Args:
        directory: Its ``objects`` directory.
        durable: Whether ``sync`` calls fsync.
        packed: The versions of large files that are in packs.

    Attributes:
        deltas: The large blobs that are stored as deltas.
    """

    def __init__(
        self, directory: Path, *, durable: bool = False, packed: Packed | None = None
    ) -> None:
        self._directory = str(directory)
        self._durable = durable
        self._unsynced: set[str] = set()
        self._temporary_name = f"{directory}/{_TEMPORARY}{secrets.token_hex(8)}"
        self.deltas = LargeDeltas(str(directory.parent / "wink" / "large"), self._path, packed)

    def __contains__(self, object_id: str) -> bool:
        path = self._path(object_id)
        return os.path.exists(path) or object_id in self.deltas  # noqa: PTH110 - hot, and a Path costs more

    def write(self, kind: ObjectKind, content: bytes) -> str:
        """Store an object unless it exists; return its id."""
        whole = b"%b %d\0%b" % (kind.encode(), len(content), content)
        object_id = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        path = f"{self._directory}/{object_id[:2]}/{object_id[2:]}"
        try:
            os.utime(path)  # it is used again, so a collection must not delete it
        except OSError:
            worth = (
                kind != "tree"
                and len(whole) > _SMALL_BYTES
                and (len(content) <= _SAMPLE_BYTES or is_worth_compressing(content))
            )
            self._write_new(path, compress(whole, worth=worth))
        return object_id

    def _write_new(self, path: str, data: bytes) -> None:
        """Write the file of an object. No ``with`` blocks: each call writes many."""
        name = self._temporary_name
        try:
            fd = os.open(name, _NEW, 0o644)
            try:
                try:
                    n_bytes = os.write(fd, data)
                    while n_bytes < len(data):
                        n_bytes += os.write(fd, memoryview(data)[n_bytes:])
                finally:
                    os.close(fd)
                try:
                    os.rename(name, path)  # noqa: PTH104 - as above
                except FileNotFoundError:
                    self._rename_into_place(name, path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise ledger_failure("an object cannot be written", error) from error
        if self._durable:
            self._unsynced |= {path, path.rpartition("/")[0], self._directory}

    def write_blob_from(self, fd: int, size_bytes: int) -> str:
        """Store *fd* from its position to its end, piece by piece; return the blob's id.

        Raises:
            LedgerError: If that is not exactly *size_bytes* long, or cannot be written.
        """
        return run_steps(self.blob_steps(fd, size_bytes))

    def blob_steps(
        self,
        fd: int,
        size_bytes: int,
        *,
        piece_bytes: int = CHUNK_BYTES,
        like: str | None = None,
    ) -> Generator[None, None, str]:
        """As ``write_blob_from``, one piece for each step; other objects may be written between.

        *like* is the version before, if there is one.
        """
        start, is_base = os.lseek(fd, 0, os.SEEK_CUR), False
        if like is not None:
            compared = yield from self.deltas.comparing(_pieces(fd, piece_bytes), size_bytes, like)
            if isinstance(compared, tuple):
                self._write_delta(*compared)
                return compared[0]
            is_base = compared
            os.lseek(fd, start, os.SEEK_SET)
        header = object_header("blob", size_bytes)
        digest = git_hash(header)
        pieces = _pieces(fd, piece_bytes)
        piece = next(pieces, b"")
        is_base = (
            is_base and self._begins_with(like, piece) and not _has_hole(fd, start, size_bytes)
        )
        stream = StoredStream() if is_base else _ZlibStream(worth=is_worth_compressing(piece))
        n_bytes = 0
        with ledger_failures("an object cannot be written"), self._unfinished() as file:
            file.write(stream.add(header))
            while piece:
                n_bytes += len(piece)
                digest.update(piece)
                file.write(stream.add(piece))
                yield
                piece = next(pieces, b"")
            file.write(stream.end())
            if n_bytes != size_bytes:
                raise LedgerError(
                    f"a file of {size_bytes} bytes returned {n_bytes}",
                    hint="It changed while it was read; try again.",
                )
            file.close()
            self._rename_into_place(file.name, self._path(digest.hexdigest()))
        return digest.hexdigest()

    def _write_delta(self, object_id: str, version: LargeVersion) -> None:
        with suppress(FileNotFoundError):  # it is packed
            os.utime(self._path(version.base))  # as in ``write``
        for path in (self._path(object_id), self.deltas.path(object_id)):
            with suppress(FileNotFoundError):
                os.utime(path)
                return
        self.deltas.write(object_id, version)
        if self._durable:
            path = self.deltas.path(object_id)
            directory = path.rpartition("/")[0]
            self._unsynced |= {path, directory, directory.rpartition("/")[0]}

    def _begins_with(self, object_id: str | None, piece: bytes) -> bool:
        """Whether an object begins with *piece*, so that a delta may help."""
        pieces = None if object_id is None else self.chunks(object_id)
        if pieces is None:
            return False
        start = b""
        for each in pieces:
            start += each
            if len(start) >= len(piece):
                break
        return start.startswith(piece)

    def read(self, object_id: str) -> tuple[ObjectKind, bytes]:
        """A loose object's kind and whole content.

        Raises:
            FileNotFoundError: If it is not loose.
            LedgerDamagedError: If it is damaged.
        """
        try:
            with open(self._path(object_id), "rb") as file:  # noqa: PTH123 - hot, as above
                whole = b"".join(_decompress(file, object_id))
        except FileNotFoundError:
            return "blob", b"".join(self.deltas.chunks(object_id))
        if git_hash(whole).hexdigest() != object_id:
            raise LedgerDamagedError(f"object {object_id} is damaged: its content differs")
        kind, _, content = _parse_header(whole, object_id)
        return kind, content

    def chunks(self, object_id: str) -> Iterator[bytes] | None:
        """The content in pieces, ``None`` if the object is not loose.

        Raises ``LedgerDamagedError`` after the last piece if the content does not match the id,
        so use the pieces only after all of them were read.
        """
        try:
            file = open(self._path(object_id), "rb")  # noqa: PTH123, SIM115 - as above; closed there
        except FileNotFoundError:
            with suppress(FileNotFoundError):
                return self.deltas.chunks(object_id)
            return None
        pieces = _read_chunks(file, object_id)
        next(pieces)  # enters its block, which closes the file also if no piece is read
        return pieces

    def header(self, object_id: str) -> tuple[ObjectKind, int]:
        """A loose object's kind and its size in bytes."""
        try:
            with open(self._path(object_id), "rb") as file:  # noqa: PTH123 - as above
                return _parse_header(next(_decompress(file, object_id), b""), object_id)[:2]
        except FileNotFoundError:
            return "blob", self.deltas.load(object_id).size_bytes

    def listed(self) -> Iterator[LooseObject]:
        """Every loose object."""
        for fan_out in _entries(self._directory, _FAN_OUT):
            for entry in _entries(fan_out.path, _REST):
                with suppress(FileNotFoundError):  # another process deleted it
                    status = entry.stat()
                    yield LooseObject(
                        fan_out.name + entry.name,
                        status.st_size,
                        status.st_ino,
                        status.st_mtime,
                        is_shared=status.st_nlink > 1,
                    )
        for object_id in self.deltas.ids():
            with suppress(FileNotFoundError):
                status = os.stat(self.deltas.path(object_id))  # noqa: PTH116 - as above
                yield LooseObject(
                    object_id, status.st_size, status.st_ino, status.st_mtime, is_delta=True
                )

    def used(self, object_id: str) -> float:
        """When a loose object was last written; 0 if it does not exist."""
        for path in (self._path(object_id), self.deltas.path(object_id)):
            with suppress(FileNotFoundError):
                return os.stat(path).st_mtime  # noqa: PTH116 - as above
        return 0

    def set_used(self, found: LooseObject) -> None:
        """Set the time of a loose object that was listed to its ``used``."""
        path = self.deltas.path(found.id) if found.is_delta else self._path(found.id)
        what = f"the time of object {found.id} cannot be set"
        with ledger_failures(what), suppress(FileNotFoundError):  # another process deleted it
            os.utime(path, (found.used, found.used))

    def delete(self, object_id: str) -> None:
        """Delete a loose object if it exists."""
        with ledger_failures(f"object {object_id} cannot be deleted"):
            for path in (self._path(object_id), self.deltas.path(object_id)):
                with suppress(FileNotFoundError):
                    os.unlink(path)  # noqa: PTH108 - many, and a Path costs more

    def delete_leftovers(self, before: float) -> None:
        """Delete unfinished files that were last written before the filesystem's time *before*."""
        for leftover in Path(self._directory).glob(_UNFINISHED):
            with suppress(FileNotFoundError):
                if leftover.stat().st_mtime < before:
                    leftover.unlink()
        self.deltas.delete_leftovers(before)

    def sync(self) -> None:
        """Call fsync for everything written since the last ``sync``, if durable."""
        if self._unsynced:
            with ledger_failures("the ledger's objects cannot be synced"):
                for path in sorted(self._unsynced):
                    sync(path)
            self._unsynced.clear()

    def _path(self, object_id: str) -> str:
        return f"{self._directory}/{object_id[:2]}/{object_id[2:]}"

    def _unfinished(self) -> _Unfinished:
        return _Unfinished(f"{self._temporary_name}-pieces")

    def _rename_into_place(self, name: str, path: str) -> None:
        try:
            os.rename(name, path)  # noqa: PTH104 - as above
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(path[:-39])  # noqa: PTH102 - as above
            os.rename(name, path)  # noqa: PTH104 - as above
        if self._durable:
            self._unsynced |= {path, path.rpartition("/")[0], self._directory}


_ZEROS: Final = bytes(CHUNK_BYTES)
_ADLER_MODULUS: Final = 65_521


@cache
def _deflated_zeros() -> bytes:
    """One chunk of zeros in the deflate format, ending at a byte, without a reference back."""
    compressor = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    return compressor.compress(_ZEROS) + compressor.flush(zlib.Z_FULL_FLUSH)


def _has_hole(fd: int, start: int, size_bytes: int) -> bool:
    try:
        return os.lseek(fd, start, os.SEEK_HOLE) < start + size_bytes
    except OSError:  # the file was truncated meanwhile
        return True


def _pieces(fd: int, piece_bytes: int) -> Iterator[bytes]:
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


class _ZlibStream:
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


class _Unfinished(AbstractContextManager["_Unfinished"]):
    """A temporary file that the block renames into path; deleted if the block raises."""

    __slots__ = ("_fd", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._fd = os.open(name, _NEW, 0o644)

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.close()
            Path(self.name).unlink(missing_ok=True)


def _entries(directory: str, names: re.Pattern[str]) -> Iterator[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        yield from (entry for entry in entries if names.fullmatch(entry.name))


def _decompress(file: BinaryIO, object_id: str) -> Iterator[bytes]:
    """The decompressed content of *file*; no piece is much longer than ``CHUNK_BYTES``."""
    inflate = zlib.decompressobj()
    try:
        # The first piece has the whole header, and is short for callers that read only that.
        compressed = file.read(4 * _LONGEST_HEADER)
        limit = _LONGEST_HEADER
        while compressed:
            yield inflate.decompress(compressed, limit)
            limit = CHUNK_BYTES
            compressed = inflate.unconsumed_tail or file.read(CHUNK_BYTES)
        yield inflate.flush()
    except zlib.error as error:
        raise LedgerDamagedError(f"object {object_id} is damaged: {error}") from error


def _parse_header(start: bytes, object_id: str) -> tuple[ObjectKind, int, bytes]:
    """Kind, size, and the beginning of the content that followed the header."""
    header = _HEADER.match(start)
    if header is None:
        raise LedgerDamagedError(f"object {object_id} is damaged: it has no header")
    return cast("ObjectKind", header[1].decode()), int(header[2]), start[header.end() :]


def _read_chunks(file: BinaryIO, object_id: str) -> Iterator[bytes]:
    with file:
        yield b""  # for ``chunks``
        digest = git_hash()
        pieces = _decompress(file, object_id)
        start = next(pieces, b"")
        digest.update(start)
        yield _parse_header(start, object_id)[2]
        for piece in pieces:
            digest.update(piece)
            yield piece
        if digest.hexdigest() != object_id:
            raise LedgerDamagedError(f"object {object_id} is damaged: its content differs")
