"""Recovery of a workspace whose last process died during a call.

Every step may be repeated, so a crash during a recovery does no harm.
"""

from __future__ import annotations

import logging
from datetime import datetime

from wink_workspace.clock import Clock
from wink_workspace.ledger import (
    MAIN_BRANCH,
    BranchWriter,
    Draft,
    EntryKind,
    LogEntry,
    PendingMark,
    lost_ref,
)
from wink_workspace.session import Outcome, ToolInvoked
from wink_workspace.workspace.files.derived_paths import DerivedPaths
from wink_workspace.workspace.files.discard_records import Discards
from wink_workspace.workspace.files.histories import CopyHistory, FilesHistory

__all__ = ["recover"]

_log = logging.getLogger(__name__)


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
