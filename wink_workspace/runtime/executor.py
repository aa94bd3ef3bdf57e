"""One tool call, from the model's text to the answer it gets back.

``ToolExecutor.execute`` is the ten steps of the design in order. What can go wrong in a call
is decided in one place, ``_verdict``: which exceptions answer the model and which end the run.

A call is never half done: whatever leaves the handler, the transaction has been committed or
rolled back and exactly one ``ToolInvoked`` written when ``execute`` returns or raises. The
exceptions to that are a restore that itself fails (``RollbackError``) and a session that such
a failure has poisoned: these raise at once.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from wink_workspace import serde
from wink_workspace.clock import BudgetTracker, Cancellation, Deadline, Heartbeat
from wink_workspace.errors import (
    BudgetExceededError,
    CallCancelledError,
    DeadlineExceededError,
    ParseError,
    PoisonedError,
    PromptEvaluationError,
    ReducerError,
    RollbackError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from wink_workspace.prompt import (
    Prompt,
    ProviderAdapterProtocol,
    RenderedPrompt,
    Tool,
    ToolContext,
    ToolPolicy,
    ToolResult,
)
from wink_workspace.resources import Snapshotable, ToolResources
from wink_workspace.session import (
    ExternalChange,
    Outcome,
    PolicyVerdict,
    Session,
    SliceKind,
    ToolInvoked,
)

from .call import CallOutcome, ToolCall
from .journal import PendingCall
from .transaction import Transaction, takes_part, transactions_of

__all__ = ["ToolExecutor"]

_log = logging.getLogger(__name__)

_MOST_SAID_CHARS = 10_000  # of an exception; the record has all of it

_WITHHELD = "[withheld: it could not be redacted]"

_AnyTool = Tool[Any, Any]
_AnyResult = ToolResult[Any]


@dataclass(frozen=True, slots=True)
class _Offer:
    """A tool with what guards it and what its sections declare."""

    tool: _AnyTool
    policies: tuple[ToolPolicy, ...]
    resource_types: tuple[type[Any], ...]


@dataclass(slots=True)
class _Attempt:
    """What is known so far of the call under way."""

    call: ToolCall
    started_at: datetime
    started_s: float
    n_resources: int
    cancellation: Cancellation | None
    transaction: Transaction = field(init=False)
    params: object = None
    decisions: list[PolicyVerdict] = field(default_factory=list[PolicyVerdict])
    policy: str | None = None


class ToolExecutor:
    """Runs the calls of one rendered prompt against one session.

    Args:
        prompt: The prompt whose resources are open while calls run.
        rendered_prompt: The rendering that offered the tools.
        adapter: Handed to handlers, for prompts they evaluate themselves.
        session: State and clock; its lock is held for the length of each call.
        deadline: No call starts after it.
        budget_tracker: No call starts once its budget is exceeded.
        heartbeat: Beats before and after each call, and when a handler asks.
        redact: Applied to every string of parameters and results before they enter the
            session, the journal, telemetry or the model's context. Files are not redacted.
            If it raises, the call fails, and what it could not redact is withheld.
    """

    def __init__(
        self,
        *,
        prompt: Prompt[Any],
        rendered_prompt: RenderedPrompt[Any],
        adapter: ProviderAdapterProtocol[Any],
        session: Session,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        heartbeat: Heartbeat | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self._prompt = prompt
        self._rendered = rendered_prompt
        self._adapter = adapter
        self._session = session
        self._deadline = deadline
        self._budget_tracker = budget_tracker
        self._heartbeat = heartbeat or Heartbeat(session.clock)
        self._redact = redact
        self._redact_or_withhold = None if redact is None else _withholding(redact)
        self._clock = session.clock
        self._transactions = transactions_of(session)
        self._offers = {
            tool.name: _Offer(
                tool,
                rendered_prompt.policies_for(tool.name),
                rendered_prompt.resources_for(tool.name),
            )
            for tool in rendered_prompt.tools
        }

    def execute(self, call: ToolCall, *, cancellation: Cancellation | None = None) -> CallOutcome:
        """Run *call* and answer it.

        A model's mistakes and a handler's failures come back as a failed result, after
        everything the call did has been undone. So does a call that is cancelled before its
        commit has begun.

        Raises:
            VisibilityExpansionRequired: If the handler asked for sections to be opened.
            PromptEvaluationError: If the handler raised one, or the deadline or the budget
                does not allow the call (``phase`` ``"tool"`` or ``"budget"``).
            RollbackError: If the failed call could not be undone; the session is poisoned.
            PoisonedError: If that happened earlier and nothing was recovered.
            SessionError: If a reducer asks for it; nothing was run.
            KeyboardInterrupt, SystemExit: After the rollback, if the handler raised one.
        """
        with self._transactions.turn():
            self._session.refuse_reducers()
            participants = self._participants()
            self._absorb_external_changes(participants)
            self._heartbeat.beat()
            attempt = self._begin(call, cancellation)
            span = self._transactions.transaction((), discard=lambda: self._evict(attempt))
            with span as attempt.transaction:
                transaction = attempt.transaction
                ending: BaseException | None = None
                try:
                    self._transactions.join(participants)
                    self._note_pending(attempt)
                    with self._transactions.gate.open():
                        result = _redacted(self._perform(attempt), self._redact)
                        event = self._record(attempt, result)
                        if result.success:
                            self._reduce(event)
                    if result.success:
                        self._commit(transaction, event)
                except BaseException as error:  # noqa: BLE001 - the handler boundary: a bug becomes a failed call
                    answer, ending = _verdict(error, attempt)
                    result = _redacted(answer, self._redact_or_withhold)
                    event = self._record(attempt, result, error)
                if not result.success:
                    ending = self._roll_back(transaction, event) or ending
            self._publish(event)
            if ending is not None:
                raise ending
            return CallOutcome(call, result, event)

    # Step 1: what happened since the last call

    def _absorb_external_changes(self, participants: Sequence[Snapshotable]) -> None:
        """Keep edits made by nobody's call; inside a call there are none by definition."""
        if self._transactions.depth:
            return
        free = self._transactions.claim(participants)
        paths = self._transactions.journal.absorb_external(free)
        if paths:
            self._tell_of_edit(ExternalChange(paths=paths, at=self._clock.now()))

    def _tell_of_edit(self, event: ExternalChange) -> None:
        """Reduce the event of an edit and tell subscribers; no call is to blame for a reducer."""
        for kind in (SliceKind.STATE, SliceKind.LOG):
            try:
                self._session.reduce(event, kind=kind)
            except ReducerError:
                what = "A %s reducer raised on an edit made outside of any call; the calls go on"
                _log.exception(what, kind.name)
                if kind is SliceKind.LOG:
                    self._session[ExternalChange].append(event)
        self._session.notify(event)

    def _begin(self, call: ToolCall, cancellation: Cancellation | None) -> _Attempt:
        resources = self._prompt.resources
        resources.observer = self._transactions
        return _Attempt(
            call=call,
            started_at=self._clock.now(),
            started_s=self._clock.monotonic_s(),
            n_resources=resources.mark(),
            cancellation=cancellation,
        )

    def _note_pending(self, attempt: _Attempt) -> None:
        if self._transactions.depth == 1:
            name = self._name_to_keep(attempt.call)
            self._transactions.journal.begin(PendingCall(attempt.call.id, name, attempt.started_at))

    def _name_to_keep(self, call: ToolCall) -> str:
        """A name that no tool has is the model's text, and redacted like all of it."""
        if self._redact_or_withhold is None or call.name in self._offers:
            return call.name
        return self._redact_or_withhold(call.name)

    # Steps 2 to 6: everything that is the model's, the tool's or a policy's

    def _perform(self, attempt: _Attempt) -> _AnyResult:
        attempt.params = attempt.call.arguments
        offer = self._offers.get(attempt.call.name)
        if offer is None:
            return ToolResult.error(self._unknown_tool(attempt.call.name))
        tool = offer.tool
        try:
            attempt.params = params = tool.parse(attempt.call.arguments)
        except ParseError as error:
            return ToolResult.error(str(error))
        self._open_declared_resources(offer, attempt)
        gate = self._transactions.gate
        # Shut at both ends of the scope: a close that Ctrl-C put off would write after the rollback
        with gate.closed(), self._prompt.resources.tool_scope() as resources, gate.open():
            context = self._context(resources, attempt.cancellation)
            self._check_limits()
            _check_wanted(attempt)
            refusal = _refusal(offer, params, context, attempt)
            if refusal is not None:
                return refusal
            result = _handle(tool, params, context)
            if result.success:
                _tell(offer, params, result, context, attempt)
                _check_wanted(attempt)
            return result

    def _unknown_tool(self, name: str) -> str:
        close = difflib.get_close_matches(name, self._offers, n=3, cutoff=0.5)
        all_names = ", ".join(self._offers)
        offered = f"Did you mean {' or '.join(close)}?" if close else f"Tools: {all_names}."
        return f"There is no tool named {name[:64]!r}. {offered}"

    def _open_declared_resources(self, offer: _Offer, attempt: _Attempt) -> None:
        """Build what the tool's section declares, so that it is restored rather than rebuilt."""
        for resource_type in offer.resource_types:
            self._prompt.resources.get(resource_type)
        attempt.n_resources = self._prompt.resources.mark()

    def _context(self, resources: ToolResources, cancellation: Cancellation | None) -> ToolContext:
        return ToolContext(
            prompt=self._prompt,
            rendered_prompt=self._rendered,
            adapter=self._adapter,
            session=self._session,
            deadline=self._deadline,
            budget_tracker=self._budget_tracker,
            resources=resources,
            heartbeat=self._heartbeat,
            cancellation=cancellation,
        )

    def _check_limits(self) -> None:
        if self._deadline is not None:
            self._deadline.check()
        if self._budget_tracker is not None:
            try:
                self._budget_tracker.check()
            except BudgetExceededError as error:
                raise PromptEvaluationError(
                    error.message,
                    phase="budget",
                    prompt_name=self._rendered.prompt_name,
                    hint=error.hint,
                ) from error

    # Steps 7 to 9: keeping or undoing it, and the record

    def _record(
        self, attempt: _Attempt, result: _AnyResult, error: BaseException | None = None
    ) -> ToolInvoked:
        trace = None if error is None else _shown(error, traceback.format_exception)
        rendered = result.render()
        event = ToolInvoked(
            call_id=attempt.call.id,
            tool=self._name_to_keep(attempt.call),
            prompt=self._rendered.prompt_name,
            params=attempt.params,
            success=result.success,
            message=result.message,
            value=result.value,
            rendered_text=rendered,
            text=result.provider_text(rendered),
            outcome=Outcome.COMMITTED if result.success else Outcome.ROLLED_BACK,
            started_at=attempt.started_at,
            duration_s=self._clock.monotonic_s() - attempt.started_s,
            decisions=tuple(attempt.decisions),
            error=trace,
            depth=self._transactions.depth - 1,
        )
        redact = self._redact if error is None else self._redact_or_withhold
        return event if redact is None else _redacted_event(event, redact)

    def _reduce(self, event: ToolInvoked) -> None:
        for fact in _facts(event):
            self._session.reduce(fact, kind=SliceKind.STATE)

    def _commit(self, transaction: Transaction, event: ToolInvoked) -> None:
        self._transactions.check()  # a handler may have caught the RollbackError of a call inside
        if self._transactions.depth == 1:
            self._transactions.journal.commit(event, transaction.saved)
        transaction.commit()

    def _roll_back(self, transaction: Transaction, event: ToolInvoked) -> BaseException | None:
        """Undo the call and record it; what closing its resources raised, if that ends the run."""
        saved = transaction.saved
        interruption: BaseException | None = None
        try:
            self._transactions.roll_back(transaction)
        except BaseException as error:
            if transaction.saved:
                self._publish(dataclasses.replace(event, outcome=Outcome.UNKNOWN))
                raise
            interruption = error
        if self._transactions.depth == 1:
            try:
                self._transactions.journal.rolled_back(event, saved)
            except BaseException:
                self._publish(event)
                raise
        return interruption

    def _publish(self, event: ToolInvoked) -> None:
        """Append to the LOG and tell subscribers; nothing here can fail the call.

        What a reducer raises to end the run does so once the record is written and told.
        """
        interruption: BaseException | None = None
        for fact in _facts(event):
            try:
                self._session.reduce(fact, kind=SliceKind.LOG)
            except BaseException as error:  # noqa: BLE001 - the call is over: it needs its record
                _log.exception("A LOG reducer raised on %s; the call stands", type(fact).__name__)
                if fact is event:
                    self._session[ToolInvoked].append(event)
                if not isinstance(error, Exception):
                    interruption = error
        self._session.notify(event)
        self._heartbeat.beat()
        if interruption is not None:
            raise interruption

    def _participants(self) -> tuple[Snapshotable, ...]:
        built = self._prompt.resources.built()
        saved = [cast("Snapshotable", r) for r in built if takes_part(type(r))]
        return (self._session, self._prompt, *saved)

    def _evict(self, attempt: _Attempt) -> None:
        """Undo, close and forget what was first built inside the call (behaviour 32)."""
        for error in self._prompt.resources.evict_since(
            attempt.n_resources, before_close=attempt.transaction.put_back
        ):
            _log.warning(
                "A resource of the failed call %s did not close: %s", attempt.call.id, error
            )


def _facts(event: ToolInvoked) -> tuple[object, ...]:
    """What reducers get to see of a call: its value, if it is a dataclass, and the call itself."""
    value = event.value
    if value is None or not event.success:
        return (event,)
    is_fact = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return (value, event) if is_fact else (event,)


def _withholding(redact: Callable[[str], str]) -> Callable[[str], str]:
    """*redact*, but what it fails on is withheld: a failed call needs its record, too."""

    def redact_or_withhold(text: str) -> str:
        try:
            return redact(text)
        except Exception as error:  # noqa: BLE001 - as the docstring says
            # without its traceback, which may hold the text
            _log.error("The redactor raised %s; the text is withheld", type(error).__name__)
            return _WITHHELD

    return redact_or_withhold


def _redacted(result: _AnyResult, redact: Callable[[str], str] | None) -> _AnyResult:
    return result if redact is None else serde.map_strings(result, redact)


def _redacted_event(event: ToolInvoked, redact: Callable[[str], str]) -> ToolInvoked:
    """*event*, whose result is redacted, without what rendering and policies brought back in."""
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


def _refusal(
    offer: _Offer, params: object, context: ToolContext, attempt: _Attempt
) -> _AnyResult | None:
    """The first policy's no, as a result; ``None`` when all agree."""
    for policy in offer.policies:
        attempt.policy = policy.name
        decision = policy.check(offer.tool, params, context=context)
        attempt.decisions.append(
            PolicyVerdict(policy=policy.name, allowed=decision.allowed, reason=decision.reason)
        )
        if not decision.allowed:
            return ToolResult.error(_refused(policy.name, decision.reason))
    attempt.policy = None
    return None


def _refused(policy: str, reason: str) -> str:
    return f"Refused by policy {policy!r}: {reason.rstrip('.')}."


def _handle(tool: _AnyTool, params: object, context: ToolContext) -> _AnyResult:
    if tool.handler is None:
        raise ToolValidationError(
            f"tool {tool.name!r} has no handler, so it cannot be called",
            hint="Go on without it, and say that it does not work.",
        )
    returned = cast("object", tool.handler(params, context=context))  # what it says is not proven
    if not isinstance(returned, ToolResult):
        raise TypeError(f"the handler returned {type(returned).__name__}, not ToolResult")
    result = cast("_AnyResult", returned)
    if type(result.success) is not bool:
        raise TypeError(f"the handler's success is {result.success!r}, not True or False")
    misfit = tool.check_value(result.value) if result.success else None
    if misfit is not None:
        raise TypeError(f"the handler succeeded with a value of the wrong type: {misfit}")
    return result


def _check_wanted(attempt: _Attempt) -> None:
    if attempt.cancellation is not None:
        attempt.cancellation.check()


def _tell(
    offer: _Offer, params: object, result: _AnyResult, context: ToolContext, attempt: _Attempt
) -> None:
    for policy in offer.policies:
        attempt.policy = policy.name
        policy.on_result(offer.tool, params, result, context=context)
    attempt.policy = None


def _verdict(error: BaseException, attempt: _Attempt) -> tuple[_AnyResult, BaseException | None]:
    """What a call that raised answers, and what ends the run, if anything does.

    The rows are the exception matrix of the tool runtime's specification. A policy that
    raises refuses, whatever it raised.
    """
    what = _shown(error, traceback.format_exception_only).strip()[:_MOST_SAID_CHARS]
    subject = f"Tool {attempt.call.name[:64]!r}"
    if attempt.policy is not None and isinstance(error, Exception):
        reason = f"it raised {what}"
        attempt.decisions.append(PolicyVerdict(policy=attempt.policy, allowed=False, reason=reason))
        return ToolResult.error(_refused(attempt.policy, reason)), None
    said = _shown(error, str)[:_MOST_SAID_CHARS]
    match error:
        case ToolValidationError():
            return ToolResult.error(f"{subject} refused its arguments: {said}"), None
        case DeadlineExceededError():
            return ToolResult.error(f"{subject} ran out of time: {said}"), _ended(error)
        case CallCancelledError():
            return ToolResult.error(f"{subject} was cancelled, and changed nothing."), None
        case VisibilityExpansionRequired():
            keys = ", ".join(error.section_keys)
            return ToolResult.error(f"{subject} asked for these sections: {keys}"), error
        case PromptEvaluationError() | RollbackError() | PoisonedError():
            return ToolResult.error(f"{subject} ended early: {said}"), error
        case TypeError():
            return ToolResult.error(f"{subject} was given or gave a wrong type: {what}"), None
        case Exception():
            return ToolResult.error(f"{subject} failed: {what}"), None
        case _:
            return ToolResult.error(f"{subject} was interrupted: {what}"), error


def _shown(error: BaseException, show: Callable[[BaseException], Iterable[str]]) -> str:
    """*error* as text; an exception whose own methods raise is shown by its type alone."""
    try:
        return "".join(show(error))
    except Exception:  # noqa: BLE001 - the call needs its answer and its record
        return f"{type(error).__name__}, which cannot be shown"


def _ended(error: DeadlineExceededError) -> PromptEvaluationError:
    ended = PromptEvaluationError(error.message, phase="tool", hint=error.hint)
    ended.__cause__ = error
    return ended
