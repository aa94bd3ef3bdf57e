"""The boundary of a call: what happens before its first effect and after its last.

Whatever changes files and state as one entry does so inside a ``CallBoundary``: the tool calls of
``ToolExecutor``, and a program's own code in ``Workspace.call``. In this order it

1. takes the session, so that other threads wait and SIGINT is deferred, and commits the external
   edits made since the last call;
2. takes a snapshot of every participant, and writes the pending mark;
3. runs the body, in which SIGINT is delivered;
4. on success runs the reducers of STATE slices and commits;
5. otherwise restores every participant and records the outcome alone;
6. appends the record to the LOG and notifies subscribers. This is past the point of no return:
   nothing here can fail the call.

A boundary inside another one on the same thread is a savepoint of it: only the outermost one
reaches the journal.
"""

from __future__ import annotations

import dataclasses
import logging
import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, Self

from wink_workspace import serde
from wink_workspace.clock import Heartbeat
from wink_workspace.errors import ReducerError
from wink_workspace.prompt import Tool, ToolContext, ToolPolicy, ToolResult
from wink_workspace.resources import Snapshotable
from wink_workspace.session import (
    ExternalChange,
    Outcome,
    PolicyVerdict,
    Session,
    SliceKind,
    ToolInvoked,
)

from .interrupts import GuardedBlock
from .journal import PendingCall
from .transaction import Transaction, transactions_of

__all__ = ["CallBoundary", "CallScope", "Redaction", "shown"]

_log = logging.getLogger(__name__)

_NOTHING: ToolResult[Any] = ToolResult.ok(None)
_WITHHELD = "[withheld: it could not be redacted]"


class CallScope(Protocol):
    """What takes part in the calls of one owner, and what to clean up after a failed one."""

    @property
    def prompt_name(self) -> str:
        """The prompt to record; empty for a program's own code."""
        ...

    def participants(self) -> Sequence[Snapshotable]:
        """Everything to restore when a call fails, the session included."""
        ...

    def begin(self) -> None:
        """Note what exists before the call."""
        ...

    def evict(self, transaction: Transaction) -> None:
        """Close and forget what the failed call built."""
        ...


class Redaction:
    """Redacts the strings of one owner's calls.

    Args:
        redact: Applied to every string of parameters and results before they enter the session,
            the journal, telemetry or a model's context; ``None`` changes nothing.
    """

    def __init__(self, redact: Callable[[str], str] | None) -> None:
        self._redact = redact

    def text(self, text: str) -> str:
        """*text* redacted, or a note where *redact* raises: a failed call needs its record too."""
        if self._redact is None:
            return text
        try:
            return self._redact(text)
        except Exception as error:  # noqa: BLE001 - as the docstring says
            # without its traceback, which may hold the text
            _log.error("The redactor raised %s; the text is withheld", type(error).__name__)
            return _WITHHELD

    def result(self, result: ToolResult[Any], *, failed: bool = False) -> ToolResult[Any]:
        """*result* with redacted strings; raises what *redact* raises unless the call *failed*."""
        if self._redact is None:
            return result
        return serde.map_strings(result, self.text if failed else self._redact)

    def event(self, event: ToolInvoked, *, failed: bool) -> ToolInvoked:
        """*event*, whose result is redacted already, without what else brought secrets back in."""
        if self._redact is None:
            return event
        redact = self.text if failed else self._redact
        try:
            params = serde.map_strings(event.params, redact)
        except Exception:  # noqa: BLE001 - raw arguments may be anything
            params = _WITHHELD
        return dataclasses.replace(
            event,
            params=params,
            rendered_text=redact(event.rendered_text),
            text=redact(event.text),
            decisions=serde.map_strings(event.decisions, redact),
            error=None if event.error is None else redact(event.error),
        )


class CallBoundary(GuardedBlock):
    """One call: ``with boundary: boundary.start(); boundary.tool_result = …``.

    The block does not raise what its body raised: ``answer`` turns that into a failed result.
    Afterwards ``event`` is the record, and ``ending`` what the owner has to raise.

    Args:
        session: State and clock; its lock is held from the first step to the last.
        scope: Who takes part.
        call_id: Names the call in the history.
        tool: What is called, as the record has it.
        heartbeat: Beats before and after the call.
        redaction: Applied to what the call leaves.
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
        self._transactions = transactions_of(session)
        super().__init__(self._transactions.sigint)
        self.call_id = call_id
        self.tool = tool
        self.params: object = None
        self.decisions: list[PolicyVerdict] = []
        self.policy: str | None = None
        self.tool_result: ToolResult[Any] = _NOTHING
        self.ending: BaseException | None = None
        self._facts: tuple[object, ...] = ()
        self._depth = 0
        self._is_outermost = False
        self.event: ToolInvoked
        self._session = session
        self._clock = session.clock
        self._scope = scope
        self._heartbeat = heartbeat
        self._redaction = redaction or Redaction(None)
        self.transaction = Transaction(discard=lambda: scope.evict(self.transaction))
        self._turn = self._transactions.turn()

    def __enter__(self) -> Self:
        """Take the session, commit external edits and open the transaction.

        Raises:
            PoisonedError: If an earlier rollback failed and nothing was recovered.
            SessionError: If a reducer asks for the call.
        """
        self._turn.__enter__()
        try:
            self._session.refuse_reducers()
            self._participants = self._scope.participants()
            if not self._transactions.depth:  # inside a call there can be none
                self._commit_external_edits()
            if self._heartbeat is not None:
                self._heartbeat.beat()
            self._scope.begin()
            self._started_at = self._clock.now()
            self._started_s = self._clock.monotonic_s()
            self._transactions.begin(self.transaction, ())
            self._depth = self._transactions.depth
            self._is_outermost = self._depth == 1
        except BaseException as error:
            self._turn.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def start(self) -> None:
        """Take the snapshots, write the pending mark, and let SIGINT be delivered."""
        self._transactions.join(self._participants)
        if self._is_outermost:
            pending = PendingCall(self.call_id, self.tool, self._started_at)
            self._transactions.journal.begin(pending)
        self.open_gate()

    @abstractmethod
    def answer(self, error: BaseException) -> tuple[ToolResult[Any], BaseException | None]:
        """The failed result for what the body raised, and what ends the run, if anything does."""

    def _end(self, error: BaseException | None) -> bool:
        try:
            try:
                self._finish(error)
            finally:
                self._transactions.end(self.transaction)
            self._publish(self.event)
        except BaseException as failure:
            self._turn.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._turn.__exit__(None, None, None)
        return True

    def _finish(self, error: BaseException | None) -> None:
        if error is None:
            try:
                with self._transactions.sigint.open():
                    result = self._redaction.result(self.tool_result)
                    event = self._record(result)
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
        if not self.tool_result.success:
            self.ending = self._roll_back() or self.ending

    # Policies

    def refusal(
        self,
        policies: Sequence[ToolPolicy],
        tool: Tool[Any, Any],
        params: object,
        context: ToolContext,
    ) -> tuple[str, str] | None:
        """Name and reason of the first policy that refuses the call; ``None`` if all allow it.

        Each decision is recorded. While a policy is asked, ``policy`` is its name: one that raises
        has refused.
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
        """Let the policies learn from the success of the call."""
        for policy in policies:
            self.policy = policy.name
            policy.on_result(tool, params, result, context=context)
        self.policy = None

    # External edits

    def _commit_external_edits(self) -> None:
        """Commit external edits made since the last call."""
        free = self._transactions.claim(self._participants)
        paths = self._transactions.journal.absorb_external(free)
        if paths:
            self._publish_edit(ExternalChange(paths=paths, at=self._clock.now()))

    def _publish_edit(self, event: ExternalChange) -> None:
        """Reduce the event of an edit and notify subscribers; a reducer fails no call."""
        for kind in (SliceKind.STATE, SliceKind.LOG):
            try:
                self._session.reduce(event, kind=kind)
            except ReducerError:
                what = "A %s reducer raised on an edit made outside of any call; the calls go on"
                _log.exception(what, kind.name)
                if kind is SliceKind.LOG:
                    self._session[ExternalChange].append(event)
        self._session.notify(event)

    # Keeping or undoing it, and the record

    def _record(self, result: ToolResult[Any], error: BaseException | None = None) -> ToolInvoked:
        trace = None if error is None else shown(error, traceback.format_exception)
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
            outcome=Outcome.COMMITTED if result.success else Outcome.ROLLED_BACK,
            started_at=self._started_at,
            duration_s=self._clock.monotonic_s() - self._started_s,
            decisions=tuple(self.decisions),
            error=trace,
            depth=self._depth - 1,
        )
        return self._redaction.event(event, failed=error is not None)

    def _reduce(self, event: ToolInvoked) -> None:
        self._facts = _facts(event)
        for fact in self._facts:
            self._session.reduce(fact, kind=SliceKind.STATE)

    def _commit(self, event: ToolInvoked) -> None:
        self._transactions.check()  # the body may have caught the RollbackError of a call inside
        if self._is_outermost:
            self._transactions.journal.commit(event, self.transaction.saved)
        self.transaction.commit()

    def _roll_back(self) -> BaseException | None:
        """Undo the call and record it; what closing its resources raised, if that ends the run."""
        saved = self.transaction.saved
        interruption: BaseException | None = None
        try:
            self._transactions.roll_back(self.transaction)
        except BaseException as error:
            if self.transaction.saved:
                self._publish(dataclasses.replace(self.event, outcome=Outcome.UNKNOWN))
                raise
            interruption = error
        if self._is_outermost:
            try:
                self._transactions.journal.rolled_back(self.event, saved)
            except BaseException:
                self._publish(self.event)
                raise
        return interruption

    def _publish(self, event: ToolInvoked) -> None:
        """Append to the LOG and notify subscribers; nothing here can fail the call.

        What a reducer raises to end the run is raised once the record is written and published.
        """
        interruption: BaseException | None = None
        is_reduced = bool(self._facts) and self._facts[-1] is event
        facts = self._facts if is_reduced else _facts(event)
        for fact in facts:
            try:
                self._session.reduce(fact, kind=SliceKind.LOG)
            except BaseException as error:  # noqa: BLE001 - the call is over: it needs its record
                _log.exception("A LOG reducer raised on %s; the call stands", type(fact).__name__)
                if fact is event:
                    self._session[ToolInvoked].append(event)
                if not isinstance(error, Exception):
                    interruption = error
        self._session.notify(event)
        if self._heartbeat is not None:
            self._heartbeat.beat()
        if interruption is not None:
            raise interruption


def shown(error: BaseException, show: Callable[[BaseException], Iterable[str]]) -> str:
    """*error* as text; an exception whose own methods raise is shown by its type alone."""
    try:
        return "".join(show(error))
    except Exception:  # noqa: BLE001 - the call needs its answer and its record
        return f"{type(error).__name__}, which cannot be shown"


def _facts(event: ToolInvoked) -> tuple[object, ...]:
    """What reducers get to see of a call: its value, if it is a dataclass, and the call itself."""
    value = event.value
    if value is None or not event.success:
        return (event,)
    is_fact = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return (value, event) if is_fact else (event,)
