"""Damage in a ledger: what it takes from which entries, and packs that are written again.

Rule 1: every object that can still be read is in another pack, and on the device, before a damaged
pack loses its name. Maintenance deletes that pack when no object is missing any more.
Rule 2: entries are given up if their record or a directory cannot be read, and with them all older
ones of the branch: the history begins after them, as after those that retention removed.
Rule 3: each step may be repeated, also after a crash.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import LedgerDamagedError, LedgerError
from wink_workspace.ledger.entries.commits import parse_commit
from wink_workspace.ledger.entries.history import Branch, LogEntry, read_entry
from wink_workspace.ledger.store.disk import ledger_failures, sync_filesystem
from wink_workspace.ledger.store.git_tree import EMPTY_TREE_ID
from wink_workspace.ledger.store.names import workspace_name
from wink_workspace.ledger.store.objects import ObjectStore
from wink_workspace.ledger.store.pack_reading import is_whole_pack, readable_objects
from wink_workspace.ledger.store.packs import KEEP, is_shared


@dataclass(frozen=True, slots=True)
class LostObject:
    """A path that some entries of a branch had, and that cannot be read any more.

    Attributes:
        branch: ``main``, ``forks/NAME`` or ``discarded/NAME``.
        path: ``files/PATH``, a part of ``session/``, or ``call.json``, the record of the call. That
            of a directory ends with ``/``.
            Empty if the entries themselves cannot be read; then *last* is 0 if all that followed
            are lost, too.
        first: The number of the oldest entry, of several in a row.
        last: The number of the newest one.
    """

    branch: str
    path: str
    first: int
    last: int


class ObjectCheck:
    """Reads each object of trees once, and compares its hash.

    Attributes:
        store: The objects.
        damaged: The ids of the objects that are missing or damaged.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._known: dict[str, tuple[str, ...]] = {EMPTY_TREE_ID: ()}
        self.damaged: set[str] = set()

    def lost_in(self, object_id: str, *, is_tree: bool = True) -> tuple[str, ...]:
        """The paths in a tree that cannot be read; an empty one for a blob, ``/`` for the tree."""
        found = self._known.get(object_id)
        if found is None:
            found = self._known[object_id] = tuple(self._look(object_id, is_tree))
        return found

    def _look(self, object_id: str, is_tree: bool) -> Iterator[str]:
        try:
            if object_id not in self.store.repository:
                raise LedgerDamagedError(f"object {object_id} is missing")
            if not is_tree:
                for _ in self.store.chunks(object_id):
                    pass
                return
            tree = self.store.read_tree(object_id)
        except LedgerError:
            self.damaged.add(object_id)
            yield "/" if is_tree else ""
            return
        for name, entry in tree:
            for below in self.lost_in(entry.id, is_tree=entry.is_tree):
                path = workspace_name(name)
                yield f"{path}/{below.removeprefix('/')}" if below else path

    def is_readable(self, commit_id: str) -> bool:
        """Whether nothing of a commit is lost but contents of single files."""
        try:
            tree = parse_commit(commit_id, self.store.read(commit_id, "commit")).tree
        except LedgerError:
            return False
        return all("/" in path and not path.endswith("/") for path in self.lost_in(tree))

    def readable_entries(self) -> dict[str, LogEntry]:
        """Every entry that ``is_readable``, by id, also if no branch leads to it."""
        found = dict[str, LogEntry]()
        for object_id in {each for pack in self.store.packs.listed() for each in pack.offsets}:
            with suppress(LedgerError):  # another commit
                is_commit = self.store.repository.header(object_id)[0] == "commit"
                if is_commit and self.is_readable(object_id):
                    found[object_id] = read_entry(self.store, object_id)
        return found

    def lost(self) -> tuple[LostObject, ...]:
        """What the entries of all branches, and discards, have lost."""
        ends, seen = self.store.repository.boundary(), set[str]()
        found: list[LostObject] = []
        for ref, head in sorted(self.store.repository.refs().items()):
            branch, open_runs = branch_of(ref), dict[str, LostObject]()
            number, following = 1, head or None
            while following is not None and following not in seen:
                seen.add(following)
                try:
                    commit = parse_commit(following, self.store.read(following, "commit"))
                except LedgerError:
                    self.damaged.add(following)
                    found.append(LostObject(branch, "", 1, number - 1))
                    break
                number = int(commit.trailers.get("Number", 1))
                runs, open_runs = open_runs, {}
                for below in self.lost_in(commit.tree):
                    path = below.removeprefix("/")
                    last = runs[path].last if path in runs else number
                    open_runs[path] = LostObject(branch, path, number, last)
                found += (run for path, run in runs.items() if path not in open_runs)
                following = None if following in ends else commit.parent
            found += open_runs.values()
        return tuple(found)


def give_up_lost(
    check: ObjectCheck, branches: Collection[Branch], left: Mapping[str, LogEntry]
) -> list[LostObject]:
    """Delete what is neither a branch nor readable; let each history begin after lost entries.

    What is given up: *left* are the entries that are not.
    """
    repository, refs = check.store.repository, {branch.ref for branch in branches}
    gone = list[LostObject]()
    for ref, commit_id in repository.refs().items():
        if ref not in refs and not check.is_readable(commit_id):
            repository.delete_ref(ref)
            gone.append(LostObject(branch_of(ref), "", 1, 0))
    ends = set(repository.boundary() & left.keys())
    for branch in branches:
        entry = branch.head
        while entry is not None and entry.parent and entry.id not in ends:
            if entry.parent not in left:
                ends.add(entry.id)
                gone.append(LostObject(branch_of(branch.ref), "", 1, entry.number - 1))
            entry = left.get(entry.parent)
    if repository.boundary() != frozenset(ends):
        repository.set_boundary(ends)
    return gone


def branch_of(ref: str) -> str:
    """The name of a ref in ``LostObject``."""
    return ref.removeprefix("refs/heads/").removeprefix("refs/wink/")


def rewrite_damaged_packs(store: ObjectStore, damaged: Collection[str]) -> int:
    """Write what can be read of each damaged pack to a new one; how many lost their names.

    A pack is damaged if it does not have its checksum, or has one of the *damaged* objects.

    Raises:
        LedgerError: If something cannot be written; the pack keeps its name then.
    """
    n_rewritten = 0
    for pack in sorted(store.packs.directory.glob("pack-*.pack")):
        index, offsets = pack.with_suffix(".idx"), dict[str, int]()
        with suppress(LedgerError):  # it has no index, or a damaged one
            offsets = store.packs.load(index).offsets
        with ledger_failures(f"{pack} cannot be read"):
            is_whole = not pack.is_symlink() and is_whole_pack(pack)
        if is_whole and offsets and offsets.keys().isdisjoint(damaged):
            continue
        before, inode = set(store.packs.paths()), pack.lstat().st_ino
        with ledger_failures(f"{pack} cannot be read"), store.bulk():
            for _, kind, content in readable_objects(pack, offsets):
                store.write(kind, content)
        if is_shared(pack):
            for new in set(store.packs.paths()) - before:
                new.with_suffix(KEEP).touch()
        passed(KillPoint.PACK_WRITTEN)
        with ledger_failures(f"what can be read of {pack.name} cannot be kept"):
            sync_filesystem(store.repository.directory)
            if pack.lstat().st_ino == inode:  # otherwise the new one has the same name
                index.unlink(missing_ok=True)
                passed(KillPoint.PACK_INVALIDATED)
                pack.with_suffix(KEEP).unlink(missing_ok=True)
                pack.rename(pack.with_name(f"damaged-{pack.name}"))
        n_rewritten += 1
    store.forget()
    return n_rewritten
