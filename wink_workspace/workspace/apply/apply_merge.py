"""The merge of a branch's changes with a target; nothing is written to the target here.

The changes of a branch are those from its base to its head. Where the target still has what the
branch applied before, that is the base instead: so an undo is applied, and nothing is applied
twice. Where the target lost it (``git stash``, ``git reset``), it is applied again; what was only
deleted there stays deleted. A path that the branch did not change is never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Final, TypeAlias

from wink_workspace.errors import Conflict
from wink_workspace.filesystem import WorkspacePath
from wink_workspace.ledger import (
    SOME_DIRECTORY,
    ObjectStore,
    SideNames,
    TreeChange,
    TreeEntry,
    applied_changes,
    build,
    diff,
    entry_at,
    merge_trees,
)
from wink_workspace.ledger import AppliedChange as AppliedPath
from wink_workspace.workspace.changes.applied_trees import SourceChange
from wink_workspace.workspace.changes.changeset import ChangeSet, reported
from wink_workspace.workspace.files.disk_entries import without_contents

MERGE_NAMES: Final = SideNames("source", "workspace")
"""The names of both sides in conflict markers in the source."""


SelectChanges: TypeAlias = Callable[[str], ChangeSet]
"""Returns, for the base of a merge, the changes of the branch."""

FindExcluded: TypeAlias = Callable[[Sequence[TreeChange]], Set[WorkspacePath]]
"""Returns the changed paths that a target cannot keep, besides those left out."""


def _exclude_nothing(changes: Sequence[TreeChange]) -> Set[WorkspacePath]:
    """The default: the target keeps all changes."""
    del changes
    return frozenset()


# The merge with a target


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The result of a merge with a target.

    Attributes:
        before: The root of the target's state, correct at the paths of the merge.
        after: The root of its new state; ``None`` if there are conflicts.
        tree: The root of the branch's side.
        left_out: Its paths that are not applied.
        already_there: Paths of the branch that the target has already.
        edited: Paths that were applied before and in which the target changed the same lines since.
        conflicts: What cannot be merged.
        marked: Paths that get conflict markers, with the id of their former content.
    """

    before: str
    after: str | None
    tree: str
    left_out: tuple[str, ...]
    already_there: tuple[str, ...]
    edited: tuple[str, ...]
    conflicts: tuple[Conflict, ...]
    marked: dict[str, str]


class BranchChanges:
    """The changes of a branch, ready for any target.

    Args:
        store: The store of the trees.
        base: The root of the branch's base.
        head: The root of its files.
        choose: Decides which of its changes are applied.
        applied: What it applied before, newest first.
        names: The names of both sides in conflict markers.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        base: str,
        head: str,
        choose: SelectChanges,
        applied: Sequence[SourceChange] = (),
        names: SideNames = MERGE_NAMES,
    ) -> None:
        self._store = store
        self._base = base
        self._head = head
        self._choose = choose
        self._applied = applied
        self._names = names

    @property
    def base(self) -> str:
        """The root of the branch's base."""
        return self._base

    def paths(self) -> set[WorkspacePath]:
        """Every path whose state in the target is needed for a merge."""
        roots = (self._head, *(applied.tree for applied in self._applied))
        return {change.path for root in roots for change in diff(self._store, self._base, root)}

    def merge_into(
        self,
        target: str,
        *,
        find_excluded: FindExcluded = _exclude_nothing,
        markers: bool = False,
    ) -> MergeResult:
        """The merge with *target*, a tree with the target's state at ``paths`` at least."""
        store = self._store
        base, edited = self._base_for(target)
        chosen = self._choose(base)
        excluded = find_excluded(chosen.trees)
        kept = {
            path: without_contents(entry_at(store, base, path))
            for path in excluded
            if excluded.isdisjoint(path.ancestors())
        }
        tree = build(store, chosen.root(), kept) if kept else chosen.root()
        merge = merge_trees(
            store, base=base, ours=target, theirs=tree, markers=self._names if markers else None
        )
        written = () if merge.tree is None else diff(store, target, merge.tree)
        changed = {change.path for change in written}
        own = {change.path for change in reported(diff(store, self._base, tree))}
        return MergeResult(
            before=target,
            after=merge.tree,
            tree=tree,
            left_out=_names({*(each.path for each in chosen.left_out), *excluded}),
            already_there=_names(own - changed - edited),
            edited=_names(edited),
            conflicts=merge.conflicts,
            marked={
                conflict.path: entry.id
                for conflict in merge.conflicts
                if conflict.hunks and (entry := _at(store, target, conflict.path)) is not None
            },
        )

    def base_for(self, target: str, *, assume_reset: bool = False) -> str:
        """The base of a merge with *target*: see the module.

        With *assume_reset*, only what cannot be the result of a reset counts as deleted there.
        """
        return self._base_for(target, assume_reset=assume_reset)[0]

    def _base_for(
        self, target: str, *, assume_reset: bool = False
    ) -> tuple[str, set[WorkspacePath]]:
        """The base, and the paths that were edited after they had been applied."""
        there: dict[WorkspacePath, TreeEntry | None] = {}
        edited: dict[WorkspacePath, TreeEntry | None] = {}
        missing: set[WorkspacePath] | None = None  # paths to look for in older applies
        for n, applied in enumerate(self._applied):
            asked, missing = missing, set[WorkspacePath]()
            changes = [
                found
                for found in applied_changes(
                    self._store, base=self._base, ours=target, theirs=applied.tree
                )
                if asked is None or found.change.path in asked
            ]
            older = [each.tree for each in self._applied[n + 1 :]]
            deleted = self._deleted(target, changes, older, was_reset=assume_reset)
            for found in changes:
                path, after = found.change.path, found.change.after
                if found.is_there:
                    there[path] = without_contents(after)
                    continue
                if path in deleted:
                    edited.setdefault(path, without_contents(after))
                    continue
                missing.add(path)
                if self._is_resolved(target, path, applied):
                    edited.setdefault(path, after)
                elif found.edited is not None:
                    edited.setdefault(path, found.edited)
        edited = {path: entry for path, entry in edited.items() if path not in there}
        there |= edited
        # Missing paths are named, too, because a directory above them may be removed.
        known = {
            change.path: without_contents(change.before)
            for applied in self._applied
            for change in diff(self._store, self._base, applied.tree)
        }
        named = {path for path, entry in edited.items() if entry != SOME_DIRECTORY}
        return build(self._store, self._base, {**known, **there}), named

    def _deleted(
        self, target: str, changes: Sequence[AppliedPath], older: Sequence[str], *, was_reset: bool
    ) -> Set[WorkspacePath]:
        """The paths of an apply that were deleted in the target since, to stay deleted.

        If another path of the apply has an earlier state again, the target was reset or stashed,
        and it lost files that the branch had made in the same way.
        """
        deleted: set[WorkspacePath] = set()
        unclear: set[WorkspacePath] = set()
        replaced: set[WorkspacePath] = set()
        for path in (found.change.path for found in changes if not found.is_there):
            present = entry_at(self._store, target, path)
            is_earlier = present in {
                entry_at(self._store, root, path) for root in (self._base, *older)
            }
            if present is not None:
                replaced.add(path)
                was_reset |= is_earlier
            elif replaced.isdisjoint(path.ancestors()):
                (unclear if is_earlier else deleted).add(path)
        return deleted if was_reset else deleted | unclear

    def _is_resolved(self, target: str, path: WorkspacePath, applied: SourceChange) -> bool:
        """Whether conflict markers were written there and the user has resolved them."""
        if str(path) not in applied.marked:
            return False
        now = entry_at(self._store, target, path)
        imported = entry_at(self._store, self._base, path)
        return now is not None and now.id != applied.marked[str(path)] and now != imported


def _at(store: ObjectStore, root: str, path: str) -> TreeEntry | None:
    return entry_at(store, root, WorkspacePath(tuple(path.split("/"))))


def _names(paths: Iterable[WorkspacePath]) -> tuple[str, ...]:
    return tuple(sorted(map(str, paths)))
