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
from collections.abc import Callable, Container, Generator, Iterable, Iterator
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
class GarbageCollection:
    """A garbage collection: what it may delete, and how.

    Attributes:
        store: The objects.
        lock: Excludes moves of refs during a deletion.
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
        steps: Receives the progress.
    """

    store: ObjectStore
    lock: DeletionLock
    forgotten: Container[str] = ()
    spared: Container[str] = ()
    is_alone: bool
    alone: Callable[[], AbstractContextManager[bool]]
    started: float
    with_deltas: bool = False
    most_copied: float = math.inf
    other_trees: Callable[[], Iterable[str]] = tuple
    steps: Steps = no_steps

    def run(self, n_commits: int) -> Iterator[None]:
        """Join packs and delete garbage. It may be repeated, also after a crash.

        *n_commits* is how many commits are kept, for the progress.

        Raises:
            LedgerError: If an object cannot be read, written or deleted; no reachable object is
                lost.
        """
        store, packs = self.store, list[Pack]()
        store.packs.correct_times(self._is_in_future, self.started - _BEFORE_S)
        # Unfinished files of dead processes; others are recognised by their age
        store.packs.delete_leftovers(self.started if self.is_alone else self.started - _GRACE_S)
        kept = {EMPTY_TREE_ID}
        yield from self._marking(
            kept, lambda n_done: self.steps("reading entries", n_done, n_commits)
        )
        for path in store.packs.paths():
            packs.append((yield from store.packs.loading(path)))
        in_open = (yield from store.open_packs.finding_sizes()).keys()
        if self.is_alone and not kept.difference(in_open, _objects_in(packs), [EMPTY_TREE_ID]):
            # Otherwise one may contain a missing object
            with self.alone() as is_still_alone:  # a new writer may be about to write an index
                if is_still_alone:
                    store.packs.delete_unindexed(self.started)
        with store.open_packs.left_large() as deltas:
            for n, each in enumerate(deltas):
                if self._is_in_future(each.made):
                    deltas[n] = replace(each, made=self.started - _BEFORE_S)
            yield from self._rewriting(kept, packs, deltas)
        store.forget()

    def _is_in_future(self, time: float) -> bool:
        """Whether a file's time is later than now, so that its age says nothing."""
        if time <= self.started + _MOST_AHEAD_S:
            return False
        return time > self.lock.filesystem_time() + _MOST_AHEAD_S  # it may have begun long ago

    def _may_delete(self, object_id: str, used: float) -> bool:
        """Whether an unreachable object may be deleted that was last used at a time."""
        if used >= self.started or object_id in self.spared:
            return False
        return self.is_alone or used < self.started - _GRACE_S or object_id in self.forgotten

    def _rewriting(
        self, kept: set[str], packs: list[Pack], deltas: list[Pack]
    ) -> Generator[None, None, None]:
        """Join *packs*, and delete what is not *kept*; *deltas* are open packs of large files."""
        shared = [pack for pack in packs if pack.is_shared]
        large = [pack for pack in _except(packs, shared) if is_large_pack(pack.path)]
        small = _except(packs, [*shared, *large])
        present = _objects_in([*shared, *large])  # a second copy is waste
        needed = yield from self._needed(small, kept, present)
        replaced = self._to_rewrite(small, needed)
        present = _objects_in(_except(packs, replaced))
        for pack in replaced:
            ids = needed[pack.path]
            needed[pack.path] = yield from _those(ids, lambda each: each not in present)
        needed |= yield from self._needed([*large, *deltas], kept, ())
        unneeded = [pack for pack in [*replaced, *large, *deltas] if not needed[pack.path]]
        packs, replaced, deltas = (_except(each, unneeded) for each in (packs, replaced, deltas))
        staying = _except(packs, replaced)
        # Unneeded files first, so that new packs have their space
        yield from self._deleting(unneeded, kept, staying)
        for sources in self._batches(replaced, needed):
            new = yield from self._replacement(sources, kept)
            if new is None:  # the disk is full
                return
            passed(KillPoint.PACK_WRITTEN)
            staying += new
            old = _except([each.pack for each in sources], new)
            yield from self._deleting(old, kept, staying)
        if self.with_deltas:
            old, new = yield from self._large_replacement(staying, deltas, needed)
            passed(KillPoint.PACK_WRITTEN)
            staying = _except(staying, old) + new
            yield from self._deleting(_except(old, new), kept, staying)

    def _needed(
        self, packs: list[Pack], kept: set[str], present: Container[str]
    ) -> Generator[None, None, dict[Path, list[str]]]:
        """What must be kept of each pack, by path: neither garbage nor *present* elsewhere."""
        needed: dict[Path, list[str]] = {}
        for pack in packs:
            needed[pack.path] = yield from _those(
                pack.disk_bytes,
                lambda each, made=pack.made: (
                    each not in present and (each in kept or not self._may_delete(each, made))
                ),
            )
        return needed

    def _to_rewrite(self, packs: list[Pack], needed: dict[Path, list[str]]) -> list[Pack]:
        """The packs with much garbage, without deltas and, if there are many, others."""
        wasteful: list[Pack] = []
        for pack in packs:
            lacks_deltas = (
                self.with_deltas
                and len(pack.disk_bytes) >= _MIN_TO_PACK
                and not self.store.packs.has_deltas(pack.path)
            )
            n_bytes = max(1, sum(pack.disk_bytes.values()))
            if lacks_deltas or 1 - _bytes_of(pack, needed) / n_bytes > _MAX_WASTE:
                wasteful.append(pack)
        if len(packs) - len(wasteful) <= _MAX_PACKS:
            return wasteful
        rest = _except(packs, wasteful)
        return [*wasteful, *_smaller(rest, lambda each: _pack_bytes(each.path), self.most_copied)]

    def _batches(self, packs: list[Pack], needed: dict[Path, list[str]]) -> Iterator[list[Source]]:
        """What to keep of *packs*, ``most_copied`` bytes at a time unless one pack has more."""
        batch, n_bytes = list[Source](), 0
        for pack in packs:
            size = _bytes_of(pack, needed)
            if batch and n_bytes + size > self.most_copied:
                yield batch
                batch, n_bytes = [], 0
            batch.append(Source(pack, needed[pack.path]))
            n_bytes += size
        if batch:
            yield batch

    def _replacement(
        self, sources: list[Source], kept: set[str]
    ) -> Generator[None, None, list[Pack] | None]:
        """Write what is to be kept of packs to a new one; ``None`` if the disk is full."""
        store, ids = self.store, set[str]().union(*(source.ids for source in sources))
        before = set(store.packs.paths())
        try:
            if self.with_deltas:
                store.repository.pack(
                    sorted(ids), on_progress=lambda n: self.steps("packing objects", n, len(ids))
                )
                self.steps("packing objects", len(ids), len(ids))
            else:
                yield from repacking(store.repository, store.packs, sources)
        except LedgerError as error:
            needed = sum(sum(source.pack.disk_bytes.values()) for source in sources)
            if not is_disk_full(error) and store.free_bytes() > needed:  # libgit2 has no number
                raise
            _log.warning("The disk is too full to pack objects; they stay as they are.")
            return None
        # Old ones last, because a new pack may equal one
        for path in sorted(store.packs.paths(), key=before.__contains__):
            pack = yield from store.packs.loading(path)
            if pack.disk_bytes.keys() == ids:
                break
        else:
            raise LedgerDamagedError(
                "a new pack does not contain the objects that were written to it"
            )
        if self.with_deltas:
            store.packs.note_deltas(pack.path)
        spared = [each.pack.made for each in sources if not kept.issuperset(each.ids)]
        store.packs.set_made(pack.path, max(spared, default=ENDED_CALLS))
        return [pack]

    def _large_replacement(
        self, packs: list[Pack], deltas: list[Pack], needed: dict[Path, list[str]]
    ) -> Generator[None, None, tuple[list[Pack], list[Pack]]]:
        """Join each base of a large file with its deltas; the packs they replace, and the new ones.

        Only ``gc`` does this, since it copies each large file.
        """
        store, replaced, new = self.store, list[Pack](), list[Pack]()
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

    def _deleting(
        self, replaced: list[Pack], kept: set[str], staying: list[Pack]
    ) -> Iterator[None]:
        """Delete packs whose reachable objects are in *staying* ones; completes *kept*."""
        if not replaced:
            return
        store, lost = self.store, _objects_in(replaced) - _objects_in(staying)
        with ledger_failures("what replaces old history cannot be synced"):
            sync_filesystem(store.repository.directory)
        for _ in range(_MAX_TRIES):
            with self.lock.exclusively() as is_locked:
                if is_locked:
                    for _ in self._marking(kept):
                        pass
                    if kept.isdisjoint(lost):
                        self.lock.advance()
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

    def _marking(
        self, seen: set[str], on_progress: Callable[[int], object] = bool
    ) -> Iterator[None]:
        """Add to *seen* all that refs and other roots lead to; skips what its commits lead to."""
        store, n_done = self.store, 0
        ends = store.repository.boundary()
        store.find_bases()
        for commit_id in store.repository.refs().values():
            following: str | None = commit_id
            while following is not None and following not in seen:
                commit = parse_commit(following, store.read(following, "commit"))
                for _ in objects_of(store, following, seen):
                    yield
                n_done += 1
                on_progress(n_done)
                following = None if following in ends else commit.parent
        for root in self.other_trees():
            if root not in seen and root in store.repository:
                for _ in _objects_of_tree(store, root, seen):
                    yield


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
    items: Iterable[_Item], test: Callable[[_Item], bool]
) -> Generator[None, None, list[_Item]]:
    """The items that pass *test*."""
    found: list[_Item] = []
    for n, item in enumerate(items):
        if test(item):
            found.append(item)
        if n % OBJECTS_PER_STEP == 0:
            yield
    return found


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


def _bytes_of(pack: Pack, needed: dict[Path, list[str]]) -> int:
    return sum(map(pack.disk_bytes.__getitem__, needed[pack.path]))


def _objects_in(packs: Iterable[Pack]) -> set[str]:
    return set[str]().union(*(pack.disk_bytes for pack in packs))


def _except(packs: list[Pack], others: list[Pack]) -> list[Pack]:
    paths = {pack.path for pack in others}
    return [pack for pack in packs if pack.path not in paths]
