"""Directories that did not change since an earlier index; they are compared, not listed.

A directory did not change if its own status and those of all its entries are those of the index;
in a tree that does not keep times, every directory is listed. A
large index is compared by two processes: a filter begins with the last entries, this one with the
first (``status_filter``). A filter that ends or cannot start costs only time.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from itertools import accumulate, chain
from mmap import mmap

from wink_workspace.filesystem import status_filter
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.filters import n_useful_filters, running
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.paths import ROOT
from wink_workspace.filesystem.status_filter import (
    ANSWER,
    LOOK,
    N_COLUMNS,
    NO_ANSWER,
    have_statuses,
)

from .index import FileIndex, KnownListing
from .stored import directory_status

__all__ = ["UnchangedDirectories", "open_unchanged"]

_ENTRIES_WITHOUT_FILTER = 10_000
_ENTRIES_A_ROW = 2_000
_Listings = dict[Parts, KnownListing]


class UnchangedDirectories:
    """Compares the directories of a walk with an earlier index."""

    def __init__(self, known: _Listings, filter_: _Filter | None = None) -> None:
        self._known = known
        self._filter = filter_

    def find(self, parts: Parts, directory: int) -> KnownListing | None:
        """What the index has of a directory that did not change, else ``None``.

        Args:
            parts: Its path.
            directory: A descriptor for listing it.
        """
        known = self._known.get(parts)
        if known is None:
            return None
        own, entries = known
        if directory_status(os.fstat(directory)) != own:
            return None
        for n, piece in enumerate(entries.pieces(_ENTRIES_A_ROW)):
            answer = NO_ANSWER if self._filter is None else self._filter.answer(parts, n)
            if answer == LOOK or (
                answer == NO_ANSWER
                and not have_statuses(directory, piece.names(), bytes(piece.statuses))
            ):
                return None
        return known


@contextmanager
def open_unchanged(tree: DiskTree, earlier: FileIndex | None) -> Generator[UnchangedDirectories]:
    """The directories of *tree* that did not change since *earlier*, for one walk in the block."""
    known = {} if earlier is None or not tree.keeps_times else earlier.known_listings()
    with ExitStack() as stack:
        filter_: _Filter | None = None
        n_entries = sum(len(entries) for _, entries in known.values())
        if n_entries > _ENTRIES_WITHOUT_FILTER and n_useful_filters():
            with suppress(OSError):
                top = stack.enter_context(tree.opened(ROOT))
                filter_ = stack.enter_context(_started(known, top))
        yield UnchangedDirectories(known, filter_)


class _Filter:
    """A running filter: its table, and the number of the first row of each directory."""

    def __init__(self, table: mmap, first_rows: dict[Parts, int]) -> None:
        self._table = memoryview(table)[: len(table) // 8 * 8].cast("q")
        self._first_rows = first_rows

    def answer(self, parts: Parts, n: int) -> int:
        """The answer for the n-th piece of a directory; ``NO_ANSWER`` if there is none yet."""
        return self._table[1 + (self._first_rows[parts] + n) * N_COLUMNS + ANSWER]


@contextmanager
def _started(known: _Listings, top: int) -> Generator[_Filter]:
    table = os.memfd_create("wink-statuses", os.MFD_CLOEXEC)
    try:
        content, first_rows = _table(known)
        with os.fdopen(os.dup(table), "wb") as file:
            file.write(content)
        with running(status_filter.__file__, table, top):
            yield _Filter(mmap(table, 0), first_rows)
    finally:
        os.close(table)


def _table(known: _Listings) -> tuple[bytes, dict[Parts, int]]:
    """The table, and the number of the first row of each directory, in the order of the walk."""
    first_rows: dict[Parts, int] = {}
    contents: list[tuple[bytes, bytes | memoryview, bytes | memoryview]] = []
    for parts in sorted(known):
        first_rows[parts] = len(contents)
        path = os.fsencode("/".join(parts) or ".")
        contents += (
            (path, piece.joined_names, piece.statuses)
            for piece in known[parts][1].pieces(_ENTRIES_A_ROW)
        )
    table = array("q", [len(contents)])
    end = 8 * (1 + N_COLUMNS * len(contents))
    for each in contents:
        *places, end = accumulate(map(len, each), initial=end)
        table.extend((NO_ANSWER, *places, end))
    return b"".join((table, *chain.from_iterable(contents))), first_rows
