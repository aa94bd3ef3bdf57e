"""Says which entries still have the statuses of an earlier walk.

A program of its own, like ``search_filter``, so that a walk uses more than one processor. It is
started as ``python -I -S status_filter.py TABLE TOP``. TABLE is shared memory, TOP the directory of
the walk. It answers for the rows of the table from the last one to the first, while the walk begins
with the first one. The answer is ``SAME``, or ``LOOK`` for all others, also for those that cannot
be read. The walk never waits for an answer, and enters each directory itself, without links.

The table has the number of rows, then the rows, then what they name. A row is for some entries of
one directory. It has ``N_COLUMNS`` integers of 64 bits: the answer, and the places of a path, of
names and of their statuses. Names are separated by NUL.
"""

from __future__ import annotations

import mmap
import os
import stat
import sys
from operator import attrgetter
from struct import Struct

ANSWER, PATH, NAMES, STATUSES, END = range(5)
N_COLUMNS = 5
NO_ANSWER, SAME, LOOK = range(3)

N_FIELDS = 6
"""The number of integers in a packed status."""
_unpacked = Struct("=qQqqqq").iter_unpack
_fields = attrgetter("st_mode", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_nlink")
_KIND = 0o170000
_MAY_BE_BARE = (stat.S_IFDIR, stat.S_IFCHR)
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def is_bare(found: os.stat_result) -> bool:
    """Whether only the mode of an entry counts, because the rest changes without it.

    In an upper layer of an overlay, a character device 0:0 marks a deleted name. All of them may be
    hard links of one device, whose times then change with every deletion.
    """
    return stat.S_ISDIR(found.st_mode) or (stat.S_ISCHR(found.st_mode) and found.st_rdev == 0)


def fields_of(found: os.stat_result) -> tuple[int, ...]:
    """The integers of a status."""
    return (found.st_mode, 0, 0, 0, 0, 0) if is_bare(found) else _fields(found)


def rows_of(found: list[os.stat_result]) -> list[tuple[int, ...]]:
    """The integers of each status."""
    rows: list[tuple[int, ...]] = list(map(_fields, found))
    if any(mode & _KIND in _MAY_BE_BARE for mode in {row[0] for row in rows}):
        rows = [fields_of(each) for each in found]
    return rows


def have_statuses(directory: int, names: list[str] | list[bytes], statuses: bytes) -> bool:
    """Whether the entries *names* of an open directory have these packed statuses."""
    status = os.stat
    try:
        found = [status(name, dir_fd=directory, follow_symlinks=False) for name in names]
    except OSError:
        return False
    known = list(_unpacked(statuses))
    # First as if all were files: known entries that are bare differ then
    return list(map(_fields, found)) == known or rows_of(found) == known


def _is_same(top: int, table: memoryview, row: list[int]) -> bool:
    directory = os.open(bytes(table[row[PATH] : row[NAMES]]), _LIST, dir_fd=top)
    try:
        names = bytes(table[row[NAMES] : row[STATUSES]]).split(b"\0")
        return have_statuses(directory, names, bytes(table[row[STATUSES] : row[END]]))
    finally:
        os.close(directory)


def main() -> None:
    """Answer for all rows."""
    table = memoryview(mmap.mmap(int(sys.argv[1]), 0))
    top = int(sys.argv[2])
    n_rows: int = table[:8].cast("q")[0]
    rows = table[8 : 8 + 8 * N_COLUMNS * n_rows].cast("q")
    for start in range(N_COLUMNS * (n_rows - 1), -1, -N_COLUMNS):
        try:
            is_same = _is_same(top, table, rows[start : start + N_COLUMNS].tolist())
        except OSError:
            is_same = False
        rows[start + ANSWER] = SAME if is_same else LOOK


if __name__ == "__main__":
    main()
