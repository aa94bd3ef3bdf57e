"""The other branches of an open workspace: fork, merge, compare and delete them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from wink_workspace.clock import Clock
from wink_workspace.errors import (
    ConflictError,
    EntryMissingError,
    FileMissingError,
    FilesystemError,
    LedgerBusyError,
    UsageError,
)
from wink_workspace.filesystem import WorkspacePath, parse_path
from wink_workspace.ledger import (
    MAIN_BRANCH,
    BranchWriter,
    Draft,
    EntryKind,
    LogEntry,
    diff,
)
from wink_workspace.workspace.branch.recorded_branch import (
    RecordedBranch,
    delete_fork,
    forks_of,
    head_of,
    require_branch,
)
from wink_workspace.workspace.files.checkout import copy_runs
from wink_workspace.workspace.opened_files import OpenedFiles
from wink_workspace.workspace.place.path_rules import OUTPUT_FOLDER
from wink_workspace.workspace.place.shared_folders import delete_tree
from wink_workspace.workspace.place.storage import (
    WorkspaceFolder,
    leftover_forks,
    new_temporary_name,
)
from wink_workspace.workspace.sandboxing import SandboxSlot

from .moves import MovePreview, Moves, merge_conflict

if TYPE_CHECKING:
    from wink_workspace.workspace.changes.changeset import ChangeSet
    from wink_workspace.workspace.changes.selection import Selection


W = TypeVar("W", bound=AbstractContextManager[Any])


@dataclass(frozen=True, slots=True)
class Fork(Generic[W]):
    """A new branch: ``with workspace.fork("try").open() as other``.

    Attributes:
        name: Its name.
        left_out: The derived paths of the workspace that it begins without. It shares those of a
            workspace on an overlay, unless a service runs; of a plain copy, it has the small ones.
        held_by: The services that run, and because of which it cannot share *left_out*.
        open: Opens it with the settings of the workspace; raises as ``Workspace.open``.
    """

    name: str
    left_out: tuple[WorkspacePath, ...]
    held_by: tuple[str, ...]
    open: Callable[[], W]


class Branches(Generic[W]):
    """The branches beside an open one.

    Args:
        recorded: The open branch as the ledger has it.
        folder: Where it is stored.
        writer: The open branch.
        moves: Makes drafts.
        opened: Its files.
        durable: Wait until what is written would survive a loss of power.
        sandbox: Its sandbox.
        clock: The time.
        open_branch: Opens a branch.
    """

    def __init__(
        self,
        recorded: RecordedBranch,
        folder: WorkspaceFolder,
        writer: BranchWriter,
        moves: Moves,
        *,
        opened: OpenedFiles,
        durable: bool,
        sandbox: SandboxSlot,
        clock: Clock,
        open_branch: Callable[[str], W],
    ) -> None:
        self._recorded = recorded
        self._ledger = recorded.ledger
        self._folder = folder
        self._writer = writer
        self._moves = moves
        self._opened = opened
        self._durable = durable
        self._sandbox = sandbox
        self._clock = clock
        self._open_branch = open_branch

    def fork(
        self, name: str, *, at: int | str | None = None, of: str = "", with_runs: bool = False
    ) -> Fork[W]:
        """See ``Workspace.fork``."""
        with self._moves.block():
            self._ledger.check_new_fork(name)
            branch = self._ledger.branch(of) if of else self._writer
            entry = branch.head if at is None else branch.find(at)
            if entry is None:
                raise EntryMissingError(f"the branch {of!r} has no entry")
            left: tuple[WorkspacePath, ...] = ()
            held: tuple[str, ...] = ()
            fork = self._folder.of_branch(name)

            @contextmanager
            def released() -> Generator[tuple[str, ...]]:
                nonlocal held
                with self._sandbox.released() as held:
                    yield held

            def copy_files() -> None:
                nonlocal left
                delete_tree(fork.branch_dir)  # of a process that was killed here
                left = self._give_derived(fork, released)
                self._sandbox.copy_services(fork)
                if with_runs:
                    copy_runs(self._folder.of_branch(of or self._folder.branch), fork)

            def delete_files() -> None:
                with suppress(FilesystemError):  # otherwise the next fork of this name does it
                    delete_tree(fork.branch_dir)

            self._ledger.fork(name, entry, first=copy_files, undo=delete_files)
        return Fork(name, left, held if left else (), partial(self.open, name))

    def _give_derived(
        self, fork: WorkspaceFolder, released: Callable[[], AbstractContextManager[tuple[str, ...]]]
    ) -> tuple[WorkspacePath, ...]:
        """Give the derived paths to a new fork; those that it does not get."""
        derived = self._opened.derived
        if derived is None:
            return ()
        copied, left = derived.copy_to(fork.checkpoint)
        if self._opened.branch is None:
            return left
        shared = self._opened.give_derived(fork, copied, released=released, durable=self._durable)
        return tuple(path for path in left if path not in shared)

    def open(self, name: str) -> W:
        """The branch *name*, opened with the same settings; raises as ``Workspace.open``."""
        return self._open_branch(name)

    @contextmanager
    def temporary(self, *, at: int | str | None = None) -> Generator[W]:
        """Open a fork that is deleted at the end of the block, with everything in it.

        It is for trying something without a trace. One whose process was killed is deleted by the
        next one. Raises as ``Workspace.fork``.

        Args:
            at: The entry at which it begins, by default the newest.
        """
        self.delete_leftover()
        name = new_temporary_name(forks_of(self._ledger))
        fork = self.fork(name, at=at)
        try:
            with fork.open() as opened:
                yield opened
        finally:
            self.delete(name)

    def delete(self, name: str) -> None:
        """Delete a fork and its files.

        Raises:
            EntryMissingError: If there is no such fork.
            LedgerBusyError: If another process has it open.
            UsageError: If it is the main branch.
        """
        if name == MAIN_BRANCH:
            raise UsageError("the main branch is not a fork", hint="Delete the workspace instead.")
        require_branch(self._ledger, name)
        delete_fork(self._folder, self._ledger, name)

    def delete_leftover(self) -> None:
        """Delete the temporary forks of processes that were killed."""
        for leftover in leftover_forks(forks_of(self._ledger)):
            with suppress(LedgerBusyError, EntryMissingError):  # another process deletes it
                self.delete(leftover)

    def discard(self, name: str, *, reason: str, since: str = "") -> None:
        """Delete a fork; keep what it changed as a discard, which can be restored.

        Args:
            name: The fork.
            reason: Why, in a few words.
            since: The id of the entry from which changes count, by default where it began.

        Raises:
            EntryMissingError: If there is no such fork.
            LedgerBusyError: If another process has it open.
        """
        from wink_workspace.ledger import merge_base

        require_branch(self._ledger, name)
        branch = self._ledger.branch(name)
        kept = (
            branch.kept(since)
            if since
            else merge_base(self._recorded.store, self._recorded.head, head_of(self._ledger, name))
        )

        def keep() -> None:
            head = branch.refresh()
            if head is None or (kept is not None and head.files == kept.files):
                return
            self._writer.discard(
                head.files,
                reason=reason,
                call_id=name,
                at=self._clock.now(),
                found_after=None if kept is None else (kept.number, kept.files),
            )

        delete_fork(self._folder, self._ledger, name, first=keep)

    def compare(self, one: str, other: str) -> ChangeSet:
        """The changes from the newest entry of the branch *one* to that of *other*.

        Raises:
            EntryMissingError: If there is no such fork.
        """
        heads: list[LogEntry] = []
        for branch in (one, other):
            require_branch(self._ledger, branch)
            head = self._ledger.branch(branch).head
            heads.append(head or self._recorded.imported())
        return self._recorded.changeset(heads[0].files, heads[1].files, include_ignored=True)

    def changes_to_merge(self, branch: str) -> ChangeSet:
        """The changes of another branch of which ``merge`` can merge parts; raises as that.

        It shows the branch's own changes, whether or not they conflict with those made here.
        """
        sides = self._sides(branch)
        base, theirs = (
            (self._recorded.head.files,) * 2 if sides is None else (sides[0].files, sides[2])
        )
        return self._recorded.changeset(base, theirs, include_ignored=True)

    def preview_merge(
        self, branch: str, *, paths: Sequence[str] | None = None
    ) -> MovePreview | None:
        """What ``Workspace.merge`` of *branch* and *paths* would change; raises as it does.

        ``None`` if all is merged already. Read it before the workspace is closed.
        """
        return self._moves.preview(partial(self.merge_draft, branch, paths))

    def merge_draft(
        self,
        branch: str,
        paths: Sequence[str] | None,
        selected: Selection | None = None,
        shown: ChangeSet | None = None,
    ) -> Draft | None:
        """The entry that merges *branch*; ``None`` if there is nothing to merge.

        It runs in the block of its move. See ``Workspace.merge``.
        """
        from wink_workspace.ledger import merge_trees

        hint = f"Apply the fork instead, with branch={branch!r}."
        self._recorded.refuse_in_place("merged into", hint)
        sides = self._sides(branch)
        if sides is None:
            return None
        base, other, theirs = sides
        store, head = self._recorded.store, self._recorded.head
        if selected is not None:
            theirs = _selected_root(selected, shown, expected=(base.files, theirs))
        if paths is not None:
            theirs = self._changed_paths_only(base.files, theirs, paths, branch)
        merged = merge_trees(store, base=base.files, ours=head.files, theirs=theirs)
        reason = f"merge of {branch}, entry {other.number}"
        if merged.tree is None:
            raise merge_conflict(reason, merged, ("this branch", branch))
        draft = self._moves.draft(EntryKind.MERGE, reason, merged.tree)
        if paths is None and selected is None:  # otherwise the rest of the branch is not merged
            return replace(draft, merged=other, base=self._merged_base(base, other))
        return None if merged.tree == head.files else draft

    def _sides(self, branch: str) -> tuple[LogEntry, LogEntry, str] | None:
        """The common entry, the other branch's newest one, and its files; ``None`` if merged."""
        from wink_workspace.ledger import merge_base, with_paths_from

        require_branch(self._ledger, branch)
        if branch == self._folder.branch:
            raise UsageError("a branch cannot be merged into itself", hint="Name another branch.")
        store = self._recorded.store
        other = self._ledger.branch(branch).head
        base = other and merge_base(store, self._recorded.head, other)
        if other is None or (base is not None and base.id == other.id):
            return None
        base = base or self._recorded.imported()
        return base, other, with_paths_from(store, other.files, base.files, [OUTPUT_FOLDER])

    def _changed_paths_only(self, base: str, theirs: str, paths: Sequence[str], branch: str) -> str:
        """The root *base* with the state of *paths* in the root *theirs*."""
        from wink_workspace.ledger import with_paths_from

        store, wanted = self._recorded.store, [parse_path(path) for path in paths]
        changes = list(diff(store, base, theirs))
        for path in wanted:
            if not any(change.path.is_below(path) for change in changes):
                raise FileMissingError(
                    f"{path} was not changed in {branch}", hint="Show the diff of the branch."
                )
        return with_paths_from(store, base, theirs, wanted)

    def _merged_base(self, common: LogEntry, other: LogEntry) -> str:
        """The base of this branch after a merge: what both branches synced."""
        from wink_workspace.ledger import merge_trees

        ours, theirs = self._recorded.head.base, other.base
        if common.base == theirs or ours == theirs:
            return ours
        if common.base == ours:
            return theirs
        imported = self._recorded.imported().files
        base, ours, theirs = (root or imported for root in (common.base, ours, theirs))
        merged = merge_trees(self._recorded.store, base=base, ours=ours, theirs=theirs)
        return merged.tree or ours


def _selected_root(
    selected: Selection, shown: ChangeSet | None, *, expected: tuple[str, str]
) -> str:
    """The root with the chosen parts; *expected* has the roots that must have been shown."""
    if shown is None:
        raise UsageError(
            "a selection without the changes that it belongs to",
            hint="Pass the result of changes_to_merge, too.",
        )
    if (shown.base, shown.wanted) != expected:
        raise ConflictError(
            "the branch changed since its changes were shown",
            hint="Look at them again, then merge.",
        )
    return selected.root(shown)
