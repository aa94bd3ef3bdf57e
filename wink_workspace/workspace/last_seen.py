"""What the files looked like when they were last seen, so that opening need not read them all.

An index of statuses is worth something only together with the tree of the same moment: with a
newer tree, a file that came and went in between would not be missed. So the tree's id is part of
the index's name, and an index is used only while an entry of the history keeps that tree.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from wink_workspace.filesystem.changes.index import FileIndex, Status, status_of
from wink_workspace.filesystem.disk.descriptors import Parts

__all__ = ["SeenWhenMade", "load_last_seen", "save_last_seen"]


_MOST_TRIES: Final = 10_000  # some 20 ms


class SeenWhenMade:
    """What files looked like when they were made, in a directory that nobody else knows of."""

    def __init__(self) -> None:
        self._statuses: dict[Parts, dict[str, Status]] = {(): {}}

    def add_directory(self, directory: Parts) -> None:
        """Know a directory, of whose entries nothing is known yet."""
        self._statuses.setdefault(directory, {})

    def add(self, directory: Parts, name: str, status: os.stat_result) -> None:
        """Know an entry of a directory that is known."""
        self._statuses[directory][name] = status_of(status)

    def save(self, place: Path, root: str) -> None:
        """As ``save_last_seen``, once everything is made.

        All that changes from now on gets another change time, unless the filesystem's clock
        still shows that of the entry: such entries count as unsettled.
        """
        index = FileIndex()
        with suppress(OSError):
            newest_ns = max(
                (at.changed_ns for all_of in self._statuses.values() for at in all_of.values()),
                default=0,
            )
            now_ns = _now_on_disk_ns(place.parent, after_ns=newest_ns)
            for directory, statuses in self._statuses.items():
                index.put(directory, statuses, now_ns)
            save_last_seen(place, index, root)


def _now_on_disk_ns(directory: Path, *, after_ns: int) -> int:
    """The change time of what changes now, once it is later than *after_ns*.

    Most filesystems' clocks tick every few milliseconds, for which this waits; one that ticks
    every two seconds is not waited for, and then the answer is not later.
    """
    canary = directory / "canary"
    file = os.open(canary, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        now_ns = 0
        for _ in range(_MOST_TRIES):
            os.utime(file)
            now_ns = os.fstat(file).st_ctime_ns
            if now_ns > after_ns:
                break
        return now_ns
    finally:
        os.close(file)
        canary.unlink()


def save_last_seen(place: Path, index: FileIndex, root: str) -> None:
    """Keep what was seen when the files were the tree *root*; a failure is none, it is a hint."""
    with suppress(OSError):
        index.save(place.with_name(f"{place.name}-{root}"))
        for other in _stored(place):
            if other != root:
                place.with_name(f"{place.name}-{other}").unlink(missing_ok=True)


def load_last_seen(place: Path, roots: Iterable[str]) -> tuple[FileIndex, str] | None:
    """An index and its tree, which is one of *roots*; those to be preferred come first."""
    stored = _stored(place)
    for root in roots if stored else ():
        if root in stored and (index := FileIndex.load(place.with_name(f"{place.name}-{root}"))):
            return index, root
    return None


def _stored(place: Path) -> set[str]:
    """The trees of which there is an index."""
    return {
        path.name.removeprefix(f"{place.name}-") for path in place.parent.glob(f"{place.name}-*")
    }
