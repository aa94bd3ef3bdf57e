"""Real SDKs against a fake provider: what a run sends, and how it handles the answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from model_server import KEY, Call, DroppedTurn, HangingTurn, HttpFailure, ModelServer, Step, Turn
from pydantic_ai import exceptions
from support import Note, Text

from wink_workspace.adapters import ModelRequest, ToolMessage, UserMessage
from wink_workspace.adapters.model import (
    ModelAdapter,
    ModelEvent,
    Retrying,
    RetryLimits,
    TextDelta,
)
from wink_workspace.adapters.model.conversation import model_messages
from wink_workspace.adapters.model.failures import classify_error
from wink_workspace.clock import Budget, BudgetTracker, Deadline, ManualClock, TokenUsage
from wink_workspace.environment import Environment
from wink_workspace.errors import PromptEvaluationError, UsageError
from wink_workspace.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolExample,
    ToolImage,
    ToolResult,
)
from wink_workspace.session import PromptExecuted, Session, ToolInvoked

ANTHROPIC = "anthropic:claude-sonnet-5"
MODELS = [ANTHROPIC, "openai:gpt-5", "openai-chat:gpt-5"]

each_api = pytest.mark.parametrize("model", MODELS)


def note(params: Text, *, context: ToolContext) -> ToolResult[None]:
    if params.text == "fail":
        raise ValueError("no such note")
    context.session[Note].append(Note(params.text))
    return ToolResult.ok(None, f"noted {params.text}")


@dataclass(frozen=True)
class Looked:
    """What was seen."""

    image: ToolImage

    def render(self) -> str:
        return ""


IMAGE = ToolImage("image/png", bytes(range(256)))


def look(params: Text, *, context: ToolContext) -> ToolResult[Looked]:
    return ToolResult.ok(Looked(IMAGE), f"an image of {params.text}")


LOOK = Tool[Text, Looked](name="note", description="Look at it", handler=look)
NOTE = Tool[Text, None](name="note", description="Leave a note", handler=note)


def prompt_with(*tools: Tool) -> Prompt[Any]:
    section = MarkdownSection(title="Task", template="Take notes.", tools=tools or (NOTE,))
    return Prompt(ns="tests", key="model", name="model", sections=[section])


@dataclass
class AdapterRun:
    """An adapter with its server, and the results of a run."""

    server: ModelServer
    adapter: ModelAdapter[Any]
    events: list[ModelEvent]
    clock: ManualClock
    session: Session

    def evaluate(self, prompt: Prompt[Any] | None = None, **options: Any) -> str:
        return self.adapter.evaluate(prompt or prompt_with(), session=self.session, **options).text

    def failure(self, **options: Any) -> PromptEvaluationError:
        with pytest.raises(PromptEvaluationError) as caught:
            self.evaluate(**options)
        return caught.value

    @property
    def waits_s(self) -> list[float]:
        return [event.wait_s for event in self.events if isinstance(event, Retrying)]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))


class AdapterRuns:
    """Creates ``AdapterRun`` objects and closes their servers and adapters."""

    def __init__(self) -> None:
        self.opened: list[Any] = []

    def __call__(self, model: str, *steps: Step, **options: Any) -> AdapterRun:
        server = ModelServer(*steps).__enter__()
        self.opened.append(server)
        events: list[ModelEvent] = []
        clock = ManualClock()
        settings = {
            "environment": server.environment, "on_event": events.append, "clock": clock,
            "jitter": lambda: 0.0, **options,
        }  # fmt: skip
        adapter = ModelAdapter[Any](model, **settings)
        self.opened.append(adapter)
        return AdapterRun(server, adapter, events, clock, Session())


@pytest.fixture
def new_run() -> Iterator[AdapterRuns]:
    runs = AdapterRuns()
    yield runs
    for opened in reversed(runs.opened):
        opened.__exit__(None, None, None)


def calling(*texts: str, text: str = "", **more: Any) -> Turn:
    return Turn(text, tuple(Call("note", {"text": each}) for each in texts), **more)


# Successful runs


@each_api
def test_a_run_calls_tools_and_ends_with_the_models_text(new_run: AdapterRuns, model: str) -> None:
    run = new_run(model, calling("a", text="I take a note."), Turn("Done."))
    assert run.evaluate() == "Done."
    assert run.session[Note].all() == (Note("a"),)
    assert "Take notes." in json.dumps(run.server.requests[0])
    assert "noted a" in json.dumps(run.server.requests[1])
    assert "I take a note." in json.dumps(run.server.requests[1])


@each_api
def test_examples_of_a_tool_reach_its_definition_and_the_instructions(
    new_run: AdapterRuns, model: str
) -> None:
    example = ToolExample(description="Note what to buy", input=Text("milk"), output=None)
    tool = Tool[Text, None](name="note", description="Note it.", handler=note, examples=(example,))
    run = new_run(model, Turn("Done."))
    run.evaluate(prompt_with(tool))
    request = run.server.requests[0]
    (definition,) = request["tools"]
    described = definition.get("function", definition)["description"]
    assert described == 'Note it.\n\nExamples:\n- Note what to buy: {"text": "milk"}'
    instructions = json.dumps({key: part for key, part in request.items() if key != "tools"})
    assert json.dumps('- Note what to buy: `note` with `{"text": "milk"}`.')[1:-1] in instructions


@each_api
def test_an_image_of_a_result_reaches_the_model_in_the_providers_form(
    new_run: AdapterRuns, model: str
) -> None:
    run = new_run(model, calling("a"), Turn("I see it."))
    assert run.evaluate(prompt_with(LOOK)) == "I see it."
    request = json.dumps(run.server.requests[1])
    assert request.count(base64.b64encode(IMAGE.data).decode()) == 1
    assert "image/png" in request
    assert "an image of a" in request


@each_api
def test_an_image_that_the_provider_refuses_is_left_out_and_the_run_goes_on(
    new_run: AdapterRuns, model: str
) -> None:
    refused = HttpFailure(400, "invalid_request_error", "Could not process image")
    run = new_run(model, calling("a"), refused, calling("b"), Turn("Done."))
    assert run.evaluate(prompt_with(LOOK)) == "Done."
    encoded = base64.b64encode(IMAGE.data).decode()
    assert [encoded in json.dumps(each) for each in run.server.requests] == [
        *(False, True, False, False)
    ]
    assert "The image is not shown." in json.dumps(run.server.requests[2])
    assert run.waits_s == []


def test_a_request_has_the_newest_images_that_fit_into_it() -> None:
    image = ToolImage("image/png", bytes(3_900_000))
    messages = [ToolMessage(str(n), "look", f"image {n}", True, image) for n in range(5)]
    (request,) = model_messages(messages)
    shown = [isinstance(part.content, list) for part in request.parts[1:]]
    assert shown == [False, False, True, True, True]


@each_api
def test_text_is_reported_while_it_is_received(new_run: AdapterRuns, model: str) -> None:
    run = new_run(model, Turn("All is well today."))
    run.evaluate()
    assert run.text == "All is well today."
    assert len(run.events) == 3


@each_api
def test_parallel_calls_run_in_order_and_each_gets_its_answer(
    new_run: AdapterRuns, model: str
) -> None:
    run = new_run(model, calling("a", "fail", "c"), Turn("Done."))
    run.evaluate()
    assert [record.success for record in run.session[ToolInvoked].all()] == [True, False, True]
    assert run.session[Note].all() == (Note("a"), Note("c"))
    sent = json.dumps(run.server.requests[1])
    ids = [record.call_id for record in run.session[ToolInvoked].all()]
    assert len(set(ids)) == 3
    assert all(sent.count(f'"{each}"') == 2 for each in ids), (
        "each id is in one call and one answer"
    )
    assert sent.index("noted a") < sent.index("no such note") < sent.index("noted c")


@each_api
@pytest.mark.behaviour(15)
def test_malformed_arguments_and_unknown_tools_are_answered_and_the_run_continues(
    new_run: AdapterRuns, model: str
) -> None:
    turn = Turn(calls=(Call("note", '{"te'), Call("notes", {"text": "x"}), Call("note", "[1]")))
    run = new_run(model, turn, calling("b"), Turn("Done."))
    assert run.evaluate() == "Done."
    sent = json.dumps(run.server.requests[1])
    assert "is not valid JSON" in sent
    assert "There is no tool named" in sent
    assert run.session[Note].all() == (Note("b"),)


def test_a_failed_call_is_marked_as_an_error_in_the_request(new_run: AdapterRuns) -> None:
    run = new_run(ANTHROPIC, calling("a", "fail"), Turn("Done."))
    run.evaluate()
    answers = run.server.requests[1]["messages"][2]["content"]
    assert [answer["is_error"] for answer in answers] == [False, True]


@each_api
def test_tokens_count_towards_the_budget_and_a_spent_budget_ends_the_run(
    new_run: AdapterRuns, model: str
) -> None:
    run = new_run(model, calling("a", input_tokens=70, output_tokens=31), Turn("unused"))
    tracker = BudgetTracker(Budget(max_total_tokens=100))
    error = run.failure(budget_tracker=tracker)
    assert error.phase == "budget"
    assert tracker.used == TokenUsage(70, 31)
    assert len(run.server.requests) == 1


@dataclass(frozen=True, slots=True)
class Verdict:
    good: bool
    why: str = "no reason"


@each_api
def test_structured_output_is_requested_by_schema_and_parsed(
    new_run: AdapterRuns, model: str
) -> None:
    run = new_run(model, Turn('{"good": "yes"}'), Turn('{"good": true, "why": "it works"}'))
    template = PromptTemplate[Verdict](
        ns="tests",
        key="verdict",
        name="verdict",
        sections=[MarkdownSection(title="Task", template="Judge.")],
    )
    response = run.adapter.evaluate(Prompt(template), session=run.session)
    assert response.output == Verdict(True, "it works")
    assert '"good"' in json.dumps(run.server.requests[0])
    assert "Answer with the JSON alone" in json.dumps(run.server.requests[1])


def test_the_models_own_turn_is_sent_back_unchanged(new_run: AdapterRuns) -> None:
    run = new_run("openai:gpt-5", calling("a", text="First."), Turn("Done."))
    run.evaluate()
    kinds = [item.get("type") or item["role"] for item in run.server.requests[1]["input"]]
    assert kinds == ["user", "message", "function_call", "function_call_output"]
    assert run.server.requests[1]["input"][1]["id"] == "msg_1"


def test_signed_thoughts_are_sent_back_unchanged_and_are_not_reported(new_run: AdapterRuns) -> None:
    run = new_run(ANTHROPIC, calling("a", thinking="Hm, a note."), Turn("Done."))
    assert run.evaluate() == "Done."
    (thought, _) = run.server.requests[1]["messages"][1]["content"]
    assert (thought["thinking"], thought["signature"]) == ("Hm, a note.", "signed-1")
    assert "Hm" not in run.text


@each_api
def test_a_conversation_continues_with_another_adapter(new_run: AdapterRuns, model: str) -> None:
    from wink_workspace.adapters import AssistantMessage
    from wink_workspace.runtime import ToolCall

    run = new_run(model, Turn("Done."))
    calls = (
        ToolCall.of("note", {"text": "a"}, id="old-1"),
        ToolCall.of("note", '{"text": "b"}', id="old-2"),
    )
    assert run.evaluate(conversation=[AssistantMessage("Before.", calls)]) == "Done."
    assert run.session[Note].all() == (Note("a"), Note("b")), "they had no answer yet"
    sent = json.dumps(run.server.requests[0])
    assert "Before." in sent
    assert sent.count("old-1") == sent.count("old-2") == 2


# Failures


LIMITED = {
    ANTHROPIC: HttpFailure(429, "rate_limit_error", "slow down", {"retry-after": "7"}),
    "openai:gpt-5": HttpFailure(
        429, "requests", "slow down", {"retry-after": "7"}, "rate_limit_exceeded"
    ),
}
LIMITED["openai-chat:gpt-5"] = LIMITED["openai:gpt-5"]


@each_api
def test_a_rate_limit_waits_as_long_as_the_provider_asks(new_run: AdapterRuns, model: str) -> None:
    run = new_run(model, LIMITED[model], LIMITED[model], Turn("Done."))
    assert run.evaluate() == "Done."
    assert run.waits_s == [7.0, 7.0]
    assert run.clock.monotonic_s() == 14.0
    assert [e.attempt for e in run.events if isinstance(e, Retrying)] == [2, 3]


@each_api
@pytest.mark.parametrize("status", [500, 503, 529])
def test_an_overloaded_provider_is_retried_with_growing_waits(
    new_run: AdapterRuns, model: str, status: int
) -> None:
    failing = [HttpFailure(status, "overloaded_error", "busy")] * 4
    run = new_run(model, *failing, Turn("Done."))
    assert run.evaluate() == "Done."
    assert run.waits_s == [0.5, 1.0, 2.0, 4.0]


def test_waits_have_jitter_and_an_upper_bound(new_run: AdapterRuns) -> None:
    limits = RetryLimits(max_attempts=9, first_wait_s=1, max_wait_s=8)
    failing = [HttpFailure(503)] * 8
    run = new_run(ANTHROPIC, *failing, Turn("Done."), retries=limits, jitter=lambda: 0.5)
    run.evaluate()
    assert run.waits_s == [0.75, 1.5, 3.0, 6.0, 6.0, 6.0, 6.0, 6.0]


def test_a_provider_that_never_recovers_ends_the_run_after_max_attempts(
    new_run: AdapterRuns,
) -> None:
    run = new_run(ANTHROPIC, *[HttpFailure(503)] * 9)
    error = run.failure()
    assert error.phase == "request"
    assert "6 times" in str(error)
    assert error.hint
    assert len(run.server.requests) == 6


def test_a_retry_after_above_the_limit_ends_the_run(new_run: AdapterRuns) -> None:
    asked = HttpFailure(429, "rate_limit_error", "slow down", {"retry-after": "3600"})
    run = new_run(ANTHROPIC, asked)
    assert "3600 s" in str(run.failure())
    assert run.clock.monotonic_s() == 0


def test_a_wait_beyond_the_deadline_ends_the_run_at_once(new_run: AdapterRuns) -> None:
    run = new_run(ANTHROPIC, LIMITED[ANTHROPIC])
    error = run.failure(deadline=Deadline.after(5, clock=run.clock))
    assert "deadline" in str(error)
    assert run.clock.monotonic_s() == 0


@each_api
@pytest.mark.parametrize("n_events", [0, 3, 5])
def test_a_connection_dropped_mid_stream_is_retried_and_the_partial_turn_discarded(
    new_run: AdapterRuns, model: str, n_events: int
) -> None:
    turn = calling("a", text="Wait for it.")
    run = new_run(model, DroppedTurn(turn, n_events), turn, Turn("Done."))
    assert run.evaluate() == "Done."
    assert run.session[Note].all() == (Note("a"),), "the call runs once"
    assert len(run.waits_s) == 1


@each_api
@pytest.mark.parametrize("turn", [Turn("I will now edit."), calling("a")], ids=["text", "call"])
def test_a_stream_that_ends_before_its_last_event_is_retried_and_is_never_the_answer(
    new_run: AdapterRuns, model: str, turn: Turn
) -> None:
    run = new_run(
        model, *(DroppedTurn(turn, n, ends=True) for n in (1, 2, 3, 4)), Turn("Done."),
        retries=RetryLimits(max_attempts=9),
    )  # fmt: skip
    assert run.evaluate() == "Done."
    assert len(run.waits_s) == 4
    assert run.session[Note].all() == (), "no call of a partial turn runs"


@each_api
def test_a_stream_that_never_gets_to_its_last_event_ends_the_run(
    new_run: AdapterRuns, model: str
) -> None:
    cut = DroppedTurn(Turn("I will now edit."), ends=True)
    error = new_run(model, *[cut] * 6).failure()
    assert "6 times" in str(error)
    assert "ended before" in str(error) or "without a `finish_reason`" in str(error)


@each_api
def test_an_empty_answer_is_retried(new_run: AdapterRuns, model: str) -> None:
    run = new_run(model, Turn(), Turn(" "), Turn("Done."))
    assert run.evaluate() == "Done."
    assert len(run.waits_s) == 2


OVERFLOWS = {
    ANTHROPIC: HttpFailure(400, "invalid_request_error", "prompt is too long: 250000 tokens"),
    "openai:gpt-5": HttpFailure(
        400, "invalid_request_error", "Your input exceeds the context window of this model",
        code="context_length_exceeded",
    ),
}  # fmt: skip
OVERFLOWS["openai-chat:gpt-5"] = OVERFLOWS["openai:gpt-5"]


@each_api
def test_a_conversation_that_is_too_long_ends_the_run_with_that_reason(
    new_run: AdapterRuns, model: str
) -> None:
    run = new_run(model, calling("a"), OVERFLOWS[model])
    error = run.failure()
    assert error.phase == "request"
    assert "too long" in str(error)
    assert "smaller task" in error.hint
    assert run.session[Note].all() == (Note("a"),), "the first call is kept"
    assert len(run.server.requests) == 2, "a retry would not help"


@each_api
def test_a_refusal_ends_the_run_in_the_response_phase(new_run: AdapterRuns, model: str) -> None:
    run = new_run(model, Turn("I will not do that.", ending="refusal"))
    error = run.failure()
    assert error.phase == "response"
    assert "refused" in str(error)


@each_api
def test_a_truncated_answer_ends_the_run(new_run: AdapterRuns, model: str) -> None:
    run = new_run(model, Turn("And so we", ending="length"))
    error = run.failure()
    assert error.phase == "response"
    assert "cut off" in str(error)


@each_api
def test_a_truncated_call_is_reported_to_the_model(new_run: AdapterRuns, model: str) -> None:
    cut = Turn(calls=(Call("note", '{"text": "a'),), ending="length")
    run = new_run(model, cut, calling("b"), Turn("Done."))
    assert run.evaluate() == "Done."
    assert run.session[Note].all() == (Note("b"),)


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        (HttpFailure(401, "authentication_error", f"bad key {KEY}"), "did not accept the key"),
        (HttpFailure(404, "not_found_error", "model: claude-sonnet-5"), "was not found"),
        (HttpFailure(402, "billing_error", "pay first"), "no credit"),
        (HttpFailure(400, "invalid_request_error", "tools.0: bad"), "rejected the request"),
    ],
)
def test_a_permanent_failure_ends_the_run_without_retry_and_with_a_hint(
    new_run: AdapterRuns, failing: HttpFailure, expected: str
) -> None:
    run = new_run(ANTHROPIC, failing)
    error = run.failure()
    assert expected in str(error)
    assert error.hint
    assert error.prompt_name == "model"
    assert len(run.server.requests) == 1


LIBRARY_ERRORS = [
    (exceptions.ModelTimeoutError("m", "slow"), "did not answer in time", "request", True),
    (exceptions.ModelServerError("m", "down"), "failed", "request", True),
    (exceptions.ModelAPIError("m", "odd"), "failed", "request", True),
    (exceptions.ContentFilterError("filtered"), "refused to answer", "response", False),
    (exceptions.UnexpectedModelBehavior("odd", "{}"), "is malformed", "response", True),
    (exceptions.UserError("no such setting"), "UserError: no such setting", "request", False),
]


@pytest.mark.parametrize(("error", "expected", "phase", "is_transient"), LIBRARY_ERRORS)
def test_each_kind_of_failure_has_a_phase_and_a_hint(
    error: Exception, expected: str, phase: str, is_transient: bool
) -> None:
    failure = classify_error(error, "provider:model", str)
    assert expected in failure.reason
    assert (failure.phase, failure.is_transient) == (phase, is_transient)
    assert failure.hint


def test_an_unreachable_server_ends_the_run_after_max_attempts() -> None:
    with ModelServer() as server:
        environment = server.environment
    clock = ManualClock()
    with ModelAdapter[Any](
        ANTHROPIC, environment=environment, clock=clock, retries=RetryLimits(max_attempts=2)
    ) as adapter:
        with pytest.raises(PromptEvaluationError, match=r"connection .* broke.*2 times"):
            adapter.evaluate(prompt_with(), session=Session())


def test_a_silent_model_ends_the_run_at_the_deadline(new_run: AdapterRuns) -> None:
    def pass_the_deadline(event: ModelEvent) -> None:
        if isinstance(event, TextDelta):
            clock.advance(60)

    clock = ManualClock()
    turn = HangingTurn(Turn("Thinking about it"), 4)
    run = new_run(ANTHROPIC, turn, clock=clock, on_event=pass_the_deadline)
    deadline = Deadline.after(60, clock=clock)
    error = run.failure(deadline=deadline)
    assert error.phase == "request"
    assert "deadline" in str(error)
    assert deadline.expired, "some text was received"


def test_ctrl_c_during_a_turn_ends_the_run_and_the_adapter_stays_usable(
    new_run: AdapterRuns,
) -> None:
    def interrupt(event: ModelEvent) -> None:
        if isinstance(event, TextDelta) and not interrupted:
            interrupted.append(event)
            raise KeyboardInterrupt

    interrupted: list[ModelEvent] = []
    run = new_run(
        ANTHROPIC, calling("a"), HangingTurn(Turn("Thinking"), 4), Turn("Done."), on_event=interrupt
    )
    with pytest.raises(KeyboardInterrupt):
        run.evaluate()
    assert run.session[Note].all() == (Note("a"),)
    assert run.evaluate() == "Done."


def test_an_unexpected_library_error_is_reported_without_secrets(
    new_run: AdapterRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pydantic_ai import direct

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"failed with {KEY}")

    monkeypatch.setattr(direct, "model_request_stream", broken)
    error = new_run(ANTHROPIC).failure()
    assert "RuntimeError" in str(error)
    assert KEY not in str(error)


# Keys


def exception_chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@each_api
def test_a_key_is_sent_to_the_provider_only(new_run: AdapterRuns, model: str) -> None:
    failing = HttpFailure(401, "authentication_error", f"the key {KEY} is wrong")
    run = new_run(model, calling("a"), failing)
    error = run.failure()
    assert KEY in "".join(run.server.headers[0].values())
    assert KEY not in str(error)
    assert "_API_KEY]" in str(error)
    assert len(list(exception_chain(error))) == 1, (
        "not chained to an exception of a library, which holds a request"
    )
    assert KEY not in repr(run.adapter)
    assert KEY not in run.session.dump_state()


@pytest.mark.parametrize(
    ("name", "variables", "expected"),
    [
        ("gpt-5", {}, "provider:model"),
        ("nowhere:model", {}, "nowhere"),
        (ANTHROPIC, {}, "ANTHROPIC_API_KEY"),
        ("openai:gpt-5", {"OPENAI_API_KEY": ""}, "OPENAI_API_KEY"),
        ("groq:llama", {}, "groq"),
    ],
)
def test_an_unusable_model_is_refused_at_construction(
    name: str, variables: dict[str, str], expected: str
) -> None:
    with pytest.raises(UsageError, match=expected):
        ModelAdapter[Any](name, environment=Environment(variables=variables))


def test_the_record_of_the_end_is_redacted(new_run: AdapterRuns) -> None:
    run = new_run(ANTHROPIC, Turn("It is secret."), redact=lambda text: text.replace("secret", "…"))
    assert run.evaluate() == "It is secret."
    assert [event.text for event in run.session[PromptExecuted].all()] == ["It is …."]


# Other


def test_close_may_be_repeated_and_a_closed_adapter_opens_again(new_run: AdapterRuns) -> None:
    run = new_run(ANTHROPIC, Turn("One."), Turn("Two."))
    assert run.evaluate() == "One."
    run.adapter.close()
    run.adapter.close()
    assert run.evaluate() == "Two."


def test_settings_reach_the_provider(new_run: AdapterRuns) -> None:
    run = new_run(ANTHROPIC, Turn("Done."), settings={"max_tokens": 77, "cache": False})
    run.evaluate()
    assert run.server.requests[0]["max_tokens"] == 77
    assert "cache_control" not in json.dumps(run.server.requests[0])


def test_a_turn_can_be_requested_without_tools_or_history(new_run: AdapterRuns) -> None:
    run = new_run(ANTHROPIC, Turn("Yes."))
    turn = run.adapter.complete(ModelRequest("Answer.", (UserMessage("Well?"),), ()))
    assert (turn.text, turn.tool_calls) == ("Yes.", ())


def test_invalid_retry_limits_are_refused() -> None:
    with pytest.raises(UsageError):
        RetryLimits(max_attempts=0)
