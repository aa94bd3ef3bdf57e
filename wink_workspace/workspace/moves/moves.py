"""Changes of the history itself: undo, redo, restore, merge and sync.

``Moves`` makes and previews them for an open branch. ``HistoryMove`` is the boundary of one, which
knows the new files and STATE before its first effect. It uses the boundary of a call: the same
commit of external edits, transaction, pending mark, commit and recovery. It differs where it has
no body of foreign code: Ctrl-C is deferred from the first step to the last, the record is
``WorkspaceRestored``, and a move that fails has no entry: its error is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar, overload

from wink_workspace.clock import Clock
from wink_workspace.errors import (
    ConflictError,
    FilesystemError,
    LedgerError,
    UsageError,
    WinkError,
)
from wink_workspace.filesystem import Filesystem, WorkspacePath
from wink_workspace.ledger import (
    Draft,
    EntryKind,
    LogEntry,
    SessionStore,
    diff,
    tree_diff,
)
from wink_workspace.resources import Snapshotable
from wink_workspace.runtime import Boundary, PendingCall, Transaction
from wink_workspace.session import Session, SliceKind, WorkspaceRestored
from wink_workspace.workspace.branch.recorded_branch import RecordedBranch
from wink_workspace.workspace.files.histories import FilesHistory, present_root
from wink_workspace.workspace.opened_files import OpenedFiles
from wink_workspace.workspace.place.reserve import is_full

from .ledger_journal import LedgerJournal

if TYPE_CHECKING:
    from wink_workspace.filesystem import Diff
    from wink_workspace.ledger import Merge


T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MovePreview:
    """What a move would change; contents are read while the workspace is open.

    Attributes:
        after: The id of the newest entry, on which it is based.
        files: The root of the files after the move.
        subject: The line of the entry that it would make.
        changes: The changes of files.
        stays: For an undo, the effects outside of the workspace that it does not take back.
        uncertain: For an undo, the paths that may not have been changed by the undone call.
    """

    after: str
    files: str
    subject: str
    changes: Diff
    stays: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()


class HistoryMove(Boundary):
    """``with HistoryMove(…) as move: …; move.make(draft)``; without ``make`` it has no effect.

    Attributes:
        entry: The new entry; set when a block with ``make`` has ended.

    Args:
        session: STATE.
        files: The files.
        history: Checks out trees of the files.
        sessions: Loads STATE.
        journal: Commits.
        absorb: Commits the external edits; returns their paths.
        head: The newest entry.
    """

    def __init__(
        self,
        session: Session,
        files: Filesystem,
        *,
        history: FilesHistory,
        sessions: SessionStore,
        journal: LedgerJournal,
        absorb: Callable[[], tuple[str, ...]],
        head: Callable[[], LogEntry],
    ) -> None:
        super().__init__(session, Transaction(discard=self._forget_loaded))
        self.entry: LogEntry
        self._files = files
        self._history = history
        self._sessions = sessions
        self._journal = journal
        self._absorb = absorb
        self._head = head
        self._draft: Draft | None = None
        self._has_loaded = False

    def make(self, draft: Draft) -> None:
        """Set files and STATE to those of *draft*; the end of the block makes it an entry."""
        self._draft = draft
        head = self._head()
        self._start(PendingCall(draft.call_id, draft.kind.value, draft.at))
        with self._transactions.frozen():
            self._history.check_out(draft.files, kept=head.files)
        self._has_loaded = True
        self._sessions.load(self._session, draft.session)
        self._session.reduce(draft.record, kind=SliceKind.STATE)

    def _forget_loaded(self) -> None:
        """Let the store know STATE as of the newest entry again; the rollback follows."""
        if self._has_loaded:
            self._sessions.load(self._session, self._head().session)

    def _taking_part(self) -> Sequence[Snapshotable]:
        if self._transactions.depth:
            raise UsageError(
                "a call is running, which can change only its own files and state",
                hint="Repeat this when the call has ended.",
            )
        return (self._session, self._files)

    def _commit_external_edits(self) -> tuple[str, ...]:
        return self._absorb()

    def _finish(self, error: BaseException | None) -> None:
        if self._draft is None:
            self.transaction.commit()
            return
        try:
            if error is not None:
                raise error
            self.entry = self._journal.commit_move(self._draft)
            self.transaction.commit()
        except BaseException:
            try:
                self._transactions.roll_back(self.transaction)
            finally:
                if not self.transaction.saved:  # else the next process that opens it recovers it
                    self._journal.finish_pending()
            raise

    def _publish(self) -> None:
        if self._draft is not None:
            self._publish_record((self._draft.record,))

    def __exit__(
        self,
        kind: object,
        error: BaseException | None,
        trace: object,
    ) -> Literal[False]:
        super().__exit__(kind, error, trace)
        return False


class Moves:
    """Makes and previews the moves of one open branch.

    Args:
        recorded: The branch as the ledger has it.
        session: STATE.
        opened: The files.
        sessions: Writes and loads STATE.
        journal: Commits.
        clock: The time of entries.
        check_open: Raises ``UsageError`` if the workspace is closed.
    """

    def __init__(
        self,
        recorded: RecordedBranch,
        session: Session,
        opened: OpenedFiles,
        *,
        sessions: SessionStore,
        journal: LedgerJournal,
        clock: Clock,
        check_open: Callable[[], None],
    ) -> None:
        self._recorded = recorded
        self._session = session
        self._opened = opened
        self._sessions = sessions
        self._journal = journal
        self._clock = clock
        self._check_open = check_open

    def block(self, *, needs_room: bool = True) -> HistoryMove:
        """The boundary of a move; without a move, it commits external edits and locks the session.

        Without *needs_room*, these edits may be left out if the disk is full.

        Raises:
            UsageError: If a call is running, whose effects must not be committed yet, or if the
                workspace is closed.
        """
        self._check_open()

        def absorb() -> tuple[str, ...]:
            try:
                return self._with_reserve(lambda: self._journal.absorb_external(()))
            except (LedgerError, FilesystemError) as error:
                if needs_room:
                    raise
                self._ignore_edits_on_full_disk(error)
                return ()

        return HistoryMove(
            self._session,
            self._opened.filesystem,
            history=self._opened.history,
            sessions=self._sessions,
            journal=self._journal,
            absorb=absorb,
            head=lambda: self._recorded.head,
        )

    @overload
    def make(self, plan: Callable[[], Draft], previewed: MovePreview | None = None) -> LogEntry: ...
    @overload
    def make(
        self, plan: Callable[[], Draft | None], previewed: MovePreview | None = None
    ) -> LogEntry | None: ...
    def make(
        self, plan: Callable[[], Draft | None], previewed: MovePreview | None = None
    ) -> LogEntry | None:
        """Make the move that *plan* returns, if there is one; the new entry.

        Raises what *plan* and ``block`` raise, and:
            ConflictError: If the move is not the *previewed* one; nothing was changed.
        """
        with self.block() as move:
            draft = plan()
            if previewed is not None and (
                draft is None
                or (self._recorded.head.id, draft.files) != (previewed.after, previewed.files)
            ):
                raise ConflictError(
                    f"the workspace {self._recorded.info.id} changed since its changes were shown",
                    hint="Look at them again, then continue.",
                )
            if draft is None:
                return None
            move.make(draft)
        return move.entry

    @overload
    def preview(self, plan: Callable[[], Draft]) -> MovePreview: ...
    @overload
    def preview(self, plan: Callable[[], Draft | None]) -> MovePreview | None: ...
    def preview(self, plan: Callable[[], Draft | None]) -> MovePreview | None:
        """What ``make`` would change; raises as it does."""
        with self.block():
            draft = plan()
            if draft is None:
                return None
            store, head = self._recorded.store, self._recorded.head
            changes = tree_diff(store, diff(store, head.files, draft.files))
            is_undo = draft.kind is EntryKind.UNDO
            target = draft.target if is_undo else None
            return MovePreview(
                head.id,
                draft.files,
                draft.subject,
                changes,
                self._recorded.outside_effects(target),
                self._recorded.uncertain_paths(target),
            )

    def draft(self, kind: EntryKind, reason: str, root: str, session: str | None = None) -> Draft:
        """An entry that sets the files to those of the tree *root*.

        It sets STATE to that of the tree *session*; by default, STATE stays as it is.

        Raises:
            ConflictError: If the files of *root* have no place for a derived path.
        """
        if session is None:
            session = self.present_state()
        store, head = self._recorded.store, self._recorded.head
        if self._opened.derived is not None:
            root = self._opened.derived.with_directories(store, root)
        at = self._clock.now()
        paths = tuple(str(change.path) for change in diff(store, head.files, root))
        return Draft(
            kind=kind,
            subject=reason,
            files=root,
            session=session,
            record=WorkspaceRestored(reason=reason, paths=paths, at=at),
            at=at,
            call_id=f"{kind}-{head.number + 1}",
        )

    def present_state(self) -> str:
        """The root of STATE as it is, with what changed outside of calls."""
        return self._sessions.write(self._session)

    def present_root(self) -> str:
        """The root of the files as they are; without uncommitted edits if the disk is full.

        Raises:
            UsageError: If the workspace is closed.
        """
        self._check_open()
        store, committed = self._recorded.store, self._recorded.head.files
        try:
            return self._with_reserve(lambda: present_root(self._opened.history, store, committed))
        except (LedgerError, FilesystemError) as error:
            self._ignore_edits_on_full_disk(error)
            return committed

    def derived_changes(self) -> tuple[WorkspacePath, ...]:
        """The derived paths that changed since the import; see ``ReadableHistory``."""
        self._check_open()
        return () if self._opened.derived is None else self._opened.derived.changed()

    def _ignore_edits_on_full_disk(self, error: WinkError) -> None:
        """Continue with the newest entry if *error* says that the disk is full."""
        if not is_full([error]):
            raise error
        what = "The disk is full: edits made since entry %d are not included. Free some space."
        _log.warning(what, self._recorded.head.number)

    def _with_reserve(self, act: Callable[[], T]) -> T:
        """The result of *act*; if the disk is full, of a second try with the reserve released."""
        try:
            return act()
        except (LedgerError, FilesystemError) as error:
            reserve = self._opened.reserve
            if reserve is None or not is_full([error]) or not reserve.release():
                raise
            return act()


def merge_conflict(what: str, merged: Merge, sides: tuple[str, str]) -> ConflictError:
    """The error of a move with conflicts; *sides* names ours and theirs."""
    return ConflictError(
        f"the {what} conflicts with other changes: {'; '.join(map(str, merged.conflicts))}",
        hint="Make these lines the same on both sides, then try again.",
        conflicts=merged.conflicts,
        sides=sides,
    )
