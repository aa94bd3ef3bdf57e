"""The source of an open branch: preview, apply and sync.

This decides what is applied, between which trees. ``applying.py`` has the merge with the source.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, get_args

from wink_workspace.clock import Clock
from wink_workspace.errors import ConflictError, UsageError
from wink_workspace.ledger import Draft, EntryKind, merge_trees
from wink_workspace.workspace.apply.applying import Applied, ApplyTarget, SourceUpdate
from wink_workspace.workspace.branch.recorded_branch import RecordedBranch
from wink_workspace.workspace.changes.applied_trees import AppliedTrees
from wink_workspace.workspace.changes.changeset import ChangeSet
from wink_workspace.workspace.changes.selection import Selection, selected_changes
from wink_workspace.workspace.place.path_rules import ImportConfig

from .moves import Moves, merge_conflict

_TARGETS: Final = get_args(ApplyTarget)


class BranchSource:
    """Applies an open branch to its source, and merges changes of the source into it.

    Args:
        recorded: The branch as the ledger has it.
        moves: Makes moves, and reads the present files.
        clock: The time.
        config: Says which repositories outside of the source may get a branch.
    """

    def __init__(
        self, recorded: RecordedBranch, moves: Moves, clock: Clock, config: ImportConfig
    ) -> None:
        self._recorded = recorded
        self._moves = moves
        self._clock = clock
        self._config = config

    @property
    def has_unfinished_apply(self) -> bool:
        """Whether the source holds a part of an ``apply`` that a crash interrupted.

        The next ``apply`` completes it, or undoes it if it was undone here meanwhile.
        """
        return AppliedTrees(self._recorded.applied).was_interrupted

    def preview(self, to: ApplyTarget = "worktree", *, include_ignored: bool = False) -> ChangeSet:
        """What ``apply`` would change, to be shown before it; see ``ChangeSet.changes``.

        For the working tree, that is the difference from what this branch applied before and the
        source still has. A path that was undone here since then appears as a removal.
        """
        self._check_target(to)
        base = self._recorded.base_files()
        if to == "worktree":
            with suppress(UsageError):  # the source is missing; apply reports it
                update = self._update(include_ignored=include_ignored)
                base = update.base_for_source(self._recorded.applied, branch=self._recorded.name)
        head = self._moves.present_root()
        found = self._recorded.changeset(base, head, include_ignored=include_ignored)
        return replace(found, derived=self._moves.derived_changes())

    def apply(
        self,
        to: ApplyTarget,
        *,
        branch: str,
        merge: bool,
        include_ignored: bool,
        previewed: ChangeSet | None,
        selected: Selection | None,
    ) -> Applied:
        """See ``Workspace.apply``."""
        self._check_target(to, branch, merge=merge)
        if to == "branch":
            return self.apply_to_branch(
                branch,
                include_ignored=include_ignored,
                previewed=previewed,
                selected=selected,
            )
        with self._moves.block(needs_room=to != "patch"):
            update = self._update(previewed, selected, include_ignored=include_ignored)
            if to == "patch":
                return update.as_patch()
            return update.to_directory(
                self._recorded.applied,
                branch=self._recorded.name,
                at=self._clock.now(),
                markers=merge,
            )

    def undo_apply(self, *, merge: bool = False) -> Applied:
        """Take back the newest ``apply`` of this branch that changed the source; its files stay.

        It is a three-way merge: what was changed in the source since the apply stays. The next
        ``apply`` applies the changes again. Repeat it for the apply before; the last four are kept.

        Args:
            merge: As for ``Workspace.apply``.

        Raises:
            UsageError: If no such apply is recorded, if the source is missing, or if the workspace
                is in place.
            ConflictError: If the source has other changes in the same lines since, or if another
                program saved a file meanwhile. The source is as it was, with what was saved.
            LedgerBusyError: As ``Workspace.apply``.
            FilesystemError: As ``Workspace.apply``.
        """
        self._check_target("worktree", merge=merge)
        with self._moves.block():
            return self._update().to_directory(
                self._recorded.applied,
                branch=self._recorded.name,
                at=self._clock.now(),
                markers=merge,
                undo=True,
            )

    def apply_to_branch(
        self,
        name: str,
        *,
        message: str = "",
        include_ignored: bool = False,
        previewed: ChangeSet | None = None,
        selected: Selection | None = None,
    ) -> Applied:
        """Merge what this branch changed into a new branch of the source, as one commit on HEAD.

        The source's working tree and index stay as they are.

        Args:
            name: The new branch's name.
            message: The message of the commit; by default it names the workspace and the entry.
            include_ignored: As for ``Workspace.apply``.
            previewed: As for ``Workspace.apply``.
            selected: As for ``Workspace.apply``.

        Raises:
            ConflictError: If HEAD has other changes in the same lines, or if the workspace changed
                since the preview; no branch was created.
            UsageError: If the source is not a git repository with a commit, or if *name* is taken
                or is not a valid branch name.
        """
        with self._moves.block():
            update = self._update(previewed, selected, include_ignored=include_ignored)
            number = self._recorded.head.number
            default = f"Changes of workspace {self._recorded.info.id}, entry {number}"
            return update.to_branch(
                name,
                note=self._recorded.applied,
                branch=self._recorded.name,
                message=f"{message or default}\n",
                at=self._clock.now(),
                include_ignored=include_ignored,
                trusted=self._config.trusted_by(Path(self._recorded.info.source)),
            )

    def write_patch(
        self,
        write: Callable[[bytes], object],
        *,
        include_ignored: bool = False,
        previewed: ChangeSet | None = None,
        selected: Selection | None = None,
    ) -> Applied:
        """As ``Workspace.apply("patch")``, with the patch given to *write* in pieces.

        Raises:
            ConflictError: If the workspace changed since the preview; nothing was written then.
            UsageError: If the workspace is closed.
        """
        with self._moves.block(needs_room=False):
            update = self._update(previewed, selected, include_ignored=include_ignored)
            return update.write_patch(write)

    def sync_draft(self) -> Draft | None:
        """The entry that merges later changes of the source; ``None`` if there are none.

        It runs in the block of its move. See ``Workspace.sync``.
        """
        head, note = self._recorded.head, self._recorded.applied
        source = self._update().read_source(note, branch=self._recorded.name, at=self._clock.now())
        if source.foreign == self._recorded.base_files():
            return None
        merged = merge_trees(
            self._recorded.store, base=source.base, ours=head.files, theirs=source.files
        )
        reason = f"sync with {self._recorded.info.source}"
        if merged.tree is None:
            raise merge_conflict(reason, merged, ("workspace", "source"))
        return replace(self._moves.draft(EntryKind.SYNC, reason, merged.tree), base=source.foreign)

    def _check_target(self, to: ApplyTarget, branch: str = "", *, merge: bool = False) -> None:
        if to not in _TARGETS or (branch and to != "branch") or (merge and to != "worktree"):
            raise UsageError(
                f"cannot apply to {to!r}{f' with the branch {branch!r}' if branch else ''}",
                hint=f"Use {', '.join(_TARGETS)}; a branch's name goes with 'branch' alone, and "
                "conflict markers go with 'worktree' alone.",
            )
        if to == "worktree" and self._recorded.is_in_place:
            info = self._recorded.info
            raise UsageError(
                f"the files of workspace {info.id} are those of {info.source} itself",
                hint="There is nothing to apply; take the changes as a patch or as a branch.",
            )

    def _update(
        self,
        previewed: ChangeSet | None = None,
        selected: Selection | None = None,
        *,
        include_ignored: bool = False,
    ) -> SourceUpdate:
        info, head = self._recorded.info, self._moves.present_root()
        if previewed is not None and previewed.wanted != head:
            raise ConflictError(
                f"the workspace {info.id} changed since its changes were shown",
                hint="Look at them again, then apply.",
            )

        def choose(base: str) -> ChangeSet:
            return self._recorded.changeset(base, head, include_ignored=include_ignored)

        if selected is not None:
            if previewed is None:
                raise UsageError(
                    "a selection without the changes that it belongs to",
                    hint="Pass the result of preview, too.",
                )
            head = selected.root(previewed)
            choose = partial(selected_changes, previewed, head)
        return SourceUpdate(
            self._recorded.store,
            Path(info.source),
            base=self._recorded.base_files(),
            head=head,
            choose=choose,
            hidden=info.rules.unrecorded(),
        )
