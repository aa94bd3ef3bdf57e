"""Records in the history what restores discard."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from wink_workspace.clock import Clock
from wink_workspace.errors import FilesystemError, LedgerError
from wink_workspace.filesystem import WorkspacePath
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    BranchWriter,
    Dropped,
    PendingMark,
    TreeEntry,
    build,
)

from .pending_discards import DiscardCause, PendingDiscards

_log = logging.getLogger(__name__)

_NO_CALL = "outside"


class Discards:
    """Knows the call that a restore belongs to, and records what was moved aside.

    Args:
        writer: The branch.
        clock: The time.
        pending_discards: What was moved aside; ``None`` in place, where nothing is moved aside.

    Attributes:
        mark: The interrupted call, during its recovery.
    """

    def __init__(
        self, writer: BranchWriter, clock: Clock, pending_discards: PendingDiscards | None
    ) -> None:
        self.mark: PendingMark | None = None
        self._writer = writer
        self._clock = clock
        self._pending_discards = pending_discards
        self._has_failed = False

    def cause(self, reason: str) -> DiscardCause:
        """Why something is about to be discarded."""
        head, mark = self._writer.head, self.mark or self._writer.begun
        return DiscardCause(
            reason=reason,
            call_id=(mark.call_id if mark is not None else "") or _NO_CALL,
            number=0 if head is None else head.number,
            files=EMPTY_TREE_ID if head is None else head.files,
            at=self._clock.now() if self.mark is None else self.mark.started_at,
        )

    def keep(self, root: str, reason: str) -> None:
        """Keep a state that is already in the ledger; a failure is logged."""
        try:
            self._keep(root, self.cause(reason), Dropped())
        except LedgerError as error:
            _log.warning("The files that a restore replaces are not kept: %s", error)

    def keep_paths(self, old: Mapping[WorkspacePath, TreeEntry | None], reason: str) -> None:
        """Keep the *old* entries of some paths; a failure is logged."""
        cause = self.cause(reason)
        try:
            self._keep(build(self._writer.store, cause.files, old), cause, Dropped())
        except LedgerError as error:
            _log.warning("The former contents of private files are not kept: %s", error)

    def _keep(self, root: str, cause: DiscardCause, dropped: Dropped) -> None:
        self._writer.discard(
            root,
            reason=cause.reason,
            call_id=cause.call_id,
            at=cause.at,
            found_after=(cause.number, cause.files),
            dropped=dropped,
        )

    def pop_notes(self) -> tuple[str, ...]:
        """What could not be kept since the last call of this, in sentences."""
        return () if self._pending_discards is None else self._pending_discards.pop_notes()

    def free_space(self) -> bool:
        """Delete the pending discards because the disk is full; whether there were any."""
        return self._pending_discards is not None and self._pending_discards.free_space()

    def advance(self) -> None:
        """Record, and delete afterwards, some of what was moved aside: for some 0.5 ms.

        A failure is logged and not repeated at every call.
        """
        pending = self._pending_discards
        if pending is not None and pending.has_work and not self._has_failed:
            self._attempt(lambda: pending.advance(self._keep))

    def record_small(self) -> None:
        """Record what was moved aside if that takes no noticeable time."""
        pending = self._pending_discards
        if pending is not None and pending.has_work and not self._has_failed:
            self._attempt(lambda: pending.record(self._keep, only_small=True))

    def record_all(self, *, delete: bool = False) -> None:
        """Record everything that was moved aside, also after a failure; then perhaps *delete* it.

        What cannot be written stays for later; the log has the reason.
        """
        pending = self._pending_discards
        if pending is not None and pending.has_work:
            self._attempt(lambda: pending.record(self._keep))
            if delete:
                self._attempt(pending.delete)

    def close(self) -> None:
        """Interrupt the recording; the next process may repeat it."""
        if self._pending_discards is not None:
            self._pending_discards.close()

    def _attempt(self, act: Callable[[], object]) -> None:
        try:
            act()
        except (LedgerError, FilesystemError, OSError) as error:
            self._has_failed = True
            _log.warning("Discarded files are kept, but not in the history yet: %s", error)
        else:
            self._has_failed = False
