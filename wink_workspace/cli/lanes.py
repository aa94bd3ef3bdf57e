"""Branches as lanes: the characters that ``log --graph`` draws before each entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wink_workspace.ledger import LogEntry

__all__ = ["lanes_of"]


def lanes_of(entries: Iterable[LogEntry]) -> Iterator[tuple[str, LogEntry]]:
    """Each entry with its lanes, such as ``| *``.

    Args:
        entries: Every entry before its parent.
    """
    waiting: list[str | None] = []  # for each lane, the entry that comes next in it
    for entry in entries:
        mine = [n for n, id_ in enumerate(waiting) if id_ == entry.id]
        if not mine:
            mine = [waiting.index(None) if None in waiting else len(waiting)]
            waiting[mine[0] : mine[0] + 1] = [entry.id]
        lane, *joining = mine
        drawn = ["*" if n == lane else "/" if n in joining else "|" for n in range(len(waiting))]
        yield (
            " ".join(
                sign if waiting[n] is not None else " " for n, sign in enumerate(drawn)
            ).rstrip(),
            entry,
        )
        waiting[lane] = entry.parent
        for n in joining:
            waiting[n] = None
        while waiting and waiting[-1] is None:
            waiting.pop()
