"""All-or-nothing state for one tool call.

Rule 1: every change a call makes happens inside a ``Transaction``, and nothing else in the
package calls ``restore``.
Rule 2: participants are restored newest first, and all of them are tried even when one
fails, so that one broken backend cannot hide another.
Rule 3: a participant that appears later (built inside the call, or a resource of a prompt
evaluated in it) joins every open transaction before it is used, so that the outer rollback
restores it. If its owner closes it meanwhile, closing waits until no rollback can need it.
Rule 4: a participant serves the calls of one session at a time. Otherwise the rollback of one
would undo what another has committed.
Rule 5: a thread or task that a call starts with its context, as ``asyncio`` and most frameworks do,
is a part of that call. Its own calls are savepoints of it, one at a time. A savepoint that is still
open when the call around it ends is rolled back with it.

States: OPEN -> COMMITTED, or ROLLED_BACK, or POISONED when a restore fails. A poisoned
session runs nothing until ``SessionTransactions.recover`` has restored what failed.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import cast
from weakref import ref

from wink_workspace._module_lock import ModuleLock
from wink_workspace.errors import PoisonedError, RollbackError, SessionError
from wink_workspace.processes import OwnProcess
from wink_workspace.resources import Snapshotable
from wink_workspace.session import Session
from wink_workspace.session.session import SessionLock

from .interrupts import DeferSigint, GuardedBlock
from .journal import Journal, MemoryJournal

_log = logging.getLogger(__name__)


class Transaction:
    """The span of one call.

    Args:
        discard: Called first on rollback. Closes and removes resources that were built inside the
            call, newest first, each after ``restore_one``, so that closing writes nothing after
            the restore.
    """

    __slots__ = (
        "__weakref__",
        "_closed",
        "_discard",
        "_failures",
        "_open",
        "_saved",
        "block",
        "lock",
        "outside_effects",
        "owner",
    )

    def __init__(self, *, discard: Callable[[], object] = lambda: None) -> None:
        self._discard = discard
        self._saved: list[tuple[Snapshotable, object]] = []
        self._closed: list[object] = []
        self._failures: list[BaseException] = []
        self._open = True
        self.outside_effects: tuple[str, ...] = ()
        """What no rollback takes back; it is passed on to the transaction around this one."""
        self.lock = threading.RLock()
        """Held by a savepoint of it."""
        self.owner: tuple[int, object] = (0, None)
        """The thread and the task that opened it."""
        self.block: GuardedBlock | None = None
        """Its block, from ``begin`` to ``end``."""

    @property
    def is_open(self) -> bool:
        """Whether neither ``commit`` nor ``rollback`` has been called."""
        return self._open

    @property
    def saved(self) -> tuple[tuple[Snapshotable, object], ...]:
        """The participants to restore on rollback, in order of joining, with their snapshots."""
        return tuple(self._saved)

    def join(self, participant: Snapshotable) -> None:
        """Take a snapshot of *participant*, unless it joined before."""
        for known, _ in self._saved:
            if known is participant:
                return
        self._saved.append((participant, participant.snapshot()))

    def forget(self, participants: Sequence[object]) -> None:
        """Remove *participants*, which are closed."""
        self._saved = [
            (known, token)
            for known, token in self._saved
            if not any(known is participant for participant in participants)
        ]

    def commit(self) -> None:
        """Keep every change and end the transaction."""
        self._open = False
        self._saved = []  # a context that outlives the call keeps the transaction

    def rollback(self) -> None:
        """Undo every change and end the transaction.

        An error of *discard* is raised after every participant was restored. *discard* is called
        once, not when a failed rollback is retried: resources built by then belong to later calls.

        Raises:
            RollbackError: If a participant could not be restored; it stays in ``saved``, and
                calling again retries it.
        """
        self._open = False
        failures: list[BaseException] = []
        self._failures = failures
        interruption: BaseException | None = None
        discard, self._discard = self._discard, lambda: None
        try:
            discard()
        except BaseException as error:  # noqa: BLE001 - rule 2: raised below
            interruption = error
        for entry in self._saved[::-1]:
            self._restore(entry)
        if failures:
            what = "; ".join(f"{type(error).__name__}: {error}" for error in failures)
            raise RollbackError(
                f"{len(failures)} of the call's resources could not be restored: {what}", failures
            )
        if interruption is not None:
            raise interruption

    def restore_one(self, participant: object) -> None:
        """Restore *participant*, if it takes part, before it is closed; only for *discard*."""
        for entry in self._saved:
            if entry[0] is participant:
                if self._restore(entry):
                    self._closed.append(participant)
                return

    @property
    def closed(self) -> Sequence[object]:
        """The participants that were restored and closed."""
        return self._closed

    def _restore(self, entry: tuple[Snapshotable, object]) -> bool:
        participant, token = entry
        try:
            participant.restore(token)
        except BaseException as error:  # noqa: BLE001 - rule 2: collected, and raised at the end
            self._failures.append(error)
            return False
        self._saved = [other for other in self._saved if other is not entry]
        return True


class SessionTransactions:
    """The open transactions of one session, its journal, and whether it may run at all.

    Attributes:
        frozen: Returns a block in which no service changes or reads the files; a rollback runs
            inside it.
    """

    def __init__(self, lock: SessionLock) -> None:
        self.journal: Journal = MemoryJournal()
        self.sigint = DeferSigint()
        self.process: OwnProcess | None = None
        self.frozen: Callable[[], AbstractContextManager[None]] = nullcontext
        self.lock = lock
        lock.is_inside = lambda: self.is_inside_call
        self._stack: list[Transaction] = []
        self._claimed: list[int] = []
        self._closings: list[Callable[[], object]] = []
        self._failed: Transaction | None = None

    @property
    def depth(self) -> int:
        """How many nested calls are in progress."""
        return len(self._stack)

    @property
    def is_inside_call(self) -> bool:
        """Whether this thread is inside a call, or is a part of one (rule 5)."""
        if not self._stack:
            return False
        thread = threading.get_ident()
        if self._stack[-1].owner[0] == thread:
            return True  # asked a dozen times in each call
        started_in = _started_in.get()
        return any(each.owner[0] == thread or each in started_in for each in tuple(self._stack))

    def around(self) -> Transaction | None:
        """The innermost open call that this code opened or is a part of (rule 5)."""
        if not self._stack:
            return None
        owner, started_in = (threading.get_ident(), current_task()), _started_in.get()
        mine = (each for each in self._stack[::-1] if each.owner == owner or each in started_in)
        return next(mine, None)

    def turn(self) -> Turn:
        """The block in which one call owns the session; see ``Turn``."""
        return Turn(self)

    def begin_turn(self, around: Transaction | None) -> None:
        """Begin a turn in the call *around*; the caller holds its lock and defers SIGINT.

        Raises:
            PoisonedError: If an earlier rollback failed and was not recovered.
            SessionError: If another task on this thread is inside a call.
        """
        self.check()
        if self._stack and self._stack[-1] is not around:
            raise SessionError(
                "another task of this event loop is inside a call",
                hint="Write `async with workspace.call(…)`, in which tasks wait for their turn.",
            )

    def end_turn(self) -> None:
        """End a turn; after the outermost one, release the claimed participants."""
        if not self._stack:
            for key in self._claimed:
                _holders.pop(key, None)
            self._claimed.clear()

    def claim(self, participants: Sequence[Snapshotable]) -> Sequence[Snapshotable]:
        """Claim *participants* that no other session's call uses (rule 4); return them.

        The claim ends with the outermost call. A call of another session inside ours, on our
        thread, counts as part of ours.

        Raises:
            SessionError: If one of them belongs to another session.
        """
        self.refuse_foreign(participants)
        return [each for each in participants if self._claim(each)]

    def own(self, participant: Snapshotable) -> None:
        """Let only calls of this session use *participant*, and calls inside of them."""
        key = id(participant)  # our journal keeps it alive as long as we are
        _owners[key] = ref(self, lambda _: _owners.pop(key, None))

    def refuse_foreign(self, participants: Sequence[Snapshotable]) -> None:
        """Refuse *participants* whose history is that of another session.

        Raises:
            SessionError: If one of them belongs to another session, which is not inside a call.
        """
        for each in participants:
            owner = _owners.get(id(each), lambda: None)()
            if owner is not None and owner is not self and not owner.is_inside_call:
                raise SessionError(
                    f"the {type(each).__name__} belongs to a workspace with another session, so its"
                    " history would not have these calls",
                    hint="Pass session=workspace.session.",
                )

    def _claim(self, participant: Snapshotable) -> bool:
        holder = _holders.setdefault(id(participant), self)
        if holder is not self:
            return holder.is_inside_call
        self._claimed.append(id(participant))
        return True

    def check(self) -> None:
        """Raise ``PoisonedError`` if an earlier rollback failed and was not recovered."""
        if self._failed is not None:
            raise PoisonedError("an earlier rollback failed, so the state is unknown")

    def begin(self, transaction: Transaction, block: GuardedBlock | None = None) -> None:
        """Open *transaction*, that of *block*, inside the open ones, until ``end``."""
        transaction.owner, transaction.block = (threading.get_ident(), current_task()), block
        self._stack.append(transaction)
        _started_in.set((*_started_in.get(), transaction))

    def is_begun(self, transaction: Transaction) -> bool:
        """Whether *transaction* has begun and not ended, not even with one around it."""
        return transaction in self._stack

    def end_inside(self, transaction: Transaction) -> SessionError | None:
        """Roll back what is still open inside *transaction*, which ends; the error for it."""
        if self._stack[-1] is transaction:
            return None
        while self._stack[-1] is not transaction:
            inside = self._stack.pop()
            transaction.outside_effects += inside.outside_effects
            if inside.block is not None:
                inside.block.abandon()
            try:
                inside.rollback()
            except Exception:  # noqa: BLE001 - what it did not restore, *transaction* restores
                _log.exception("A call that was still open inside another one did not end cleanly")
        return SessionError(
            "a call that was begun inside this one has not ended",
            hint="Wait for the tasks and threads that make calls before the block ends.",
        )

    def end(self, transaction: Transaction) -> None:
        """Close the innermost transaction, rolled back if it is still open."""
        try:
            if transaction.is_open:
                self.roll_back(transaction)
        finally:
            self._stack.pop()
            transaction.block = None
            _started_in.set(tuple(each for each in _started_in.get() if each is not transaction))
            if self._stack:
                self._stack[-1].outside_effects += transaction.outside_effects
            else:
                self._run_closings()

    def join(self, participants: Sequence[Snapshotable]) -> None:
        """Add *participants* to every open transaction (rule 3).

        Raises:
            SessionError: If another session's call is using one of them (rule 4).
        """
        for participant in participants:
            # The outermost call has claimed most of them before
            if _holders.get(id(participant)) is not self and not self._claim(participant):
                raise SessionError(
                    f"a {type(participant).__name__} is being used by a call of another session",
                    hint="Call again after that call has ended, or give each session its own.",
                )
            for transaction in self._stack:
                transaction.join(participant)

    # The observer of a ``ResourceContext``

    def built(self, resource: object) -> None:
        """Let a new resource join before any code uses it (rule 3)."""
        if self._stack and takes_part(type(resource)):
            self.join((cast("Snapshotable", resource),))

    def outlives(self, resources: Sequence[object], close: Callable[[], object]) -> bool:
        """Whether *close* waits for the outermost call's end, as it may restore *resources*."""
        if not self._stack:
            return False
        saved = self._stack[0].saved
        waits = any(each is participant for each in resources for participant, _ in saved)
        if waits:
            self._closings.append(close)
        return waits

    def _run_closings(self) -> None:
        closings, self._closings = self._closings, []
        for close in reversed(closings):
            try:
                close()
            except Exception:  # noqa: BLE001 - the call and the block that opened them have ended
                _log.exception("Resources of a prompt evaluated inside a call did not close")

    def roll_back(self, transaction: Transaction) -> None:
        """Undo *transaction*; if that fails, poison the session.

        An outer rollback that succeeds also repairs a failed inner one, since participants of a
        savepoint take part in the transactions around it.
        """
        try:
            with self.frozen():
                transaction.rollback()
        finally:
            self._failed = transaction if transaction.saved else None
            for other in self._stack if transaction.closed else ():
                if other is not transaction:
                    other.forget(transaction.closed)

    def recover(self) -> None:
        """Retry a failed rollback, if there is one.

        Raises:
            RollbackError: If it fails again.
        """
        with self.lock.now():
            if self._failed is not None:
                self.roll_back(self._failed)


class Turn:
    """Owns the session, or the call around it, for one call: others wait, SIGINT is deferred.

    Entering raises as ``SessionTransactions.begin_turn``, and ``ForkedProcessError`` if the session
    belongs to another process.
    """

    __slots__ = ("_deferral", "_lock", "_transactions", "around")

    def __init__(self, transactions: SessionTransactions) -> None:
        self._transactions = transactions
        self._lock: threading.RLock
        self._deferral: AbstractContextManager[None]
        self.around: Transaction | None

    def __enter__(self) -> None:
        transactions = self._transactions
        if transactions.process is not None:
            transactions.process.check()  # first, as another thread of the parent may hold the lock
        self.around = around = transactions.around()
        self._lock = transactions.lock.outside if around is None else around.lock
        with self._lock:  # after a plain ``acquire``, SIGINT could leave it locked
            if around is transactions.around():
                self._deferral = transactions.sigint.deferred()
                self._deferral.__enter__()
                try:
                    transactions.begin_turn(around)
                except BaseException as error:
                    self._deferral.__exit__(type(error), error, error.__traceback__)
                    raise
                self._lock.acquire()  # once more, for the turn; SIGINT is deferred now
                return
        self.__enter__()  # the call around it ended meanwhile

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._lock.release()
            try:
                self._transactions.end_turn()
            finally:
                self._deferral.__exit__(None, None, None)

    def abandon(self) -> None:
        """Release the lock only: the call around this turn has ended."""
        self._lock.release()


def current_task() -> object:
    """The asyncio task that runs on this thread, ``None`` if there is none."""
    asyncio = sys.modules.get(
        "asyncio"
    )  # if it is not loaded there is no task, and loading it is slow
    try:
        return None if asyncio is None else asyncio.current_task()
    except RuntimeError:  # no event loop runs here
        return None


@functools.lru_cache
def takes_part(resource_type: type) -> bool:
    """Whether its instances are ``Snapshotable``; cached, as ``issubclass`` is slow here."""
    return issubclass(resource_type, Snapshotable)


_started_in: ContextVar[tuple[Transaction, ...]] = ContextVar("wink_workspace_calls", default=())
"""The calls that were open when the code of this context was started."""

_holders: dict[int, SessionTransactions] = {}
"""The session whose call uses a participant, by its ``id``; a call keeps participants alive."""

_owners: dict[int, ref[SessionTransactions]] = {}
"""The session to which a participant belongs, by its ``id``; those of a program belong to none."""

_making = ModuleLock()


def transactions_of(session: Session) -> SessionTransactions:
    """The ``SessionTransactions`` of *session*, made at first use and kept as long as the session.

    All executors on a session, nested ones included, must use the same stack. A session and its
    children are restored together and share a lock, so they share one. It refers to the session by
    its journal, so a table of all sessions would keep every session.
    """
    while session.parent is not None:
        session = session.parent
    with _making.now:
        found = session.companions.get(SessionTransactions)
        if not isinstance(found, SessionTransactions):
            found = session.companions[SessionTransactions] = SessionTransactions(session.locks)
        return found
