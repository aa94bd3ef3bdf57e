"""What the files looked like when they were last seen, so that opening need not read them all.

An index of statuses is worth something only together with the tree of the same moment: with a
newer tree, a file that came and went in between would not be missed. So the tree's id is part of
the index's name, and an index is used only while an entry of the history keeps that tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from wink_workspace.filesystem.changes.index import FileIndex

__all__ = ["load_last_seen", "save_last_seen"]


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
