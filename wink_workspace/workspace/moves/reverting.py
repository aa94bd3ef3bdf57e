"""Moves to an earlier state of the same branch: undo, redo, restore, and of what was discarded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from wink_workspace.counts import listed
from wink_workspace.errors import (
    ConflictError,
    EntryMissingError,
    FileMissingError,
    UncertainChangesError,
)
from wink_workspace.filesystem import WorkspacePath, parse_path
from wink_workspace.ledger import (
    BranchWriter,
    Discarded,
    Draft,
    EntryKind,
    Revertible,
    TreeChange,
    TreeEntry,
    build,
    entry_at,
    with_paths_from,
)
from wink_workspace.session import Outcome, ToolInvoked
from wink_workspace.workspace.branch.recorded_branch import RecordedBranch
from wink_workspace.workspace.files.disk_entries import without_contents

from .moves import Moves

_MOST_NAMED: Final = 20


class Reverts:
    """The entries that these moves make; each method runs in the block of its move.

    Args:
        recorded: The branch as the ledger has it.
        writer: The same branch.
        moves: Makes drafts.
        put_private: Writes what the history does not name, and returns which paths these are.
    """

    def __init__(
        self,
        recorded: RecordedBranch,
        writer: BranchWriter,
        moves: Moves,
        put_private: Callable[
            [Mapping[WorkspacePath, TreeEntry | None]], Collection[WorkspacePath]
        ] = lambda _: (),
    ) -> None:
        self._recorded = recorded
        self._writer = writer
        self._moves = moves
        self._put_private = put_private

    def undo(self, which: int | str | None = None, uncertain: bool = False) -> Draft:
        """See ``Workspace.undo``."""
        if which is None:
            before = self._writer.before
            chosen = self._writer.to_undo(lambda each: before(each).files != each.files)
        else:
            chosen = self._writer.to_undo_named(self._writer.find(which))
        return self._reverting(EntryKind.UNDO, chosen, keeps_uncertain=not uncertain)

    def redo(self) -> Draft:
        """See ``Workspace.redo``."""
        return self._reverting(EntryKind.REDO, self._writer.to_redo())

    def restore(self, which: int | str, paths: Sequence[str] | None) -> Draft:
        """See ``Workspace.restore``."""
        entry, head = self._writer.find(which), self._recorded.head
        root, session, base = entry.files, entry.session, entry.base
        if paths is not None:
            store = self._recorded.store
            wanted = [parse_path(path) for path in paths]
            for path in wanted:
                if not any(entry_at(store, files, path) for files in (root, head.files)):
                    raise FileMissingError(
                        f"{path} is neither in the workspace nor in entry {entry.number}"
                    )
            root = with_paths_from(store, head.files, entry.files, wanted)
            session, base = None, head.base
        reason = f"restore of entry {entry.number}"
        draft = self._moves.draft(EntryKind.RESTORE, reason, root, session)
        return replace(draft, base=base, target=entry.number)

    def restore_discarded(
        self, found: Discarded, changes: Iterable[TreeChange], paths: Sequence[str] | None
    ) -> Draft:
        """See ``Workspace.restore_discarded``; *changes* are those of the discard."""
        wanted = [parse_path(path) for path in paths or ()]
        chosen = _chosen(found, list(changes), wanted)
        for path in self._put_private(chosen):
            del chosen[path]
        root = build(self._recorded.store, self._recorded.head.files, chosen)
        draft = self._moves.draft(EntryKind.RESTORE, f"restore of discard {_name(found)}", root)
        return replace(draft, outcome=Outcome.COMMITTED)

    def _reverting(
        self, kind: EntryKind, chosen: Revertible | None, *, keeps_uncertain: bool = False
    ) -> Draft:
        """The entry that reverts *chosen*; raises as ``Workspace.undo``."""
        if chosen is None:
            raise EntryMissingError(
                f"there is nothing to {kind}", hint="List the history to see its entries."
            )
        entry = chosen.entry
        reverted = self._writer.reverted(entry, session=self._moves.present_state())
        if reverted.files.tree is None:
            raise ConflictError(
                f"the {kind} of entry {entry.number} conflicts with later edits: "
                + "; ".join(str(conflict) for conflict in reverted.files.conflicts),
                conflicts=reverted.files.conflicts,
                sides=("now", f"after the {kind}"),
            )
        target = entry.number if kind is EntryKind.UNDO else entry.target
        what = entry.subject.removeprefix(f"{EntryKind.UNDO} of entry {target}: ")
        reason = f"{kind} of entry {target}: {what}"
        before = self._writer.before(entry)
        files = reverted.files.tree
        event = self._writer.record(entry).event if keeps_uncertain else None
        uncertain = event.uncertain_paths if isinstance(event, ToolInvoked) else ()
        if uncertain:
            store, head = self._recorded.store, self._recorded.head
            files = with_paths_from(store, files, head.files, map(parse_path, uncertain))
            if files == head.files:
                raise UncertainChangesError(
                    f"what changed during entry {entry.number} may not be of that call: "
                    + listed(uncertain, _MOST_NAMED),
                    hint="Look at it with `wink-workspace show`, then undo it with --uncertain.",
                )
        return replace(
            self._moves.draft(kind, reason, files, reverted.session.tree),
            target=target,
            continue_at=chosen.continue_at,
            base=None if entry.base == before.base else before.base,
        )


def _chosen(
    found: Discarded, changes: Sequence[TreeChange], wanted: Sequence[WorkspacePath]
) -> dict[WorkspacePath, TreeEntry | None]:
    """The new state of each path; a directory keeps its other entries."""
    for path in wanted:
        if not any(change.path.is_below(path) for change in changes):
            raise _not_discarded(found, path)
    chosen = {
        change.path: without_contents(change.after)
        for change in changes
        if (
            any(change.path.is_below(path) for path in wanted)
            if wanted
            else change.after is not None
        )
    }
    if not chosen:
        raise EntryMissingError(
            f"discard {_name(found)} has no file to restore",
            hint="To delete a path again that the discard deleted, name it.",
        )
    return chosen


def _not_discarded(found: Discarded, path: WorkspacePath) -> FileMissingError:
    dropped = [each for each in found.dropped.named if each.path == str(path)]
    if dropped:
        return FileMissingError(
            f"{path} was not kept in discard {_name(found)}: {dropped[0].size_bytes:,} bytes, "
            f"{dropped[0].reason}",
            hint="Raise the retention's discard_bytes for later discards; this file is lost.",
        )
    return FileMissingError(
        f"{path} is not in discard {_name(found)}", hint="Show the discard to see its paths."
    )


def _name(found: Discarded) -> str:
    """The number of a discard, or the beginning of its id."""
    return str(found.discard or found.id[:12])
