"""All-or-nothing state for one tool call.

Rule 1: every change a call makes happens inside a ``Transaction``, and nothing else in the
package calls ``restore``.
Rule 2: participants are restored newest first, and all of them are tried even when one
fails, so that one broken backend cannot hide another.
Rule 3: a participant that appears later (the resources of a prompt evaluated inside the
call) joins every open transaction before it is used, so the outer rollback reaches it.

States: OPEN -> COMMITTED, or ROLLED_BACK, or POISONED when a restore fails. A poisoned
session runs nothing until ``SessionTransactions.recover`` has restored what failed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from wink_workspace.errors import PoisonedError, RollbackError
from wink_workspace.resources import Snapshotable
from wink_workspace.session import Session

from .interrupts import InterruptGate
from .journal import Journal, MemoryJournal

__all__ = ["SessionTransactions", "Transaction", "transactions_of"]


class Transaction:
    """The span of one call.

    Args:
        discard: Called first on rollback: closes and forgets what was built inside the
            call, so that nothing it still holds is written after the restore.
    """

    def __init__(self, *, discard: Callable[[], object] = lambda: None) -> None:
        self._discard = discard
        self._saved: list[tuple[Snapshotable, object]] = []
        self._open = True

    @property
    def is_open(self) -> bool:
        """Whether neither ``commit`` nor ``rollback`` was called yet."""
        return self._open

    @property
    def saved(self) -> tuple[tuple[Snapshotable, object], ...]:
        """Everyone still to be restored on rollback, in the order of joining, with the snapshot."""
        return tuple(self._saved)

    def join(self, participant: Snapshotable) -> None:
        """Save *participant* as it is now; one that joined before keeps its first snapshot."""
        if not any(known is participant for known, _ in self._saved):
            self._saved.append((participant, participant.snapshot()))

    def commit(self) -> None:
        """Keep every change; the transaction is over."""
        self._open = False

    def rollback(self) -> None:
        """Undo every change; the transaction is over.

        What *discard* raises is raised again once everybody was restored. It is called once:
        when a failed rollback is tried again, what it would discard is no longer this call's.

        Raises:
            RollbackError: If a participant could not be restored; what failed stays saved,
                and calling again retries it.
        """
        self._open = False
        interruption: BaseException | None = None
        discard, self._discard = self._discard, lambda: None
        try:
            discard()
        except BaseException as error:  # noqa: BLE001 - rule 2: raised below
            interruption = error
        failures: list[BaseException] = []
        unrestored: list[tuple[Snapshotable, object]] = []
        for participant, token in reversed(self._saved):
            try:
                participant.restore(token)
            except BaseException as error:  # noqa: BLE001 - rule 2: collected, and raised below
                failures.append(error)
                unrestored.insert(0, (participant, token))
        self._saved = unrestored
        if failures:
            what = "; ".join(f"{type(error).__name__}: {error}" for error in failures)
            raise RollbackError(
                f"{len(failures)} of the call's resources could not be restored: {what}", failures
            )
        if interruption is not None:
            raise interruption


class SessionTransactions:
    """The open transactions of one session, its journal, and whether it may run at all."""

    def __init__(self, session_lock: threading.RLock) -> None:
        self.journal: Journal = MemoryJournal()
        self.gate = InterruptGate()
        self._lock = session_lock
        self._stack: list[Transaction] = []
        self._failed: Transaction | None = None

    @property
    def depth(self) -> int:
        """How many calls are under way, one inside the other."""
        return len(self._stack)

    @contextmanager
    def turn(self) -> Generator[None]:
        """Own the session for one call: other threads wait, SIGINT is held back.

        Raises:
            PoisonedError: If an earlier rollback failed.
        """
        with self._lock, self.gate.closed():
            self.check()
            yield

    def check(self) -> None:
        """Raise ``PoisonedError`` if an earlier rollback failed and nothing was recovered."""
        if self._failed is not None:
            raise PoisonedError("an earlier rollback failed, so the state is not known")

    @contextmanager
    def transaction(
        self, participants: Sequence[Snapshotable], *, discard: Callable[[], object]
    ) -> Generator[Transaction]:
        """Open a transaction inside the ones already open, as a savepoint.

        Leaving the block with the transaction still open rolls it back.
        """
        transaction = Transaction(discard=discard)
        self._stack.append(transaction)
        try:
            self.join(participants)
            yield transaction
        finally:
            if transaction.is_open:
                self.roll_back(transaction)
            self._stack.pop()

    def join(self, participants: Sequence[Snapshotable]) -> None:
        """Make every open transaction answer for *participants* too (rule 3)."""
        for transaction in self._stack:
            for participant in participants:
                transaction.join(participant)

    def roll_back(self, transaction: Transaction) -> None:
        """Undo *transaction*; if that fails, refuse all work from now on.

        An outer rollback that succeeds puts right an inner one that failed, since whatever
        takes part in a savepoint takes part in the transactions around it.
        """
        try:
            transaction.rollback()
        finally:
            self._failed = transaction if transaction.saved else None

    def recover(self) -> None:
        """Try again to restore what a failed rollback left behind.

        Does nothing when nothing failed. Raises ``RollbackError`` if it fails again.
        """
        with self._lock:
            if self._failed is not None:
                self.roll_back(self._failed)


_by_session: WeakKeyDictionary[Session, SessionTransactions] = WeakKeyDictionary()
_by_session_lock = threading.Lock()


def transactions_of(session: Session) -> SessionTransactions:
    """The one ``SessionTransactions`` of *session*, made at first use and gone with it.

    Kept beside the session because every executor on a session, a nested one too, must
    find the same stack, while the session itself knows nothing of calls. A session and its
    children, which are restored together and share a lock, share one.
    """
    while session.parent is not None:
        session = session.parent
    with _by_session_lock:
        found = _by_session.get(session)
        if found is None:
            found = _by_session[session] = SessionTransactions(session.lock)
        return found
