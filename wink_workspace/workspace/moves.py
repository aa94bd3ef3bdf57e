"""Changes of the history itself: undo, redo, restore, merge and sync.

A move knows the new files and STATE before its first effect. It uses the boundary of a call: the
same commit of external edits, transaction, pending mark, commit and recovery. It differs where it
has no body of foreign code: Ctrl-C is deferred from the first step to the last, the record is
``WorkspaceRestored``, and a move that fails has no entry: its error is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from wink_workspace.errors import UsageError
from wink_workspace.filesystem import Diff, Filesystem
from wink_workspace.ledger import Draft, LogEntry, SessionStore
from wink_workspace.resources import Snapshotable
from wink_workspace.runtime import Boundary, PendingCall, Transaction
from wink_workspace.session import Session, SliceKind

from .histories import FilesHistory
from .ledger_journal import LedgerJournal

__all__ = ["HistoryMove", "MovePreview"]


@dataclass(frozen=True, slots=True)
class MovePreview:
    """What a move would change; contents are read while the workspace is open.

    Attributes:
        after: The id of the newest entry, on which it is based.
        files: The root of the files after the move.
        subject: The line of the entry that it would make.
        changes: The changes of files.
        stays: For an undo, the effects outside of the workspace that it does not take back.
    """

    after: str
    files: str
    subject: str
    changes: Diff
    stays: tuple[str, ...] = ()


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
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        super().__exit__(kind, error, trace)
        return False
