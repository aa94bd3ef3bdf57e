"""The boundary of a call: what happens before its first effect and after its last.

Tool calls of ``ToolExecutor`` and a program's own code in ``Workspace.call`` both change files and
state inside a ``CallBoundary``. Undo, restore, merge and sync use the ``Boundary`` that it extends.
In this order a call

1. takes the session, so that other threads wait and SIGINT is deferred, and commits the external
   edits made since the last call;
2. takes a snapshot of every participant, and writes the pending mark;
3. runs the body, in which SIGINT is delivered;
4. on success runs the reducers of STATE slices and commits;
5. on failure restores every participant and records the outcome only;
6. appends the record to the LOG and notifies subscribers. The outcome is final by then: an error in
   this step does not fail the call.

A call inside another one, in its thread or in one that it started, is a savepoint of it. Only the
outermost one writes to the journal.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from wink_workspace.clock import Heartbeat
from wink_workspace.errors import ReducerError, SessionError
from wink_workspace.prompt import ToolResult
from wink_workspace.resources import Snapshotable
from wink_workspace.session import (
    ExternalChange,
    Outcome,
    OutputLines,
    PolicyVerdict,
    Session,
    SliceKind,
    ToolInvoked,
    ToolStarted,
    call_subject,
)

from .interrupts import GuardedBlock
from .journal import PendingCall
from .long_results import MOST_TEXT_CHARS
from .redaction import Redaction
from .transaction import Transaction, transactions_of

if TYPE_CHECKING:
    from wink_workspace.prompt import Tool, ToolContext, ToolPolicy


_log = logging.getLogger(__name__)


_NOTHING: ToolResult[Any] = ToolResult.ok(None)


class CallScope(Protocol):
    """The participants in the calls of one owner, and the cleanup after a failed call."""

    @property
    def prompt_name(self) -> str:
        """The prompt to record; empty for a program's own code."""
        ...

    def participants(self) -> Sequence[Snapshotable]:
        """Everything to restore when a call fails, the session included."""
        ...

    def begin(self) -> None:
        """Note which resources exist before the call."""
        ...

    def evict(self, transaction: Transaction) -> None:
        """Close and remove the resources that the failed call built."""
        ...


class Boundary(GuardedBlock):
    """The steps that every change of files and STATE has in common.

    A block that takes the session, commits external edits and opens a transaction. ``_start`` comes
    before the first effect. A subclass decides in ``_finish`` how the block ends, and must commit
    the transaction or roll it back there.

    Args:
        session: STATE; its lock is held from the first step to the last.
        transaction: The transaction of the block.
    """

    def __init__(self, session: Session, transaction: Transaction) -> None:
        self._transactions = transactions_of(session)
        super().__init__(self._transactions.sigint)
        self._session = session
        self._clock = session.clock
        self.transaction = transaction
        self._turn = self._transactions.turn()
        self._participants: Sequence[Snapshotable] = ()
        self._depth = 0  # in how many calls it is
        self._undo_more: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        """Take the session, commit external edits and open the transaction.

        Raises:
            PoisonedError: If an earlier rollback failed and was not recovered.
            SessionError: If a reducer makes the call.
        """
        self._turn.__enter__()
        try:
            self._session.refuse_reducers()
            self._participants = self._taking_part()
            self._depth = self._transactions.depth
            if not self._depth:  # inside a call there are none
                paths = self._commit_external_edits()
                if paths:
                    self._publish_edit(ExternalChange(paths=paths, at=self._clock.now()))
            self._begin()
            with self._session.lock:  # as for ``_end``
                if self._transactions.around() is not self._turn.around:
                    raise _has_ended()
                self._transactions.begin(self.transaction, self)
        except BaseException as error:
            self._turn.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def _start(self, pending: PendingCall) -> None:
        """Take the snapshots and, in the outermost boundary, write the pending mark."""
        with self._session.lock:
            self._transactions.join(self._participants)
        if self._depth:
            self._undo_more = self._transactions.journal.savepoint(self._depth)
        else:
            self._transactions.journal.begin(pending)

    @abstractmethod
    def _taking_part(self) -> Sequence[Snapshotable]:
        """The participants."""

    def _begin(self) -> None:
        """Prepare the block, after external edits are committed."""

    @abstractmethod
    def _finish(self, error: BaseException | None) -> None:
        """Commit, or roll back because of *error* or of a failure to commit."""

    @abstractmethod
    def _publish(self) -> None:
        """Publish the record when the outcome is final."""

    def _end(self, error: BaseException | None) -> bool:
        with self._session.lock:  # so that the call around it does not end meanwhile
            if self._transactions.is_begun(self.transaction):
                return self._end_begun(error)
        self._turn.abandon()
        raise error or _has_ended()

    def _end_begun(self, error: BaseException | None) -> bool:
        try:
            try:
                inside = self._transactions.end_inside(self.transaction)
                self._finish(error or inside)
            finally:
                self._transactions.end(self.transaction)
            self._publish()
        except BaseException as failure:
            self._turn.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._turn.__exit__(None, None, None)
        return True

    # External edits

    def _commit_external_edits(self) -> tuple[str, ...]:
        """Commit external edits made since the last call; return their paths."""
        free = self._transactions.claim(self._participants)
        return self._transactions.journal.absorb_external(free)

    def _publish_edit(self, event: ExternalChange) -> None:
        """Reduce the event of an edit and notify subscribers; errors of reducers are logged."""
        for kind in (SliceKind.STATE, SliceKind.LOG):
            try:
                self._session.reduce(event, kind=kind)
            except ReducerError:
                what = "A %s reducer raised on an edit made outside of any call; calls continue"
                _log.exception(what, kind.name)
                if kind is SliceKind.LOG:
                    self._session[ExternalChange].append(event)
        self._session.notify(event)

    # The record

    def _publish_record(self, events: Sequence[object]) -> None:
        """Append *events* to the LOG and notify subscribers of the last one, the record.

        Errors here do not fail what is final. An interruption by a reducer is raised after the
        record is written and published.
        """
        interruption: BaseException | None = None
        record = events[-1]
        for each in events:
            try:
                self._session.reduce(each, kind=SliceKind.LOG)
            except BaseException as error:  # noqa: BLE001 - the outcome is final and needs its record
                _log.exception(
                    "A LOG reducer raised on %s; the call is not affected", type(each).__name__
                )
                if each is record:
                    self._session[type(record)].append(record)
                if not isinstance(error, Exception):
                    interruption = error
        self._session.notify(record)
        if interruption is not None:
            raise interruption


def _has_ended() -> SessionError:
    return SessionError(
        "the call around this one has ended, so this one was rolled back",
        hint="Wait for the tasks and threads that make calls before the block ends.",
    )


class CallBoundary(Boundary):
    """One call: ``with boundary: boundary.start(); boundary.tool_result = …``.

    The block does not raise the exception of its body: ``answer`` makes a failed result of it.
    Afterwards ``event`` is the record, and the owner must raise ``ending`` if there is one.

    Args:
        session: State and clock; its lock is held from the first step to the last.
        scope: The participants.
        call_id: The id of the call in the history.
        tool: The name of the tool, for the record.
        heartbeat: Beats before and after the call.
        redaction: Applied to the result and the record.
    """

    def __init__(
        self,
        session: Session,
        scope: CallScope,
        *,
        call_id: str,
        tool: str,
        heartbeat: Heartbeat | None = None,
        redaction: Redaction | None = None,
    ) -> None:
        super().__init__(session, Transaction(discard=lambda: scope.evict(self.transaction)))
        self.call_id = call_id
        self.tool = tool
        self.params: object = None
        self.decisions: list[PolicyVerdict] = []
        self.policy: str | None = None
        self.tool_result: ToolResult[Any] = _NOTHING
        self.uncertain_paths: tuple[str, ...] = ()
        self.ending: BaseException | None = None
        self._reduced: tuple[object, ...] = ()
        self.has_outside_effect = False
        self._outcome_of_failure = Outcome.ROLLED_BACK
        self._output: OutputLines | None = None
        self._thread = threading.get_ident()
        self.event: ToolInvoked
        self._scope = scope
        self._heartbeat = heartbeat
        self._redaction = redaction or Redaction(None)

    def _taking_part(self) -> Sequence[Snapshotable]:
        return self._scope.participants()

    def _begin(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.beat()
        self._scope.begin()
        self._started_at = self._clock.now()
        self._started_s = self._clock.monotonic_s()

    def start(self) -> None:
        """Take the snapshots, write the pending mark, and let SIGINT be delivered."""
        self._start(PendingCall(self.call_id, self.tool, self._started_at))
        self.deliver_sigint()

    @abstractmethod
    def answer(self, error: BaseException) -> tuple[ToolResult[Any], BaseException | None]:
        """The failed result for *error*, and the exception that ends the run, if any."""

    def _finish(self, error: BaseException | None) -> None:
        if error is None:
            try:
                with self._transactions.sigint.delivered():
                    result = self._redaction.result(self.tool_result)
                    event = self._record(result)
                    if result.whole or len(event.text) > MOST_TEXT_CHARS:
                        event = self._shortened(event, result.whole)
                    if result.success:
                        self._reduce(event)
                if result.success:
                    self._commit(event)
                self.tool_result, self.event = result, event
            except BaseException as failure:  # noqa: BLE001 - the handler boundary: a bug becomes a failed call
                error = failure
        if error is not None:
            answer, self.ending = self.answer(error)
            self.tool_result = self._redaction.result(answer, failed=True)
            self.event = self._record(self.tool_result, error)
            if len(self.event.text) > MOST_TEXT_CHARS:
                self.event = self._shortened(self.event, "")
        if not self.tool_result.success:
            self.ending = self._roll_back() or self.ending
        self.transaction.outside_effects = self.event.outside_effects

    # Progress, for subscribers only

    def notify_start(self, params: object) -> None:
        """Notify subscribers, if there are any, that the body begins, with its parsed *params*."""
        if not self._session.dispatcher.subscriptions:
            return
        subject = call_subject(params, self._redaction.text)
        self._session.notify(
            ToolStarted(call_id=self.call_id, tool=self.tool, subject=subject, depth=self._depth)
        )

    def notify_output(self, stream: str, data: bytes) -> None:
        """Notify subscribers of *data*, a piece of a command's output in *stream*."""
        if self._output is None:
            self._output = OutputLines(
                self.call_id, self._redaction.text, self._session.notify, thread=self._thread
            )
        self._output(stream, data)

    def note_outside_effect(self, effect: str) -> None:
        """Record *effect*, a phrase for what no rollback takes back, before it begins.

        If the call fails later, its outcome is ``unknown``.
        """
        self.has_outside_effect = True
        self._outcome_of_failure = Outcome.UNKNOWN
        self.transaction.outside_effects += (self._redaction.text(effect),)

    # Policies

    def refusal(
        self,
        policies: Sequence[ToolPolicy],
        tool: Tool[Any, Any],
        params: object,
        context: ToolContext,
    ) -> tuple[str, str] | None:
        """Name and reason of the first of *policies* that refuses the call, or ``None``.

        *tool* and its parsed *params* are those of the call.

        Each decision is recorded. ``policy`` is the name of the policy being asked: a policy that
        raises refuses the call.
        """
        for policy in policies:
            self.policy = policy.name
            decision = policy.check(tool, params, context=context)
            verdict = PolicyVerdict(
                policy=policy.name, allowed=decision.allowed, reason=decision.reason
            )
            self.decisions.append(verdict)
            if not decision.allowed:
                return policy.name, decision.reason
        self.policy = None
        return None

    def notify_policies(
        self,
        policies: Sequence[ToolPolicy],
        tool: Tool[Any, Any],
        params: object,
        result: ToolResult[Any],
        context: ToolContext,
    ) -> None:
        """Notify *policies* of the *result* of a successful call of *tool* with *params*."""
        for policy in policies:
            self.policy = policy.name
            policy.on_result(tool, params, result, context=context)
        self.policy = None

    # Commit, rollback and record

    def _record(self, result: ToolResult[Any], error: BaseException | None = None) -> ToolInvoked:
        trace = None if error is None else error_text(error, traceback.format_exception)
        rendered = result.render()
        event = ToolInvoked(
            call_id=self.call_id,
            tool=self.tool,
            prompt=self._scope.prompt_name,
            params=self.params,
            success=result.success,
            message=result.message,
            value=result.value,
            rendered_text=rendered,
            text=result.provider_text(rendered),
            outcome=Outcome.COMMITTED if result.success else self._outcome_of_failure,
            started_at=self._started_at,
            duration_s=self._clock.monotonic_s() - self._started_s,
            decisions=tuple(self.decisions),
            error=trace,
            depth=self._depth,
            outside_effects=(*self.transaction.outside_effects, *result.outside_effects),
            uncertain_paths=self.uncertain_paths,
        )
        return self._redaction.event(event, failed=error is not None)

    def _shortened(self, event: ToolInvoked, whole: str) -> ToolInvoked:
        """The record with a text for a model's context; a program's own code has no model."""
        del whole
        return event

    def _reduce(self, event: ToolInvoked) -> None:
        self._reduced = _events(event)
        for each in self._reduced:
            self._session.reduce(each, kind=SliceKind.STATE)

    def _commit(self, event: ToolInvoked) -> None:
        self._transactions.check()  # the body may have caught the RollbackError of a call inside
        if not self._depth:
            self._transactions.journal.commit(event, self.transaction.saved)
        self.transaction.commit()

    def _roll_back(self) -> BaseException | None:
        """Undo the call and record it; return what interrupted closing its resources."""
        with self._transactions.frozen():
            return self._rolled_back()

    def _rolled_back(self) -> BaseException | None:
        saved = self.transaction.saved
        interruption: BaseException | None = None
        try:
            self._transactions.roll_back(self.transaction)
        except BaseException as error:
            if self.transaction.saved:
                self.event = dataclasses.replace(self.event, outcome=Outcome.UNKNOWN)
                self._publish()
                raise
            interruption = error
        if self._depth:
            self._undo_more()
        else:
            try:
                self._transactions.journal.rolled_back(self.event, saved)
            except BaseException:
                self._publish()
                raise
        return interruption

    def _publish(self) -> None:
        event = self.event
        is_reduced = bool(self._reduced) and self._reduced[-1] is event
        try:
            self._publish_record(self._reduced if is_reduced else _events(event))
        finally:
            if self._heartbeat is not None:
                self._heartbeat.beat()


def error_text(error: BaseException, format_error: Callable[[BaseException], Iterable[str]]) -> str:
    """The lines of *format_error* for *error*; only its type if its own methods raise."""
    try:
        return "".join(format_error(error))
    except Exception:  # noqa: BLE001 - the call needs its answer and its record
        return f"{type(error).__name__}, which cannot be shown"


def _events(event: ToolInvoked) -> tuple[object, ...]:
    """The events that reducers get for a call: its value, if it is a dataclass, and the call."""
    value = event.value
    if value is None or not event.success:
        return (event,)
    is_event = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return (value, event) if is_event else (event,)
