"""The runtime's journal, kept in the ledger: every outermost call is one commit.

The protocol: ``begin`` writes the pending mark; the call has its effects; ``commit`` or
``rolled_back`` appends the entry, whose ref update is the commit point for files and STATE
together; then the mark is removed. A mark that cannot be removed does no harm: the next process
that opens the workspace finds that the head is the entry of the marked call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from wink_workspace.clock import Clock
from wink_workspace.counts import counted
from wink_workspace.errors import FilesystemError, LedgerError
from wink_workspace.filesystem import WorkspacePath
from wink_workspace.ledger import (
    MAIN_BRANCH,
    BranchWriter,
    Draft,
    EntryKind,
    LogEntry,
    PendingMark,
    SessionStore,
    diff,
    lost_ref,
)
from wink_workspace.resources import Snapshotable
from wink_workspace.runtime import PendingCall, Saved
from wink_workspace.session import ExternalChange, Outcome, Session, ToolInvoked, call_subject
from wink_workspace.workspace.files.derived_paths import DerivedPaths
from wink_workspace.workspace.files.discard_records import Discards
from wink_workspace.workspace.files.histories import CopyHistory, FilesHistory, present_root
from wink_workspace.workspace.place.reserve import is_full

_log = logging.getLogger(__name__)


class LedgerJournal:
    """Writes one branch of the ledger; implements ``runtime.Journal``.

    Args:
        writer: The branch.
        history: The files.
        sessions: Writes the session's STATE.
        session: The session.
        files: The participant whose snapshot *history* takes.
        discards: Keeps the files that restores discard.
        derived: The derived paths, which the history does not restore.
        run_maintenance: Called between calls, when every kept object is referenced by the branch.
    """

    def __init__(
        self,
        writer: BranchWriter,
        history: FilesHistory,
        sessions: SessionStore,
        session: Session,
        *,
        files: Snapshotable,
        discards: Discards,
        derived: DerivedPaths | None = None,
        run_maintenance: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._files = files
        self._history = history
        self._sessions = sessions
        self._session = session
        self._discards = discards
        self._derived = derived
        self._run_maintenance = run_maintenance
        self._call_id = ""
        self._is_finished = True
        self._adopts = False
        history.discard_recorder = discards

    def absorb_external(self, participants: Sequence[Snapshotable]) -> tuple[str, ...]:
        """Append the external edits since the last entry; their paths."""
        self._before_call(adopts=False)
        paths = self._commit_external_edits()
        self._run_maintenance()
        # Only the snapshot of a call that begins now may reuse this scan.
        self._history.reuse_snapshot(not paths and self._files in participants)
        return paths

    def adopt_external(self, chosen: Callable[[WorkspacePath], bool] | None = None) -> None:
        """Let the call that begins now contain the edits since the last entry.

        In place it contains the *chosen* ones. The others stay external edits.

        Such a call has no effects of its own, so it has no pending mark: if it fails or the process
        dies, the edits are external ones, as before.
        """
        self._before_call(adopts=True)
        if chosen is not None:
            head = self._writer.head
            self._history.attribute("" if head is None else head.files, chosen)

    def _before_call(self, *, adopts: bool) -> None:
        self._adopts = adopts
        self._history.reuse_snapshot(False)
        if self._sessions.unknown:  # load kept values of slices that the session got to know
            self._sessions.adopt(self._session)
        if not self._is_finished:
            self.finish_pending()
        self._discards.advance()

    def begin(self, call: PendingCall) -> None:
        """Write the pending mark."""
        self._call_id = call.call_id
        if self._adopts:
            return
        self._writer.begin(call.call_id, call.tool, call.started_at)
        if self._derived is not None and self._derived.changes.may_be_recent:
            self._writer.separate_pending()
            self._derived.changes.call_began()

    def savepoint(self, depth: int) -> Callable[[], object]:
        """Let the derived paths be restored if the call fails that begins inside *depth* others."""
        if self._derived is None:
            return lambda: None
        undo = self._derived.savepoint(depth, self._writer.pending_times)

        def undo_or_warn() -> None:
            try:
                undo()
            except (FilesystemError, OSError) as error:  # as for a call that is not inside another
                _log.warning("Derived paths of the failed inner call stay: %s", error)

        return undo_or_warn

    def commit(self, event: ToolInvoked, saved: Saved) -> None:
        """Append the call with its files and STATE."""
        del saved
        self._append(event)
        self._keep_derived()
        self.finish_pending()

    def _keep_derived(self) -> None:
        """Let later rollbacks restore the derived files as this call leaves them."""
        if self._derived is None or not self._derived.changes.may_be_recent:
            return
        times = self._writer.pending_times()
        try:
            if times is not None:
                self._derived.keep_committed(times)
        except (FilesystemError, OSError) as error:  # the call is committed
            _log.warning("A later rollback does not know the derived files of a call: %s", error)

    def commit_move(self, draft: Draft) -> LogEntry:
        """Append *draft* with the session's STATE; the new entry."""
        entry = self._writer.append(replace(draft, session=self._sessions.write(self._session)))
        self.finish_pending()
        return entry

    def rolled_back(self, event: ToolInvoked, saved: Saved) -> None:
        """Append the record of a call that was rolled back."""
        del saved
        if self._adopts:
            self._commit_external_edits()
        derived = self._roll_back_derived()  # may drop discards
        event = replace(event, notes=(*event.notes, *self._discards.pop_notes(), *derived))
        try:
            self._append_or_free_space(event)
        finally:
            self.finish_pending()
        self._discards.record_small()

    def _roll_back_derived(self) -> tuple[str, ...]:
        """Drop or restore what the call changed in derived paths; what was done, in sentences.

        If the disk is full, delete pending discards, and try again.
        """
        times = None if self._derived is None else self._writer.pending_times()
        if self._derived is None or times is None:
            return ()
        try:
            try:
                return self._derived.roll_back(times)
            except FilesystemError as error:
                if not (is_full([error]) and self._discards.free_space()):
                    raise
                # What was restored until now is restored again, so that the notes name it
                return self._derived.roll_back(self._writer.pending_times() or times)
        except (FilesystemError, OSError) as error:  # they are not part of what must be restored
            _log.warning("Derived paths of the failed call stay: %s", error)
            return (f"Some derived paths of this call could not be rolled back: {error}",)

    def _append_or_free_space(self, event: ToolInvoked) -> None:
        """Append the record of a failed call; if the disk is full, delete pending discards."""
        try:
            self._append(event)
        except LedgerError as error:
            if not (is_full([error]) and self._discards.free_space()):
                raise
            notes = (*event.notes, *self._discards.pop_notes())
            self._append(replace(event, notes=notes))

    def finish_pending(self) -> None:
        """Remove the pending mark after the call ended; if that fails, try again later."""
        if self._derived is not None:
            self._derived.end_savepoints()
        try:
            self._writer.finish_pending()
        except LedgerError as error:
            self._is_finished = False
            _log.warning("cannot remove the mark of the finished call %s: %s", self._call_id, error)
        else:
            self._is_finished = True

    def _commit_external_edits(self) -> tuple[str, ...]:
        head = self._writer.head
        if head is None:
            return ()
        root = present_root(self._history, self._writer.store, head.files)
        self._history.accept()
        if root == head.files:
            return ()
        paths = tuple(str(change.path) for change in diff(self._writer.store, head.files, root))
        at = self._session.clock.now()
        self._writer.append(
            Draft(
                kind=EntryKind.EXTERNAL,
                subject=f"{counted(len(paths), 'path')} changed outside of any call",
                files=root,
                session=head.session,
                record=ExternalChange(paths=paths, at=at),
                at=at,
            )
        )
        return paths

    def _append(self, event: ToolInvoked) -> None:
        self._writer.append(
            Draft(
                kind=EntryKind.CALL,
                subject=_subject(event),
                files=self._history.root_after_call(),
                session=self._sessions.write(self._session),
                record=event,
                at=event.started_at,
                tool=event.tool,
                call_id=event.call_id,
                outcome=event.outcome,
            )
        )


def _subject(event: ToolInvoked) -> str:
    """The tool and its command or file; for a failure also the reason."""
    what = call_subject(event.params)
    is_plain = event.success and getattr(event.value, "exit_code", None) in (None, 0)
    if what and is_plain:
        return f"{event.tool}: {what}"
    parts = [event.tool, what, event.message or str(event.outcome)]
    return ": ".join(part for part in parts if part)


# --------------------------------------------------------------------------------------- recovery

# Recovery of a workspace whose last process died during a call.
#
# Every step may be repeated, so a crash during a recovery does no harm.


def recover(
    writer: BranchWriter,
    history: FilesHistory,
    clock: Clock,
    *,
    discards: Discards,
    derived: DerivedPaths | None = None,
    last_output: str = "",
) -> None:
    """Undo an interrupted call, keep what it left as a discard, and record it.

    Args:
        writer: The branch.
        history: The files.
        clock: The time.
        discards: Keeps what the call left.
        derived: The derived paths, which the history does not restore.
        last_output: The last output of a command of that call.

    Raises:
        FilesystemError: If something cannot be restored.
        LedgerError: If it cannot be recorded.
    """
    mark, head = writer.pending(), writer.head
    if head is None:
        raise lost_ref(MAIN_BRANCH, "the history cannot be continued")
    if mark is not None and not writer.is_recorded(mark):
        discards.mark = mark
        undone = history.undo_interrupted(head.files)
        times = writer.pending_times()
        notes: tuple[str, ...] = ()
        if derived is not None and times is not None:
            notes = derived.roll_back(times, look=True)
        event = _interrupted(mark, undone, last_output, (*discards.pop_notes(), *notes))
        writer.append(_draft(event, head, clock.now()))
    elif writer.lost_power and isinstance(history, CopyHistory):
        # Files that changed since may be empty or cut
        history.undo_interrupted(head.files)
        _log.warning("The machine stopped while this was open: the files of its newest entry count")
    history.remove_unfinished(head.files if writer.head is None else writer.head.files)
    if mark is not None:
        writer.finish_pending()


def _draft(event: ToolInvoked, head: LogEntry, at: datetime) -> Draft:
    return Draft(
        kind=EntryKind.CALL,
        subject=f"{event.tool}: {event.message}",
        files=head.files,
        session=head.session,
        record=event,
        at=at,
        tool=event.tool,
        call_id=event.call_id,
        outcome=Outcome.UNKNOWN,
    )


def _interrupted(
    mark: PendingMark, undone: str, last_output: str, notes: tuple[str, ...]
) -> ToolInvoked:
    message = f"interrupted by the end of the process; {undone}"
    return ToolInvoked(
        call_id=mark.call_id,
        tool=mark.tool,
        prompt="",
        params=None,
        success=False,
        message=message,
        value=None,
        rendered_text="",
        text=f"{message}\n\nLast output of its command:\n{last_output}" if last_output else message,
        outcome=Outcome.UNKNOWN,
        started_at=mark.started_at,
        duration_s=0.0,
        notes=notes,
    )
