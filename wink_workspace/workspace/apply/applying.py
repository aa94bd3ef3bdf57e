"""Applying the changes of a branch to the source, the directory that the workspace was made from.

Rule 1: an apply is a three-way merge (``apply_merge.py``). With one conflict nothing is written,
unless conflict markers are asked for. Then a text that gets markers is also kept beside it.
Rule 2: the source is written to as in a workspace in place. Each path is compared before and after
the exchange. A file that another program saves meanwhile is put back and is a conflict. Each file
appears whole or not at all. A failure in the middle undoes what was done; after a crash the next
apply does that first.
Rule 3: no path is changed that is part of a git repository, or would complete one in the source
(``ledger.git_discovery``). A repository there is its user's, and a hook or a configured program
that is written into it would run on the host.
Rule 4: links are not followed, and a directory with unknown entries is not deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, Literal

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import (
    Conflict,
    ConflictError,
    FileChangedError,
    FilesystemError,
    GitRepositoryError,
    LedgerError,
    RollbackError,
    UsageError,
)
from wink_workspace.filesystem import WorkspacePath
from wink_workspace.filesystem.disk.tree import DiskTree, HiddenPaths
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    DiskView,
    EffectJournal,
    ForeignHead,
    ObjectStore,
    SideNames,
    TreeChange,
    TreeEntry,
    WriterLock,
    build,
    diff,
    entry_at,
    merge_trees,
    paths_left_behind,
    without_lines,
)
from wink_workspace.workspace.changes.applied_trees import AppliedTrees, SourceChange
from wink_workspace.workspace.changes.changeset import ChangeSet, is_empty_directory, reported
from wink_workspace.workspace.changes.source_rules import open_source_filter, rules_in
from wink_workspace.workspace.files.disk_entries import (
    Captured,
    capture_all,
    captured,
    same_content,
)
from wink_workspace.workspace.in_place.call_effects import CallEffects
from wink_workspace.workspace.in_place.guarded_checkout import Checkout
from wink_workspace.workspace.in_place.in_place_tree import InPlaceTree
from wink_workspace.workspace.in_place.user_repository import UserRepository
from wink_workspace.workspace.place.mode_store import ModeStore
from wink_workspace.workspace.place.path_rules import NotImported

from .apply_merge import MERGE_NAMES, BranchChanges, MergeResult, SelectChanges

ApplyTarget = Literal["worktree", "patch", "branch"]

_LARGEST_SHOWN_BYTES: Final = 64 * 1_048_576
_SIDES: Final = ("source", "workspace")
_NOT_A_FILE: Final = "is a pipe, a socket or a device in the source, or cannot be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The result of ``apply``.

    Attributes:
        added: The created paths.
        changed: The paths with another content, kind or mode than before.
        removed: The deleted paths.
        already_there: The branch's other paths: the target has these changes already.
        edited: The paths that were applied before and in which the source changed the same lines
            since, or which it deleted. Its edits stay.
        conflicts: What was not merged, if conflict markers were asked for. The reason of a text
            with markers names the file beside it that has its version before, as ``a.py.orig``.
        left_out: Changed paths that are not applied: those that are part of a git repository or
            would complete one, and for a branch also ignored ones and what git cannot keep.
        filtered: Those of ``left_out`` that a filter of git would convert, for a branch.
        patch: The patch, if one was asked for.
        branch: The branch's name, if one was asked for.
        commit: The id of the branch's commit.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    already_there: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    left_out: tuple[str, ...] = ()
    filtered: tuple[str, ...] = ()
    patch: str = ""
    branch: str = ""
    commit: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """The added, changed and removed paths."""
        return tuple(sorted((*self.added, *self.changed, *self.removed)))


@dataclass(frozen=True, slots=True)
class SourceState:
    """Trees of the source, by their roots.

    Attributes:
        base: The base for merging the source into the branch.
        files: The present files.
        foreign: The present files without what the branch applied: the branch's next base.
    """

    base: str
    files: str
    foreign: str


class SourceUpdate:
    """Applies the changes of a branch to the source.

    Args:
        store: The store of the trees.
        source: The directory.
        base: The root of the branch's base.
        head: The root of its files.
        choose: Decides which of its changes are applied.
        hidden: Paths that the branch does not record; ``read_source`` leaves them out.

    Every method raises ``UsageError`` if the source is missing.
    """

    def __init__(
        self,
        store: ObjectStore,
        source: Path,
        *,
        base: str,
        head: str,
        choose: SelectChanges,
        hidden: HiddenPaths | None = None,
    ) -> None:
        self._hidden = hidden
        self._store = store
        self._source = source
        self._base = base
        self._head = head
        self._choose = choose

    def to_directory(
        self,
        note: Path,
        *,
        branch: str,
        at: datetime,
        markers: bool = False,
        undo: bool = False,
    ) -> Applied:
        """Merge the changes into the source, or undo the newest apply.

        Args:
            note: The file of ``AppliedTrees``; beside it are a lock, a journal and modes.
            branch: The name of the branch, for the record of the apply.
            at: The time.
            markers: Write what can be merged, and conflict markers where texts cannot.
            undo: Merge what reverts the newest apply that changed the source, instead.

        Raises:
            ConflictError: If a path cannot be merged, or another program saved it during the
                apply. The source is as it was, with what was saved.
            FilesystemError: If something cannot be written; all changes were undone.
            LedgerError: If the changes cannot be recorded; likewise.
            RollbackError: If the changes could not be undone, either.
            LedgerBusyError: If another branch is being applied.
        """
        trees = AppliedTrees(note)
        with self._locked(trees, at):
            writing = _OpenSource(self._source, self._store, note)
            with writing:
                trees.check(self._store)
                writing.recover()
                undone = self._newest(trees, branch) if undo else None
                changes = self._undoing(undone) if undone else self._changes(trees, branch)
                merged = writing.merged(changes, markers=markers)
                if merged.after is None:
                    raise ConflictError(
                        f"the source has other changes in: {_shown(merged.conflicts)}",
                        hint="Resolve them with --merge, or take the changes as a patch or a"
                        " branch.",
                        conflicts=merged.conflicts,
                        sides=_SIDES,
                    )
                merged, after = writing.with_copies(merged, merged.after)
                roots = ("", "") if merged.before == after else (merged.before, after)
                applied = SourceChange(changes.base, merged.tree, merged.marked, *roots)
                record = trees.remove if undone else trees.add
                writing.write(merged.before, after, partial(record, branch, undone or applied))
                return _applied(self._store, merged)

    def _newest(self, trees: AppliedTrees, branch: str) -> SourceChange:
        newest = trees.newest(branch)
        if newest is None:
            raise UsageError(
                f"nothing that the branch {branch!r} applied is recorded",
                hint="Only the last applies that changed the source can be undone.",
            )
        return newest

    def _undoing(self, applied: SourceChange) -> BranchChanges:
        """The changes that revert an apply: from the source after it to the source before it."""
        return BranchChanges(
            self._store,
            base=applied.after,
            head=applied.before,
            choose=lambda base: ChangeSet.between(self._store, base, applied.before),
            names=SideNames("source", "before the apply"),
        )

    def base_for_source(self, note: Path, *, branch: str) -> str:
        """The base of a merge with the present source, as ``to_directory`` computes it."""
        trees = AppliedTrees(note)
        if trees.writing is not None:
            return self._base
        trees.check(self._store)
        with _OpenSource(self._source, self._store, note) as writing:
            changes = self._changes(trees, branch)
            return changes.base_for(writing.captured(changes).root)

    def read_source(self, note: Path, *, branch: str, at: datetime) -> SourceState:
        """The whole present source, for ``sync``.

        What cannot be read counts as unchanged.

        Raises:
            UsageError: If it is missing, or holds a part of an interrupted apply.
            LedgerBusyError: If another process is applying to it.
        """
        trees = AppliedTrees(note)
        with self._locked(trees, at):
            if trees.writing is not None:
                raise UsageError(
                    f"an apply to {self._source} was interrupted", hint="Apply again first."
                )
            trees.check(self._store)
            with _opening(self._source):
                tree = DiskTree(self._source, hidden=NotImported(self._hidden))
            with tree:
                source = capture_all(tree, self._store, known=self._base)
            base = self._changes(trees, branch).base_for(source, assume_reset=True)
            foreign = self._without_applied(base, source)
            self._store.sync()  # before the trees are recorded
            trees.add(branch, SourceChange(foreign, source))
        return SourceState(base, source, foreign)

    def _without_applied(self, base: str, source: str) -> str:
        """*source* without what the branch applied, which is the difference to *base*."""
        merged = merge_trees(
            self._store, base=base, ours=self._base, theirs=source, markers=MERGE_NAMES
        )
        changes: dict[WorkspacePath, TreeEntry | None] = {}
        for conflict in merged.conflicts:
            path = WorkspacePath(tuple(conflict.path.split("/")))
            before, applied, now = (
                entry_at(self._store, root, path) for root in (self._base, base, source)
            )
            changes[path] = without_lines(self._store, before, applied, now)
            for above in path.ancestors():
                if above.parts and entry_at(self._store, source, above) is None:
                    changes[above] = None
        return build(self._store, merged.tree or source, changes)

    def _changes(self, trees: AppliedTrees, branch: str) -> BranchChanges:
        applied = trees.applied_changes(branch, self._base)
        return BranchChanges(
            self._store, base=self._base, head=self._head, choose=self._choose, applied=applied
        )

    @contextmanager
    def _locked(self, trees: AppliedTrees, at: datetime) -> Generator[None]:
        """Hold the lock that lets one branch at a time apply to the source."""
        lock = WriterLock(
            trees.lock,
            what=f"{self._source}, to which changes are being applied,",
            now=at,
            hint="Wait until that has ended, then apply again.",
        )
        try:
            yield
        finally:
            lock.release()

    def as_patch(self) -> Applied:
        """The changes as a patch for ``git apply``, whole and in memory; nothing is written."""
        pieces: list[bytes] = []
        applied = self.write_patch(pieces.append)
        return replace(applied, patch=b"".join(pieces).decode("utf-8", "surrogateescape"))

    def write_patch(self, write: Callable[[bytes], object]) -> Applied:
        """Pass the same patch to *write* in pieces."""
        chosen = self._choose(self._base)
        empty = {change.path for change in chosen.reported if is_empty_directory(change)}
        chosen.review().write_to(write, full=True)
        done = _by_status(change for change in chosen.reported if change.path not in empty)
        left_out = {*(each.path for each in chosen.left_out), *empty}
        return replace(done, left_out=_names(sorted(left_out)))

    def to_branch(
        self,
        name: str,
        *,
        note: Path,
        branch: str,
        message: str,
        at: datetime,
        include_ignored: bool = False,
        trusted: Collection[Path] = (),
    ) -> Applied:
        """Merge the changes into HEAD, as one commit on a new branch of the source's repository.

        Without *include_ignored*, an ignored file that HEAD lacks is left out even if it was
        imported: its whole content would be published. *trusted* are directories outside of the
        source that its ``.git`` may lead to.

        Raises as ``ledger.ForeignHead``, and ``ConflictError`` if HEAD has other changes.
        """
        head = ForeignHead(self._store, self._source, name, trusted)
        trees = AppliedTrees(note)
        trees.check(self._store)
        changes = self._changes(trees, branch)

        target = head.captured(self._base, changes.paths())
        rules = rules_in(self._store, self._base)
        with open_source_filter(
            self._source, rules, include_ignored=include_ignored
        ) as source_filter:
            merged = changes.merge_into(
                target,
                find_excluded=lambda changes: head.left_behind(
                    changes, ignores=lambda path: source_filter.ignores(path, False)
                ),
            )
        if merged.after is None:
            raise ConflictError(
                f"the last commit has other changes in: {_shown(merged.conflicts)}",
                hint="Commit your changes, or take those of the workspace as a patch.",
                conflicts=merged.conflicts,
                sides=_SIDES,
            )
        changes = list(diff(self._store, merged.before, merged.after))
        commit = head.commit(changes, message=message, at=at)
        done = _applied(self._store, merged)
        return replace(done, branch=name, commit=commit, filtered=_names(sorted(head.filtered)))


class _OpenSource:
    """The source, opened for a merge; a ``with`` block closes it."""

    def __init__(self, source: Path, store: ObjectStore, note: Path) -> None:
        self._store = store
        self._trees = AppliedTrees(note)
        self._git = UserRepository(source)
        self._journal = EffectJournal(note.with_name(note.name + ".effects"))
        self._effects = CallEffects(store, self._journal, base=EMPTY_TREE_ID)
        self._modes = ModeStore(note.with_name(note.name + ".modes"))
        with _opening(source):
            self._tree = InPlaceTree(
                source,
                effects=self._effects,
                store=store,
                git=self._git,
            )
        self._checkout = Checkout(self._tree, self._effects, store, self._modes)

    def __enter__(self) -> _OpenSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._tree.close()
        self._journal.close()

    def _hidden(self, changes: Sequence[TreeChange]) -> frozenset[WorkspacePath]:
        """The changed paths that belong to the user's repository, wherever it is."""
        return frozenset(at.path for at in changes if self._git.hides(at.path.parts))

    def _excluded(self, changes: Sequence[TreeChange]) -> frozenset[WorkspacePath]:
        """The changed paths that rule 3 excludes."""
        arriving = ((change.path, change.after) for change in changes)
        with DiskTree(self._tree.root) as plain:
            return paths_left_behind(self._store, [DiskView(plain)], arriving)

    def recover(self) -> None:
        """Undo what an interrupted apply wrote, where it is still unchanged."""
        writing = self._trees.writing
        if writing is None:
            self._checkout.remove_unfinished(EMPTY_TREE_ID)
            return
        before, _ = writing
        with _or_rollback_error():
            self._checkout.undo_interrupted(before)
        self._trees.end()

    def captured(self, branch: BranchChanges) -> Captured:
        """The present state of the source at the paths of *branch*."""
        paths = branch.paths()
        return captured(self._tree, self._store, branch.base, paths, on_entry=self._modes.observe)

    def merged(self, branch: BranchChanges, *, markers: bool) -> MergeResult:
        """The merge with the present state of the source."""
        found = self.captured(branch)
        passed(KillPoint.SOURCE_READ)
        merged = branch.merge_into(found.root, find_excluded=self._hidden, markers=markers)
        self._refuse_new_repository(merged)
        unknown = {str(path) for path in found.unknown}
        reasons = tuple(
            Conflict(each.path, _NOT_A_FILE) if each.path in unknown else each
            for each in merged.conflicts
        )
        return replace(merged, conflicts=reasons)

    def with_copies(self, merged: MergeResult, after: str) -> tuple[MergeResult, str]:
        """*merged* with the names of copies, and the root *after* with these copies.

        Each file that gets conflict markers has a copy beside it.
        """
        paths = {path: WorkspacePath(tuple(path.split("/"))) for path in merged.marked}
        copies = {path: self._free_name(paths[path], after) for path in paths}
        saved = {copies[path]: entry_at(self._store, merged.before, paths[path]) for path in paths}
        conflicts = tuple(
            replace(each, reason=f"{each.reason}; the version before is in {copies[each.path]}")
            if each.path in copies
            else each
            for each in merged.conflicts
        )
        return replace(merged, conflicts=conflicts), build(self._store, after, saved)

    def _free_name(self, path: WorkspacePath, root: str) -> WorkspacePath:
        """A name beside *path* for its copy, which neither the source nor *root* has."""
        names = (f"{path.name}.orig{n or ''}" for n in count())
        return next(
            free
            for name in names
            if self._tree.entry(free := path.parent / name) is None
            and entry_at(self._store, root, free) is None
        )

    def _refuse_new_repository(self, merged: MergeResult) -> None:
        """Refuse a merge of ordinary files whose result would complete a repository."""
        if merged.after is None:
            return
        written = list(diff(self._store, merged.before, merged.after))
        for path in sorted(self._excluded(written)):
            raise GitRepositoryError(
                f"with the merged {path}, git would take its directory for a repository",
                hint="Take the changes as a patch, and check this file.",
            )

    def write(self, before: str, after: str, record: Callable[[], None]) -> None:
        """Move the source from *before* to *after*, and *record* it."""
        self._store.sync()  # before the trees are recorded
        if before == after:
            record()
            return
        self._modes.save()
        self._effects.begin(before)
        self._trees.begin(before, after)
        try:
            self._checkout.make(after)
            self._check_written()
            passed(KillPoint.SOURCE_WRITTEN)
            record()
        except BaseException as error:
            self._take_back(error)
            raise
        self._effects.begin(after)

    def _check_written(self) -> None:
        """Raise ``FileChangedError`` if another program saved a path after it was written."""
        final = {effect.path: effect.after for effect in self._effects.since(0)}
        for path, after in final.items():
            if not same_content(self._tree.content(path), after):
                raise FileChangedError(f"{path} was changed by another program meanwhile")

    def _take_back(self, error: BaseException) -> None:
        with _or_rollback_error():
            left = self._checkout.take_back(0)
        with suppress(LedgerError):  # on a full disk; the next apply has nothing to undo
            self._trees.end()
        if isinstance(error, FileChangedError):
            stays = f"; not undone: {', '.join(map(str, left))}" if left else ""
            raise ConflictError(
                f"the source was changed during the apply: {error.message}{stays}",
                hint="All other changes were undone. Apply again to merge with what was saved.",
                conflicts=[Conflict(str(path), "was saved while it was written") for path in left],
            ) from error


@contextmanager
def _opening(source: Path) -> Generator[None]:
    try:
        yield
    except (FilesystemError, UsageError) as error:
        raise UsageError(
            f"the source {source} cannot be opened: {error.message}",
            hint="Move the directory back to its path, or write a patch.",
        ) from error


@contextmanager
def _or_rollback_error() -> Generator[None]:
    try:
        yield
    except FilesystemError as error:
        raise RollbackError(
            f"the source could not be restored: {error.message}",
            [error],
            hint="The workspace is intact. Fix what the system reports, then apply again.",
        ) from error


def _applied(store: ObjectStore, merged: MergeResult) -> Applied:
    done = _by_status(reported(diff(store, merged.before, merged.after or merged.before)))
    return replace(
        done,
        already_there=merged.already_there,
        edited=merged.edited,
        conflicts=merged.conflicts,
        left_out=merged.left_out,
    )


def _by_status(changes: Iterable[TreeChange]) -> Applied:
    changes = list(changes)
    return Applied(
        added=_names(change.path for change in changes if change.before is None),
        changed=_names(change.path for change in changes if change.before and change.after),
        removed=_names(change.path for change in changes if change.after is None),
    )


def _names(paths: Iterable[WorkspacePath]) -> tuple[str, ...]:
    return tuple(map(str, paths))


def _shown(conflicts: Sequence[Conflict]) -> str:
    return ", ".join(conflict.path for conflict in conflicts)
