"""Reads the objects of packs that have an index, as gitformat-pack(5) describes them.

A pack never changes under its name, so all ledgers of this process share the open ones.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from wink_workspace.errors import LedgerDamagedError
from wink_workspace.filesystem.git_binary import (
    apply_delta,
    delta_sizes,
    git_hash,
    object_header,
)

from .compression import CHUNK_BYTES, ObjectKind
from .disk import ledger_failures
from .open_packs import DataFile
from .packs import INDEX_MAGIC, LONGEST_HEADER, EntryHeader, Packs, parse_entry_header

_ID_BYTES: Final = 20
_IDS_FROM: Final = len(INDEX_MAGIC) + 256 * 4
_FIRST_READ_BYTES: Final = 4_096
_SIZES_BYTES: Final = 20
_LARGE_OFFSET: Final = 1 << 31
_MOST_DELTAS: Final = 4_095  # of git


class _Pack:
    """A pack and its index; raises ``ValueError`` if the index is broken."""

    def __init__(self, index: Path) -> None:
        self._index = index.read_bytes()
        self._file = DataFile(index.with_suffix(".pack"))
        self._n = int.from_bytes(self._index[_IDS_FROM - 4 : _IDS_FROM], "big")
        least = _IDS_FROM + self._n * (_ID_BYTES + 8) + 2 * _ID_BYTES
        end = os.fstat(self._file.fd).st_size - _ID_BYTES
        if (
            not self._index.startswith(INDEX_MAGIC)
            or len(self._index) < least
            or os.pread(self._file.fd, _ID_BYTES, max(end, 0))
            != self._index[-2 * _ID_BYTES : -_ID_BYTES]
        ):
            raise ValueError(f"the index {index.name} is broken, or that of another pack")

    def offset(self, wanted: bytes) -> int | None:
        """Where an object begins; ``None`` if the pack does not have it."""
        index, n = self._index, wanted[0]
        begin, end = struct.unpack_from(">II", index, _IDS_FROM - 4 * (257 - n))
        if n == 0:  # before it is the version
            begin = 0
        at = first = _IDS_FROM + begin * _ID_BYTES
        while (at := index.find(wanted, at, _IDS_FROM + end * _ID_BYTES)) >= 0:
            row, within = divmod(at - first, _ID_BYTES)
            if not within:
                break
            at += 1
        else:
            return None
        offsets = _IDS_FROM + self._n * (_ID_BYTES + 4)
        (offset,) = struct.unpack_from(">I", index, offsets + (begin + row) * 4)
        if offset >= _LARGE_OFFSET:
            large = offsets + self._n * 4 + (offset - _LARGE_OFFSET) * 8
            (offset,) = struct.unpack_from(">Q", index, large)
        return offset

    def entry(self, at: int, most_bytes: int | None = None) -> tuple[EntryHeader, bytes]:
        """The header and the content of an entry.

        With *most_bytes* of a delta only its beginning, and of another object no content.
        """
        n_first = _FIRST_READ_BYTES if most_bytes is None else LONGEST_HEADER
        piece = os.pread(self._file.fd, n_first, at)
        header = parse_entry_header(piece)
        if header.kind is not None and most_bytes is not None:
            return header, b""
        at += len(piece)
        size_bytes = header.size_bytes
        n_wanted = size_bytes if most_bytes is None else min(size_bytes, most_bytes)
        inflater = zlib.decompressobj()
        content = bytearray(inflater.decompress(piece[header.length :], n_wanted + 1))
        while len(content) < n_wanted or (most_bytes is None and not inflater.eof):
            piece = os.pread(self._file.fd, min(n_wanted + _FIRST_READ_BYTES, CHUNK_BYTES), at)
            if not piece or len(content) > n_wanted:
                raise ValueError("it does not have its size")
            at += len(piece)
            content += inflater.decompress(piece, n_wanted + 1 - len(content))
        return header, bytes(content)


_packs: WeakValueDictionary[Path, _Pack] = WeakValueDictionary()


class PackedObjects:
    """The objects of all packs of a repository that have an index.

    Every method raises ``KeyError`` if there is no such object, and ``LedgerDamagedError`` if it is
    damaged.
    """

    def __init__(self, packs: Packs) -> None:
        self._directory = packs.directory
        self._listed: list[_Pack] = []
        self._names: set[Path] = set()

    def forget(self) -> None:
        """Close what is open, after packs were deleted or indexes written."""
        for path in self._names:
            _packs.pop(path, None)
        self._listed, self._names = [], set()

    def __contains__(self, object_id: str) -> bool:
        with suppress(KeyError):
            self._place(object_id)
            return True
        return False

    def read(self, object_id: str) -> tuple[ObjectKind, bytes]:
        """The kind and the content."""
        with _damage(object_id):
            kind, _, content, deltas = self._resolve(object_id)
            for delta in reversed(deltas):
                content = apply_delta(delta, content, max_bytes=delta_sizes(delta)[1])
            if git_hash(object_header(kind, len(content)) + content).hexdigest() != object_id:
                raise ValueError("its content differs")
            return kind, content

    def header(self, object_id: str) -> tuple[ObjectKind, int]:
        """The kind and the size in bytes."""
        with _damage(object_id):
            kind, size_bytes, _, deltas = self._resolve(object_id, _SIZES_BYTES)
            return kind, delta_sizes(deltas[0])[1] if deltas else size_bytes

    def _resolve(
        self, object_id: str, most_bytes: int | None = None
    ) -> tuple[ObjectKind, int, bytes, list[bytes]]:
        """The object below all deltas, its size and content, and these, the uppermost first."""
        pack, at = self._place(object_id)
        deltas: list[bytes] = []
        while True:
            header, content = pack.entry(at, most_bytes)
            if header.kind is not None:
                return header.kind, header.size_bytes, content, deltas
            deltas.append(content)
            if len(deltas) > _MOST_DELTAS:
                raise ValueError("it has too many deltas")
            pack, at = self._place(header.base) if header.base else (pack, at - header.distance)

    def _place(self, object_id: str) -> tuple[_Pack, int]:
        """The pack with an object, and where it begins; looks for new packs if no other has it."""
        wanted = bytes.fromhex(object_id)
        while True:
            for n, pack in enumerate(self._listed):
                offset = pack.offset(wanted)
                if offset is not None:
                    if n:
                        self._listed.insert(0, self._listed.pop(n))  # the next is often beside it
                    return pack, offset
            if not self._find_new():
                raise KeyError(object_id)

    def _find_new(self) -> bool:
        n_before = len(self._listed)
        for path in sorted(self._directory.glob("*.idx")):
            if path not in self._names:
                with suppress(FileNotFoundError, ValueError):  # deleted meanwhile, or rebuilt next
                    pack = _packs[path] = _packs.get(path) or _Pack(path)
                    self._listed.append(pack)
                    self._names.add(path)
        return len(self._listed) > n_before


@contextmanager
def _damage(object_id: str) -> Generator[None]:
    with ledger_failures(f"object {object_id} cannot be read"):
        try:
            yield
        except (ValueError, IndexError, struct.error, zlib.error) as error:
            raise LedgerDamagedError(f"object {object_id} is damaged: {error}") from error
