"""The steps of the durable protocols at which a test may end the process or raise an error.

Code that changes something durable calls ``passed`` after each step. Without a hook this costs one
comparison. A test sets the hook for a ``with`` block::

    with calling(hook), Workspace(folder) as workspace:
        ...

Constructors and public functions have no parameter for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum

__all__ = ["KillPoint", "calling", "passed"]


class KillPoint(StrEnum):
    """The step that was just completed."""

    MARK_WRITTEN = "mark-written"
    """The pending mark is written under a temporary name."""
    MARK_IN_PLACE = "mark-in-place"
    """The pending mark is renamed to its final name."""
    MARK_REMOVED = "mark-removed"
    """The pending mark is removed."""
    EFFECT_PLANNED = "effect-planned"
    """The effect journal has the planned changes of some paths; no path is changed yet."""
    EFFECT_IN_PROGRESS = "effect-in-progress"
    """New files have their names; the files they replace have temporary names."""
    EFFECT_DONE = "effect-done"
    """The files with temporary names are removed."""
    SOURCE_READ = "source-read"
    """The source's files are stored in the ledger; the source is not written yet."""
    SOURCE_WRITTEN = "source-written"
    """All changes are written to the source; this is not recorded yet."""
    TREES_WRITTEN = "trees-written"
    """All objects that a commit refers to are written."""
    COMMIT_WRITTEN = "commit-written"
    """The commit is written; no ref points to it."""
    REF_LOCKED = "ref-locked"
    """The ref's lock holds the new value; the ref has the old one."""
    REF_MOVED = "ref-moved"
    """The ref names the commit: the commit point is passed."""
    FORK_DELETED = "fork-deleted"
    """The ref of a deleted fork is gone; its lock and its pending mark still exist."""
    PACK_WRITTEN = "pack-written"
    """A pack has all objects that are kept; nothing is deleted yet."""
    LARGE_FILE_WRITTEN = "large-file-written"
    """A large file is written to a pack of its own, under a temporary name."""
    OPEN_PACK_LINKED = "open-pack-linked"
    """An open pack has its final name as well; it has no index yet."""
    OPEN_PACK_SEALED = "open-pack-sealed"
    """An open pack is an ordinary pack; its former names still exist."""
    OPEN_PACK_DELETED = "open-pack-deleted"
    """The former name of the data of a sealed pack is deleted; its rows still exist."""
    PACK_INVALIDATED = "pack-invalidated"
    """The index of one more pack that was replaced is deleted."""
    PACK_DELETED = "pack-deleted"
    """One more pack is deleted."""
    BOUNDARY_MOVED = "boundary-moved"
    """Older entries are no longer part of the history; their objects still exist."""
    DISCARD_FORGOTTEN = "discard-forgotten"
    """One more ref to discarded files is deleted."""
    HELD_PLANNED = "held-planned"
    """The plan of a restore lists what it will move aside; nothing is moved yet."""
    HELD_MOVED = "held-moved"
    """One more path is moved aside."""
    HELD_TRIMMED = "held-trimmed"
    """The plan lists the files that are not kept; none of them is deleted yet."""
    HELD_KEPT = "held-kept"
    """The files that were moved aside are in the history, and still on disk."""
    DERIVED_REMOVED = "derived-removed"
    """One more derived path that a failed call changed is removed."""
    DERIVED_RESTORED = "derived-restored"
    """One more derived path is restored from the checkpoint."""
    CHECKPOINT_COPIED = "checkpoint-copied"
    """A new checkpoint is complete; the one before still counts."""
    CHECKPOINT_REPLACED = "checkpoint-replaced"
    """The checkpoint before has another name; the new one does not have its name yet."""
    HELD_DELETED = "held-deleted"
    """The files that were moved aside are about to be deleted, and are not read again."""
    CONTAINER_NOTED = "container-noted"
    """The note names a container; the container does not have the workspace yet."""
    WORKSPACE_ATTACHED = "workspace-attached"
    """The container has the workspace; the mount is not probed yet."""
    BASE_NAMED = "base-named"
    """A branch on an overlay names its base; it has no layer of its own yet."""
    LAYER_NAMED = "layer-named"
    """A branch names a layer for its derived paths, which does not exist yet."""
    DERIVED_FROZEN = "derived-frozen"
    """One more derived path is moved into the layer that forks share."""
    UPPER_FILLED = "upper-filled"
    """The layer of a branch differs from the base as wanted, under a temporary name."""
    UPPER_IN_PLACE = "upper-in-place"
    """The layer of a branch has its final name."""
    FOLD_BEGUN = "fold-begun"
    """A large layer lost its name; the branch begins again with its newest entry."""
    BASE_FILLED = "base-filled"
    """The files and objects of a new base are written, under a temporary name."""
    BASE_PLACED = "base-placed"
    """A new base has its final name."""
    FOLDER_RETIRED = "folder-retired"
    """A base or copy that is no longer used lost its name; its files still exist."""
    OBJECTS_LINKED = "objects-linked"
    """One more file with objects of a base is linked into a ledger."""
    BUNDLE_OBJECTS_READ = "bundle-objects-read"
    """The objects of a bundle are in the ledger; no ref leads to them."""
    BUNDLE_WRITTEN = "bundle-written"
    """A bundle is complete under a temporary name."""
    SOURCE_INDEXED = "source-indexed"
    """The statuses of a source's files are stored."""


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
