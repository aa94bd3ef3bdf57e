"""Garbage collection: join packs, and delete unreachable objects. No other module deletes objects.

Everything here is a generator that pauses often, so that it can run in small steps between calls.
Other processes may write meanwhile (``leases.py``).

Rule 1: reachable are the objects that a ref leads to, up to the boundary of the history, the trees
that the caller names, and the empty tree. If one of them cannot be read, nothing is deleted.
Rule 2: an unreachable object may belong to a call in progress. It is deleted if no other process
writes, if it belongs to an entry that was just forgotten, or if it is older than ``_GRACE_S``. A
pack of ended calls counts as old.
Nothing is deleted that was added or used since the collection began. A file from the future was
written before the clock was set right; it counts as written just before the collection.
Rule 3: a reachable object is deleted only after a pack that contains it is in place. Before
anything is deleted, that pack and the refs would survive a loss of power: after one, a ref may
again lead to what it led to before.
Rule 4: what is reachable is determined again under the lock under which objects are deleted.

A crash in the middle leaves unreachable objects, some of which refer to deleted ones. Plain git
and ``git fsck`` accept this, and the next collection deletes them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import EntryMissingError, LedgerDamagedError, LedgerError
from wink_workspace.ledger.entries.commits import parse_commit
from wink_workspace.ledger.store.disk import is_disk_full, ledger_failures, sync_filesystem
from wink_workspace.ledger.store.git_tree import EMPTY_TREE, EMPTY_TREE_ID
from wink_workspace.ledger.store.large_files import is_large_pack
from wink_workspace.ledger.store.leases import DeletionLock
from wink_workspace.ledger.store.objects import ObjectStore
from wink_workspace.ledger.store.packs import ENDED_CALLS, OBJECTS_PER_STEP, Pack, is_shared
from wink_workspace.ledger.store.repacking import Source, repacking

Steps: TypeAlias = Callable[[str, int, int], None]
"""Called repeatedly with the present step, the number of items done, and their total."""

_log = logging.getLogger(__name__)

_Item = TypeVar("_Item")

_MAX_PACKS: Final = 8
_MAX_PACKS_BETWEEN_CALLS: Final = 16
_MAX_WASTE: Final = 0.2
_MIN_TO_PACK: Final = 50
_GRACE_S: Final = 3_600
_MOST_AHEAD_S: Final = 60
_BEFORE_S: Final = 1
_MAX_TRIES: Final = 1_000


def no_steps(what: str, n_done: int, n_all: int) -> None:
    """Ignore the progress."""
    del what, n_done, n_all


@dataclass(slots=True, kw_only=True)
class Garbage:
    """What a collection may delete, and how.

    Attributes:
        forgotten: Objects of entries that were just forgotten.
        spared: The commits of the boundary, which readers look at even if no ref leads to them.
        is_alone: Whether no other process had the ledger open for writing when it began.
        alone: Returns a block whose value is the same for now; no other process can open the
            ledger for writing before its end.
        started: The filesystem's time at which the collection began; a writer that was not there
            then adds nothing that is older.
        with_deltas: Whether to compute new deltas, which takes seconds and is one step.
        most_copied: How many bytes may be in new packs before those that they replace are deleted,
            unless one pack has more.
        other_trees: Returns further roots to keep; one that does not exist is skipped.
    """

    forgotten: Collection[str] = ()
    spared: Collection[str] = ()
    is_alone: bool
    alone: Callable[[], AbstractContextManager[bool]]
    started: float
    with_deltas: bool = False
    most_copied: float = math.inf
    other_trees: Callable[[], Collection[str]] = tuple

    def may_delete(self, object_id: str, used: float) -> bool:
        """Whether an unreachable object may be deleted that was last used at a time."""
        if used >= self.started or object_id in self.spared:
            return False
        return self.is_alone or used < self.started - _GRACE_S or object_id in self.forgotten


def collecting(
    store: ObjectStore,
    lock: DeletionLock,
    garbage: Garbage,
    *,
    n_commits: int,
    steps: Steps = no_steps,
) -> Iterator[None]:
    """Join packs and delete garbage. It may be repeated, also after a crash.

    Args:
        store: The objects.
        lock: Excludes moves of refs during a deletion.
        garbage: What may be deleted.
        n_commits: How many commits are kept, for *steps*.
        steps: Receives the progress.

    Raises:
        LedgerError: If an object cannot be read, written or deleted; no reachable object is
            lost.
    """
    store.packs.correct_times(
        lambda written: _is_in_future(written, lock, garbage), garbage.started - _BEFORE_S
    )
    _delete_leftovers(store, garbage)
    kept = {EMPTY_TREE_ID}
    yield from marking(store, kept, lambda n_done: steps("reading entries", n_done, n_commits))
    yield from _marking_trees(store, garbage, kept)
    packs = list[Pack]()
    for path in store.packs.paths():
        packs.append((yield from store.packs.loading(path)))
    in_open = (yield from store.open_packs.finding_sizes()).keys()
    if garbage.is_alone and not kept.difference(
        in_open, *(pack.disk_bytes for pack in packs), [EMPTY_TREE_ID]
    ):
        # Otherwise one may contain a missing object
        with garbage.alone() as is_still_alone:  # a new writer may be about to write an index
            if is_still_alone:
                store.packs.delete_unindexed(garbage.started)
    with store.open_packs.left_large() as deltas:
        for n, each in enumerate(deltas):
            if _is_in_future(each.made, lock, garbage):
                deltas[n] = replace(each, made=garbage.started - _BEFORE_S)
        yield from _deleting(store, lock, garbage, steps, kept, packs, deltas)
    store.forget()


def _deleting(
    store: ObjectStore,
    lock: DeletionLock,
    garbage: Garbage,
    steps: Steps,
    kept: set[str],
    packs: list[Pack],
    deltas: list[Pack],
) -> Iterator[None]:
    """Join *packs*, and delete what is not *kept*; *deltas* are open packs of large files."""
    own = [pack for pack in packs if not pack.is_shared]
    large = [pack for pack in own if is_large_pack(pack.path)]
    alone = kept - _objects_in(_except(packs, own))  # a second copy is waste
    replaced = yield from _packs_to_rewrite(store, _except(own, large), alone, garbage)
    needed = yield from _needed_objects(replaced, _except(packs, replaced), kept, garbage)
    needed |= yield from _needed_objects([*large, *deltas], [], kept, garbage)
    unneeded = [pack for pack in [*replaced, *large, *deltas] if not needed[pack.path]]
    packs, replaced, deltas = (_except(each, unneeded) for each in (packs, replaced, deltas))
    staying = _except(packs, replaced)
    # Unneeded files first, so that new packs have their space
    yield from _delete_packs(store, lock, unneeded, kept, _objects_in(staying), garbage)
    for sources in _batches(replaced, needed, garbage.most_copied):
        new = yield from _replacement(store, sources, kept, garbage, steps)
        if new is None:  # the disk is full
            return
        passed(KillPoint.PACK_WRITTEN)
        old, staying = _except([each.pack for each in sources], new), staying + new
        yield from _delete_packs(store, lock, old, kept, _objects_in(staying), garbage)
    if garbage.with_deltas:
        old, new = yield from _large_replacement(store, staying, deltas, needed)
        passed(KillPoint.PACK_WRITTEN)
        staying = _except(staying, old) + new
        yield from _delete_packs(
            store, lock, _except(old, new), kept, _objects_in(staying), garbage
        )


def _batches(
    packs: list[Pack], needed: dict[Path, list[str]], most_bytes: float
) -> Iterator[list[Source]]:
    """What to keep of *packs*, at most *most_bytes* at a time unless one pack has more."""
    batch, n_bytes = list[Source](), 0
    for pack in packs:
        size = sum(map(pack.disk_bytes.__getitem__, needed[pack.path]))
        if batch and n_bytes + size > most_bytes:
            yield batch
            batch, n_bytes = [], 0
        batch.append(Source(pack, needed[pack.path]))
        n_bytes += size
    if batch:
        yield batch


def joining(store: ObjectStore, now: float, *, most_bytes: float = math.inf) -> Generator[None]:
    """Join the smaller packs, with all their objects; neither the history nor others are read.

    A pack that may have objects of a call in progress is joined only with others like it: rule 2
    would spare the garbage of all.

    Args:
        store: The objects.
        now: The filesystem's time.
        most_bytes: How many bytes to join, since they take twice their space for a while.
    """
    own = _not_shared(store)
    spared = {path for path in own if path.stat().st_mtime >= now - _GRACE_S}
    for paths in (spared, set(own) - spared):
        smaller = _smaller(paths, _pack_bytes, most_bytes)
        joined = list[Pack]()
        for path in smaller:
            joined.append((yield from store.packs.loading(path)))
        sources = [Source(pack, pack.disk_bytes) for pack in joined]
        new = yield from repacking(store.repository, store.packs, sources)
        if new is not None:
            store.packs.set_made(new, max(pack.made for pack in joined))
        passed(KillPoint.PACK_WRITTEN)
        for pack in joined:
            if pack.path != new:
                store.packs.delete(pack.path)
                passed(KillPoint.PACK_DELETED)
                yield


def has_many_packs(store: ObjectStore, *, times: int = 1) -> bool:
    """Whether packs should be joined: there are more than *times* the usual number."""
    return len(_not_shared(store)) > times * _MAX_PACKS_BETWEEN_CALLS


def _not_shared(store: ObjectStore) -> list[Path]:
    return [path for path in store.packs.paths() if not is_shared(path) and not is_large_pack(path)]


def _is_in_future(time: float, lock: DeletionLock, garbage: Garbage) -> bool:
    """Whether a file's time is later than now, so that its age says nothing."""
    if time <= garbage.started + _MOST_AHEAD_S:
        return False
    return time > lock.filesystem_time() + _MOST_AHEAD_S  # the collection may have begun long ago


def _delete_leftovers(store: ObjectStore, garbage: Garbage) -> None:
    """Delete the unfinished files of dead processes; others are recognised by their age."""
    before = garbage.started if garbage.is_alone else garbage.started - _GRACE_S
    store.packs.delete_leftovers(before)


def _needed_objects(
    packs: list[Pack], others: list[Pack], kept: set[str], garbage: Garbage
) -> Generator[None, None, dict[Path, list[str]]]:
    """What must be kept of each of *packs*, by path: neither garbage nor in one of the *others*."""
    present = _objects_in(others)
    needed: dict[Path, list[str]] = {}
    for pack in packs:
        made = pack.made
        needed[pack.path] = yield from _those(
            pack.disk_bytes,
            lambda each, made=made: (
                each not in present and (each in kept or not garbage.may_delete(each, made))
            ),
        )
    return needed


def _replacement(
    store: ObjectStore, sources: list[Source], kept: set[str], garbage: Garbage, steps: Steps
) -> Generator[None, None, list[Pack] | None]:
    """Write what is to be kept of packs to a new one; ``None`` if the disk is full."""
    ids = set[str]().union(*(source.ids for source in sources))
    if not ids:
        return []
    before = set(store.packs.paths())
    try:
        if garbage.with_deltas:
            store.repository.pack(
                sorted(ids), on_progress=lambda n: steps("packing objects", n, len(ids))
            )
            steps("packing objects", len(ids), len(ids))
        else:
            yield from repacking(store.repository, store.packs, sources)
    except LedgerError as error:
        needed = sum(sum(source.pack.disk_bytes.values()) for source in sources)
        if not is_disk_full(error) and store.free_bytes() > needed:  # libgit2 has no error number
            raise
        _log.warning("The disk is too full to pack objects; they stay as they are.")
        return None
    new: list[Pack] = []
    # The others, because a new pack may equal an old one
    for path in sorted(store.packs.paths(), key=before.__contains__):
        pack = yield from store.packs.loading(path)
        if pack.disk_bytes.keys() == ids:
            new.append(pack)
    if not new:
        raise LedgerDamagedError("a new pack does not contain the objects that were written to it")
    if garbage.with_deltas:
        store.packs.note_deltas(new[0].path)
    spared = [each.pack.made for each in sources if not kept.issuperset(each.ids)]
    store.packs.set_made(new[0].path, max(spared, default=ENDED_CALLS))
    return new[:1]


def _large_replacement(
    store: ObjectStore, packs: list[Pack], deltas: list[Pack], needed: dict[Path, list[str]]
) -> Generator[None, None, tuple[list[Pack], list[Pack]]]:
    """Join each base of a large file with its deltas; the packs they replace, and the new ones.

    Only ``gc`` does this, since it copies each large file.
    """
    replaced, new = list[Pack](), list[Pack]()
    by_base: dict[str, list[Pack]] = {}
    for each in deltas:
        by_base.setdefault(store.base_of(needed[each.path][0]) or "", []).append(each)
    for pack in packs:
        for base in by_base.keys() & pack.disk_bytes.keys():
            kept = [base, *needed.get(pack.path, [])]
            its = by_base.pop(base)
            sources = [Source(pack, kept), *(Source(each, needed[each.path]) for each in its)]
            try:
                path = yield from repacking(store.repository, store.packs, sources)
            except LedgerError as error:
                if not is_disk_full(error):
                    raise
                _log.warning("The disk is too full to pack a large file; it stays as it is.")
                continue
            if path is not None:
                new.append(store.packs.load(path))
                replaced += its if pack.is_shared else [pack, *its]
    return replaced, new


def _delete_packs(
    store: ObjectStore,
    lock: DeletionLock,
    replaced: list[Pack],
    kept: set[str],
    packed: set[str],
    garbage: Garbage,
) -> Iterator[None]:
    lost = set[str]().union(*(pack.disk_bytes for pack in replaced)) - packed
    if replaced:
        with ledger_failures("what replaces old history cannot be synced"):
            sync_filesystem(store.repository.directory)
    for _ in range(_MAX_TRIES if replaced else 0):
        with lock.exclusively() as is_locked:
            if is_locked and _is_still_garbage(store, kept, lost, garbage):
                lock.advance()
                for pack in replaced:
                    store.packs.invalidate(pack.path)
                    passed(KillPoint.PACK_INVALIDATED)
                break
        yield
    else:
        return
    for pack in replaced:
        store.packs.delete(pack.path)
        passed(KillPoint.PACK_DELETED)
        yield


def _is_still_garbage(
    store: ObjectStore, kept: set[str], unreachable: set[str], garbage: Garbage
) -> bool:
    """Whether neither a ref nor another root leads to *unreachable* objects; completes *kept*."""
    for _ in marking(store, kept):
        pass
    for _ in _marking_trees(store, garbage, kept):
        pass
    return kept.isdisjoint(unreachable)


def _marking_trees(store: ObjectStore, garbage: Garbage, seen: set[str]) -> Iterator[None]:
    """As ``marking`` for the other roots."""
    for root in garbage.other_trees():
        if root not in seen and root in store.repository:
            for _ in _objects_of_tree(store, root, seen):
                yield


def objects_of(
    store: ObjectStore, commit_id: str, seen: set[str], before: str = EMPTY_TREE_ID
) -> Iterator[str]:
    """The objects of one commit, without its parents, that are not in *seen*; adds them to *seen*.

    Without those that the tree *before* has in the same place, if it is given.

    Raises:
        LedgerDamagedError: If a commit or tree is missing.
    """
    seen.add(commit_id)
    yield commit_id
    tree = parse_commit(commit_id, store.read(commit_id, "commit")).tree
    yield from _objects_of_tree(store, tree, seen, before)


def _objects_of_tree(
    store: ObjectStore, root: str, seen: set[str], before: str = EMPTY_TREE_ID
) -> Iterator[str]:
    """``objects_of`` for one tree."""
    trees = [(root, before)]
    while trees:
        tree_id, before = trees.pop()
        if tree_id in seen:
            continue
        seen.add(tree_id)
        yield tree_id
        old = EMPTY_TREE if before == EMPTY_TREE_ID else store.read_tree(before)
        for name, entry in store.read_tree(tree_id).rows_not_in(old):
            if entry.is_tree:
                there = old.get(name)
                trees.append((entry.id, there.id if there and there.is_tree else EMPTY_TREE_ID))
            elif entry.id not in seen:
                seen.add(entry.id)
                yield entry.id
                base = store.base_of(entry.id)
                if base is not None and base not in seen:
                    seen.add(base)
                    yield base


def check_complete(store: ObjectStore, commit_id: str, known: str | None) -> None:
    """Check that a commit has all its objects, except those that the commit *known* has too.

    Raises:
        LedgerDamagedError: If one is missing.
    """
    new, old = (
        EMPTY_TREE_ID if each is None else parse_commit(each, store.read(each, "commit")).tree
        for each in (commit_id, known)
    )
    _check_tree(store, new, old)


def has_lost_objects(store: ObjectStore, tree_id: str, known: str) -> bool:
    """Whether another process deleted objects of a tree that the tree *known* does not have."""
    if not store.repository.have_others_deleted():
        return False
    store.forget()
    try:
        _check_tree(store, tree_id, known)
    except (LedgerDamagedError, EntryMissingError):
        return True
    return False


def _check_tree(store: ObjectStore, new: str, old: str) -> None:
    for object_id in _objects_of_tree(store, new, set(), old):
        if object_id not in store.repository:
            raise LedgerDamagedError(f"object {object_id} is missing")


def finding_sizes(store: ObjectStore) -> Generator[None, None, dict[str, int]]:
    """The size of each object on disk, without those of bases and of the import."""
    sizes: dict[str, int] = {}
    for path in store.packs.paths():
        if not is_shared(path):
            sizes.update((yield from store.packs.loading(path)).disk_bytes)
    sizes.update((yield from store.open_packs.finding_sizes()))
    return sizes


def disk_bytes(store: ObjectStore) -> int:
    """The size of all objects on disk, without those of bases and of the import."""
    # By inode, since a pack that is being sealed has two names; the first of them is listed first
    return sum((store.open_packs.file_sizes() | store.packs.file_sizes()).values())


def _those(
    items: Collection[_Item], test: Callable[[_Item], bool]
) -> Generator[None, None, list[_Item]]:
    """The items that pass *test*."""
    found: list[_Item] = []
    for n, item in enumerate(items):
        if test(item):
            found.append(item)
        if n % OBJECTS_PER_STEP == 0:
            yield
    return found


def _ignore(n_done: int) -> None:
    del n_done


def marking(
    store: ObjectStore, seen: set[str], on_progress: Callable[[int], None] = _ignore
) -> Iterator[None]:
    """Add everything that refs lead to to *seen*; what a commit in it leads to is in it already."""
    ends = store.repository.boundary()
    store.find_bases()
    n_done = 0
    for commit_id in store.repository.refs().values():
        following: str | None = commit_id
        while following is not None and following not in seen:
            commit = parse_commit(following, store.read(following, "commit"))
            for _ in objects_of(store, following, seen):
                yield
            n_done += 1
            on_progress(n_done)
            following = None if following in ends else commit.parent


def _packs_to_rewrite(
    store: ObjectStore, packs: list[Pack], kept: set[str], garbage: Garbage
) -> Generator[None, None, list[Pack]]:
    """The packs to rewrite: with much garbage, without deltas and, if there are many, others."""
    wasteful: list[Pack] = []
    for pack in packs:
        lacks_deltas = (
            garbage.with_deltas
            and len(pack.disk_bytes) >= _MIN_TO_PACK
            and not store.packs.has_deltas(pack.path)
        )
        if lacks_deltas or (yield from _wasted_part(pack, kept, garbage)) > _MAX_WASTE:
            wasteful.append(pack)
    if len(packs) - len(wasteful) <= _MAX_PACKS:
        return wasteful
    rest = _except(packs, wasteful)
    return [*wasteful, *_smaller(rest, lambda pack: _pack_bytes(pack.path), garbage.most_copied)]


def _pack_bytes(index: Path) -> int:
    return index.with_suffix(".pack").stat().st_size


def _smaller(
    items: Iterable[_Item], size_of: Callable[[_Item], int], most_bytes: float
) -> list[_Item]:
    """All but those that are larger than all smaller ones together: each is rewritten rarely.

    Of these the smallest, which have *most_bytes* together; none if that is one.
    """
    found = sorted(items, key=size_of)
    sizes = [size_of(each) for each in found]
    while len(sizes) > 1 and (sizes[-1] > sum(sizes[:-1]) or sum(sizes) > most_bytes):
        sizes.pop()
    return found[: len(sizes)] if len(sizes) > 1 else []


def _wasted_part(pack: Pack, kept: set[str], garbage: Garbage) -> Generator[None, None, float]:
    wasted = yield from _those(
        pack.disk_bytes,
        lambda each: each not in kept and garbage.may_delete(each, pack.made),
    )
    return sum(map(pack.disk_bytes.__getitem__, wasted)) / max(1, sum(pack.disk_bytes.values()))


def _objects_in(packs: Iterable[Pack]) -> set[str]:
    return set[str]().union(*(pack.disk_bytes for pack in packs))


def _except(packs: list[Pack], others: list[Pack]) -> list[Pack]:
    paths = {pack.path for pack in others}
    return [pack for pack in packs if pack.path not in paths]
