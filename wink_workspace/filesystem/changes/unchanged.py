"""Directories that did not change since an earlier index; they are compared, not listed.

A directory did not change if its own status and those of all its entries are those of the index. A
large index is compared by two processes: a filter begins with the last directory, this one with
the first (``status_filter``). A filter that ends or cannot start costs only time.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from itertools import accumulate
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
    signed,
)

from .index import FileIndex, KnownListing
from .stored import directory_status

__all__ = ["UnchangedDirectories", "open_unchanged"]

_ENTRIES_WITHOUT_FILTER = 10_000
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
        answer = NO_ANSWER if self._filter is None else self._filter.answer(parts)
        if answer == LOOK:
            return None
        if answer == NO_ANSWER and (
            directory_status(os.fstat(directory)) != own
            or not have_statuses(directory, entries.names(), bytes(entries.statuses))
        ):
            return None
        return known


@contextmanager
def open_unchanged(tree: DiskTree, earlier: FileIndex | None) -> Generator[UnchangedDirectories]:
    """The directories of *tree* that did not change since *earlier*, for one walk in the block."""
    known = {} if earlier is None else earlier.known_listings()
    with ExitStack() as stack:
        filter_: _Filter | None = None
        n_entries = sum(len(entries) for _, entries in known.values())
        if n_entries > _ENTRIES_WITHOUT_FILTER and n_useful_filters():
            with suppress(OSError):
                top = stack.enter_context(tree.opened(ROOT))
                filter_ = stack.enter_context(_started(known, top))
        yield UnchangedDirectories(known, filter_)


class _Filter:
    """A running filter, and its table."""

    def __init__(self, table: mmap, numbers: dict[Parts, int]) -> None:
        self._rows = memoryview(table)[8 : 8 + 8 * N_COLUMNS * len(numbers)].cast("q")
        self._numbers = numbers

    def answer(self, parts: Parts) -> int:
        """The answer for a directory; ``NO_ANSWER`` if there is none yet."""
        number = self._numbers.get(parts)
        return NO_ANSWER if number is None else self._rows[number * N_COLUMNS + ANSWER]


@contextmanager
def _started(known: _Listings, top: int) -> Generator[_Filter]:
    walked = [parts for parts in sorted(known) if len(known[parts][1])]
    table = os.memfd_create("wink-statuses", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(table), "wb") as file:
            file.write(_table(known, walked))
        with running(status_filter.__file__, table, top):
            numbers = {parts: number for number, parts in enumerate(walked)}
            yield _Filter(mmap(table, 0), numbers)
    finally:
        os.close(table)


def _table(known: _Listings, walked: list[Parts]) -> bytes:
    rows = array("q", [len(walked)])
    contents: list[bytes | memoryview] = []
    end = 8 * (1 + N_COLUMNS * len(walked))
    for parts in walked:
        (inode, modified_ns, changed_ns), entries = known[parts]
        path = os.fsencode("/".join(parts) or ".")
        pieces = (path, entries.joined_names, entries.statuses)
        places = list(accumulate(map(len, pieces), initial=end))
        rows.extend((NO_ANSWER, signed(inode), modified_ns, changed_ns, *places))
        contents += pieces
        end = places[-1]
    return b"".join((rows, *contents))
