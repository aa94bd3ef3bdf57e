"""The steps of the durable protocols at which a test may end the process or raise an error.

Code that changes something durable calls ``passed`` after each step. Without a hook that is one
comparison. A test sets the hook for a ``with`` block::

    with calling(hook), Workspace(folder) as workspace:
        ...

No constructor and no public function knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum

__all__ = ["KillPoint", "calling", "passed"]


class KillPoint(StrEnum):
    """What has just been done."""

    MARK_WRITTEN = "mark-written"
    """The pending mark has its content, under a temporary name."""
    MARK_IN_PLACE = "mark-in-place"
    """The pending mark has its name."""
    MARK_REMOVED = "mark-removed"
    """The pending mark is gone."""
    EFFECT_PLANNED = "effect-planned"
    """The journal says what is about to become of some paths; nothing has yet."""
    EFFECT_UNDER_WAY = "effect-under-way"
    """What is new has its name; what it took the place of has a temporary one."""
    EFFECT_DONE = "effect-done"
    """Nothing has a temporary name any more."""
    SOURCE_READ = "source-read"
    """What the source has is in the ledger; nothing is written to it yet."""
    SOURCE_WRITTEN = "source-written"
    """The source has all that it is to have; that is not recorded yet."""
    TREES_WRITTEN = "trees-written"
    """All that a commit refers to is written."""
    COMMIT_WRITTEN = "commit-written"
    """The commit is written; no ref names it."""
    REF_LOCKED = "ref-locked"
    """The ref's lock holds the new value; the ref has the old one."""
    REF_MOVED = "ref-moved"
    """The ref names the commit: the commit point is past."""
    PACK_WRITTEN = "pack-written"
    """Everything that is to be kept has its place; nothing is deleted yet."""
    LOOSE_DELETED = "loose-deleted"
    """One more loose object is deleted."""
    PACK_DELETED = "pack-deleted"
    """One more pack is deleted."""
    BOUNDARY_MOVED = "boundary-moved"
    """Older entries are no longer part of the history; their objects are still there."""
    DISCARD_FORGOTTEN = "discard-forgotten"
    """One more ref to thrown-away files is deleted."""
    HELD_PLANNED = "held-planned"
    """The plan of a restore says what it will move aside; nothing has moved yet."""
    HELD_MOVED = "held-moved"
    """One more path is moved aside."""
    HELD_TRIMMED = "held-trimmed"
    """The plan says which files are not kept; none of them is deleted yet."""
    HELD_KEPT = "held-kept"
    """What was moved aside is in the history; it is still there, too."""
    HELD_DELETED = "held-deleted"
    """What was moved aside is about to be deleted, and is not looked at again."""


_hook: Callable[[KillPoint], object] | None = None


def passed(point: KillPoint) -> None:
    """Call the hook of ``calling``, if a test has set one."""
    if _hook is not None:
        _hook(point)


@contextmanager
def calling(hook: Callable[[KillPoint], object]) -> Generator[None]:
    """Call *hook* at every kill point of the process inside the block; its exceptions propagate."""
    global _hook  # one for the process, so that no signature has to carry it
    before, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = before
