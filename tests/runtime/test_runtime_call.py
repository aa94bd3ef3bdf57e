"""``ToolCall``: its tool, its arguments, its id."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
from support import executor_of, tool

from wink_workspace import ModelTurn, Prompt, ScriptedAdapter, Session, ToolCall
from wink_workspace.adapters import ScriptRecorder, load_script
from wink_workspace.prompt import MarkdownSection, ToolResult
from wink_workspace.session import ToolInvoked

NOTE = tool(lambda params, context: ToolResult.ok(None, params.text), name="note")


def test_keywords_of_any_name_are_the_arguments() -> None:
    call = ToolCall("tag", name="v1", id="7", arguments=[], self="me", cls="you")
    assert (call.name, call.id) == ("tag", "")
    assert call.arguments == {
        "name": "v1", "id": "7", "arguments": [], "self": "me", "cls": "you",
    }  # fmt: skip


def test_of_takes_an_id_and_arguments_as_json_text() -> None:
    call = ToolCall.of("tag", '{"name": "v1"}', id="toolu_1")
    assert (call.name, call.arguments, call.id) == ("tag", '{"name": "v1"}', "toolu_1")
    assert ToolCall.of("tag", {"name": "v1"}) == ToolCall("tag", name="v1")
    assert call.with_id("other") == ToolCall.of("tag", '{"name": "v1"}', id="other")


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))]
)
def test_a_copy_of_a_call_equals_it(copied) -> None:
    call = ToolCall.of("tag", {"name": "v1"}, id="1")
    assert copied(call) == call


def test_a_call_without_an_id_gets_a_unique_one_when_it_runs() -> None:
    section = MarkdownSection(title="Notes", template="Take notes.", tools=[NOTE])
    prompt = Prompt[None](ns="tests", key="ids", sections=[section])
    call = ToolCall("note", text="x")
    with prompt.resources:
        executor = executor_of(prompt, Session())
        first, second = executor.execute(call), executor.execute(call)
    assert first.call.id
    assert first.call.id == first.event.call_id != second.call.id


def test_the_loop_numbers_calls_without_an_id_by_turn() -> None:
    session = Session()
    section = MarkdownSection(title="Notes", template="Take notes.", tools=[NOTE])
    prompt = Prompt[None](ns="tests", key="ids", sections=[section])
    given = ToolCall.of("note", {"text": "given"}, id="toolu_1")
    call = ToolCall("note", text="x")
    turns = [ModelTurn(tool_calls=[call]), ModelTurn(tool_calls=[given, call]), ModelTurn("Done.")]
    ScriptedAdapter(turns).evaluate(prompt, session=session)
    ids = [event.call_id for event in session[ToolInvoked].all()]
    assert ids == ["call-1-1", "toolu_1", "call-2-2"]


def test_a_recorded_script_has_the_ids_of_the_run(tmp_path: Path) -> None:
    call, script = ToolCall("note", text="x"), tmp_path / "turns.jsonl"
    turns = [ModelTurn(tool_calls=[call, call]), ModelTurn(tool_calls=[call]), ModelTurn("Done.")]
    section = MarkdownSection(title="Notes", template="Take notes.", tools=[NOTE])
    used: list[list[str]] = []
    for adapter in (ScriptRecorder(ScriptedAdapter(turns), script), None):
        session = Session()
        prompt = Prompt[None](ns="tests", key="ids", sections=[section])
        (adapter or ScriptedAdapter(load_script(script))).evaluate(prompt, session=session)
        used.append([event.call_id for event in session[ToolInvoked].all()])
    assert used == [["call-1-1", "call-1-2", "call-2-1"]] * 2
    assert "call-2-1" in script.read_text()
