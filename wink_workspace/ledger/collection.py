"""Packing what is kept, deleting what is not: the one place where objects are deleted.

Rule 1: nobody else may be at work (``SharedLock.alone``), and no call be under way, for its
objects are referred to by nothing yet.
Rule 2: kept is what a ref leads to, up to the boundary of the history, and the empty tree. If
anything of that cannot be read, nothing is deleted.
Rule 3: an object is deleted only after a pack that has it is in place and was read back.

Dying in the middle leaves objects that nothing leads to, some of which refer to deleted ones.
Plain git and ``git fsck`` take no offence at those, and the next collection deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from wink_workspace.errors import LedgerDamagedError

from .commits import parse_commit
from .git_tree import EMPTY_TREE_ID
from .kill_points import KillPoint, KillPoints, no_kill_points
from .objects import ObjectStore
from .packs import Pack

__all__ = [
    "Room",
    "Steps",
    "collect",
    "disk_bytes",
    "no_steps",
    "objects_of",
    "room_by_object",
    "room_taken",
]

Steps: TypeAlias = Callable[[str, int, int], None]
"""Told again and again what is being done, how much of it is, and of how much."""

_MAX_PACKS: Final = 8
_MAX_WASTE: Final = 0.2
_WORTH_A_PACK: Final = 50


def no_steps(what: str, n_done: int, n_all: int) -> None:
    """Tell nobody."""
    del what, n_done, n_all


def collect(
    store: ObjectStore,
    n_commits: int,
    *,
    steps: Steps = no_steps,
    kill_points: KillPoints = no_kill_points,
) -> None:
    """Pack what is kept, delete the rest. It may be repeated, also after dying in the middle.

    Args:
        store: Where the objects are.
        n_commits: How many commits are kept, for *steps*.
        steps: Told how far it is.
        kill_points: Told of each step of the protocol.

    Raises:
        LedgerError: If something cannot be read, written or deleted; nothing that is kept is
            lost.
    """
    store.loose.delete_leftovers()
    store.packs.delete_leftovers()
    kept = _kept(store, lambda n_done: steps("reading entries", n_done, n_commits))
    loose = list(store.loose.listed())
    packs = store.packs.listed()
    replaced = _wasteful(packs, kept)
    staying = _without(packs, replaced)
    candidates = {found.id for found in loose if not store.stays_loose(found)}
    to_pack = _to_pack(candidates, kept, staying, replaced)
    if replaced or len(to_pack) >= _WORTH_A_PACK:
        steps("packing objects", 0, len(to_pack))
        new = _packed(store, to_pack)
        steps("packing objects", len(to_pack), len(to_pack))
        staying, replaced = staying + new, _without(replaced, new)
    kill_points(KillPoint.PACK_WRITTEN)
    needed = kept.difference(*(pack.disk_bytes for pack in staying))
    gone = [found.id for found in loose if found.id not in needed]
    for n_done, object_id in enumerate(gone, start=1):
        store.loose.delete(object_id)
        kill_points(KillPoint.LOOSE_DELETED)
        steps("deleting files", n_done, len(gone))
    for pack in replaced:
        store.packs.delete(pack)
        kill_points(KillPoint.PACK_DELETED)
    store.forget()


def objects_of(store: ObjectStore, commit_id: str, seen: set[str]) -> Iterator[str]:
    """The objects of one commit, without its parents, that are not in *seen*, to which they go.

    Raises:
        LedgerDamagedError: If a commit or tree is missing.
    """
    seen.add(commit_id)
    yield commit_id
    trees = [parse_commit(commit_id, store.read(commit_id, "commit")).tree]
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


@dataclass(frozen=True, slots=True)
class Room:
    """What all objects together take on the disk, and how many of them wait to be packed."""

    disk_bytes: int
    n_unpacked: int


def room_taken(store: ObjectStore) -> Room:
    """See ``Room``; costs the number of loose objects."""
    taken_bytes, n_unpacked = store.packs.disk_bytes(), 0
    for found in store.loose.listed():
        taken_bytes += found.disk_bytes
        n_unpacked += store.is_small(found)
    return Room(taken_bytes, n_unpacked)


def disk_bytes(store: ObjectStore) -> int:
    """What all objects together take on the disk."""
    return room_taken(store).disk_bytes


def _kept(store: ObjectStore, tell: Callable[[int], None]) -> set[str]:
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
            tell(n_done)
            following = None if following in ends else commit.parent
    return seen


def _wasteful(packs: list[Pack], kept: set[str]) -> list[Pack]:
    """The packs to write anew: those with much that is not kept, or all if there are many."""
    wasteful = [pack for pack in packs if _waste(pack, kept) > _MAX_WASTE]
    return packs if len(packs) - len(wasteful) > _MAX_PACKS else wasteful


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


def _packed(store: ObjectStore, object_ids: set[str]) -> list[Pack]:
    """The new pack, if there was anything to pack; read back to see that nothing is missing."""
    if not object_ids:
        return []
    store.repository.pack(sorted(object_ids))
    new = [pack for pack in store.packs.listed() if pack.disk_bytes.keys() == object_ids]
    if not new:
        raise LedgerDamagedError("a new pack does not have the objects that it was made of")
    return new[:1]
