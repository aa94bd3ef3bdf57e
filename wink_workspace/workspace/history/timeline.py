"""The entries of all branches, newest first, each with the lanes of the branches beside it.

A lane is a column in which the entries of one branch follow each other. Where a fork began, its
lane joins the other one. A page of a long history continues where the one before ended: the cursor
names the entry that comes next in each lane, so nothing before it is read again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from wink_workspace.errors import UsageError
from wink_workspace.ledger import LogEntry, ObjectStore, read_entry

__all__ = ["TimelineRow", "timeline"]

_CURSOR: Final = re.compile(r"(?:(?:[0-9a-f]{40}|-)(?:\.(?:[0-9a-f]{40}|-))*)?~(?:[0-9a-f.]*)")
_ID: Final = re.compile("[0-9a-f]{40}")
_MAX_CURSOR_CHARS: Final = 100_000


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One entry.

    Attributes:
        entry: The entry.
        lanes: A character for each lane: ``*`` the entry, ``|`` another branch, ``/`` one that
            joins here, a space between branches.
        branches: The branches whose newest entry it is.
        after: The cursor of the rows after this one; ``""`` if it is the last.
    """

    entry: LogEntry
    lanes: str
    branches: tuple[str, ...]
    after: str


class _Lanes:
    """The entry that comes next in each lane, and the heads that have no lane yet."""

    def __init__(self, lanes: Sequence[str | None], heads: Sequence[str]) -> None:
        self.lanes = list(lanes)
        self.heads = list(heads)

    @classmethod
    def parse(cls, cursor: str) -> _Lanes:
        if len(cursor) > _MAX_CURSOR_CHARS or not _CURSOR.fullmatch(cursor):
            raise UsageError("this is not a place in a timeline", hint="Begin with the newest.")
        lanes, _, heads = cursor.partition("~")
        return cls(
            [None if each == "-" else each for each in lanes.split(".") if each],
            _ID.findall(heads),
        )

    @property
    def cursor(self) -> str:
        if not self.waiting:
            return ""
        return f"{'.'.join(each or '-' for each in self.lanes)}~{'.'.join(self.heads)}"

    @property
    def waiting(self) -> set[str]:
        return {*filter(None, self.lanes), *self.heads}

    def take(self, entry_id: str, parent: str | None) -> str:
        """Draw the row of an entry, and let its parent come next in its lane."""
        if entry_id in self.heads:
            self.heads.remove(entry_id)
        mine = [n for n, each in enumerate(self.lanes) if each == entry_id]
        if not mine:
            mine = [self.lanes.index(None) if None in self.lanes else len(self.lanes)]
            self.lanes[mine[0] : mine[0] + 1] = [entry_id]
        lane, *joining = mine
        signs = dict.fromkeys(joining, "/") | {lane: "*"}
        drawn = [" " if each is None else signs.get(n, "|") for n, each in enumerate(self.lanes)]
        self.lanes[lane] = parent
        for n in joining:
            self.lanes[n] = None
        while self.lanes and self.lanes[-1] is None:
            self.lanes.pop()
        return "".join(drawn).rstrip()


def timeline(
    store: ObjectStore, heads: Mapping[str, str], *, after: str = ""
) -> Iterator[TimelineRow]:
    """The rows, newest first: every entry comes before its parent.

    Args:
        store: The objects.
        heads: The id of the newest entry of each branch, by the name of the branch.
        after: The cursor at which to continue.

    Raises:
        UsageError: If *after* is not a cursor.
        LedgerError: If an entry cannot be read.
    """
    ends = store.repository.boundary()
    lanes = _Lanes.parse(after) if after else _Lanes((), list(dict.fromkeys(heads.values())))
    known: dict[str, LogEntry] = {}
    while waiting := lanes.waiting:
        known = {each: known.get(each) or read_entry(store, each) for each in waiting}
        entry = max(known.values(), key=lambda each: (each.number, each.at))
        parent = None if entry.id in ends else entry.parent
        drawn = lanes.take(entry.id, parent)
        names = tuple(name for name, head in heads.items() if head == entry.id)
        yield TimelineRow(entry, drawn, names, lanes.cursor)
