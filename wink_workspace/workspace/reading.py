"""A workspace's history, to be read: what every owner of one offers.

``WorkspaceReader`` reads while somebody else has the workspace open. No lock is taken, nothing
is recovered and nothing is written, but for a new fork. What is found is what was committed:
edits that no entry has yet are not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from wink_workspace.errors import EntryMissingError
from wink_workspace.filesystem import Diff, FileChange, WorkspacePath
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    MAIN_BRANCH,
    Branch,
    Discarded,
    Forgotten,
    Ledger,
    LogEntry,
    Record,
    TreeChange,
    diff,
    discard_changes,
    file_changes,
    find_discarded,
    lost_ref,
    tree_diff,
)

from .applied_trees import AppliedTrees
from .changeset import ChangeSet
from .forking import forks_of, imported_entry
from .source_rules import outside_of, rules_in
from .storage import WorkspaceFolder, WorkspaceInfo

__all__ = ["ReadableHistory", "WorkspaceReader"]

_LARGEST_READ_BYTES = 64 * 1_048_576


class ReadableHistory:
    """One line of a workspace's history.

    Args:
        info: What the workspace is.
        ledger: Where its history is.
        branch: The line.
        applied: The file of ``AppliedTrees``.
    """

    def __init__(
        self, info: WorkspaceInfo, ledger: Ledger, branch: Branch, *, applied: Path
    ) -> None:
        self.info = info
        self._applied = applied
        self._ledger = ledger
        self._branch = branch

    def log(self, *, limit: int | None = None) -> Iterator[LogEntry]:
        """The entries, newest first, each read when asked for."""
        return self._branch.log(limit=limit)

    def entry(self, which: int | str) -> LogEntry:
        """The entry with a number or the beginning of an id; ``EntryMissingError`` if none."""
        return self._branch.find(which)

    def record(self, entry: LogEntry) -> Record:
        """What an entry says of itself in full."""
        return self._branch.record(entry)

    def changes_of(self, entry: LogEntry) -> tuple[FileChange, ...]:
        """What one entry did to files, with contents; everything, for the first.

        Raises:
            LimitExceededError: If a content is above 64 MiB; ``review_of`` has no such limit.
        """
        changed = diff(self._ledger.store, self._root_before(entry), entry.files)
        return self._with_contents(changed)

    def review_of(self, entry: LogEntry) -> Diff:
        """``changes_of`` an entry to be shown; contents are read while this is open."""
        store = self._ledger.store
        return tree_diff(store, diff(store, self._root_before(entry), entry.files))

    def changeset(
        self, *, since: LogEntry | None = None, include_ignored: bool = False
    ) -> ChangeSet:
        """What there is to bring to the source: what differs between the base and now.

        Args:
            since: Compare with the files after this entry instead.
            include_ignored: Also created files that the source's rules ignore.
        """
        base = self._base_files() if since is None else since.files
        return self._changeset(base, self._present(), include_ignored=include_ignored)

    def changes(self) -> tuple[FileChange, ...]:
        """``changeset`` with contents.

        Raises:
            LimitExceededError: If a content is above 64 MiB; ``ChangeSet.review`` has no such
                limit.
        """
        return self._with_contents(self.changeset().reported)

    @property
    def head(self) -> LogEntry:
        """The newest entry; ``LedgerDamagedError`` if there is none."""
        head = self._branch.head
        if head is None:
            raise lost_ref(MAIN_BRANCH, f"the workspace {self.info.id} has no history")
        return head

    def forgotten(self) -> Forgotten | None:
        """What the retention made this line forget last, ``None`` if nothing."""
        note = self._ledger.forgotten(self._branch)
        if note is None or any(entry.number <= note.up_to_number for entry in self.log()):
            return None  # a process died between the note and the deletion
        return note

    def discarded(self) -> tuple[Discarded, ...]:
        """What rollbacks, recoveries and undos threw away in this workspace, newest first."""
        return self._ledger.discarded()

    def find_discarded(self, which: int | str) -> Discarded:
        """The discard with a number or the beginning of an id.

        Raises:
            EntryMissingError: If there is none, or several ids begin so.
        """
        return find_discarded(self.discarded(), which)

    def discarded_paths(self, discarded: Discarded) -> tuple[WorkspacePath, ...]:
        """The paths that were thrown away, in path order, without those that were deleted then."""
        return tuple(each.path for each in self._thrown_away(discarded) if each.after is not None)

    def discarded_changes(self, discarded: Discarded) -> tuple[FileChange, ...]:
        """What was thrown away, compared with the entry that it was found after, with contents.

        Raises:
            LimitExceededError: If a content is above 64 MiB; ``review_of_discarded`` has no such
                limit.
        """
        return self._with_contents(self._thrown_away(discarded))

    def review_of_discarded(self, discarded: Discarded) -> Diff:
        """``discarded_changes`` to be shown, as ``review_of``."""
        return tree_diff(self._ledger.store, self._thrown_away(discarded))

    def _thrown_away(self, discarded: Discarded) -> Iterator[TreeChange]:
        store, base = self._ledger.store, discarded.base
        if base is None:  # what an older release wrote
            with suppress(EntryMissingError):
                base = self._branch.find(discarded.number).files
        elif base != EMPTY_TREE_ID and base not in store.repository:
            base = None  # the retention has forgotten it
        return discard_changes(store, discarded, base=base)

    def forks(self) -> tuple[str, ...]:
        """The names of all forks, sorted."""
        return forks_of(self._ledger)

    def _imported(self) -> LogEntry:
        return imported_entry(self._ledger)

    def _present(self) -> str:
        """The root of what is there now."""
        return self.head.files

    def _changeset(self, base: str, wanted: str, *, include_ignored: bool) -> ChangeSet:
        store, imported = self._ledger.store, self._imported().files
        applied = AppliedTrees(self._applied).kept
        with outside_of(
            Path(self.info.source),
            rules_in(store, wanted),
            imported=(store, imported),
            known=[imported, *(root for root in applied if root in store.repository)],
            include_ignored=include_ignored,
        ) as outside:
            return ChangeSet.between(store, base, wanted, outside)

    def _base_files(self) -> str:
        """The root of what the changes of this branch are relative to.

        That is what was last synced, or else the import; for a fork of a workspace in place,
        whose source goes on changing, the entry at which it left the main branch.
        """
        if self.head.base:
            return self.head.base
        main = self._ledger.branch(MAIN_BRANCH)
        if self.info.mode == "copy" or self._branch.ref == main.ref:
            return self._imported().files
        known = {entry.id for entry in main.log()}
        return next((entry for entry in self.log() if entry.id in known), self._imported()).files

    def _root_before(self, entry: LogEntry) -> str:
        return EMPTY_TREE_ID if entry.parent is None else self._branch.before(entry).files

    def _with_contents(self, changes: Iterable[TreeChange]) -> tuple[FileChange, ...]:
        return tuple(file_changes(self._ledger.store, changes, limit_bytes=_LARGEST_READ_BYTES))


class WorkspaceReader(ReadableHistory):
    """The same for one who does not have the workspace open; used in a ``with`` block.

    Args:
        folder: The workspace.
        branch: The main line, or the name of a fork.

    Raises:
        EntryMissingError: If there is no such fork.
        LedgerError: If it cannot be read, or its ref is missing.
    """

    def __init__(self, folder: WorkspaceFolder, *, branch: str = MAIN_BRANCH) -> None:
        info, ledger = folder.info(), Ledger(folder.ledger)
        try:
            super().__init__(info, ledger, ledger.branch(branch), applied=folder.applied)
            _ = self.head  # there always is one
        except BaseException:
            ledger.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ledger.close()

    def fork(self, name: str) -> None:
        """Begin another line of history at the newest entry.

        Raises:
            UsageError: If *name* is taken, or cannot be one.
        """
        self._ledger.fork(name, self.head)
