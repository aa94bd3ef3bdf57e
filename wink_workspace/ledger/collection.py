"""Packing what is kept, deleting what is not: the one place where objects are deleted.

Rule 1: nobody else may be at work (``SharedLock.alone``), and no call be under way, for its
objects are referred to by nothing yet.
Rule 2: kept is what a ref leads to, up to the boundary of the history, the trees that are asked
for besides, and the empty tree. If anything of that cannot be read, nothing is deleted.
Rule 3: an object that may be kept is deleted only after a pack that has it is in place and was
read back.

Dying in the middle leaves objects that nothing leads to, some of which refer to deleted ones.
Plain git and ``git fsck`` take no offence at those, and the next collection deletes them.
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
    "has_many_packs",
    "n_unpacked",
    "no_steps",
    "objects_of",
    "pack_loose",
    "room_by_object",
]

Steps: TypeAlias = Callable[[str, int, int], None]
"""Told again and again what is being done, how much of it is, and of how much."""

_log = logging.getLogger(__name__)

_MAX_PACKS: Final = 8
# Joining them takes seconds. A session that adds a pack with every few hundred calls should not
# have to wait for that between two of them, and a lookup in so many costs microseconds.
_MAX_PACKS_AT_WORK: Final = 64
_MAX_WASTE: Final = 0.2
_WORTH_A_PACK: Final = 50


def no_steps(what: str, n_done: int, n_all: int) -> None:
    """Tell nobody."""
    del what, n_done, n_all


def collect(
    store: ObjectStore,
    n_commits: int,
    *,
    trees: Iterable[str] = (),
    steps: Steps = no_steps,
) -> None:
    """Pack what is kept, delete the rest. It may be repeated, also after dying in the middle.

    Args:
        store: Where the objects are.
        n_commits: How many commits are kept, for *steps*.
        trees: Roots that are kept as well; one that is not there is passed over.
        steps: Told how far it is.

    Raises:
        LedgerError: If something cannot be read, written or deleted; nothing that is kept is
            lost.
    """
    store.loose.delete_leftovers()
    store.packs.delete_leftovers()
    kept = _kept(store, lambda n_done: steps("reading entries", n_done, n_commits))
    for root in trees:
        if root in store.repository:
            for _ in _objects_in(store, root, kept):
                pass
    loose = list(store.loose.listed())
    packs = store.packs.listed()
    if not kept.difference((found.id for found in loose), *(pack.disk_bytes for pack in packs)):
        store.packs.delete_unindexed()  # else it may be the one that has what is missing
    replaced = _wasteful(packs, kept)
    staying = _without(packs, replaced)
    candidates = {found.id for found in loose if not store.stays_loose(found)}
    to_pack = _to_pack(candidates, kept, staying, replaced)
    if replaced or len(to_pack) >= _WORTH_A_PACK:
        try:
            new = _packed(store, to_pack, steps)
        except LedgerError as error:
            if not is_disk_full(error):
                raise
            _log.warning("There is no room on the disk to pack objects; they stay as they are.")
            staying, replaced = packs, []
        else:
            staying, replaced = staying + new, _without(replaced, new)
    passed(KillPoint.PACK_WRITTEN)
    needed = kept.difference(*(pack.disk_bytes for pack in staying))
    _delete_loose(store, [found for found in loose if found.id not in needed], steps)
    for pack in replaced:
        store.packs.delete(pack)
        passed(KillPoint.PACK_DELETED)
    store.forget()


def pack_loose(store: ObjectStore, *, steps: Steps = no_steps) -> None:
    """Pack the small loose objects, kept or not, so that none of them has a file of its own.

    Costs the number of these files: neither the history is read nor what is packed already. It
    may be repeated, and raises, as ``collect``.
    """
    store.packs.delete_leftovers()
    loose = [found for found in store.loose.listed() if store.is_small(found)]
    to_pack = {found.id for found in loose}
    to_pack.difference_update(*(pack.disk_bytes for pack in store.packs.listed()))
    _packed(store, to_pack, steps)
    passed(KillPoint.PACK_WRITTEN)
    _delete_loose(store, loose, steps)
    store.forget()


def has_many_packs(store: ObjectStore, *, at_end: bool) -> bool:
    """Whether there are so many that ``collect`` should make them fewer, now or in the end."""
    most = _MAX_PACKS if at_end else _MAX_PACKS_AT_WORK
    return len(list(store.packs.directory.glob("*.idx"))) > most


def _delete_loose(store: ObjectStore, gone: list[LooseObject], steps: Steps) -> None:
    """In the order in which the disk has them, which halves what it takes."""
    gone.sort(key=lambda found: found.inode)
    for n_done, found in enumerate(gone, start=1):
        store.loose.delete(found.id)
        passed(KillPoint.LOOSE_DELETED)
        steps("deleting files", n_done, len(gone))


def objects_of(store: ObjectStore, commit_id: str, seen: set[str]) -> Iterator[str]:
    """The objects of one commit, without its parents, that are not in *seen*, to which they go.

    Raises:
        LedgerDamagedError: If a commit or tree is missing.
    """
    seen.add(commit_id)
    yield commit_id
    yield from _objects_in(
        store, parse_commit(commit_id, store.read(commit_id, "commit")).tree, seen
    )


def _objects_in(store: ObjectStore, root: str, seen: set[str]) -> Iterator[str]:
    """As ``objects_of``, of one tree."""
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


def room_by_object(store: ObjectStore) -> dict[str, int]:
    """What each object takes on the disk."""
    room = {found.id: found.disk_bytes for found in store.loose.listed()}
    for pack in store.packs.listed():
        room.update(pack.disk_bytes)
    return room


def disk_bytes(store: ObjectStore) -> int:
    """What all objects together take on the disk; costs the number of loose objects."""
    return store.packs.disk_bytes() + sum(found.disk_bytes for found in store.loose.listed())


def n_unpacked(store: ObjectStore, *, few: int) -> int:
    """How many objects wait to be packed; an estimate that costs little if these are *few*."""
    n_loose = store.loose.count()
    if n_loose <= few:
        return n_loose
    return sum(store.is_small(found) for found in store.loose.listed())


def _kept(store: ObjectStore, on_progress: Callable[[int], None]) -> set[str]:
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


def _wasteful(packs: list[Pack], kept: set[str]) -> list[Pack]:
    """The packs to write anew: those with much that is not kept and, if there are many, others.

    One with more objects than all smaller ones stays, so that each is written anew seldom.
    """
    wasteful = [pack for pack in packs if _waste(pack, kept) > _MAX_WASTE]
    if len(packs) - len(wasteful) <= _MAX_PACKS:
        return wasteful
    joined = sorted(_without(packs, wasteful), key=lambda pack: len(pack.disk_bytes))
    while len(joined) > 1 and len(joined[-1].disk_bytes) > sum(
        len(pack.disk_bytes) for pack in joined[:-1]
    ):
        joined.pop()
    return [*wasteful, *joined]


def _waste(pack: Pack, kept: set[str]) -> float:
    wasted = sum(room for object_id, room in pack.disk_bytes.items() if object_id not in kept)
    return wasted / max(1, sum(pack.disk_bytes.values()))


def _without(packs: list[Pack], others: list[Pack]) -> list[Pack]:
    paths = {pack.path for pack in others}
    return [pack for pack in packs if pack.path not in paths]


def _to_pack(
    candidates: set[str], kept: set[str], staying: Iterable[Pack], replaced: Iterable[Pack]
) -> set[str]:
    """Of the loose *candidates* and of what is in replaced packs, what needs a new place."""
    to_pack = candidates.union(*(pack.disk_bytes for pack in replaced)) & kept
    return to_pack.difference(*(pack.disk_bytes for pack in staying))


def _packed(store: ObjectStore, object_ids: set[str], steps: Steps) -> list[Pack]:
    """The new pack, if there was anything to pack; read back to see that nothing is missing."""
    if not object_ids:
        return []
    n_all = len(object_ids)
    store.repository.pack(
        sorted(object_ids), on_progress=lambda n_read: steps("packing objects", n_read, n_all)
    )
    steps("packing objects", n_all, n_all)
    new = [pack for pack in store.packs.listed() if pack.disk_bytes.keys() == object_ids]
    if not new:
        raise LedgerDamagedError("a new pack does not have the objects that it was made of")
    return new[:1]
