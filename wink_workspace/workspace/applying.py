"""Bringing what a branch of a workspace changed to the directory that it was made of.

Rule 1: it is a three-way merge (``bringing.py``). One conflict, and nothing is written, unless
conflict markers are asked for.
Rule 2: the source is written to as a workspace in place writes to it: each path is compared
before and after it is exchanged, and what somebody saves meanwhile is put back and is a conflict.
Each file appears whole or not at all. When something fails midway, what was done is taken back;
after a crash the next apply does that first.
Rule 3: no path is touched that is part of a git repository, or would complete one in the source
(``ledger.git_discovery``). A repository there is its user's, and what is planted in one, a hook or
a configured program, would run on the host.
Rule 4: nothing is reached through a link, and no directory goes that holds more than is known.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
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
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    DiskView,
    EffectJournal,
    ForeignHead,
    ObjectStore,
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

from .applied_trees import AppliedTrees, Brought
from .bringing import MERGE_NAMES, BranchChanges, Bringing, Choose
from .changeset import is_empty_directory, reported
from .contents import Captured, captured, same_content, whole
from .in_place.call_effects import CallEffects
from .in_place.moving import Mover
from .in_place.own_git import OwnGit
from .in_place.tree import InPlaceTree
from .known_modes import KnownModes
from .source_rules import outside_of, rules_in

__all__ = ["Applied", "ApplyTarget", "SourceUpdate"]

ApplyTarget = Literal["worktree", "patch", "branch"]

_LARGEST_SHOWN_BYTES: Final = 64 * 1_048_576
_SIDES: Final = ("source", "workspace")
_NOT_A_FILE: Final = "is a pipe, a socket or a device in the source, or cannot be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What ``apply`` did.

    Attributes:
        added: The paths that were made.
        changed: The paths that have another content, kind or mode than before.
        removed: The paths that are gone.
        already_there: The branch's other paths: the target has these changes already.
        edited: Of the paths that were applied before, those whose lines the source changed
            since; its edits stay.
        conflicts: What was not merged, if conflict markers were asked for.
        left_out: Changed paths that stay behind: those that are part of a git repository or
            would complete one, and for a branch also ignored ones and what git cannot keep.
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
    patch: str = ""
    branch: str = ""
    commit: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that are not as they were before."""
        return tuple(sorted((*self.added, *self.changed, *self.removed)))


@dataclass(frozen=True, slots=True)
class SourceState:
    """Trees of the source, by their roots.

    Attributes:
        base: The base for merging it into the branch.
        files: What it has.
        foreign: The same without what the branch brought: the branch's next base.
    """

    base: str
    files: str
    foreign: str


class SourceUpdate:
    """What a branch changed, on its way to the source.

    Args:
        store: Where the trees are.
        source: The directory.
        base: The root of the branch's base.
        head: The root of its files.
        choose: Decides which of its changes are brought.

    Every method raises ``UsageError`` if the source is not there any more.
    """

    def __init__(
        self, store: ObjectStore, source: Path, *, base: str, head: str, choose: Choose
    ) -> None:
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
    ) -> Applied:
        """Write it into the source.

        Args:
            note: The file of ``AppliedTrees``; beside it are a lock, a journal and modes.
            branch: The branch, by whose name what it brought is remembered.
            at: When.
            markers: Write what can be merged, and conflict markers where texts cannot.

        Raises:
            ConflictError: If a path cannot be merged, or was saved by somebody else while it
                was written; the source is as it was, with what was saved.
            FilesystemError: If something cannot be written; what was done was taken back.
            LedgerError: If what is done cannot be recorded; likewise.
            RollbackError: If that was not possible either.
            LedgerBusyError: If another branch is just being applied.
        """
        trees = AppliedTrees(note)
        with self._alone(trees, at):
            writing = _SourceWriting(self._source, self._store, note)
            with writing:
                trees.check(self._store)
                writing.recover()
                changes = self._changes(trees, branch)
                merged = writing.merged(changes, markers=markers)
                if merged.after is None:
                    raise ConflictError(
                        f"the source has other changes in: {_shown(merged.conflicts)}",
                        hint="Resolve them with --merge, or take the changes as a patch or a"
                        " branch.",
                        conflicts=merged.conflicts,
                        sides=_SIDES,
                    )
                brought = Brought(changes.base, merged.tree, merged.marked)
                writing.write(merged.before, merged.after, branch, brought)
                return _applied(self._store, merged)

    def base_in_source(self, note: Path, *, branch: str) -> str:
        """The base of a merge with the present source, as ``to_directory`` finds it."""
        trees = AppliedTrees(note)
        if trees.writing is not None:
            return self._base
        trees.check(self._store)
        with _SourceWriting(self._source, self._store, note) as writing:
            changes = self._changes(trees, branch)
            return changes.base_in(writing.captured(changes).root)

    def read_source(self, note: Path, *, branch: str, at: datetime) -> SourceState:
        """The whole present source, as a branch that follows it needs it.

        What cannot be read counts as unchanged.

        Raises:
            UsageError: If it is gone, or has a part of what an apply was bringing.
            LedgerBusyError: If something is just being applied to it.
        """
        trees = AppliedTrees(note)
        with self._alone(trees, at):
            if trees.writing is not None:
                raise UsageError(
                    f"an apply to {self._source} was cut short", hint="Apply again first."
                )
            trees.check(self._store)
            with _opening(self._source):
                tree = DiskTree(self._source, hidden=_TopGit())
            with tree:
                source = whole(tree, self._store, known=self._base)
            base = self._changes(trees, branch).base_in(source)
            foreign = self._without_ours(base, source)
            trees.add(branch, Brought(foreign, source))
        return SourceState(base, source, foreign)

    def _without_ours(self, base: str, source: str) -> str:
        """*source* without what the branch brought there, which is what is in *base* of it."""
        merged = merge_trees(
            self._store, base=base, ours=self._base, theirs=source, markers=MERGE_NAMES
        )
        changes: dict[WorkspacePath, TreeEntry | None] = {}
        for conflict in merged.conflicts:
            path = WorkspacePath(tuple(conflict.path.split("/")))
            before, brought, now = (
                entry_at(self._store, root, path) for root in (self._base, base, source)
            )
            changes[path] = without_lines(self._store, before, brought, now)
        return build(self._store, merged.tree or source, changes)

    def _changes(self, trees: AppliedTrees, branch: str) -> BranchChanges:
        brought = trees.brought(branch, self._base)
        return BranchChanges(
            self._store, base=self._base, head=self._head, choose=self._choose, brought=brought
        )

    @contextmanager
    def _alone(self, trees: AppliedTrees, at: datetime) -> Generator[None]:
        """Let one branch at a time bring something to the source."""
        lock = WriterLock(
            trees.lock,
            what=f"{self._source}, to which something is just being applied,",
            now=at,
            hint="Wait until that is done, then apply again.",
        )
        try:
            yield
        finally:
            lock.release()

    def as_patch(self) -> Applied:
        """It as a patch that ``git apply`` accepts, complete and in memory; nothing is written."""
        pieces: list[bytes] = []
        applied = self.write_patch(pieces.append)
        return replace(applied, patch=b"".join(pieces).decode("utf-8", "surrogateescape"))

    def write_patch(self, write: Callable[[bytes], object]) -> Applied:
        """The same patch, given to *write* in pieces."""
        chosen = self._choose(self._base)
        empty = {change.path for change in chosen.reported if is_empty_directory(change)}
        chosen.review().write_to(write, full=True)
        done = _kinds(change for change in chosen.reported if change.path not in empty)
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
    ) -> Applied:
        """It as one commit on a new branch of the source's repository, by the same merge.

        Without *include_ignored* an ignored file that HEAD does not have is left out even if it
        was imported: its whole content would be published.

        Raises as ``ledger.ForeignHead``, and ``ConflictError`` if HEAD has other changes.
        """
        head = ForeignHead(self._store, self._source, name)
        trees = AppliedTrees(note)
        trees.check(self._store)
        changes = self._changes(trees, branch)

        target = head.captured(self._base, changes.paths())
        rules = rules_in(self._store, self._base)
        with outside_of(self._source, rules, include_ignored=include_ignored) as outside:
            merged = changes.merged_into(
                target,
                left_behind=lambda changes: head.left_behind(
                    changes, ignores=lambda path: outside.ignores(path, False)
                ),
            )
        if merged.after is None:
            raise ConflictError(
                f"the last commit has other changes in: {_shown(merged.conflicts)}",
                hint="Commit what is there, or take the changes as a patch.",
                conflicts=merged.conflicts,
                sides=_SIDES,
            )
        changes = list(diff(self._store, merged.before, merged.after))
        commit = head.commit(changes, message=message, at=at)
        done = _applied(self._store, merged)
        return replace(done, branch=name, commit=commit)


class _SourceWriting:
    """The source, open to be merged with and written to; a ``with`` block closes it."""

    def __init__(self, source: Path, store: ObjectStore, note: Path) -> None:
        self._store = store
        self._trees = AppliedTrees(note)
        self._git = OwnGit(source)
        self._journal = EffectJournal(note.with_name(note.name + ".effects"))
        self._effects = CallEffects(store, self._journal, base=EMPTY_TREE_ID)
        self._modes = KnownModes(note.with_name(note.name + ".modes"))
        with _opening(source):
            self._tree = InPlaceTree(
                source,
                effects=self._effects,
                store=store,
                git=self._git,
            )
        self._mover = Mover(self._tree, self._effects, store, self._modes)

    def __enter__(self) -> _SourceWriting:
        return self

    def __exit__(self, *_: object) -> None:
        self._tree.close()
        self._journal.close()

    def _hidden(self, changes: Sequence[TreeChange]) -> frozenset[WorkspacePath]:
        """What belongs to the repository of the source, wherever it is."""
        return frozenset(at.path for at in changes if self._git.hides(at.path.parts))

    def _left_behind(self, changes: Sequence[TreeChange]) -> frozenset[WorkspacePath]:
        """What rule 3 keeps out."""
        brought = ((change.path, change.after) for change in changes)
        with DiskTree(self._tree.root) as plain:
            return paths_left_behind(self._store, [DiskView(plain)], brought)

    def recover(self) -> None:
        """Take back what an apply that was cut short had written, where it still is."""
        writing = self._trees.writing
        if writing is None:
            self._mover.tidy(EMPTY_TREE_ID)
            return
        before, _ = writing
        with _or_rollback_error():
            self._mover.put_back(before)
        self._trees.end()

    def captured(self, branch: BranchChanges) -> Captured:
        """What the source has now where it matters to *branch*."""
        paths = branch.paths()
        return captured(self._tree, self._store, branch.base, paths, saw=self._modes.saw)

    def merged(self, branch: BranchChanges, *, markers: bool) -> Bringing:
        """The merge with what the source has now."""
        found = self.captured(branch)
        passed(KillPoint.SOURCE_READ)
        merged = branch.merged_into(found.root, left_behind=self._hidden, markers=markers)
        self._check_completes_none(merged)
        unknown = {str(path) for path in found.unknown}
        reasons = tuple(
            Conflict(each.path, _NOT_A_FILE) if each.path in unknown else each
            for each in merged.conflicts
        )
        return replace(merged, conflicts=reasons)

    def _check_completes_none(self, merged: Bringing) -> None:
        """Refuse a merge of ordinary files whose result would complete a repository."""
        if merged.after is None:
            return
        written = list(diff(self._store, merged.before, merged.after))
        for path in sorted(self._left_behind(written)):
            raise GitRepositoryError(
                f"with {path} as it would be merged, git would take its directory for a repository",
                hint="Take the changes as a patch, and look at this file.",
            )

    def write(self, before: str, after: str, branch: str, brought: Brought) -> None:
        """Move the source from *before* to *after*, which is what *line* brought."""
        if before == after:
            self._trees.add(branch, brought)
            return
        self._modes.save()
        self._store.sync()
        self._effects.begin(before)
        self._trees.begin(before, after)
        try:
            self._mover.make(after)
            self._check_written()
            passed(KillPoint.SOURCE_WRITTEN)
            self._trees.add(branch, brought)
        except BaseException as error:
            self._take_back(error)
            raise
        self._effects.begin(after)

    def _check_written(self) -> None:
        """Raise ``FileChangedError`` if somebody saved a path after it was written."""
        final = {effect.path: effect.after for effect in self._effects.since(0)}
        for path, after in final.items():
            if not same_content(self._tree.content(path), after):
                raise FileChangedError(f"{path} was changed by somebody else meanwhile")

    def _take_back(self, error: BaseException) -> None:
        with _or_rollback_error():
            left = self._mover.take_back(0)
        with suppress(LedgerError):  # on a full disk; the next apply finds nothing to take back
            self._trees.end()
        if isinstance(error, FileChangedError):
            stays = f"; left as they are now: {', '.join(map(str, left))}" if left else ""
            raise ConflictError(
                f"the source changed just now: {error.message}{stays}",
                hint="Everything else was taken back. Apply again to merge with what was saved.",
                conflicts=[Conflict(str(path), "was saved while it was written") for path in left],
            ) from error


@contextmanager
def _opening(source: Path) -> Generator[None]:
    try:
        yield
    except (FilesystemError, UsageError) as error:
        raise UsageError(
            f"the source {source} cannot be opened: {error.message}",
            hint="Put the directory back in its place, or write a patch.",
        ) from error


class _TopGit:
    """The source's own repository, which was not imported either; implements ``HiddenPaths``."""

    def hides(self, parts: Parts) -> bool:
        return parts[:1] == (".git",)

    def may_be_in(self, directory: Parts) -> bool:
        return not directory


@contextmanager
def _or_rollback_error() -> Generator[None]:
    try:
        yield
    except FilesystemError as error:
        raise RollbackError(
            f"the source could not be put back: {error.message}",
            [error],
            hint="The workspace is unharmed. Correct what the system reports, then apply again.",
        ) from error


def _applied(store: ObjectStore, merged: Bringing) -> Applied:
    done = _kinds(reported(diff(store, merged.before, merged.after or merged.before)))
    return replace(
        done,
        already_there=merged.already_there,
        edited=merged.edited,
        conflicts=merged.conflicts,
        left_out=merged.left_out,
    )


def _kinds(changes: Iterable[TreeChange]) -> Applied:
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
