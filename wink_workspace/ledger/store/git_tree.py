"""One directory in git's tree format: rows of mode, name and id, in git's order.

A ``GitTree`` is immutable. Changing one entry of 1,000 copies two lists of references and joins
the rows. That takes a tenth of the time of parsing them, so entries are kept as rows.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from wink_workspace.filesystem.model import FileKind

from .compression import run_steps

_ROW = re.compile(rb"((40000|100644|100755|120000) ([^\0]+)\0.{20})", re.DOTALL)
_KINDS: Final = {
    b"40000": (FileKind.DIRECTORY, False),
    b"100644": (FileKind.FILE, False),
    b"100755": (FileKind.FILE, True),
    b"120000": (FileKind.SYMLINK, False),
}

_FEW_CHANGES: Final = 32
_ENTRIES_PER_STEP: Final = 128


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """The entry of a tree at one path.

    ``id`` is that of a blob (a file's content, a link's target) or, for a directory, of a tree.
    """

    kind: FileKind
    id: str
    executable: bool = False

    @property
    def is_tree(self) -> bool:
        """Whether it is a directory."""
        return self.kind is FileKind.DIRECTORY


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
    def of(cls, entries: Mapping[bytes, TreeEntry]) -> GitTree:
        """Make a tree from entries by their stored names."""
        return run_steps(cls.of_steps(entries.items()))

    @classmethod
    def of_steps(cls, entries: Iterable[tuple[bytes, TreeEntry]]) -> Generator[None, None, GitTree]:
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

    def __iter__(self) -> Iterator[tuple[bytes, TreeEntry]]:
        """Stored names and entries, in git's order."""
        return map(_parse_row, self.rows)

    def get(self, name: bytes) -> TreeEntry | None:
        """The entry with the stored name *name*."""
        keys = self._keys
        for key in (name, name + b"/"):
            at = bisect_left(keys, key)
            if at < len(keys) and keys[at] == key:
                row = self.rows[at]
                kind, executable = _KINDS[row[: row.index(b" ")]]
                return TreeEntry(kind, row[-20:].hex(), executable)
        return None

    def changed(self, changes: Mapping[bytes, TreeEntry | None]) -> GitTree:
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
                # As ``_keyed_row``: a call changes some ten entries
                key, mode = name, b"100755" if entry.executable else b"100644"
                if entry.kind is not FileKind.FILE:
                    is_tree = entry.kind is FileKind.DIRECTORY
                    key, mode = (name + b"/", b"40000") if is_tree else (name, b"120000")
                at = bisect_left(keys, key)
                keys.insert(at, key)
                rows.insert(at, b"%b %b\0%b" % (mode, name, bytes.fromhex(entry.id)))
        return self if rows == self.rows else GitTree(keys, rows)

    def _rebuilt(self, changes: Mapping[bytes, TreeEntry | None]) -> GitTree:
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

    def rows_not_in(self, other: GitTree) -> Iterable[tuple[bytes, TreeEntry]]:
        """The entries that are missing or different in *other*, in no order."""
        return map(_parse_row, set(self.rows).difference(other.rows))


def _first_gap(data: bytes) -> int:
    end = 0
    while found := _ROW.match(data, end):
        end = found.end()
    return end


def _keyed_row(name: bytes, entry: TreeEntry) -> tuple[bytes, bytes]:
    digest = bytes.fromhex(entry.id)
    if entry.kind is FileKind.DIRECTORY:
        return name + b"/", b"40000 %b\0%b" % (name, digest)
    if entry.kind is FileKind.SYMLINK:
        return name, b"120000 %b\0%b" % (name, digest)
    return name, b"%b %b\0%b" % (b"100755" if entry.executable else b"100644", name, digest)


def _parse_row(row: bytes) -> tuple[bytes, TreeEntry]:
    mode, _, name = row[:-21].partition(b" ")
    kind, executable = _KINDS[mode]
    return name, TreeEntry(kind, row[-20:].hex(), executable)


EMPTY_TREE: Final = GitTree([], [])
EMPTY_TREE_ID: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
