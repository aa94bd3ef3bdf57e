"""Packs with a large file: one full version, the base, and other versions as deltas for it.

``gc`` makes them from the files of ``large_deltas.py``, so that plain git can read these versions.

Rule 1: the first object of such a pack is a blob of ``LARGE_BYTES`` or more, as in no other.
Rule 2: the base is not compressed, so any part of it can be read, and every delta refers to it.
Rule 3: the base stays as long as anything of the pack does. It is not joined with others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from wink_workspace.errors import LedgerError

from .disk import ledger_failure
from .large_deltas import LargeVersion, StoredContent, made_from, read_checked
from .packs import PACK_HEADER, TYPE_OF_KIND, Pack, Packs, parse_entry_header

__all__ = ["LARGE_BYTES", "LargePacks", "is_large_pack"]

LARGE_BYTES: Final = 8 * 1_048_576
"""Contents of this size or more are never in memory as a whole."""

_LONGEST_HEADER: Final = 64


def is_large_pack(index: Path) -> bool:
    """Whether a pack has a large file."""
    try:
        with index.with_suffix(".pack").open("rb", buffering=0) as file:
            start = os.pread(file.fileno(), _LONGEST_HEADER, PACK_HEADER.size)
    except FileNotFoundError:
        return False
    if not start or start[0] >> 4 & 7 != TYPE_OF_KIND["blob"]:
        return False
    return parse_entry_header(start)[1] >= LARGE_BYTES


class LargePacks:
    """The packs of one repository that have a large file.

    Args:
        packs: All of its packs.
    """

    def __init__(self, packs: Packs) -> None:
        self._packs = packs
        self._known: dict[Path, Pack | None] = {}  # a pack never changes
        self._is_current = False

    def forget(self) -> None:
        """Look again for packs."""
        self._is_current = False

    def opened(self, object_id: str) -> StoredContent:
        """A base.

        Raises:
            FileNotFoundError: If no pack has it.
            ValueError: If it is not a base.
        """
        if self._pack_of(object_id) is None:
            self.forget()
        pack = self._pack_of(object_id)
        if pack is None:
            raise FileNotFoundError(object_id)
        file = pack.path.with_suffix(".pack").open("rb", buffering=0)
        offset = pack.offsets[object_id]
        try:
            start = os.pread(file.fileno(), _LONGEST_HEADER, offset)
            kind, size_bytes, _, length = parse_entry_header(start)
            if kind != "blob":
                raise ValueError("it is a delta")
            return StoredContent(file, offset + length, 0, size_bytes)
        except BaseException:
            file.close()
            raise

    def version(self, object_id: str) -> LargeVersion | None:
        """A version that is a delta, if there is one."""
        pack = self._pack_of(object_id)
        if pack is None:
            return None
        with pack.path.with_suffix(".pack").open("rb", buffering=0) as file:
            length = pack.disk_bytes[object_id]
            entry = os.pread(file.fileno(), min(length, _LONGEST_HEADER), pack.offsets[object_id])
            kind, _, base, start = parse_entry_header(entry)
            if kind is not None:
                return None
            offset = pack.offsets[object_id]
            delta = os.pread(file.fileno(), length - start, offset + start)
        total = sum(pack.disk_bytes.values()) - pack.disk_bytes[base]
        return LargeVersion.of(base, total, delta)

    def chunks(self, object_id: str) -> Iterator[bytes] | None:
        """The content in pieces, ``None`` if no known pack has it.

        Raises:
            LedgerError: If a pack cannot be read.
        """
        try:
            version = self.version(object_id)
            if version is not None:
                return made_from(object_id, version, self.opened)
            if self._pack_of(object_id) is not None:
                return read_checked(object_id, self.opened(object_id))
        except FileNotFoundError:  # another process replaced the pack
            return None
        except OSError as error:
            raise ledger_failure("a large file cannot be read", error) from error
        return None

    def _pack_of(self, object_id: str) -> Pack | None:
        if not self._is_current:
            self._known = {path: self._loaded(path) for path in self._packs.paths()}
            self._is_current = True
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
