"""One tool call, from the model's text to the answer it gets back.

``ToolExecutor.execute`` finds the tool, parses the arguments, asks the policies and runs the
handler, all inside a ``CallBoundary``. What can go wrong in a call is decided in one place,
``_verdict``: which exceptions answer the model and which end the run.

A call is never half done: whatever leaves the handler, the transaction has been committed or
rolled back and exactly one ``ToolInvoked`` written when ``execute`` returns or raises. The
exceptions to that are a restore that itself fails (``RollbackError``) and a session that such
a failure has poisoned: these raise at once.
"""

from __future__ import annotations

import difflib
import logging
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wink_workspace.clock import BudgetTracker, Cancellation, Deadline, Heartbeat
from wink_workspace.errors import (
    BudgetExceededError,
    CallCancelledError,
    DeadlineExceededError,
    ParseError,
    PoisonedError,
    PromptEvaluationError,
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
from wink_workspace.resources import ResourceContext, Snapshotable
from wink_workspace.session import (
    PolicyVerdict,
    Session,
)

from .call import CallOutcome, ToolCall
from .calls import CallBoundary, Redaction, shown
from .transaction import Transaction, takes_part, transactions_of

__all__ = ["ToolExecutor"]

_log = logging.getLogger(__name__)

_MOST_SAID_CHARS = 10_000  # of an exception; the record has all of it

_AnyTool = Tool[Any, Any]
_AnyResult = ToolResult[Any]


@dataclass(frozen=True, slots=True)
class _Offer:
    """A tool with what guards it and what its sections declare."""

    tool: _AnyTool
    policies: tuple[ToolPolicy, ...]
    resource_types: tuple[type[Any], ...]


class _PromptScope:
    """The session, the prompt and its resources; implements ``CallScope``."""

    def __init__(self, prompt: Prompt[Any], session: Session) -> None:
        self.prompt_name = prompt.name
        self._prompt = prompt
        self._session = session
        self._transactions = transactions_of(session)
        self._n_resources = 0
        self._resources: ResourceContext  # of the call that is under way

    def participants(self) -> tuple[Snapshotable, ...]:
        self._resources = self._prompt.resources.opened
        built = self._resources.built()
        saved: list[Any] = [resource for resource in built if takes_part(type(resource))]
        return (self._session, self._prompt, *saved)

    def begin(self) -> None:
        resources = self._resources
        resources.observer = self._transactions
        self._n_resources = resources.mark()

    def prepare(self, types: tuple[type[Any], ...]) -> ResourceContext:
        """Build what a tool declares, and keep what is built by now when its call fails."""
        resources = self._resources
        for resource_type in types:
            resources.get(resource_type)
        self._n_resources = resources.mark()
        return resources

    def evict(self, transaction: Transaction) -> None:
        """Undo, close and forget what was first built inside the call (behaviour 32)."""
        for error in self._prompt.resources.evict_since(
            self._n_resources, before_close=transaction.put_back
        ):
            _log.warning("A resource of a failed call did not close: %s", error)


class _ToolCall(CallBoundary):
    """One call of a tool."""

    call: ToolCall
    cancellation: Cancellation | None = None

    def answer(self, error: BaseException) -> tuple[_AnyResult, BaseException | None]:
        """See ``_verdict``."""
        return _verdict(error, self)


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
        self._redaction = Redaction(redact)
        self._scope = _PromptScope(prompt, session)
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
        if not call.id:
            call = call.with_id(f"call-{uuid.uuid4().hex}")
        boundary = _ToolCall(
            self._session,
            self._scope,
            call_id=call.id,
            # A name that no tool has is the model's text, and redacted like all of it
            tool=call.name if call.name in self._offers else self._redaction.text(call.name),
            heartbeat=self._heartbeat,
            redaction=self._redaction,
        )
        boundary.call, boundary.cancellation = call, cancellation
        with boundary:
            boundary.start()
            boundary.tool_result = self._perform(boundary)
        if boundary.ending is not None:
            raise boundary.ending
        return CallOutcome(call, boundary.tool_result, boundary.event)

    def _perform(self, attempt: _ToolCall) -> _AnyResult:
        attempt.params = attempt.call.arguments
        offer = self._offers.get(attempt.call.name)
        if offer is None:
            return ToolResult.error(self._unknown_tool(attempt.call.name))
        tool = offer.tool
        try:
            attempt.params = params = tool.parse(attempt.call.arguments)
        except ParseError as error:
            return ToolResult.error(str(error))
        prepared = self._scope.prepare(offer.resource_types)
        sigint = self._transactions.sigint
        # Shut at both ends of the scope: a close that Ctrl-C put off would write after the rollback
        with sigint.closed(), prepared.tool_scope() as resources, sigint.open():
            context = ToolContext(
                prompt=self._prompt,
                rendered_prompt=self._rendered,
                adapter=self._adapter,
                session=self._session,
                deadline=self._deadline,
                budget_tracker=self._budget_tracker,
                resources=resources,
                heartbeat=self._heartbeat,
                cancellation=attempt.cancellation,
            )
            if self._deadline is not None or self._budget_tracker is not None:
                self._check_limits()
            if attempt.cancellation is not None:
                attempt.cancellation.check()
            refusal = attempt.refusal(offer.policies, tool, params, context)
            if refusal is not None:
                return ToolResult.error(_refused(*refusal))
            result = _handle(tool, params, context)
            if result.success:
                attempt.notify_policies(offer.policies, tool, params, result, context)
                if attempt.cancellation is not None:
                    attempt.cancellation.check()
            return result

    def _unknown_tool(self, name: str) -> str:
        close = difflib.get_close_matches(name, self._offers, n=3, cutoff=0.5)
        all_names = ", ".join(self._offers)
        offered = f"Did you mean {' or '.join(close)}?" if close else f"Tools: {all_names}."
        return f"There is no tool named {name[:64]!r}. {offered}"

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


def _refused(policy: str, reason: str) -> str:
    return f"Refused by policy {policy!r}: {reason.rstrip('.')}."


def _handle(tool: _AnyTool, params: object, context: ToolContext) -> _AnyResult:
    if tool.handler is None:
        raise ToolValidationError(
            f"tool {tool.name!r} has no handler, so it cannot be called",
            hint="Go on without it, and say that it does not work.",
        )
    result = tool.handler(params, context=context)
    if not isinstance(result, ToolResult):  # pyright: ignore[reportUnnecessaryIsInstance] - what a handler says is not proven
        raise TypeError(f"the handler returned {type(result).__name__}, not ToolResult")
    if type(result.success) is not bool:
        raise TypeError(f"the handler's success is {result.success!r}, not True or False")
    misfit = tool.check_value(result.value) if result.success else None
    if misfit is not None:
        raise TypeError(f"the handler succeeded with a value of the wrong type: {misfit}")
    return result


def _verdict(error: BaseException, attempt: _ToolCall) -> tuple[_AnyResult, BaseException | None]:
    """What a call that raised answers, and what ends the run, if anything does.

    The rows are behaviour 78 in docs/reference/behaviours.md. A policy that raises refuses,
    whatever it raised.
    """
    what = shown(error, traceback.format_exception_only).strip()[:_MOST_SAID_CHARS]
    subject = f"Tool {attempt.call.name[:64]!r}"
    if attempt.policy is not None and isinstance(error, Exception):
        reason = f"it raised {what}"
        attempt.decisions.append(PolicyVerdict(policy=attempt.policy, allowed=False, reason=reason))
        return ToolResult.error(_refused(attempt.policy, reason)), None
    said = shown(error, str)[:_MOST_SAID_CHARS]
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


def _ended(error: DeadlineExceededError) -> PromptEvaluationError:
    ended = PromptEvaluationError(error.message, phase="tool", hint=error.hint)
    ended.__cause__ = error
    return ended
