"""Open packs: the objects of calls, appended to one file that later becomes a pack of git.

A call writes about nine objects. On ext4 a new file for each takes up to ten times as long in the
minutes after many files nearby were deleted (benchmarks/results.md has figures). So each writer
appends its objects to a file::

    wink/open/<name>.pack   a pack without its number of objects and its checksum
    wink/open/<name>.rows   id, offset, length and CRC of each object; locked by the writer

A pack whose name begins with the id of a blob and ``-`` has deltas for that blob, the base of a
large file (``large_files.py``). It is not sealed: a later writer continues it, until ``gc`` joins
it with the base.

Rule 1: an object exists once its row is complete. Rows are written after the bytes that they name,
and a row whose bytes do not match its CRC ends the pack; a loss of power can leave one.
Rule 2: ``sealing`` makes the file an ordinary pack under its final name. It may be interrupted at
any step and repeated, also by another process. The file loses its first name only after the pack
and its index would survive a loss of power.
Rule 3: the kernel's lock on the rows ends with the writer. The next writer of the ledger seals what
a dead one left.
Rule 4: a delta refers to an object of the same pack, and a chain has at most ``_MAX_DEPTH`` deltas.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import struct
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from wink_workspace._descriptors import closed_with
from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import LedgerDamagedError, LedgerError
from wink_workspace.filesystem.git_binary import apply_delta, delta_sizes, git_hash

from .compression import CHUNK_BYTES, ObjectKind, compress
from .deltas import delta_between
from .disk import file_sizes, ledger_failure, ledger_failures, link_or_copy, sync, sync_pack
from .lock import MAX_LOCK_TRIES, LockFile, never_in_place
from .packs import (
    ENDED_CALLS,
    PACK_HEADER,
    TEMPORARY,
    TYPE_OF_KIND,
    Pack,
    Packs,
    entry_header,
    pack_index,
    parse_entry_header,
)

_log = logging.getLogger(__name__)

_ROW = struct.Struct(">20sQQI")
_ROW_SUFFIX: Final = ".rows"
_DATA_SUFFIX: Final = ".pack"
_TWO_BYTE_SIZES: Final = (16, 2_048)
"""The sizes that need two bytes in the header of an object."""
_MAX_BUFFERED_BYTES: Final = 1_048_576
_MIN_DELTA_BYTES: Final = 1_024
_MAX_DEPTH: Final = 16
_MAX_OBJECTS: Final = 2_000
_MAX_BYTES: Final = 8 * 1_048_576
_MIN_BYTES: Final = 4_096
_MOST_WRITERS: Final = 256
_MAX_TRIES: Final = 100


_Place: TypeAlias = tuple[int, int, int]
"""Offset, length and CRC of an object."""

Like: TypeAlias = tuple[str, bytes]
"""The id and the content of an object that is similar to a new one."""


class DataFile:
    """A file of objects that is open for reading; closed with its last user."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        closed_with(self, self.fd)


_data_files: WeakValueDictionary[Path, DataFile] = WeakValueDictionary()
"""Shared by all ledgers of this process: with many open branches, each reads the packs of all."""


def _opened(path: Path) -> DataFile:
    file = _data_files.get(path)
    if file is None or not path.exists():
        file = _data_files[path] = DataFile(path)
    return file


class _OpenPack:
    """An open pack of any process, as far as its rows were read.

    Args:
        rows: The path of the rows.

    Attributes:
        base: The base of a large file, if it has the deltas for that.
        index: The index of the ordinary pack that it became, ``None`` before.

    Raises:
        FileNotFoundError: If it was sealed meanwhile.
    """

    def __init__(self, rows: Path) -> None:
        self.rows, self.data = rows, rows.with_suffix(_DATA_SUFFIX)
        self.base = _base_in(rows)
        self.places: dict[str, _Place] = {}
        self.index: Path | None = None
        self._n_rows = 0
        self._file: DataFile | None = _opened(self.data)
        self._data_fd = self._file.fd

    def load(self) -> None:
        """Read the rows that were added since the last time."""
        with self.rows.open("rb") as file:
            file.seek(self._n_rows * _ROW.size)
            content = file.read()
        n_rows = len(content) // _ROW.size
        for digest, *place in _ROW.iter_unpack(content[: n_rows * _ROW.size]):
            self.places[digest.hex()] = (place[0], place[1], place[2])
        self._n_rows += n_rows

    def entry(self, object_id: str) -> bytes:
        """The bytes of an object in the pack: header and compressed content."""
        offset, length, crc = self.places[object_id]
        found = _read_at(self._data_fd, length, offset)
        if zlib.crc32(found) != crc:
            raise LedgerDamagedError(f"object {object_id} is damaged: its CRC differs")
        return found

    def read(self, object_id: str) -> tuple[ObjectKind, bytes]:
        """An object's kind and content."""
        entry = self.entry(object_id)
        header = parse_entry_header(entry)
        content = _inflate(entry[header.length :], object_id)
        if header.kind is not None:
            return header.kind, content
        kind, original = self.read(header.base)
        _, size_bytes = delta_sizes(content)
        return kind, apply_delta(content, original, max_bytes=size_bytes)

    def header(self, object_id: str) -> tuple[ObjectKind, int]:
        """An object's kind and size."""
        entry = self.entry(object_id)
        header = parse_entry_header(entry)
        if header.kind is not None:
            return header.kind, header.size_bytes
        _, size_bytes = delta_sizes(_inflate(entry[header.length :], object_id))
        return "blob" if self.base else self.header(header.base)[0], size_bytes

    def as_pack(self) -> Pack:
        """Its objects as those of a pack."""
        sizes = {each: place[1] for each, place in self.places.items()}
        offsets = {each: place[0] for each, place in self.places.items()}
        return Pack(self.rows, self.rows.stat().st_mtime, sizes, offsets)

    def valid_places(self) -> dict[str, _Place]:
        """The places up to the first one whose bytes are missing or differ."""
        valid: dict[str, _Place] = {}
        for object_id, (offset, length, crc) in self.places.items():
            if zlib.crc32(_read_at(self._data_fd, length, offset)) != crc:
                break
            valid[object_id] = (offset, length, crc)
        return valid

    def close(self) -> None:
        """Close the file."""
        self._data_fd, self._file = -1, None


class OwnPack(_OpenPack):
    """The open pack of this writer.

    Attributes:
        depths: The number of deltas in the chain of each object.
        unflushed: The objects that are only in memory.
        written_bytes: The size of the file.
    """

    def __init__(self, directory: Path, *, durable: bool, base: str = "") -> None:
        self.lock = (_left_rows(directory, base) if base else None) or _new_rows(directory, base)
        rows = self.lock.path
        data = rows.with_suffix(_DATA_SUFFIX)
        self._write_fd = -1
        is_new = not data.exists()
        try:
            self._write_fd = os.open(data, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            super().__init__(rows)
            self._continue()
            if durable and is_new:
                sync(directory)
        except BaseException:
            with suppress(OSError):  # the next writer deletes it
                if is_new:
                    data.unlink(missing_ok=True)
                    rows.unlink(missing_ok=True)
            self.close()
            raise
        self._new_rows = bytearray()
        self.unflushed: list[str] = []
        self.depths: dict[str, int] = {}

    def _continue(self) -> None:
        """Go on after the objects that an earlier writer left."""
        self.load()
        self.places = self.valid_places()
        self._n_rows = len(self.places)
        os.ftruncate(self.lock.fd, self._n_rows * _ROW.size)
        self.written_bytes = max((sum(each[:2]) for each in self.places.values()), default=0)
        self._buffer = bytearray(b"" if self.places else PACK_HEADER.pack(b"PACK", 2, 0))

    def entry(self, object_id: str) -> bytes:
        """The bytes of an object, which may be in memory only."""
        offset, length, _ = self.places[object_id]
        start = offset - self.written_bytes
        if start >= 0:
            return bytes(self._buffer[start : start + length])
        return super().entry(object_id)

    def add(self, kind: ObjectKind, content: bytes, like: Like | None) -> str:
        """Add an object unless this pack has it; return its id. It is in memory until ``flush``.

        *like* is the id and the content of a similar object; if that is in this pack, a delta is
        stored. There are few functions here, because a call adds many objects.
        """
        whole = b"%b %d\0%b" % (kind.encode(), len(content), content)
        object_id = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        if object_id in self.places:
            return object_id
        is_long = len(content) >= _MIN_DELTA_BYTES
        entry = self._delta_entry(content, like) if is_long and like is not None else b""
        if entry and like is not None:
            self.depths[object_id] = self.depths.get(like[0], 0) + 1
        else:
            worth = kind != "tree" or is_long
            size = len(content)
            header = (
                bytes((TYPE_OF_KIND[kind] << 4 | size & 15 | 128, size >> 4))
                if _TWO_BYTE_SIZES[0] <= size < _TWO_BYTE_SIZES[1]
                else entry_header(kind, size)
            )
            entry = header + compress(content, worth=worth)
        self._append(object_id, entry)
        return object_id

    def add_delta(self, object_id: str, base: str, delta: bytes) -> None:
        """Add a version of a large file, unless this pack has it."""
        if object_id not in self.places:
            header = entry_header(None, len(delta), base=base)
            self._append(object_id, header + zlib.compress(delta, 1))

    def _append(self, object_id: str, entry: bytes) -> None:
        buffer = self._buffer
        offset, length, crc = self.written_bytes + len(buffer), len(entry), zlib.crc32(entry)
        buffer += entry
        self._new_rows += _ROW.pack(bytes.fromhex(object_id), offset, length, crc)
        self.places[object_id] = (offset, length, crc)
        self.unflushed.append(object_id)
        if len(buffer) > _MAX_BUFFERED_BYTES:
            self.flush()

    def _delta_entry(self, content: bytes, like: Like) -> bytes:
        """*content* as a delta; empty if that is not possible or not shorter."""
        base, original = like
        if base not in self.places or self.depths.get(base, 0) >= _MAX_DEPTH:
            return b""
        delta = delta_between(original, content)
        if len(delta) > len(content) // 4:
            return b""
        return entry_header(None, len(delta), base=base) + compress(delta, worth=False)

    def flush(self) -> None:
        """Write what is buffered. On an error it is dropped: these objects were not added."""
        try:
            if os.pwrite(self._write_fd, self._buffer, self.written_bytes) < len(self._buffer):
                _write_at(self._write_fd, self._buffer, self.written_bytes)
            at = self._n_rows * _ROW.size
            if os.pwrite(self.lock.fd, self._new_rows, at) < len(self._new_rows):
                _write_at(self.lock.fd, self._new_rows, at)
        except OSError as error:
            for object_id in self.unflushed:
                del self.places[object_id]
                self.depths.pop(object_id, None)
            del self._buffer[PACK_HEADER.size if self.written_bytes == 0 else 0 :]
            self._new_rows.clear()
            self.unflushed.clear()
            raise ledger_failure("an object cannot be written", error) from error
        self.written_bytes += len(self._buffer)
        self._n_rows += len(self._new_rows) // _ROW.size
        self._buffer.clear()
        self._new_rows.clear()
        self.unflushed.clear()

    def sync(self) -> None:
        """Call fsync."""
        with ledger_failures("the ledger's objects cannot be synced"):
            os.fsync(self._write_fd)
            os.fsync(self.lock.fd)

    def close(self) -> None:
        """Close the files, and release the lock."""
        super().close()
        fd, self._write_fd = self._write_fd, -1
        if fd >= 0:
            os.close(fd)
        self.lock.release()


class OpenPacks:
    """The open packs of a ledger: those of this writer, and those of others, which it only reads.

    Args:
        directory: Where they are.
        packs: Where sealed packs go.
        durable: Whether ``flush`` calls fsync.

    Attributes:
        own: The open pack of this writer, ``None`` before its first object. In a forked child it
            is its parent's, and its lock is closed.
    """

    def __init__(self, directory: Path, packs: Packs, *, durable: bool = False) -> None:
        self._directory = directory
        self._packs = packs
        self._durable = durable
        self.own: OwnPack | None = None
        self._full: list[OwnPack] = []
        self._large: dict[str, OwnPack] = {}
        self._others: dict[str, _OpenPack] = {}

    # Writing

    def begin(self) -> OwnPack:
        """Begin the open pack of this writer; it is ``own`` from now on."""
        with ledger_failures("an object cannot be written"):
            self.own = OwnPack(self._directory, durable=self._durable)
        return self.own

    def large(self, base: str) -> OwnPack:
        """The open pack of this writer with the deltas for *base*."""
        pack = self._large.get(base)
        if pack is None or not pack.lock.is_open:
            with ledger_failures("an object cannot be written"):
                pack = OwnPack(self._directory, durable=self._durable, base=base)
            self._large[base] = pack
            left = self._others.pop(pack.rows.name, None)
            if left is not None:
                left.close()
        return pack

    def flush(self) -> None:
        """Write everything; if durable, call fsync."""
        own = self.own
        if own is not None:
            self._flush(own)
        for pack in self._large.values():
            self._flush(pack)

    def _flush(self, own: OwnPack) -> None:
        if own.unflushed and own.lock.fd >= 0:
            own.flush()
            if self._durable:
                own.sync()

    def is_full(self, most_bytes: int) -> bool:
        """Whether to seal this writer's pack, so that all open ones take at most *most_bytes*."""
        own = self.own
        if own is None:
            return False
        n_bytes = own.written_bytes
        if len(own.places) >= _MAX_OBJECTS or n_bytes > _MAX_BYTES:
            return True
        if n_bytes <= max(_MIN_BYTES, most_bytes // _MOST_WRITERS):
            return False  # without listing the others, which takes longer than a call may
        return n_bytes * len(list(self._listed("*" + _ROW_SUFFIX))) > most_bytes

    # Reading

    def __contains__(self, object_id: str) -> bool:
        return self._pack_of(object_id) is not None

    def read(self, object_id: str) -> tuple[ObjectKind, bytes]:
        """An object's kind and content.

        Raises:
            KeyError: If no open pack is known to have it; see ``find_others``.
            LedgerDamagedError: If it is damaged.
        """
        kind, content = self._known_pack(object_id).read(object_id)
        header = b"%b %d\0" % (kind.encode(), len(content))
        if git_hash(header + content).hexdigest() != object_id:
            raise LedgerDamagedError(f"object {object_id} is damaged: its content differs")
        return kind, content

    def header(self, object_id: str) -> tuple[ObjectKind, int]:
        """An object's kind and size; raises as ``read``."""
        return self._known_pack(object_id).header(object_id)

    def large_entry(self, object_id: str) -> bytes | None:
        """The entry of a version of a large file; ``None`` if no open pack has it."""
        pack = self._pack_of(object_id)
        return pack.entry(object_id) if pack is not None and pack.base else None

    def base_of(self, object_id: str) -> str:
        """The base of a version of a large file; empty if no open pack has it."""
        pack = self._pack_of(object_id)
        return pack.base if pack is not None else ""

    def large_bytes(self, base: str) -> int:
        """The size of all deltas for *base*."""
        packs = [pack for pack in self._all() if pack.base == base]
        return sum(length for pack in packs for _, length, _ in pack.places.values())

    def bases(self) -> dict[str, str]:
        """The base of each version of a large file, of all writers."""
        self.find_others()
        return {
            object_id: pack.base for pack in self._all() if pack.base for object_id in pack.places
        }

    @contextmanager
    def left_large(self) -> Generator[list[Pack]]:
        """The packs with deltas of large files that no writer has open; none can in the block."""
        self.find_others()
        with ExitStack() as locks:
            found: list[Pack] = []
            for pack in [each for each in self._others.values() if each.base]:
                lock = _locked_rows(pack.rows)
                if lock is not None:
                    locks.callback(lock.release)
                    pack.load()
                    found.append(pack.as_pack())
            yield found

    def listed(self) -> list[Pack]:
        """Every open pack as a pack, with what was flushed."""
        self.flush()
        self.find_others()
        found: list[Pack] = []
        for pack in self._all():
            with suppress(FileNotFoundError):  # sealed meanwhile
                found.append(pack.as_pack())
        return found

    def finding_sizes(self) -> Generator[None, None, dict[str, int]]:
        """The size of each object on disk; pauses after each open pack, which is small."""
        yield from self._finding_others()
        sizes: dict[str, int] = {}
        for pack in self._all():
            sizes.update((object_id, place[1]) for object_id, place in pack.places.items())
            yield
        return sizes

    def file_sizes(self) -> dict[int, int]:
        """The size of each file, by inode."""
        return file_sizes(self._listed("*"))

    def find_others(self) -> None:
        """Look for objects that other writers have added since the last time."""
        for _ in self._finding_others():
            pass

    def _finding_others(self) -> Iterator[None]:
        mine = {pack.rows.name for pack in self._mine()}
        present = {path.name: path for path in self._listed("*" + _ROW_SUFFIX)}
        for name in self._others.keys() - present.keys():
            self._others.pop(name).close()
        for name in present.keys() - mine:
            with suppress(FileNotFoundError):
                if name not in self._others:
                    self._others[name] = _OpenPack(present[name])
                self._others[name].load()
            yield

    def _listed(self, names: str) -> Iterable[Path]:
        return list(self._directory.glob(names))

    def _mine(self) -> list[OwnPack]:
        mine = [*self._full, *self._large.values()]
        return mine if self.own is None else [self.own, *mine]

    def _all(self) -> list[_OpenPack]:
        return [*self._mine(), *self._others.values()]

    def _pack_of(self, object_id: str) -> _OpenPack | None:
        own = self.own
        if own is not None and object_id in own.places:
            return own
        for pack in (*self._full, *self._large.values()):
            if object_id in pack.places:
                return pack
        for other in self._others.values():
            if object_id in other.places:
                return other
        return None

    def _known_pack(self, object_id: str) -> _OpenPack:
        pack = self._pack_of(object_id)
        if pack is None:
            raise KeyError(object_id)
        return pack

    # Sealing

    def sealing(
        self, *, is_idle: bool = False, flush: Callable[[Path], object] = sync_pack
    ) -> Iterator[None]:
        """Make this writer's open packs ordinary packs; pauses often, and may be abandoned.

        Objects that are added meanwhile go to a new open pack. *is_idle* is whether no call is
        in progress, so that objects to which no ref leads are garbage at once. *flush* waits until
        the pack with an index would survive a loss of power.

        Raises:
            LedgerError: If a file cannot be written; the objects stay in the open pack.
        """
        if self.own is not None:
            if self.own.unflushed and self.own.lock.is_open:
                self.own.flush()
            self._full.append(self.own)
            self.own = None
        self._leave_large()
        while self._full:
            pack = self._full[0]
            if not pack.lock.is_open:  # this is a forked child of its writer
                self._full.pop(0).close()
                continue
            with ledger_failures("an open pack cannot be sealed"):
                index = yield from _sealing(pack, pack.places, self._packs, flush)
            self._full.pop(0).close()  # first, because the next step may fail
            if is_idle and index is not None:
                self._packs.set_made(index, ENDED_CALLS)

    def _leave_large(self) -> None:
        """Let any writer continue the packs with deltas of large files."""
        large, self._large = self._large, {}
        for pack in large.values():
            self._flush(pack)
            pack.close()
        if large:
            self.find_others()

    def seal(self, *, flush: Callable[[Path], object] = sync_pack) -> None:
        """``sealing`` at once."""
        for _ in self.sealing(flush=flush):
            pass

    def seal_dead(self) -> None:
        """Seal what writers that have ended left behind."""
        for data in self._listed("*-*" + _DATA_SUFFIX):
            if not data.with_suffix(_ROW_SUFFIX).exists():  # rows are created first, deleted first
                data.unlink(missing_ok=True)
        mine = {pack.rows for pack in self._mine()}
        for rows in self._listed("*" + _ROW_SUFFIX):
            if rows not in mine and not _base_in(rows):
                lock = LockFile(rows)
                try:
                    if lock.try_lock_exclusively() and lock.is_in_place:
                        self._seal_dead(rows)
                finally:
                    lock.release()

    def _seal_dead(self, rows: Path) -> None:
        try:
            pack = _OpenPack(rows)
        except FileNotFoundError:  # its writer ended before it created the data, or it is sealed
            with ledger_failures("an open pack cannot be sealed"):
                if self._are_packed(_ids_in(rows)):
                    rows.unlink(missing_ok=True)
                else:
                    _log.warning("The objects of %s are missing: its data was deleted.", rows)
            return
        with ledger_failures("an open pack cannot be sealed"):
            pack.load()
            for _ in _sealing(pack, pack.valid_places(), self._packs, sync_pack):
                pass
        pack.close()

    def _are_packed(self, ids: set[str]) -> bool:
        """Whether each object is in a pack; a pack that cannot be read does not count."""
        for index in self._packs.paths() if ids else ():
            with suppress(LedgerError):
                ids = ids.difference(self._packs.load(index).disk_bytes)
        return not ids

    def close(self) -> None:
        """Close every file; what is not sealed is sealed by the next writer."""
        for pack in self._all():
            pack.close()
        self.own, self._full, self._large, self._others = None, [], {}, {}


def _base_in(rows: Path) -> str:
    """The base in the name of a pack with deltas of a large file; empty for another one."""
    base, dash, _ = rows.stem.partition("-")
    return base if dash else ""


def _left_rows(directory: Path, base: str) -> LockFile | None:
    """The locked rows of a pack for *base* that no writer has open, if there is one."""
    found = (_locked_rows(rows) for rows in directory.glob(f"{base}-*{_ROW_SUFFIX}"))
    return next(filter(None, found), None)


def _locked_rows(rows: Path) -> LockFile | None:
    """The lock of a pack that no writer has open; ``None`` also if there is nothing in it."""
    lock = LockFile(rows)
    if lock.try_lock_exclusively() and lock.is_in_place:
        if os.fstat(lock.fd).st_size:
            return lock
        rows.unlink(missing_ok=True)  # its data may be about to be deleted
    lock.release()
    return None


def _new_rows(directory: Path, base: str) -> LockFile:
    """Create and lock the file of a new pack's rows."""
    prefix = f"{base}-" if base else ""
    for _ in range(MAX_LOCK_TRIES):
        lock = LockFile(directory / f"{prefix}{secrets.token_hex(8)}{_ROW_SUFFIX}")
        if lock.try_lock_exclusively() and lock.is_in_place:
            return lock
        lock.release()  # another process took it for one of a dead writer
        lock.path.unlink(missing_ok=True)
    raise never_in_place(directory)


def _ids_in(rows: Path) -> set[str]:
    """The objects of complete rows; none if another process deleted the file."""
    try:
        content = rows.read_bytes()
    except FileNotFoundError:
        return set()
    whole = content[: len(content) // _ROW.size * _ROW.size]
    return {digest.hex() for digest, *_ in _ROW.iter_unpack(whole)}


def _sealing(
    pack: _OpenPack,
    places: dict[str, _Place],
    packs: Packs,
    flush: Callable[[Path], object],
) -> Generator[None, None, Path | None]:
    """Make it an ordinary pack; the index of that, unless it is empty.

    After an error it may be repeated, also if the data is deleted already.
    """
    if places and pack.index is None:
        end = max(offset + length for offset, length, _ in places.values())
        header = PACK_HEADER.pack(b"PACK", 2, len(places))
        digest, at = git_hash(header), len(header)
        fd = os.open(pack.data, os.O_RDWR | os.O_CLOEXEC)
        try:
            while at < end:
                piece = os.pread(fd, min(CHUNK_BYTES, end - at), at)
                if not piece:
                    raise LedgerDamagedError(f"{pack.data} is shorter than its rows say")
                digest.update(piece)
                at += len(piece)
                yield
            index = packs.directory / f"pack-{digest.hexdigest()}.idx"
            _delete_other_names(pack.data, index, packs)
            for _ in range(_MAX_TRIES):
                os.ftruncate(fd, end)
                _write_at(fd, header, 0)
                _write_at(fd, digest.digest(), end)
                _publish(pack, index, places, digest.digest())
                if index.with_suffix(".pack").exists():
                    break
                index.unlink(missing_ok=True)  # its pack was taken for one of a dead writer
            else:
                raise LedgerError(
                    f"{pack.data} cannot be sealed: {index.with_suffix('.pack')} disappears",
                    hint="End the program that deletes it, then try again.",
                )
        finally:
            os.close(fd)
        flush(index)
        pack.index = index
        passed(KillPoint.OPEN_PACK_SEALED)
    pack.data.unlink(missing_ok=True)
    passed(KillPoint.OPEN_PACK_DELETED)
    pack.rows.unlink(missing_ok=True)
    return pack.index


def _publish(pack: _OpenPack, index: Path, places: dict[str, _Place], checksum: bytes) -> None:
    """Give the data its name as a pack, then the index, which makes it valid."""
    # The data keeps its name until the index is in place, so that this can be repeated
    link_or_copy(pack.data, index.with_suffix(".pack"), prefix=TEMPORARY)
    passed(KillPoint.OPEN_PACK_LINKED)
    entries = {bytes.fromhex(each): (offset, crc) for each, (offset, _, crc) in places.items()}
    unfinished = index.with_name(f"{TEMPORARY}{secrets.token_hex(8)}.idx")
    try:
        unfinished.write_bytes(pack_index(entries, checksum))
        unfinished.rename(index)
    finally:
        unfinished.unlink(missing_ok=True)


def _delete_other_names(data: Path, index: Path, packs: Packs) -> None:
    """Delete the name that *data* got as a pack before a loss of power took its last objects."""
    if data.stat().st_nlink > 1:
        for path in packs.directory.glob("*.pack"):
            if path.stem != index.stem and path.samefile(data):
                packs.delete(path.with_suffix(".idx"))


def _read_at(fd: int, n_bytes: int, offset: int) -> bytes:
    """The bytes that a row names; none if no file has such a place, because the row is damaged."""
    try:
        return os.pread(fd, n_bytes, offset)
    except (MemoryError, OverflowError, OSError):
        return b""


def _write_at(fd: int, data: bytes | bytearray, offset: int) -> None:
    n_bytes = os.pwrite(fd, data, offset)
    while n_bytes < len(data):
        n_bytes += os.pwrite(fd, memoryview(data)[n_bytes:].tobytes(), offset + n_bytes)


def _inflate(compressed: bytes, object_id: str) -> bytes:
    try:
        return zlib.decompress(compressed)
    except zlib.error as error:
        raise LedgerDamagedError(f"object {object_id} is damaged: {error}") from error
