"""The evaluation loop: request a turn, run its calls, send the results, until the model is done.

Every provider shares this loop and its transaction semantics; a provider supplies only
``complete``. Calls of one turn run in order, each in its own transaction. Requests to open
sections are granted here, between calls, and the prompt is rendered again. ``LoopLimits``
bounds turns, openings, attempts at structured output, repetition, and the size of the conversation.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, cast

from typing_extensions import TypeVar

from wink_workspace import serde
from wink_workspace.clock import BudgetTracker, Cancellation, Clock, Deadline, Heartbeat, TokenUsage
from wink_workspace.counts import counted
from wink_workspace.errors import (
    BudgetExceededError,
    DeadlineExceededError,
    ParseError,
    PromptEvaluationError,
    UsageError,
    VisibilityExpansionRequired,
)
from wink_workspace.prompt import (
    Prompt,
    RenderedPrompt,
    SectionVisibility,
    SetVisibility,
    Tool,
    ToolImage,
)
from wink_workspace.runtime import (
    CallOutcome,
    CallSpan,
    ToolCall,
    ToolExecutor,
    call_span,
    transactions_of,
)
from wink_workspace.session import EventBus, PromptExecuted, PromptRendered, Session
from wink_workspace.telemetry import span

from .context_window import ASK_FOR_SUMMARY, SUMMARY_HEAD, ContextLimits, ContextWindow
from .messages import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelTurn,
    SummaryMessage,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)

# ------------------------------------------------------------------------------------- repetition

# Detection of a model that repeats itself: the same calls with the same results.
#
# A call is *new* if its tool, arguments and result together did not occur before in the run.
# Calls that are not new bring no information, in whatever order or cycle they come. They are
# counted since the last new call: at ``warn_at`` occurrences of one call its result gets a note,
# at ``stop_at`` the run ends. Failed calls in a row are counted, too, because a model can vary
# its arguments and be refused each time.
#
# Not repetition: the same test command after an edit, because the edit is a new call; and polling
# that gets different answers. Durations such as ``0.31 s`` do not make a result different.
#
# The state follows from the calls and results alone, so a resumed run computes it again.


_DURATION: Final = re.compile(r"\b\d+\.\d+ ?(?:s|ms|secs?|seconds?)\b")
_MAX_SHOWN_CHARS: Final = 200

_ADVICE: Final = (
    "Do something else, or answer without calling a tool and say what prevents you from finishing."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionLimits:
    """When a model that repeats itself is warned, and when its run ends.

    Attributes:
        warn_at: Occurrences of a call with the same result after which its result gets a note.
        stop_at: Occurrences after which the run ends.
        warn_failures: Failed calls in a row after which the model is warned.
        stop_failures: Failed calls in a row after which the run ends.
    """

    warn_at: int = 3
    stop_at: int = 6
    warn_failures: int = 8
    stop_failures: int = 16

    def __post_init__(self) -> None:
        if not (
            2 <= self.warn_at <= self.stop_at and 2 <= self.warn_failures <= self.stop_failures
        ):
            raise UsageError(
                f"invalid limits: {self}", hint="Use 2 or more, and warn no later than you stop."
            )


class Repetition:
    """The calls of one run so far.

    Args:
        limits: When to warn and when to stop.
    """

    def __init__(self, limits: RepetitionLimits) -> None:
        self._limits = limits
        self._seen: set[bytes] = set()
        self._repeated: Counter[bytes] = Counter()  # calls since the last new one
        self._n_failures = 0
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """Why the run should end after the newest call; ``None`` to continue."""
        return self._problem

    def add(self, call: ToolCall, text: str, *, success: bool) -> str:
        """Add a call with its result; return the note for the model, or an empty text."""
        limits, signature = self._limits, _signature(call, text, success=success)
        self._n_failures = 0 if success else self._n_failures + 1
        if signature in self._seen:
            self._repeated[signature] += 1
        else:
            self._seen.add(signature)
            self._repeated.clear()
        n_times = self._repeated[signature] + 1
        self._problem = None
        if n_times >= limits.stop_at:
            shown = _shown(call)
            self._problem = (
                f"the model repeats itself: {shown} had the same result {n_times} times,"
                " with nothing new in between"
            )
        elif self._n_failures >= limits.stop_failures:
            failed = counted(self._n_failures, "call")
            self._problem = f"{failed} in a row failed, the last one was {_shown(call)}"
        elif n_times >= limits.warn_at:
            return (
                f"You have made this call {n_times} times with the same result. {_ADVICE} "
                f"The run ends if the call is repeated {limits.stop_at} times."
            )
        elif self._n_failures >= limits.warn_failures:
            return (
                f"{self._n_failures} calls in a row have failed. {_ADVICE} "
                f"The run ends after {limits.stop_failures} failed calls."
            )
        return ""


def _signature(call: ToolCall, text: str, *, success: bool) -> bytes:
    known = f"{call.name}\0{_arguments(call)}\0{success}\0{_DURATION.sub('0 s', text)}"
    return hashlib.sha256(known.encode("utf-8", "surrogatepass")).digest()


def _arguments(call: ToolCall) -> str:
    """The arguments as JSON that does not depend on the order of keys or on white space."""
    arguments: object = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return str(arguments)
    return json.dumps(arguments, sort_keys=True, default=str)


def _shown(call: ToolCall) -> str:
    text = f"{call.name} {_arguments(call)}"
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[: _MAX_SHOWN_CHARS - 1]}…"


# ------------------------------------------------------------------------------------------ spans

# Spans of one evaluation: the agent, each model turn, each tool call.
#
# Names and attributes follow the OpenTelemetry semantic conventions for generative AI.


class Traces:
    """Creates the spans of one evaluation.

    Args:
        agent: The prompt's name.
        provider_name: The provider.
        model_name: The model, with or without a ``provider:`` prefix.
        clock: Measures the calls.
        with_content: Whether call spans also get arguments and results.
    """

    def __init__(
        self, agent: str, *, provider_name: str, model_name: str, clock: Clock, with_content: bool
    ) -> None:
        self._agent = agent
        self._clock = clock
        self._with_content = with_content
        self._model = {
            "gen_ai.provider.name": provider_name,
            "gen_ai.request.model": model_name.partition(":")[2] or model_name,
        }

    @contextmanager
    def evaluation(self) -> Generator[None]:
        """Open the span of the whole evaluation."""
        what = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": self._agent}
        with span(f"invoke_agent {self._agent}", {**what, **self._model}):
            yield

    @contextmanager
    def chat(self) -> Generator[Callable[[ModelTurn], None]]:
        """Open the span of one model turn with its retries; the block passes it the turn."""
        what = {"gen_ai.operation.name": "chat", **self._model}
        with span(f"chat {self._model['gen_ai.request.model']}", what, is_remote=True) as chat:
            yield lambda turn: chat.note(
                {
                    "gen_ai.usage.input_tokens": turn.usage.input_tokens,
                    "gen_ai.usage.output_tokens": turn.usage.output_tokens,
                    "gen_ai.usage.cache_read.input_tokens": turn.usage.cached_tokens,
                    "gen_ai.response.finish_reasons": ["tool_call" if turn.tool_calls else "stop"],
                }
            )

    def tool_call(
        self, call: ToolCall, tool: Tool[Any, Any] | None
    ) -> AbstractContextManager[CallSpan]:
        """Open the span of one call, including its commit or rollback."""
        return call_span(call, tool=tool, clock=self._clock, with_content=self._with_content)


# ------------------------------------------------------------------------------------------- core


OutputT = TypeVar("OutputT", default=Any)


@dataclass(frozen=True, slots=True)
class PromptResponse(Generic[OutputT]):
    """The result of an evaluation.

    ``output`` is the parsed structured output, or ``None`` for a prompt without an output type.
    ``text`` is the model's last message, unchanged.
    """

    prompt_name: str
    text: str
    output: OutputT


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """Bounds that keep one evaluation finite.

    Attributes:
        max_turns: How many turns the model may take. The turns of a conversation that is continued
            count.
        max_expansions: How many times it may open closed sections; further requests fail.
        max_output_retries: How many times an invalid structured output is sent back.
        repetition: When a model that repeats itself is warned, and when its run ends.
        context: How a long conversation is kept within the context window of the model.
    """

    max_turns: int = 200
    max_expansions: int = 16
    max_output_retries: int = 2
    repetition: RepetitionLimits = field(default_factory=RepetitionLimits)
    context: ContextLimits = field(default_factory=ContextLimits)

    def __post_init__(self) -> None:
        if self.max_turns < 1 or self.max_expansions < 0 or self.max_output_retries < 0:
            raise UsageError(
                f"invalid limits: {self}", hint="Use max_turns >= 1 and the others >= 0."
            )


class ProviderAdapter(ABC, Generic[OutputT]):
    """Evaluates prompts with one provider.

    Args:
        limits: Bounds of one evaluation.
        heartbeat: Handed to the executor; beats with every call.
        redact: Applied to what calls write to session, journal, telemetry and context.
        traces_content: Whether telemetry also gets the arguments and results of calls.

    Attributes:
        provider_name: The provider's name in telemetry.
        model_name: The model's name in telemetry.
    """

    provider_name: str = "custom"
    model_name: str = "custom"

    def __init__(
        self,
        *,
        limits: LoopLimits | None = None,
        heartbeat: Heartbeat | None = None,
        redact: Callable[[str], str] | None = None,
        traces_content: bool = False,
    ) -> None:
        self.limits = limits or LoopLimits()
        self.heartbeat = heartbeat or Heartbeat()
        self.redact = redact
        self.traces_content = traces_content

    @abstractmethod
    def complete(self, request: ModelRequest) -> ModelTurn:
        """Request one turn from the provider, or a summary if ``request.n_summarised`` is not 0.

        Raises:
            PromptEvaluationError: If the request fails, with phase ``"request"`` or
                ``"response"``. No other exception is allowed.
        """

    def context_tokens(self) -> int | None:
        """Return the size of the model's context window in tokens; ``None`` if it is not known."""
        return None

    def dump_native(self, native: object) -> str | None:  # noqa: ARG002 - most providers have none
        """Return ``ModelTurn.native`` as JSON, to resume a run from; ``None`` if there is none."""
        return None

    def load_native(self, text: str) -> object:  # noqa: ARG002 - as above
        """Return the object from the text of ``dump_native``; ``None`` if it cannot be read."""
        return None

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *params: object,
        session: Session,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        conversation: Sequence[Message] = (),
        bus: EventBus | None = None,
        cancellation: Cancellation | None = None,
        messages: Callable[[], Sequence[str]] | None = None,
    ) -> PromptResponse[OutputT]:
        """Evaluate *prompt* until the model gives its final answer.

        Outside of ``with prompt.resources:``, the resources are opened for this evaluation only.
        Inside a handler, pass the handler's session: its calls become savepoints of that call.

        Args:
            prompt: The prompt to evaluate.
            params: Bound to the prompt first, like ``prompt.bind(*params)``.
            session: Stores state and the record of calls.
            deadline: Checked before every turn and every call.
            budget_tracker: Counts tokens; checked before every turn and every call.
            conversation: The messages of an interrupted run, to continue it. Unanswered calls of
                its last turn are run first; the model gets messages of the user after them.
            bus: Also receives every event of the session during the evaluation. The default is
                the session's own bus, which a handler has as ``context.event_bus``.
            cancellation: Ends the run from any thread. A running call is rolled back, and no
                further call starts. See ``docs/asyncio.md`` for Ctrl-C.
            messages: Called after each turn and its calls, also after an answer without calls.
                What it returns is sent to the model as messages of the user, and the run goes on.

        Raises:
            CallCancelledError: If *cancellation* is cancelled.
            PromptEvaluationError: If the provider fails, a limit, deadline or budget is
                reached, or the final answer does not match the output type.
            UsageError: If *prompt* is not a ``Prompt``; a handler may pass any object.
        """
        if not isinstance(prompt, Prompt):  # pyright: ignore[reportUnnecessaryIsInstance] - see Raises
            raise UsageError(
                f"cannot evaluate a {type(prompt).__name__}",
                hint="Pass a Prompt; Prompt(template) makes one from a PromptTemplate.",
            )
        if params:
            prompt.bind(*params)
        prompt.install(session)
        with (
            _open_resources(prompt),
            _forward_events(session, bus),
            transactions_of(session).sigint.installed(),
        ):
            limits = _RunLimits(deadline, budget_tracker, cancellation)
            evaluation = _Evaluation(self, prompt, session, limits, messages or tuple)
            with evaluation.traces.evaluation():
                return evaluation.run(conversation)


class NoModelAdapter(ProviderAdapter[None]):
    """The adapter for calls that no model requested. It cannot evaluate prompts."""

    provider_name = "none"
    model_name = "none"

    def complete(self, request: ModelRequest) -> ModelTurn:  # noqa: ARG002 - the signature of the base class
        """Raise ``PromptEvaluationError``."""
        raise PromptEvaluationError(
            "a tool requested a model turn, but this run has no model",
            phase="request",
            hint="Call this tool in a run with a model adapter.",
        )


@contextmanager
def _open_resources(prompt: Prompt[Any]) -> Generator[None]:
    if prompt.resources.is_open:
        yield
        return
    with prompt.resources:
        yield


@contextmanager
def _forward_events(session: Session, bus: EventBus | None) -> Generator[None]:
    """Forward the session's events to *bus*, unless it is the session's own."""
    if bus is None or bus is session.dispatcher:
        yield
        return
    unsubscribe = session.dispatcher.subscribe(object, bus.dispatch)
    try:
        yield
    finally:
        unsubscribe()


@dataclass(frozen=True, slots=True)
class _RunLimits:
    """What can end a run early; ``None`` means no such limit."""

    deadline: Deadline | None
    budget_tracker: BudgetTracker | None
    cancellation: Cancellation | None


class _Evaluation(Generic[OutputT]):
    """One run of the loop."""

    def __init__(
        self,
        adapter: ProviderAdapter[OutputT],
        prompt: Prompt[OutputT],
        session: Session,
        limits: _RunLimits,
        messages: Callable[[], Sequence[str]],
    ) -> None:
        self._adapter = adapter
        self._prompt = prompt
        self._session = session
        self._deadline = limits.deadline
        self._budget_tracker = limits.budget_tracker
        self._cancellation = limits.cancellation
        self._messages = messages
        self.traces = Traces(
            prompt.name,
            provider_name=adapter.provider_name,
            model_name=adapter.model_name,
            clock=session.clock,
            with_content=adapter.traces_content,
        )
        self._window = ContextWindow(adapter.limits.context, adapter.context_tokens())
        self._repetition = Repetition(adapter.limits.repetition)
        self._open_calls: dict[str, ToolCall] = {}
        self._n_turns = 0
        self._usage = TokenUsage()
        self._n_expansions = 0
        self._n_output_failures = 0
        self._render()

    def run(self, conversation: Sequence[Message]) -> PromptResponse[OutputT]:
        open_calls, n_before = _unanswered(conversation)
        for message in conversation[:n_before]:
            self._continue_from(message)
        for call in open_calls:
            self._run_call(call)
        for message in conversation[n_before:]:
            self._continue_from(message)
        while self._n_turns < self._adapter.limits.max_turns:
            turn = self._request_turn()
            if turn.tool_calls:
                for call in turn.tool_calls:
                    self._run_call(call)
                self._check_repetition()
            messages = self._messages()
            for text in messages:
                self._append(UserMessage(text))
            if turn.tool_calls or messages:
                continue
            try:
                return self._finish(turn.text)
            except ParseError as error:
                self._retry_output(error)
        raise self._error(
            f"no final answer after {counted(self._adapter.limits.max_turns, 'turn')}",
            phase="turns",
            hint="Raise max_turns, or do less in one run.",
        )

    def _continue_from(self, message: Message) -> None:
        """Add a message of an interrupted run, with the effects that it had on the limits."""
        if isinstance(message, AssistantMessage):
            self._window.messages(self._n_fixed_bytes)  # as before the request for this turn
        self._append(message)

    def _append(self, message: Message) -> None:
        """Add the newest message; a result that repeats an earlier one gets a note."""
        if isinstance(message, AssistantMessage):
            self._n_turns += 1
            self._open_calls = {call.id: call for call in message.tool_calls}
        elif isinstance(message, ToolMessage) and message.call_id in self._open_calls:
            call = self._open_calls[message.call_id]
            note = self._repetition.add(call, message.text, success=message.success)
            if note:
                message = replace(message, text=f"{message.text}\n\n{note}".lstrip())
        self._window.append(message)

    def _check_repetition(self) -> None:
        if self._repetition.problem is not None:
            raise self._error(
                self._repetition.problem,
                phase="repetition",
                hint="Give a more precise task or another model; the work so far is kept.",
            )

    def _render(self) -> None:
        self._rendered: RenderedPrompt[OutputT] = self._prompt.render(session=self._session)
        self._session.dispatch(
            PromptRendered(
                prompt=self._rendered.prompt_name,
                text=self._rendered.text,
                tools=tuple(tool.name for tool in self._rendered.tools),
                at=self._session.clock.now(),
            )
        )
        self._definitions = tuple(
            ToolDefinition(
                tool.name, tool.provider_description, self._rendered.tool_schema(tool.name)
            )
            for tool in self._rendered.tools
        )
        self._n_fixed_bytes = len(self._rendered.text.encode("utf-8", "surrogatepass")) + sum(
            len(each.name) + len(each.description) + len(serde.dump_json(each.schema))
            for each in self._definitions
        )
        self._executor = ToolExecutor(
            prompt=self._prompt,
            rendered_prompt=self._rendered,
            adapter=self._adapter,
            session=self._session,
            deadline=self._deadline,
            budget_tracker=self._budget_tracker,
            heartbeat=self._adapter.heartbeat,
            redact=self._adapter.redact,
        )

    def _request_turn(self) -> ModelTurn:
        while (old := self._window.old(self._n_fixed_bytes))[0]:
            messages, n_turns = old
            asked = (*messages, UserMessage(ASK_FOR_SUMMARY))
            text = self._complete(self._request(asked, n_summarised=n_turns)).text
            self._window.summarise(len(messages), SummaryMessage(SUMMARY_HEAD + text))
        turn = self._complete(self._request(self._window.messages(self._n_fixed_bytes)))
        turn = turn.with_call_ids(self._n_turns + 1)
        self._append(
            AssistantMessage(
                turn.text, tuple(turn.tool_calls), turn.native, turn.usage.input_tokens
            )
        )
        return turn

    def _complete(self, request: ModelRequest) -> ModelTurn:
        self._check_limits()
        with self.traces.chat() as chat:
            try:
                turn = self._adapter.complete(request)
            except PromptEvaluationError as error:
                error.prompt_name = error.prompt_name or self._rendered.prompt_name
                raise
            chat(turn)
        self._usage += turn.usage
        if self._budget_tracker is not None:
            self._budget_tracker.record(turn.usage)
        return turn

    def _check_limits(self) -> None:
        if self._cancellation is not None:
            self._cancellation.check()
        try:
            if self._deadline is not None:
                self._deadline.check()
            if self._budget_tracker is not None:
                self._budget_tracker.check()
        except DeadlineExceededError as error:
            raise self._error(error.message, phase="request", hint=error.hint) from error
        except BudgetExceededError as error:
            raise self._error(error.message, phase="budget", hint=error.hint) from error

    def _request(self, messages: tuple[Message, ...], *, n_summarised: int = 0) -> ModelRequest:
        output_type = None if n_summarised else self._rendered.output_type
        return ModelRequest(
            instructions=self._rendered.text,
            messages=messages,
            tools=self._definitions,
            output_schema=None if output_type is None else serde.provider_schema(output_type),
            deadline=self._deadline,
            n_summarised=n_summarised,
        )

    def _run_call(self, call: ToolCall) -> None:
        try:
            outcome = self._execute(call)
        except VisibilityExpansionRequired as request:
            text, success = self._open_sections(request)
            image = None
        else:
            text, success = outcome.text, outcome.result.success
            image = ToolImage.of(outcome.result.value)
        self._append(ToolMessage(call.id, call.name, text, success, image))

    def _execute(self, call: ToolCall) -> CallOutcome:
        with self.traces.tool_call(call, self._rendered.tool(call.name)) as traced:
            outcome = self._executor.execute(
                self._decode_arguments(call), cancellation=self._cancellation
            )
            traced.note(outcome)
        return outcome

    def _decode_arguments(self, call: ToolCall) -> ToolCall:
        """Return the call with its arguments in the form of the tool's own types.

        A provider schema makes every field required and turns mappings into lists of pairs;
        this reverses both. The executor refuses arguments that are not a JSON object.
        """
        tool = self._rendered.tool(call.name)
        if tool is None or not isinstance(cast("object", call.arguments), str | Mapping):
            return call
        try:
            sent = (
                serde.parse_json(dict[str, serde.JsonValue], call.arguments)
                if isinstance(call.arguments, str)
                else call.arguments
            )
        except ParseError:
            return call
        arguments = serde.without_defaulted_nulls(tool.params_type, sent)
        return ToolCall.of(call.name, arguments, id=call.id)

    def _open_sections(self, request: VisibilityExpansionRequired) -> tuple[str, bool]:
        """Open the requested sections; return the answer for the model, and the success."""
        if self._n_expansions >= self._adapter.limits.max_expansions:
            return "No more sections can be opened in this run; work with what is shown.", False
        self._n_expansions += 1
        prompt = f"{self._prompt.ns}/{self._prompt.key}"
        for key in request.section_keys:
            self._session.dispatch(SetVisibility(key, SectionVisibility.FULL, prompt))
        self._render()
        opened = f"Opened: {', '.join(request.section_keys)}. The instructions now show them."
        problems = [f"{key}: {why}" for key, why in request.problems.items()]
        return "\n".join([opened, *problems]), True

    def _finish(self, text: str) -> PromptResponse[OutputT]:
        """Parse the last message; raise ``ParseError`` if it does not match the output type."""
        output_type = self._rendered.output_type
        output: OutputT = (
            cast("Any", None)  # OutputT is None here
            if output_type is None
            else serde.parse_json(output_type, _strip_fence(text), what="The answer")
        )
        executed = PromptExecuted(
            prompt=self._rendered.prompt_name,
            text=text,
            output=output,
            usage=self._usage,
            at=self._session.clock.now(),
        )
        redact = self._adapter.redact
        self._session.dispatch(executed if redact is None else serde.map_strings(executed, redact))
        return PromptResponse(self._rendered.prompt_name, text, output)

    def _retry_output(self, error: ParseError) -> None:
        self._n_output_failures += 1
        if self._n_output_failures > self._adapter.limits.max_output_retries:
            raise self._error(
                error.message,
                phase="response",
                hint="Request a simpler output, raise max_output_retries, or use another model.",
            ) from error
        self._append(UserMessage(f"{error} Answer with the JSON alone."))

    def _error(self, message: str, *, phase: str, hint: str) -> PromptEvaluationError:
        prompt_name = self._rendered.prompt_name
        return PromptEvaluationError(message, phase=phase, prompt_name=prompt_name, hint=hint)


def _unanswered(conversation: Sequence[Message]) -> tuple[tuple[ToolCall, ...], int]:
    """The calls of the last turn without an answer, and how many messages come before theirs.

    Providers want the answers to calls before any other message.
    """
    answered: set[str] = set()
    for n, message in reversed(list(enumerate(conversation, start=1))):
        if isinstance(message, AssistantMessage):
            calls = tuple(call for call in message.tool_calls if call.id not in answered)
            return calls, n + len(answered) if calls else len(conversation)
        if isinstance(message, ToolMessage):
            answered.add(message.call_id)
    return (), len(conversation)


def _strip_fence(text: str) -> str:
    """The JSON inside a Markdown code fence, or the text itself."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[stripped.index("\n") : -3]
    return stripped
