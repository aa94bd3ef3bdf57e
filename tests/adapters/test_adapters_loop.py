"""The evaluation loop: turns, calls in order, opened sections, structured output, limits."""

from __future__ import annotations

import json
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from support import Note, Text

from wink_workspace.adapters import (
    LoopLimits,
    ModelRequest,
    ModelTurn,
    ScriptedAdapter,
    ScriptRecorder,
    ToolMessage,
    UserMessage,
    load_script,
)
from wink_workspace.clock import Budget, BudgetTracker, Deadline, ManualClock, TokenUsage
from wink_workspace.errors import (
    BudgetExceededError,
    DeadlineExceededError,
    PromptEvaluationError,
    ScriptError,
    UsageError,
)
from wink_workspace.filesystem import Filesystem, MemoryFilesystem
from wink_workspace.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    SectionVisibility,
    Tool,
    ToolContext,
    ToolResult,
)
from wink_workspace.runtime import ToolCall
from wink_workspace.session import EventBus, PromptExecuted, PromptRendered, Session, ToolInvoked


def note(params: Text, *, context: ToolContext) -> ToolResult[None]:
    context.session[Note].append(Note(params.text))
    return ToolResult.ok(None, f"noted {params.text}")


NOTE = Tool[Text, None](name="note", description="Leave a note", handler=note)


class RecordingAdapter(ScriptedAdapter):
    """A scripted adapter that records its requests."""

    def __init__(self, *turns: ModelTurn, **options: object) -> None:
        super().__init__(turns, **options)
        self.requests: list[ModelRequest] = []

    def complete(self, request: ModelRequest) -> ModelTurn:
        self.requests.append(request)
        return super().complete(request)


def calls(*texts: str, tool: str = "note", usage: TokenUsage | None = None) -> ModelTurn:
    """A turn that calls the tool once for each text."""
    return ModelTurn(
        tool_calls=tuple(
            ToolCall.of(tool, {"text": text}, id=f"c{n}") for n, text in enumerate(texts)
        ),
        usage=usage or TokenUsage(),
    )


def plain_prompt(*tools: Tool) -> Prompt:
    section = MarkdownSection(title="Task", template="Do it.", tools=tools or (NOTE,))
    return Prompt(ns="tests", key="plain", name="plain", sections=[section])


def test_a_run_ends_with_the_first_turn_without_calls() -> None:
    session = Session()
    adapter = RecordingAdapter(calls("a"), calls("b"), ModelTurn("All done."), ModelTurn("unused"))
    response = adapter.evaluate(plain_prompt(), session=session)
    assert (response.prompt_name, response.text, response.output) == ("plain", "All done.", None)
    assert session[Note].all() == (Note("a"), Note("b"))
    assert adapter.n_left == 1


def test_messages_of_the_user_follow_the_answers_of_a_turn_and_continue_a_finished_run() -> None:
    messages = iter([("one", "two"), (), ("three",), ()])
    adapter = RecordingAdapter(calls("a"), calls("b"), ModelTurn("Done."), ModelTurn("Now done."))
    response = adapter.evaluate(plain_prompt(), session=Session(), messages=lambda: next(messages))
    assert response.text == "Now done."
    assert adapter.requests[1].messages[-2:] == (UserMessage("one"), UserMessage("two"))
    assert isinstance(adapter.requests[2].messages[-1], ToolMessage)
    assert adapter.requests[3].messages[-1] == UserMessage("three")


def test_parallel_calls_of_one_turn_run_in_order_and_are_all_answered() -> None:
    session = Session()
    adapter = RecordingAdapter(calls("a", "b", "c"), ModelTurn("Done."))
    adapter.evaluate(plain_prompt(), session=session)
    assert [record.params for record in session[ToolInvoked].all()] == [
        Text("a"),
        Text("b"),
        Text("c"),
    ]
    answers = adapter.requests[1].messages[1:]
    assert answers == tuple(
        ToolMessage(f"c{n}", "note", f"noted {text}", success=True) for n, text in enumerate("abc")
    )


def test_a_failed_call_is_reported_to_the_model_and_the_run_continues() -> None:
    session = Session()
    adapter = RecordingAdapter(calls("a", tool="nope"), ModelTurn("Done."))
    adapter.evaluate(plain_prompt(), session=session)
    (answer,) = adapter.requests[1].messages[1:]
    assert isinstance(answer, ToolMessage)
    assert not answer.success
    assert "no tool named 'nope'" in answer.text


def test_a_request_carries_the_instructions_and_the_tools_schemas() -> None:
    adapter = RecordingAdapter(ModelTurn("Done."))
    adapter.evaluate(plain_prompt(), session=Session())
    (request,) = adapter.requests
    assert "Do it." in request.instructions
    (tool,) = request.tools
    assert (tool.name, tool.description) == ("note", "Leave a note")
    assert tool.schema["type"] == "object"


def test_the_session_records_the_rendering_and_the_end_with_token_usage() -> None:
    session = Session()
    adapter = RecordingAdapter(
        calls("a", usage=TokenUsage(10, 2)), ModelTurn("Done.", usage=TokenUsage(20, 3))
    )
    adapter.evaluate(plain_prompt(), session=session)
    (rendered,) = session[PromptRendered].all()
    assert rendered.tools == ("note",)
    (executed,) = session[PromptExecuted].all()
    assert (executed.text, executed.usage) == ("Done.", TokenUsage(30, 5))


@dataclass(frozen=True, slots=True)
class Labels:
    """Parameters that a strict provider schema encodes in another form."""

    labels: Mapping[str, int]
    limit: int = 7


@pytest.mark.parametrize("as_text", [False, True])
def test_arguments_in_the_strict_schema_are_decoded_to_the_tools_types(as_text: bool) -> None:
    def label(params: Labels, *, context: ToolContext) -> ToolResult[None]:
        return ToolResult.ok(None)

    tool = Tool[Labels, None](name="label", description="Label", handler=label)
    sent = {"labels": [{"key": "a", "value": 1}], "limit": None}
    arguments = json.dumps(sent) if as_text else sent
    turn = ModelTurn(tool_calls=(ToolCall.of("label", arguments, id="1"),))
    session = Session()
    RecordingAdapter(turn, ModelTurn("Done.")).evaluate(plain_prompt(tool), session=session)
    (record,) = session[ToolInvoked].all()
    assert record.params == Labels({"a": 1}, 7)


@pytest.mark.behaviour(15)
@pytest.mark.parametrize("arguments", ["[1", "[1]", [1], 5, b"{}"])
def test_arguments_that_are_not_an_object_get_a_failed_answer(arguments: object) -> None:
    turn = ModelTurn(tool_calls=(ToolCall.of("note", cast("str", arguments), id="1"),))
    adapter = RecordingAdapter(turn, ModelTurn("Done."))
    adapter.evaluate(plain_prompt(), session=Session())
    answer = adapter.requests[1].messages[-1]
    assert isinstance(answer, ToolMessage)
    assert not answer.success


def test_a_call_without_arguments_uses_the_defaults() -> None:
    turn = ModelTurn(tool_calls=(ToolCall.of("note", cast("str", None), id="1"),))
    session = Session()
    RecordingAdapter(turn, ModelTurn("Done.")).evaluate(plain_prompt(), session=session)
    assert [record.params for record in session[ToolInvoked].all()] == [Text()]


# Structured output


@dataclass(frozen=True, slots=True)
class Verdict:
    """A structured answer."""

    passed: bool
    reason: str


def verdict_prompt() -> Prompt[Verdict]:
    template = PromptTemplate[Verdict](
        ns="tests",
        key="verdict",
        name="verdict",
        sections=[MarkdownSection(title="Task", template="Judge.")],
    )
    return Prompt(template)


@pytest.mark.parametrize("fence", ["{}", "```json\n{}\n```", "  {}\n"])
def test_structured_output_is_parsed_with_or_without_a_fence(fence: str) -> None:
    text = fence.replace("{}", '{"passed": true, "reason": "fine"}')
    response = RecordingAdapter(ModelTurn(text)).evaluate(verdict_prompt(), session=Session())
    assert response.output == Verdict(passed=True, reason="fine")


def test_a_wrong_answer_is_sent_back_with_every_problem() -> None:
    adapter = RecordingAdapter(
        ModelTurn('{"passed": 1}'), ModelTurn('{"passed": true, "reason": "x"}')
    )
    response = adapter.evaluate(verdict_prompt(), session=Session())
    assert response.output == Verdict(passed=True, reason="x")
    complaint = adapter.requests[1].messages[-1]
    assert isinstance(complaint, UserMessage)
    assert "passed" in complaint.text
    assert "reason" in complaint.text
    assert adapter.requests[0].output_schema is not None


def test_repeated_wrong_answers_end_the_run_in_phase_response() -> None:
    adapter = RecordingAdapter(*[ModelTurn("prose")] * 3)
    with pytest.raises(PromptEvaluationError) as caught:
        adapter.evaluate(verdict_prompt(), session=Session())
    assert caught.value.phase == "response"
    assert "max_output_retries" in caught.value.hint
    assert adapter.n_left == 0


# Opening sections


def folded_prompt(key: str = "folded") -> Prompt:
    inner = Tool[Text, None](name="inner", description="Inside", handler=note)
    return Prompt(
        ns="tests",
        key=key,
        name="folded",
        sections=[
            MarkdownSection(title="Task", template="Do it.", tools=[NOTE]),
            MarkdownSection(
                title="Extra",
                key="extra",
                template="All the details.",
                summary="Details on demand.",
                visibility=SectionVisibility.SUMMARY,
                tools=[inner],
            ),
        ],
    )


def opening(*keys: str) -> ModelTurn:
    arguments = {"section_keys": list(keys), "reason": "to see"}
    return ModelTurn(tool_calls=(ToolCall.of("open_sections", arguments, id="open"),))


@pytest.mark.behaviour(6, 17)
def test_opening_a_section_renders_the_prompt_again_with_its_text_and_tools() -> None:
    adapter = RecordingAdapter(opening("extra"), calls("x", tool="inner"), ModelTurn("Done."))
    session = Session()
    adapter.evaluate(folded_prompt(), session=session)
    first, second, _ = adapter.requests
    assert "All the details." not in first.instructions
    assert "All the details." in second.instructions
    assert "inner" in [tool.name for tool in second.tools]
    assert session[Note].latest() == Note("x")


def test_sections_opened_by_one_prompt_stay_closed_in_another() -> None:
    session = Session()
    RecordingAdapter(opening("extra"), ModelTurn("Done.")).evaluate(
        folded_prompt(), session=session
    )
    again, other = RecordingAdapter(ModelTurn("Done.")), RecordingAdapter(ModelTurn("Done."))
    again.evaluate(folded_prompt(), session=session)
    other.evaluate(folded_prompt(key="other"), session=session)
    assert "All the details." in again.requests[0].instructions
    assert "All the details." not in other.requests[0].instructions


def test_a_call_that_opens_sections_is_recorded_with_the_requested_keys() -> None:
    session = Session()
    RecordingAdapter(opening("extra"), ModelTurn("Done.")).evaluate(
        folded_prompt(), session=session
    )
    assert session[ToolInvoked].all()[0].text.endswith("asked for these sections: extra")


@pytest.mark.behaviour(7)
def test_a_mixed_request_opens_the_valid_keys_and_explains_the_others() -> None:
    adapter = RecordingAdapter(opening("extra", "nowhere"), ModelTurn("Done."))
    adapter.evaluate(folded_prompt(), session=Session())
    answer = adapter.requests[1].messages[-1]
    assert isinstance(answer, ToolMessage)
    assert "Opened: extra" in answer.text
    assert "nowhere" in answer.text


@pytest.mark.behaviour(7)
def test_the_number_of_renderings_is_bounded() -> None:
    adapter = RecordingAdapter(
        opening("extra"), ModelTurn("Done."), limits=LoopLimits(max_expansions=0)
    )
    session = Session()
    adapter.evaluate(folded_prompt(), session=session)
    assert len(session[PromptRendered].all()) == 1
    answer = adapter.requests[1].messages[-1]
    assert isinstance(answer, ToolMessage)
    assert "No more sections" in answer.text
    assert not answer.success


# Limits


def test_an_endless_run_is_ended_at_max_turns() -> None:
    adapter = RecordingAdapter(*[calls("a")] * 9, limits=LoopLimits(max_turns=3))
    with pytest.raises(PromptEvaluationError, match=r"3 turns\. Raise max_turns"):
        adapter.evaluate(plain_prompt(), session=Session())
    assert adapter.n_left == 6


def test_a_budget_is_checked_before_each_turn() -> None:
    tracker = BudgetTracker(Budget(max_output_tokens=4))
    adapter = RecordingAdapter(*[ModelTurn("x", usage=TokenUsage(1, 5))] * 2)
    adapter.evaluate(plain_prompt(), session=Session(), budget_tracker=tracker)
    with pytest.raises(PromptEvaluationError) as caught:
        adapter.evaluate(plain_prompt(), session=Session(), budget_tracker=tracker)
    assert caught.value.phase == "budget"
    assert caught.value.hint == BudgetExceededError.default_hint
    assert adapter.n_left == 1


@pytest.mark.behaviour(18)
def test_a_deadline_is_checked_before_each_turn() -> None:
    clock = ManualClock()
    deadline = Deadline.after(1, clock=clock)
    clock.advance(1)
    adapter = RecordingAdapter(ModelTurn("x"))
    with pytest.raises(PromptEvaluationError) as caught:
        adapter.evaluate(plain_prompt(), session=Session(), deadline=deadline)
    assert caught.value.phase == "request"
    assert caught.value.hint == DeadlineExceededError.default_hint
    assert adapter.n_left == 1


def test_invalid_limits_are_refused() -> None:
    with pytest.raises(UsageError):
        LoopLimits(max_turns=0)


# Nested evaluation


def test_a_handler_evaluates_another_prompt_on_the_same_session() -> None:
    def delegate(params: Text, *, context: ToolContext) -> ToolResult[str]:
        sub_prompt = plain_prompt()
        sub_prompt.bind(resources={Filesystem: MemoryFilesystem()})
        response = context.adapter.evaluate(sub_prompt, session=context.session)
        return ToolResult.ok(response.text, "Delegated.")

    tool = Tool[Text, str](name="delegate", description="Delegate", handler=delegate)
    session = Session()
    adapter = RecordingAdapter(
        calls("job", tool="delegate"), calls("inside"), ModelTurn("sub done"), ModelTurn("Done.")
    )
    adapter.evaluate(plain_prompt(tool), session=session)
    assert session[Note].latest() == Note("inside")
    depths = [(record.tool, record.depth) for record in session[ToolInvoked].all()]
    assert depths == [("note", 1), ("delegate", 0)]
    answer = adapter.requests[-1].messages[-1]
    assert isinstance(answer, ToolMessage)
    assert answer.text == "Delegated.\n\nsub done"


def test_evaluating_a_template_is_refused_with_a_hint_to_make_a_prompt() -> None:
    template = PromptTemplate(ns="test", key="test")
    with pytest.raises(UsageError, match="cannot evaluate a PromptTemplate") as caught:
        RecordingAdapter(ModelTurn("Done.")).evaluate(cast("Prompt", template), session=Session())
    assert "Prompt(template)" in caught.value.hint


def test_a_bus_passed_to_evaluate_receives_events_of_the_run_only() -> None:
    bus, session = EventBus(), Session()
    seen: list[str] = []
    bus.subscribe(object, lambda event: seen.append(type(event).__name__))
    adapter = RecordingAdapter(calls("a"), ModelTurn("Done."))
    adapter.evaluate(plain_prompt(), session=session, bus=bus)
    session[Note].append(Note("later"))
    assert [name for name in seen if name != "SliceWritten"] == [
        "PromptRendered",
        "ToolStarted",
        "ToolInvoked",
        "PromptExecuted",
    ]
    assert session[Note].all() == (Note("a"), Note("later"))


def test_a_handler_may_pass_its_event_bus_without_duplicate_events() -> None:
    def delegate(params: Text, *, context: ToolContext) -> ToolResult[str]:
        sub_prompt = plain_prompt()
        sub_prompt.bind(resources={Filesystem: MemoryFilesystem()})
        response = context.adapter.evaluate(
            sub_prompt, bus=context.event_bus, session=context.session
        )
        return ToolResult.ok(response.text, "Delegated.")

    tool = Tool[Text, str](name="delegate", description="Delegate", handler=delegate)
    session = Session()
    seen: list[str] = []
    session.dispatcher.subscribe(PromptExecuted, lambda event: seen.append(event.text))
    adapter = RecordingAdapter(
        calls("job", tool="delegate"), calls("inside"), ModelTurn("sub done"), ModelTurn("Done.")
    )
    adapter.evaluate(plain_prompt(tool), session=session)
    assert seen == ["sub done", "Done."]


def test_params_passed_to_evaluate_are_bound_to_the_prompt() -> None:
    section = MarkdownSection[Text](title="Task", template="Do ${text}.")
    prompt = Prompt(ns="tests", key="bound", name="bound", sections=[section])
    adapter = RecordingAdapter(ModelTurn("Done."))
    adapter.evaluate(prompt, Text("this"), session=Session())
    assert "Do this." in adapter.requests[0].instructions


# Scripts


def test_a_script_file_drives_a_run(tmp_path: Path) -> None:
    script = tmp_path / "run.jsonl"
    lines = [
        {"text": "Noting.", "tool_calls": [{"name": "note", "arguments": {"text": "a"}}]},
        {"text": "Done."},
    ]
    script.write_text("\n\n".join(json.dumps(line) for line in lines) + "\n")
    session = Session()
    response = ScriptedAdapter(load_script(script)).evaluate(plain_prompt(), session=session)
    assert response.text == "Done."
    assert session[Note].latest() == Note("a")
    assert session[ToolInvoked].all()[0].call_id == "call-1-1"


def test_replaying_a_recorded_run_makes_the_same_calls(tmp_path: Path) -> None:
    recording = tmp_path / "recorded.jsonl"
    original, replayed = Session(), Session()
    bad = ModelTurn(
        tool_calls=(ToolCall.of("note", '{"text": 3}', id="odd"),), usage=TokenUsage(3, 4)
    )
    first = ScriptedAdapter([calls("a", "é\n"), bad, ModelTurn("Done.")])
    ScriptRecorder(first, recording).evaluate(plain_prompt(), session=original)
    ScriptedAdapter(load_script(recording)).evaluate(plain_prompt(), session=replayed)

    def history(session: Session) -> list[object]:
        return [(r.call_id, r.tool, r.params, r.text) for r in session[ToolInvoked].all()]

    assert history(replayed) == history(original)
    assert replayed[PromptExecuted].all()[0].usage == TokenUsage(3, 4)


def test_a_recording_contains_redacted_text_only(tmp_path: Path) -> None:
    recording = tmp_path / "recorded.jsonl"
    first = ScriptedAdapter(
        [calls("s3cret"), ModelTurn("Noted s3cret.")],
        redact=lambda text: text.replace("s3cret", "[key]"),
    )
    ScriptRecorder(first, recording).evaluate(plain_prompt(), session=Session())
    assert "s3cret" not in recording.read_text()
    assert recording.read_text().count("[key]") == 2


def test_a_recording_on_a_full_disk_ends_with_a_whole_turn(tmp_path: Path) -> None:
    recording = tmp_path / "recorded.jsonl"
    script = ScriptedAdapter([calls("a"), calls("b" * 1_000), ModelTurn("Done.")])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            ScriptRecorder(script, recording).evaluate(plain_prompt(), session=Session())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (turn,) = load_script(recording)
    assert turn.tool_calls[0].name == "note"


def test_a_script_that_ends_too_early_gets_a_hint_how_to_end_it() -> None:
    with pytest.raises(PromptEvaluationError, match="ended after 1 turn,") as caught:
        RecordingAdapter(calls("a")).evaluate(plain_prompt(), session=Session())
    assert caught.value.phase == "request"
    assert "calls no tool" in caught.value.hint


def test_an_empty_script_gets_a_hint_how_to_end_it() -> None:
    with pytest.raises(PromptEvaluationError, match="ended after 0 turns,") as caught:
        RecordingAdapter().evaluate(plain_prompt(), session=Session())
    assert "calls no tool" in caught.value.hint


def test_a_script_with_an_invalid_last_answer_reports_its_problems() -> None:
    with pytest.raises(PromptEvaluationError, match="ended after 1 turn,") as caught:
        RecordingAdapter(ModelTurn('{"passed": true}')).evaluate(
            verdict_prompt(), session=Session()
        )
    assert "reason" in caught.value.hint


def test_evaluating_a_script_twice_reports_the_missing_turns() -> None:
    adapter = RecordingAdapter(ModelTurn("Done."))
    adapter.evaluate(plain_prompt(), session=Session())
    with pytest.raises(PromptEvaluationError, match="ended after 1 turn,") as caught:
        adapter.evaluate(plain_prompt(), session=Session())
    assert "an adapter of its own" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{}\n{\n", "line 2"),
        (b'{"txt": "x"}', "txt"),
        (b'{"tool_calls": [{"arguments": {}}]}', "tool_calls[0].name"),
        (b"\xff", "cannot read the script"),
    ],
)
def test_a_malformed_script_is_refused_with_the_line_number(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    script = tmp_path / "bad.jsonl"
    script.write_bytes(content)
    with pytest.raises(ScriptError) as caught:
        load_script(script)
    assert expected in str(caught.value)


def test_a_missing_script_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="cannot read the script"):
        load_script(tmp_path / "none.jsonl")


def test_a_script_of_texts_is_refused_with_the_right_form() -> None:
    with pytest.raises(UsageError, match=r"'hi' is not a ModelTurn.* ModelTurn\(text\)"):
        ScriptedAdapter(["hi"])  # pyright: ignore[reportArgumentType] - that is the mistake


def test_a_script_of_calls_is_refused_with_the_right_form() -> None:
    with pytest.raises(UsageError, match=r"ModelTurn\(tool_calls=\(call,\)\)"):
        ScriptedAdapter([ToolCall("ls")])  # pyright: ignore[reportArgumentType] - that is the mistake
