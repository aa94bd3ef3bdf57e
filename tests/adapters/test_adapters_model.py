"""Real SDKs against a server that speaks the providers' wire formats: what a run sends and makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from model_server import KEY, Call, DroppedTurn, HangingTurn, HttpFailure, ModelServer, Step, Turn
from pydantic_ai import exceptions
from support import Note, Text

from wink_workspace.adapters import ModelRequest, UserMessage
from wink_workspace.adapters.model import (
    ModelAdapter,
    ModelEvent,
    Retrying,
    RetryLimits,
    TextDelta,
)
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
    ToolResult,
)
from wink_workspace.session import PromptExecuted, Session, ToolInvoked

ANTHROPIC = "anthropic:claude-sonnet-5"
WIRES = [ANTHROPIC, "openai:gpt-5", "openai-chat:gpt-5"]

each_wire = pytest.mark.parametrize("model", WIRES)


def note(params: Text, *, context: ToolContext) -> ToolResult[None]:
    if params.text == "fail":
        raise ValueError("no such note")
    context.session[Note].append(Note(params.text))
    return ToolResult.ok(None, f"noted {params.text}")


NOTE = Tool[Text, None](name="note", description="Leave a note", handler=note)


def prompt_with(*tools: Tool) -> Prompt[Any]:
    section = MarkdownSection(title="Task", template="Take notes.", tools=tools or (NOTE,))
    return Prompt(ns="tests", key="model", name="model", sections=[section])


@dataclass
class Bench:
    """One adapter on one server, and all that came of a run."""

    server: ModelServer
    adapter: ModelAdapter[Any]
    events: list[ModelEvent]
    clock: ManualClock
    session: Session

    def run(self, prompt: Prompt[Any] | None = None, **options: Any) -> str:
        return self.adapter.evaluate(prompt or prompt_with(), session=self.session, **options).text

    def ends(self, **options: Any) -> PromptEvaluationError:
        with pytest.raises(PromptEvaluationError) as caught:
            self.run(**options)
        return caught.value

    @property
    def waits_s(self) -> list[float]:
        return [event.wait_s for event in self.events if isinstance(event, Retrying)]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))


class Benches:
    """Makes them, and closes what it made."""

    def __init__(self) -> None:
        self.opened: list[Any] = []

    def __call__(self, model: str, *steps: Step, **options: Any) -> Bench:
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
        return Bench(server, adapter, events, clock, Session())


@pytest.fixture
def bench() -> Iterator[Benches]:
    benches = Benches()
    yield benches
    for opened in reversed(benches.opened):
        opened.__exit__(None, None, None)


def calling(*texts: str, text: str = "", **more: Any) -> Turn:
    return Turn(text, tuple(Call("note", {"text": each}) for each in texts), **more)


# What goes right


@each_wire
def test_a_run_calls_tools_and_ends_with_the_models_text(bench: Benches, model: str) -> None:
    one = bench(model, calling("a", text="I take a note."), Turn("Done."))
    assert one.run() == "Done."
    assert one.session[Note].all() == (Note("a"),)
    assert "Take notes." in json.dumps(one.server.requests[0])
    assert "noted a" in json.dumps(one.server.requests[1])
    assert "I take a note." in json.dumps(one.server.requests[1])


@each_wire
def test_examples_of_a_tool_reach_its_definition_and_the_instructions(
    bench: Benches, model: str
) -> None:
    example = ToolExample(description="Note what to buy", input=Text("milk"), output=None)
    tool = Tool[Text, None](name="note", description="Note it.", handler=note, examples=(example,))
    one = bench(model, Turn("Done."))
    one.run(prompt_with(tool))
    request = one.server.requests[0]
    (definition,) = request["tools"]
    described = definition.get("function", definition)["description"]
    assert described == 'Note it.\n\nExamples:\n- Note what to buy: {"text": "milk"}'
    instructions = json.dumps({key: part for key, part in request.items() if key != "tools"})
    assert json.dumps('- Note what to buy: `note` with `{"text": "milk"}`.')[1:-1] in instructions


@each_wire
def test_text_is_told_as_it_comes(bench: Benches, model: str) -> None:
    one = bench(model, Turn("All is well today."))
    one.run()
    assert one.text == "All is well today."
    assert len(one.events) == 3


@each_wire
def test_parallel_calls_run_in_order_and_each_answer_goes_to_its_call(
    bench: Benches, model: str
) -> None:
    one = bench(model, calling("a", "fail", "c"), Turn("Done."))
    one.run()
    assert [record.success for record in one.session[ToolInvoked].all()] == [True, False, True]
    assert one.session[Note].all() == (Note("a"), Note("c"))
    told = json.dumps(one.server.requests[1])
    ids = [record.call_id for record in one.session[ToolInvoked].all()]
    assert len(set(ids)) == 3
    assert all(told.count(f'"{each}"') == 2 for each in ids), "once called, once answered"
    assert told.index("noted a") < told.index("no such note") < told.index("noted c")


@each_wire
@pytest.mark.behaviour(15)
def test_malformed_arguments_and_unknown_tools_are_answered_and_the_run_goes_on(
    bench: Benches, model: str
) -> None:
    turn = Turn(calls=(Call("note", '{"te'), Call("notes", {"text": "x"}), Call("note", "[1]")))
    one = bench(model, turn, calling("b"), Turn("Done."))
    assert one.run() == "Done."
    told = json.dumps(one.server.requests[1])
    assert "is not valid JSON" in told
    assert "There is no tool named" in told
    assert one.session[Note].all() == (Note("b"),)


def test_a_failed_call_is_marked_as_one_on_the_wire(bench: Benches) -> None:
    one = bench(ANTHROPIC, calling("a", "fail"), Turn("Done."))
    one.run()
    answers = one.server.requests[1]["messages"][2]["content"]
    assert [answer["is_error"] for answer in answers] == [False, True]


@each_wire
def test_tokens_go_into_the_budget_which_ends_the_run_when_it_is_spent(
    bench: Benches, model: str
) -> None:
    one = bench(model, calling("a", input_tokens=70, output_tokens=31), Turn("unused"))
    tracker = BudgetTracker(Budget(max_total_tokens=100))
    error = one.ends(budget_tracker=tracker)
    assert error.phase == "budget"
    assert tracker.used == TokenUsage(70, 31)
    assert len(one.server.requests) == 1


@dataclass(frozen=True, slots=True)
class Verdict:
    good: bool
    why: str = "no reason"


@each_wire
def test_structured_output_is_asked_for_by_schema_and_parsed(bench: Benches, model: str) -> None:
    one = bench(model, Turn('{"good": "yes"}'), Turn('{"good": true, "why": "it works"}'))
    template = PromptTemplate[Verdict](
        ns="tests",
        key="verdict",
        name="verdict",
        sections=[MarkdownSection(title="Task", template="Judge.")],
    )
    response = one.adapter.evaluate(Prompt(template), session=one.session)
    assert response.output == Verdict(True, "it works")
    assert '"good"' in json.dumps(one.server.requests[0])
    assert "Answer with the JSON alone" in json.dumps(one.server.requests[1])


def test_what_a_model_was_sent_comes_back_to_it_as_it_was(bench: Benches) -> None:
    one = bench("openai:gpt-5", calling("a", text="First."), Turn("Done."))
    one.run()
    kinds = [item.get("type") or item["role"] for item in one.server.requests[1]["input"]]
    assert kinds == ["user", "message", "function_call", "function_call_output"]
    assert one.server.requests[1]["input"][1]["id"] == "msg_1"


def test_signed_thoughts_go_back_as_they_came_and_are_not_told(bench: Benches) -> None:
    one = bench(ANTHROPIC, calling("a", thinking="Hm, a note."), Turn("Done."))
    assert one.run() == "Done."
    (thought, _) = one.server.requests[1]["messages"][1]["content"]
    assert (thought["thinking"], thought["signature"]) == ("Hm, a note.", "signed-1")
    assert "Hm" not in one.text


@each_wire
def test_a_conversation_goes_on_where_another_adapter_left_it(bench: Benches, model: str) -> None:
    from wink_workspace.adapters import AssistantMessage
    from wink_workspace.runtime import ToolCall

    one = bench(model, Turn("Done."))
    calls = (
        ToolCall.of("note", {"text": "a"}, id="old-1"),
        ToolCall.of("note", '{"text": "b"}', id="old-2"),
    )
    assert one.run(conversation=[AssistantMessage("Before.", calls)]) == "Done."
    assert one.session[Note].all() == (Note("a"), Note("b")), "nobody had answered them"
    told = json.dumps(one.server.requests[0])
    assert "Before." in told
    assert told.count("old-1") == told.count("old-2") == 2


# What goes wrong


LIMITED = {
    ANTHROPIC: HttpFailure(429, "rate_limit_error", "slow down", {"retry-after": "7"}),
    "openai:gpt-5": HttpFailure(
        429, "requests", "slow down", {"retry-after": "7"}, "rate_limit_exceeded"
    ),
}
LIMITED["openai-chat:gpt-5"] = LIMITED["openai:gpt-5"]


@each_wire
def test_a_rate_limit_is_waited_for_as_long_as_the_provider_asks(
    bench: Benches, model: str
) -> None:
    one = bench(model, LIMITED[model], LIMITED[model], Turn("Done."))
    assert one.run() == "Done."
    assert one.waits_s == [7.0, 7.0]
    assert one.clock.monotonic_s() == 14.0
    assert [e.attempt for e in one.events if isinstance(e, Retrying)] == [2, 3]


@each_wire
@pytest.mark.parametrize("status", [500, 503, 529])
def test_an_overloaded_provider_is_asked_again_with_growing_waits(
    bench: Benches, model: str, status: int
) -> None:
    failing = [HttpFailure(status, "overloaded_error", "busy")] * 4
    one = bench(model, *failing, Turn("Done."))
    assert one.run() == "Done."
    assert one.waits_s == [0.5, 1.0, 2.0, 4.0]


def test_waits_are_spread_by_chance_and_bounded(bench: Benches) -> None:
    limits = RetryLimits(max_attempts=9, first_wait_s=1, max_wait_s=8)
    failing = [HttpFailure(503)] * 8
    one = bench(ANTHROPIC, *failing, Turn("Done."), retries=limits, jitter=lambda: 0.5)
    one.run()
    assert one.waits_s == [0.75, 1.5, 3.0, 6.0, 6.0, 6.0, 6.0, 6.0]


def test_a_provider_that_never_recovers_ends_the_run_after_the_attempts_allowed(
    bench: Benches,
) -> None:
    one = bench(ANTHROPIC, *[HttpFailure(503)] * 9)
    error = one.ends()
    assert error.phase == "request"
    assert "6 times" in str(error)
    assert error.hint
    assert len(one.server.requests) == 6


def test_a_provider_that_asks_for_too_long_a_wait_ends_the_run(bench: Benches) -> None:
    asked = HttpFailure(429, "rate_limit_error", "slow down", {"retry-after": "3600"})
    one = bench(ANTHROPIC, asked)
    assert "3600 s" in str(one.ends())
    assert one.clock.monotonic_s() == 0


def test_a_wait_beyond_the_deadline_ends_the_run_at_once(bench: Benches) -> None:
    one = bench(ANTHROPIC, LIMITED[ANTHROPIC])
    error = one.ends(deadline=Deadline.after(5, clock=one.clock))
    assert "deadline" in str(error)
    assert one.clock.monotonic_s() == 0


@each_wire
@pytest.mark.parametrize("n_events", [0, 3, 5])
def test_a_connection_dropped_mid_stream_is_asked_again_and_no_half_turn_counts(
    bench: Benches, model: str, n_events: int
) -> None:
    turn = calling("a", text="Wait for it.")
    one = bench(model, DroppedTurn(turn, n_events), turn, Turn("Done."))
    assert one.run() == "Done."
    assert one.session[Note].all() == (Note("a"),), "once, not twice"
    assert len(one.waits_s) == 1


OVERFLOWS = {
    ANTHROPIC: HttpFailure(400, "invalid_request_error", "prompt is too long: 250000 tokens"),
    "openai:gpt-5": HttpFailure(
        400, "invalid_request_error", "Your input exceeds the context window of this model",
        code="context_length_exceeded",
    ),
}  # fmt: skip
OVERFLOWS["openai-chat:gpt-5"] = OVERFLOWS["openai:gpt-5"]


@each_wire
def test_a_conversation_that_is_too_long_ends_the_run_and_says_so(
    bench: Benches, model: str
) -> None:
    one = bench(model, calling("a"), OVERFLOWS[model])
    error = one.ends()
    assert error.phase == "request"
    assert "too long" in str(error)
    assert "smaller task" in error.hint
    assert one.session[Note].all() == (Note("a"),), "what was done is kept"
    assert len(one.server.requests) == 2, "asking again would not help"


@each_wire
def test_a_refusal_ends_the_run_in_the_response_phase(bench: Benches, model: str) -> None:
    one = bench(model, Turn("I will not do that.", ending="refusal"))
    error = one.ends()
    assert error.phase == "response"
    assert "refused" in str(error)


@each_wire
def test_an_answer_that_was_cut_off_is_no_answer(bench: Benches, model: str) -> None:
    one = bench(model, Turn("And so we", ending="length"))
    error = one.ends()
    assert error.phase == "response"
    assert "cut off" in str(error)


@each_wire
def test_a_call_that_was_cut_off_is_told_to_the_model(bench: Benches, model: str) -> None:
    cut = Turn(calls=(Call("note", '{"text": "a'),), ending="length")
    one = bench(model, cut, calling("b"), Turn("Done."))
    assert one.run() == "Done."
    assert one.session[Note].all() == (Note("b"),)


@pytest.mark.parametrize(
    ("failing", "says"),
    [
        (HttpFailure(401, "authentication_error", f"bad key {KEY}"), "did not accept the key"),
        (HttpFailure(404, "not_found_error", "model: claude-sonnet-5"), "was not found"),
        (HttpFailure(402, "billing_error", "pay first"), "no credit"),
        (HttpFailure(400, "invalid_request_error", "tools.0: bad"), "rejected the request"),
    ],
)
def test_what_repeating_does_not_help_ends_the_run_with_what_to_do(
    bench: Benches, failing: HttpFailure, says: str
) -> None:
    one = bench(ANTHROPIC, failing)
    error = one.ends()
    assert says in str(error)
    assert error.hint
    assert error.prompt_name == "model"
    assert len(one.server.requests) == 1


THEIRS = [
    (exceptions.ModelTimeoutError("m", "slow"), "did not answer in time", "request", True),
    (exceptions.ModelServerError("m", "down"), "failed", "request", True),
    (exceptions.ModelAPIError("m", "odd"), "failed", "request", True),
    (exceptions.ContentFilterError("filtered"), "refused to answer", "response", False),
    (exceptions.UnexpectedModelBehavior("odd", "{}"), "is malformed", "response", True),
    (exceptions.UserError("no such setting"), "UserError: no such setting", "request", False),
]


@pytest.mark.parametrize(("error", "says", "phase", "is_transient"), THEIRS)
def test_each_kind_of_failure_is_told_with_phase_and_hint(
    error: Exception, says: str, phase: str, is_transient: bool
) -> None:
    failure = classify_error(error, "provider:model", str)
    assert says in failure.reason
    assert (failure.phase, failure.is_transient) == (phase, is_transient)
    assert failure.hint


def test_a_server_that_is_not_there_ends_the_run_after_the_attempts_allowed() -> None:
    with ModelServer() as server:
        environment = server.environment
    clock = ManualClock()
    with ModelAdapter[Any](
        ANTHROPIC, environment=environment, clock=clock, retries=RetryLimits(max_attempts=2)
    ) as adapter:
        with pytest.raises(PromptEvaluationError, match=r"connection .* broke.*2 times"):
            adapter.evaluate(prompt_with(), session=Session())


def test_a_model_that_falls_silent_is_left_at_the_deadline(bench: Benches) -> None:
    one = bench(ANTHROPIC, HangingTurn(Turn("Thinking about it"), 4))
    error = one.ends(deadline=Deadline.after(0.3))
    assert error.phase == "request"
    assert "deadline" in str(error)
    assert one.text, "it had begun to speak"


def test_ctrl_c_while_the_model_speaks_ends_the_run_and_the_adapter_can_be_used_again(
    bench: Benches,
) -> None:
    def interrupt(event: ModelEvent) -> None:
        if isinstance(event, TextDelta) and not interrupted:
            interrupted.append(event)
            raise KeyboardInterrupt

    interrupted: list[ModelEvent] = []
    one = bench(
        ANTHROPIC, calling("a"), HangingTurn(Turn("Thinking"), 4), Turn("Done."), on_event=interrupt
    )
    with pytest.raises(KeyboardInterrupt):
        one.run()
    assert one.session[Note].all() == (Note("a"),)
    assert one.run() == "Done."


def test_a_fault_of_the_library_is_told_without_its_traceback(
    bench: Benches, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pydantic_ai import direct

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"what with {KEY}")

    monkeypatch.setattr(direct, "model_request_stream", broken)
    error = bench(ANTHROPIC).ends()
    assert "RuntimeError" in str(error)
    assert KEY not in str(error)


# Keys


def everything(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@each_wire
def test_a_key_goes_to_the_provider_and_nowhere_else(bench: Benches, model: str) -> None:
    failing = HttpFailure(401, "authentication_error", f"the key {KEY} is wrong")
    one = bench(model, calling("a"), failing)
    error = one.ends()
    assert KEY in "".join(one.server.headers[0].values())
    assert KEY not in str(error)
    assert "_API_KEY]" in str(error)
    assert len(list(everything(error))) == 1, "no exception of a library, which holds a request"
    assert KEY not in repr(one.adapter)
    assert KEY not in one.session.dump_state()


@pytest.mark.parametrize(
    ("name", "variables", "says"),
    [
        ("gpt-5", {}, "provider:model"),
        ("nowhere:model", {}, "nowhere"),
        (ANTHROPIC, {}, "ANTHROPIC_API_KEY"),
        ("openai:gpt-5", {"OPENAI_API_KEY": ""}, "OPENAI_API_KEY"),
        ("groq:llama", {}, "groq"),
    ],
)
def test_a_model_that_cannot_be_used_is_wrong_usage_at_once(
    name: str, variables: dict[str, str], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        ModelAdapter[Any](name, environment=Environment(variables=variables))


def test_the_record_of_the_end_is_redacted(bench: Benches) -> None:
    one = bench(ANTHROPIC, Turn("It is secret."), redact=lambda text: text.replace("secret", "…"))
    assert one.run() == "It is secret."
    assert [event.text for event in one.session[PromptExecuted].all()] == ["It is …."]


# Odds and ends


def test_closing_twice_is_closing_once_and_a_closed_adapter_opens_again(bench: Benches) -> None:
    one = bench(ANTHROPIC, Turn("One."), Turn("Two."))
    assert one.run() == "One."
    one.adapter.close()
    one.adapter.close()
    assert one.run() == "Two."


def test_settings_reach_the_provider(bench: Benches) -> None:
    one = bench(ANTHROPIC, Turn("Done."), settings={"max_tokens": 77, "cache": False})
    one.run()
    assert one.server.requests[0]["max_tokens"] == 77
    assert "cache_control" not in json.dumps(one.server.requests[0])


def test_a_turn_can_be_asked_for_without_tools_or_history(bench: Benches) -> None:
    one = bench(ANTHROPIC, Turn("Yes."))
    turn = one.adapter.complete(ModelRequest("Answer.", (UserMessage("Well?"),), ()))
    assert (turn.text, turn.tool_calls) == ("Yes.", ())


def test_limits_that_cannot_work_are_refused() -> None:
    with pytest.raises(UsageError):
        RetryLimits(max_attempts=0)
