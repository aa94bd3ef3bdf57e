"""Run one tool call, from the model's text to the answer.

``ToolExecutor.execute`` finds the tool, parses the arguments, asks the policies and runs the
handler, all inside a ``CallBoundary``. ``_verdict`` decides which exceptions answer the model and
which end the run.

When ``execute`` returns or raises, the transaction is committed or rolled back and exactly one
``ToolInvoked`` is written. There are two exceptions: a failed restore (``RollbackError``) and a
session that one has poisoned. These raise at once.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from wink_workspace.clock import BudgetTracker, Cancellation, Deadline, Heartbeat
from wink_workspace.errors import (
    BudgetExceededError,
    CallCancelledError,
    DeadlineExceededError,
    ParseError,
    PathEscapeError,
    PoisonedError,
    PromptEvaluationError,
    ReducerError,
    RollbackError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from wink_workspace.filesystem import Filesystem
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
from wink_workspace.session import PolicyVerdict, Session, ToolInvoked

from .call import CallOutcome, ToolCall
from .call_boundary import CallBoundary, error_text
from .long_results import shortened
from .redaction import Redaction
from .transaction import Transaction, takes_part, transactions_of

_Arguments = str | Mapping[str, object]

# A string in JSON that begins with /
_MAY_BE_ABSOLUTE: Final = re.compile(r'"(?:/|\\/|\\u002[fF])')


def with_workspace_paths(
    arguments: _Arguments, params_type: type[Any], files: Callable[[], Filesystem | None]
) -> _Arguments:
    """*arguments* with workspace paths in place of absolute ones; the same object if none is there.

    Args:
        arguments: JSON text or an object from the model; text that is not an object stays as it is.
        params_type: The parameters of the tool.
        files: Finds the filesystem; called only if there is an absolute path.

    Raises:
        PathEscapeError: For an absolute path outside of ``Filesystem.known_as``.
    """
    names: tuple[str, ...] = getattr(params_type, "path_params", ())
    if not names or (isinstance(arguments, str) and not _MAY_BE_ABSOLUTE.search(arguments)):
        return arguments
    given = _object(arguments) if isinstance(arguments, str) else arguments
    if given is None:
        return arguments
    absolute: list[str] = []
    for name in names:  # without calls of Python: this runs in every call of a tool
        value = given.get(name)
        if value.startswith("/") if isinstance(value, str) else _has_absolute(value):
            absolute.append(name)
    bound = files() if absolute else None
    if bound is None:
        return arguments
    return {**given, **{name: _relative(given[name], bound.known_as) for name in absolute}}


def _object(text: str) -> Mapping[str, object] | None:
    """The JSON object in *text*; ``None`` for anything else, which the tool's parser reports."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", found) if isinstance(found, dict) else None


def _has_absolute(value: object) -> bool:
    items: Sequence[object] = cast("list[object]", value) if isinstance(value, list) else ()
    return any(isinstance(item, str) and item.startswith("/") for item in items)


def _relative(value: object, roots: Sequence[str]) -> object:
    if isinstance(value, list):
        return [_relative(item, roots) for item in cast("list[object]", value)]
    if not isinstance(value, str) or not value.startswith("/"):
        return value
    for root in sorted(roots, key=len, reverse=True):  # one may lie below another
        if value == root or value.startswith(f"{root}/"):
            return value[len(root) :].lstrip("/") or "."
    raise PathEscapeError(
        value,
        hint="Use a path relative to the workspace root, or an absolute path below "
        f"{' or '.join(roots)}.",
    )


_log = logging.getLogger(__name__)

_UNKNOWN_EFFECT = "It is not known what it did outside of the workspace."
_MAX_ERROR_CHARS = 10_000  # for the model; the record has the whole text

_AnyTool = Tool[Any, Any]
_AnyResult = ToolResult[Any]


@dataclass(frozen=True, slots=True)
class _AvailableTool:
    """A tool with its policies and the resource types that its sections declare."""

    tool: _AnyTool
    policies: tuple[ToolPolicy, ...] = ()
    resource_types: tuple[type[Any], ...] = ()


class _PromptScope:
    """The session, the prompt and its resources; implements ``CallScope``."""

    def __init__(self, prompt: Prompt[Any], session: Session) -> None:
        self.prompt_name = prompt.name
        self._prompt = prompt
        self._session = session
        self._transactions = transactions_of(session)
        self._n_resources = 0
        self._resources: ResourceContext  # of the call in progress

    def participants(self) -> tuple[Snapshotable, ...]:
        self._resources = self._prompt.resources.opened
        built = self._resources.built()
        saved: list[Any] = [resource for resource in built if takes_part(type(resource))]
        return (self._session, self._prompt, *saved)

    def filesystem(self) -> Filesystem | None:
        """The files of the prompt, if it has any."""
        return self._resources.get_optional(Filesystem)

    def begin(self) -> None:
        resources = self._resources
        resources.observer = self._transactions
        self._n_resources = resources.mark()

    def prepare(self, types: tuple[type[Any], ...]) -> ResourceContext:
        """Build the resources that a tool declares; a failed call keeps those built by now."""
        resources = self._resources
        for resource_type in types:
            resources.get(resource_type)
        self._n_resources = resources.mark()
        return resources

    def evict(self, transaction: Transaction) -> None:
        """Restore, close and remove resources first built inside the call (behaviour 32)."""
        for error in self._prompt.resources.evict_since(
            self._n_resources, before_close=transaction.restore_one
        ):
            _log.warning("A resource of a failed call did not close: %s", error)


class _ToolCall(CallBoundary):
    """The boundary of one tool call."""

    call: ToolCall
    cancellation: Cancellation | None = None
    files: Callable[[], Filesystem | None]

    def _shortened(self, event: ToolInvoked, whole: str) -> ToolInvoked:
        files = self.files() if event.success else None  # a failure leaves no file
        return replace(event, text=shortened(event.text, self.tool, files, whole=whole))

    def answer(self, error: BaseException) -> tuple[_AnyResult, BaseException | None]:
        """See ``_verdict``."""
        return _verdict(error, self)


class ToolExecutor:
    """Runs the calls of one rendered prompt against one session.

    Args:
        prompt: The prompt whose resources are open while calls run.
        rendered_prompt: The rendering with the tools.
        adapter: Passed to handlers, for prompts that they evaluate.
        session: State and clock; its lock is held during each call.
        deadline: No call starts after it.
        budget_tracker: No call starts once its budget is exceeded.
        heartbeat: Beats before and after each call, and when a handler asks.
        redact: Applied to every string of parameters and results before they enter the
            session, the journal, telemetry or the model's context. Files are not redacted.
            If it raises, the call fails, and the text that it failed on is withheld.

    Raises:
        SessionError: If the prompt has the files of a workspace with another session.
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
        self._transactions.refuse_foreign(self._scope.participants())
        self._tools = {tool.name: _AvailableTool(tool) for tool in rendered_prompt.tools}
        for section in rendered_prompt.shown():
            for tool in section.tools if section.is_open else ():
                available = _AvailableTool(tool, section.policies, section.resources)
                self._tools[tool.name] = available

    def execute(self, call: ToolCall, *, cancellation: Cancellation | None = None) -> CallOutcome:
        """Run *call* and return its answer.

        Mistakes of the model, failures of the handler, and a cancellation before the commit return
        a failed result, after all changes of the call are undone.

        Raises:
            VisibilityExpansionRequired: If the handler asked for sections to be opened.
            PromptEvaluationError: If the handler raised one, or the deadline or the budget
                does not allow the call (``phase`` ``"tool"`` or ``"budget"``).
            RollbackError: If the failed call could not be undone; the session is poisoned.
            PoisonedError: If that happened earlier and was not recovered.
            SessionError: If a reducer makes the call; nothing was run.
            KeyboardInterrupt, SystemExit: After the rollback, if the handler raised one.
        """
        if not call.id:
            call = call.with_id(f"call-{uuid.uuid4().hex}")
        boundary = _ToolCall(
            self._session,
            self._scope,
            call_id=call.id,
            # An unknown name is text of the model, and redacted like all of it
            tool=call.name if call.name in self._tools else self._redaction.text(call.name),
            heartbeat=self._heartbeat,
            redaction=self._redaction,
        )
        boundary.call, boundary.cancellation = call, cancellation
        boundary.files = self._scope.filesystem
        with boundary:
            boundary.start()
            boundary.tool_result = self._perform(boundary)
        if boundary.ending is not None:
            raise boundary.ending
        return CallOutcome(call, boundary.tool_result, boundary.event)

    def _perform(self, boundary: _ToolCall) -> _AnyResult:
        boundary.params = boundary.call.arguments
        available = self._tools.get(boundary.call.name)
        if available is None:
            return ToolResult.error(self._unknown_tool(boundary.call.name))
        tool = available.tool
        try:
            arguments = with_workspace_paths(
                boundary.call.arguments, tool.params_type, self._scope.filesystem
            )
            boundary.params = params = tool.parse(arguments)
        except (ParseError, PathEscapeError) as error:
            return ToolResult.error(str(error))
        prepared = self._scope.prepare(available.resource_types)
        sigint = self._transactions.sigint
        # Deferred as the scope opens and closes: an interrupted close could write after a rollback
        with sigint.deferred(), prepared.tool_scope() as resources, sigint.delivered():
            context = ToolContext(
                prompt=self._prompt,
                rendered_prompt=self._rendered,
                adapter=self._adapter,
                session=self._session,
                deadline=self._deadline,
                budget_tracker=self._budget_tracker,
                resources=resources,
                heartbeat=self._heartbeat,
                cancellation=boundary.cancellation,
                on_output=boundary.notify_output,
                on_outside_effect=boundary.note_outside_effect,
            )
            if self._deadline is not None or self._budget_tracker is not None:
                self._check_limits()
            if boundary.cancellation is not None:
                boundary.cancellation.check()
            refusal = boundary.refusal(available.policies, tool, params, context)
            if refusal is not None:
                return ToolResult.error(_refusal_text(*refusal))
            boundary.notify_start(params)
            result = _run_handler(tool, params, context)
            if result.success:
                boundary.notify_policies(available.policies, tool, params, result, context)
                if boundary.cancellation is not None:
                    boundary.cancellation.check()
            return result

    def _unknown_tool(self, name: str) -> str:
        close = difflib.get_close_matches(name, self._tools, n=3, cutoff=0.5)
        all_names = ", ".join(self._tools)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"Tools: {all_names}."
        return f"There is no tool named {name[:64]!r}. {hint}"

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


def _refusal_text(policy: str, reason: str) -> str:
    return f"Refused by policy {policy!r}: {reason.rstrip('.')}."


def _run_handler(tool: _AnyTool, params: object, context: ToolContext) -> _AnyResult:
    if tool.handler is None:
        raise ToolValidationError(
            f"tool {tool.name!r} has no handler, so it cannot be called",
            hint="Continue without it, and report that it does not work.",
        )
    result = tool.handler(params, context=context)
    if not isinstance(result, ToolResult):  # pyright: ignore[reportUnnecessaryIsInstance] - the type of a handler's result is not checked
        raise TypeError(f"the handler returned {type(result).__name__}, not ToolResult")
    if type(result.success) is not bool:
        raise TypeError(f"the handler's success is {result.success!r}, not True or False")
    problem = tool.check_value(result.value) if result.success else None
    if problem is not None:
        raise TypeError(f"the handler succeeded with a value of the wrong type: {problem}")
    return result


def _verdict(error: BaseException, boundary: _ToolCall) -> tuple[_AnyResult, BaseException | None]:
    """The result of a call that raised, and the exception that ends the run, if any.

    The rows are behaviour 78 in docs/reference/behaviours.md. A policy that raises any exception
    refuses the call.
    """
    what = error_text(error, traceback.format_exception_only).strip()[:_MAX_ERROR_CHARS]
    subject = f"Tool {boundary.call.name[:64]!r}"
    if boundary.policy is not None and isinstance(error, Exception):
        reason = f"it raised {what}"
        boundary.decisions.append(
            PolicyVerdict(policy=boundary.policy, allowed=False, reason=reason)
        )
        return ToolResult.error(_refusal_text(boundary.policy, reason)), None
    message = error_text(error, str)[:_MAX_ERROR_CHARS]
    match error:
        case ToolValidationError():
            return ToolResult.error(f"{subject} refused its arguments: {message}"), None
        case DeadlineExceededError():
            return ToolResult.error(f"{subject} ran out of time: {message}"), _evaluation_error(
                error
            )
        case CallCancelledError() if boundary.has_outside_effect:
            return ToolResult.error(f"{subject} was cancelled. {_UNKNOWN_EFFECT}"), None
        case CallCancelledError():
            return ToolResult.error(f"{subject} was cancelled, and changed nothing."), None
        case VisibilityExpansionRequired():
            keys = ", ".join(error.section_keys)
            return ToolResult.error(f"{subject} asked for these sections: {keys}"), error
        case PromptEvaluationError() | RollbackError() | PoisonedError():
            return ToolResult.error(f"{subject} ended early: {message}"), error
        case ReducerError():
            fault = "This is a fault of the program, not of the call: do not repeat it; report it."
            return ToolResult.error(f"{subject} failed: {error.message}. {fault}"), None
        case TypeError():
            return ToolResult.error(f"{subject} was given or gave a wrong type: {what}"), None
        case Exception():
            return ToolResult.error(f"{subject} failed: {what}"), None
        case _:
            return ToolResult.error(f"{subject} was interrupted: {what}"), error


def _evaluation_error(error: DeadlineExceededError) -> PromptEvaluationError:
    ended = PromptEvaluationError(error.message, phase="tool", hint=error.hint)
    ended.__cause__ = error
    return ended
