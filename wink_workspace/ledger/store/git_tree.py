"""One directory in git's tree format: rows of mode, name and id, in git's order.

A ``GitTree`` is immutable. Changing one entry of 1,000 copies two lists of references and joins
the rows. That takes a tenth of the time of parsing them, so entries are kept as rows.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from .compression import run_steps

Mode = Literal[b"40000", b"100644", b"100755", b"120000"]

_ROW = re.compile(rb"((40000|100644|100755|120000) ([^\0]+)\0.{20})", re.DOTALL)
_MODES: dict[bytes, Mode] = {
    b"40000": b"40000",
    b"100644": b"100644",
    b"100755": b"100755",
    b"120000": b"120000",
}

_FEW_CHANGES: Final = 32
_ENTRIES_PER_STEP: Final = 128


@dataclass(frozen=True, slots=True)
class GitEntry:
    """A mode and the id of the blob or tree."""

    mode: Mode
    id: str

    @property
    def is_tree(self) -> bool:
        """Whether it is a directory."""
        return self.mode == b"40000"


class GitTree:
    """The rows of a directory, each with git's sort key.

    Attributes:
        rows: Joined, the content of the tree's object. Read only.
    """

    __slots__ = ("_keys", "rows")

    def __init__(self, keys: list[bytes], rows: list[bytes]) -> None:
        self._keys = keys
        self.rows = rows

    @classmethod
    def parse(cls, data: bytes) -> GitTree:
        """Parse the content of a tree object.

        Raises:
            ValueError: If it is not a tree, or has entries that a ledger never writes.
        """
        found = _ROW.findall(data)
        rows = [row for row, _, _ in found]
        if b"".join(rows) != data:
            raise ValueError(f"no entry at byte {_first_gap(data)}")
        keys = [name + b"/" if mode == b"40000" else name for _, mode, name in found]
        return cls(keys, rows)

    @classmethod
    def of(cls, entries: Mapping[bytes, GitEntry]) -> GitTree:
        """Make a tree from entries by their stored names."""
        return run_steps(cls.of_steps(entries.items()))

    @classmethod
    def of_steps(cls, entries: Iterable[tuple[bytes, GitEntry]]) -> Generator[None, None, GitTree]:
        """As ``of``, some entries for each step."""
        rows: list[tuple[bytes, bytes]] = []
        for name, entry in entries:
            rows.append(_keyed_row(name, entry))
            if len(rows) % _ENTRIES_PER_STEP == 0:
                yield
        rows.sort()
        return cls([key for key, _ in rows], [row for _, row in rows])

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[bytes, GitEntry]]:
        """Stored names and entries, in git's order."""
        return map(_parse_row, self.rows)

    def get(self, name: bytes) -> GitEntry | None:
        """The entry with the stored name *name*."""
        keys = self._keys
        for key in (name, name + b"/"):
            at = bisect_left(keys, key)
            if at < len(keys) and keys[at] == key:
                row = self.rows[at]
                return GitEntry(_MODES[row[: row.index(b" ")]], row[-20:].hex())
        return None

    def changed(self, changes: Mapping[bytes, GitEntry | None]) -> GitTree:
        """A tree with these entries set; ``None`` removes one.

        Returns this object if nothing differs.
        """
        if len(changes) > _FEW_CHANGES:
            return self._rebuilt(changes)
        keys, rows = self._keys.copy(), self.rows.copy()
        for name, entry in changes.items():
            for key in (name, name + b"/"):
                at = bisect_left(keys, key)
                if at < len(keys) and keys[at] == key:
                    del keys[at], rows[at]
                    break
            if entry is not None:
                key = name + b"/" if entry.mode == b"40000" else name
                at = bisect_left(keys, key)
                keys.insert(at, key)
                rows.insert(at, b"%b %b\0%b" % (entry.mode, name, bytes.fromhex(entry.id)))
        return self if rows == self.rows else GitTree(keys, rows)

    def _rebuilt(self, changes: Mapping[bytes, GitEntry | None]) -> GitTree:
        """As ``changed``; inserting each row would move all rows after it."""
        by_key = dict(zip(self._keys, self.rows, strict=True))
        for name, entry in changes.items():
            if by_key.pop(name, None) is None:
                by_key.pop(name + b"/", None)
            if entry is not None:
                key, row = _keyed_row(name, entry)
                by_key[key] = row
        keys = sorted(by_key)
        rows = [by_key[key] for key in keys]
        return self if rows == self.rows else GitTree(keys, rows)

    def without(self, other: GitTree) -> GitTree:
        """The entries that are missing or different in *other*."""
        known = set(other.rows)
        kept = [at for at in zip(self._keys, self.rows, strict=True) if at[1] not in known]
        return GitTree([key for key, _ in kept], [row for _, row in kept])

    def rows_not_in(self, other: GitTree) -> Iterable[tuple[bytes, GitEntry]]:
        """The entries that are missing or different in *other*, in no order."""
        return map(_parse_row, set(self.rows).difference(other.rows))


def _first_gap(data: bytes) -> int:
    end = 0
    while found := _ROW.match(data, end):
        end = found.end()
    return end


def _keyed_row(name: bytes, entry: GitEntry) -> tuple[bytes, bytes]:
    key = name + b"/" if entry.mode == b"40000" else name
    return key, b"%s %s\0%s" % (entry.mode, name, bytes.fromhex(entry.id))


def _parse_row(row: bytes) -> tuple[bytes, GitEntry]:
    mode, _, name = row[:-21].partition(b" ")
    return name, GitEntry(_MODES[mode], row[-20:].hex())


EMPTY_TREE: Final = GitTree([], [])
EMPTY_TREE_ID: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
