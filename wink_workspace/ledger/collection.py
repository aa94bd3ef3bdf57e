"""Garbage collection: pack reachable objects, delete the others. No other module deletes objects.

Rule 1: no other process may write (``SharedLock.alone``), and no call may be in progress: no ref
leads to the objects of a call before its commit.
Rule 2: reachable are the objects that a ref leads to, up to the boundary of the history, the trees
that the caller names, and the empty tree. If one of them cannot be read, nothing is deleted.
Rule 3: a reachable object is deleted only after a pack that contains it is in place and was read
back.

A crash in the middle leaves unreachable objects, some of which refer to deleted ones. Plain git
and ``git fsck`` accept this, and the next collection deletes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import LedgerDamagedError, LedgerError

from .commits import parse_commit
from .disk import is_disk_full
from .git_tree import EMPTY_TREE_ID
from .loose import LooseObject
from .objects import ObjectStore
from .packs import Pack

__all__ = [
    "Steps",
    "collect",
    "disk_bytes",
    "disk_bytes_by_object",
    "has_many_packs",
    "n_unpacked",
    "no_steps",
    "objects_of",
    "pack_loose",
]

Steps: TypeAlias = Callable[[str, int, int], None]
"""Called repeatedly with the present step, the number of items done, and their total."""

_log = logging.getLogger(__name__)

_MAX_PACKS: Final = 8
# Joining packs takes seconds. A session that adds a pack every few hundred calls should not wait
# for that between two calls, and a lookup in this many packs costs microseconds.
_MAX_PACKS_BETWEEN_CALLS: Final = 64
_MAX_WASTE: Final = 0.2
_MIN_TO_PACK: Final = 50


def no_steps(what: str, n_done: int, n_all: int) -> None:
    """Ignore the progress."""
    del what, n_done, n_all


def collect(
    store: ObjectStore,
    n_commits: int,
    *,
    trees: Iterable[str] = (),
    steps: Steps = no_steps,
) -> None:
    """Pack reachable objects and delete the rest. It may be repeated, also after a crash.

    Args:
        store: The objects.
        n_commits: How many commits are kept, for *steps*.
        trees: Further roots to keep; a root that does not exist is skipped.
        steps: Receives the progress.

    Raises:
        LedgerError: If an object cannot be read, written or deleted; no reachable object is
            lost.
    """
    store.loose.delete_leftovers()
    store.packs.delete_leftovers()
    kept = _reachable(store, lambda n_done: steps("reading entries", n_done, n_commits))
    for root in trees:
        if root in store.repository:
            for _ in _objects_in(store, root, kept):
                pass
    loose = list(store.loose.listed())
    packs = store.packs.listed()
    if not kept.difference((found.id for found in loose), *(pack.disk_bytes for pack in packs)):
        store.packs.delete_unindexed()  # otherwise one may contain a missing object
    replaced = _packs_to_rewrite([pack for pack in packs if not pack.is_shared], kept)
    staying = _except(packs, replaced)
    candidates = {found.id for found in loose if not store.stays_loose(found)}
    to_pack = _to_pack(candidates, kept, staying, replaced)
    if replaced or len(to_pack) >= _MIN_TO_PACK:
        try:
            new = _write_pack(store, to_pack, steps)
        except LedgerError as error:
            if not is_disk_full(error):
                raise
            _log.warning("The disk is too full to pack objects; they stay unpacked.")
            staying, replaced = packs, []
        else:
            staying, replaced = staying + new, _except(replaced, new)
    passed(KillPoint.PACK_WRITTEN)
    needed = kept.difference(*(pack.disk_bytes for pack in staying))
    _delete_loose(store, [found for found in loose if found.id not in needed], steps)
    for pack in replaced:
        store.packs.delete(pack)
        passed(KillPoint.PACK_DELETED)
    store.forget()


def pack_loose(store: ObjectStore, *, steps: Steps = no_steps) -> None:
    """Pack the small loose objects, reachable or not.

    The cost follows their number: neither the history nor packed objects are read. It may be
    repeated, and raises the errors of ``collect``.
    """
    store.packs.delete_leftovers()
    loose = [found for found in store.loose.listed() if store.is_small(found)]
    to_pack = {found.id for found in loose}
    to_pack.difference_update(*(pack.disk_bytes for pack in store.packs.listed()))
    _write_pack(store, to_pack, steps)
    passed(KillPoint.PACK_WRITTEN)
    _delete_loose(store, loose, steps)
    store.forget()


def has_many_packs(store: ObjectStore, *, at_end: bool) -> bool:
    """Whether ``collect`` should join packs; *at_end* uses a lower limit."""
    most = _MAX_PACKS if at_end else _MAX_PACKS_BETWEEN_CALLS
    return len(list(store.packs.directory.glob("*.idx"))) > most


def _delete_loose(store: ObjectStore, unneeded: list[LooseObject], steps: Steps) -> None:
    """Delete in inode order, which takes half the time."""
    unneeded.sort(key=lambda found: found.inode)
    for n_done, found in enumerate(unneeded, start=1):
        store.loose.delete(found.id)
        passed(KillPoint.LOOSE_DELETED)
        steps("deleting files", n_done, len(unneeded))


def objects_of(store: ObjectStore, commit_id: str, seen: set[str]) -> Iterator[str]:
    """The objects of one commit, without its parents, that are not in *seen*; adds them to *seen*.

    Raises:
        LedgerDamagedError: If a commit or tree is missing.
    """
    seen.add(commit_id)
    yield commit_id
    yield from _objects_in(
        store, parse_commit(commit_id, store.read(commit_id, "commit")).tree, seen
    )


def _objects_in(store: ObjectStore, root: str, seen: set[str]) -> Iterator[str]:
    """``objects_of`` for one tree."""
    trees = [root]
    while trees:
        tree_id = trees.pop()
        if tree_id in seen:
            continue
        seen.add(tree_id)
        yield tree_id
        for _, entry in store.read_tree(tree_id):
            if entry.is_tree:
                trees.append(entry.id)
            elif entry.id not in seen:
                seen.add(entry.id)
                yield entry.id


def disk_bytes_by_object(store: ObjectStore) -> dict[str, int]:
    """The size of each object on disk, without those that belong to a base."""
    sizes = {found.id: found.disk_bytes for found in store.loose.listed() if not found.is_shared}
    for pack in store.packs.listed():
        if not pack.is_shared:
            sizes.update(pack.disk_bytes)
    return sizes


def disk_bytes(store: ObjectStore) -> int:
    """The size of all objects on disk, without those that belong to a base.

    It costs the number of loose objects.
    """
    loose = (found.disk_bytes for found in store.loose.listed() if not found.is_shared)
    return store.packs.disk_bytes() + sum(loose)


def n_unpacked(store: ObjectStore, *, few: int) -> int:
    """How many objects are to be packed: a cheap estimate if there are at most *few*."""
    n_loose = store.loose.count()
    if n_loose <= few:
        return n_loose
    return sum(store.is_small(found) for found in store.loose.listed())


def _reachable(store: ObjectStore, on_progress: Callable[[int], None]) -> set[str]:
    ends = store.repository.boundary()
    seen = {EMPTY_TREE_ID}
    n_done = 0
    for commit_id in store.repository.refs().values():
        following: str | None = commit_id
        while following is not None and following not in seen:
            commit = parse_commit(following, store.read(following, "commit"))
            for _ in objects_of(store, following, seen):
                pass
            n_done += 1
            on_progress(n_done)
            following = None if following in ends else commit.parent
    return seen


def _packs_to_rewrite(packs: list[Pack], kept: set[str]) -> list[Pack]:
    """The packs to rewrite: those with much unreachable data and, if there are many, others.

    A pack with more objects than all smaller packs together stays, so each is rewritten rarely.
    """
    wasteful = [pack for pack in packs if _wasted_part(pack, kept) > _MAX_WASTE]
    if len(packs) - len(wasteful) <= _MAX_PACKS:
        return wasteful
    joined = sorted(_except(packs, wasteful), key=lambda pack: len(pack.disk_bytes))
    while len(joined) > 1 and len(joined[-1].disk_bytes) > sum(
        len(pack.disk_bytes) for pack in joined[:-1]
    ):
        joined.pop()
    return [*wasteful, *joined]


def _wasted_part(pack: Pack, kept: set[str]) -> float:
    wasted = sum(size for object_id, size in pack.disk_bytes.items() if object_id not in kept)
    return wasted / max(1, sum(pack.disk_bytes.values()))


def _except(packs: list[Pack], others: list[Pack]) -> list[Pack]:
    paths = {pack.path for pack in others}
    return [pack for pack in packs if pack.path not in paths]


def _to_pack(
    candidates: set[str], kept: set[str], staying: Iterable[Pack], replaced: Iterable[Pack]
) -> set[str]:
    """The kept objects of *candidates* and *replaced* packs that no staying pack contains."""
    to_pack = candidates.union(*(pack.disk_bytes for pack in replaced)) & kept
    return to_pack.difference(*(pack.disk_bytes for pack in staying))


def _write_pack(store: ObjectStore, object_ids: set[str], steps: Steps) -> list[Pack]:
    """The new pack, read back to check it; none if there are no objects to pack."""
    if not object_ids:
        return []
    n_all = len(object_ids)
    store.repository.pack(
        sorted(object_ids), on_progress=lambda n_read: steps("packing objects", n_read, n_all)
    )
    steps("packing objects", n_all, n_all)
    new = [pack for pack in store.packs.listed() if pack.disk_bytes.keys() == object_ids]
    if not new:
        raise LedgerDamagedError("a new pack does not contain the objects that were written to it")
    return new[:1]
