"""The text of a result for the model, and the arguments and schemas of tools."""

from __future__ import annotations

import json
import logging
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest

from wink_workspace.errors import ParseError
from wink_workspace.prompt.tool import Tool
from wink_workspace.prompt.tool_result import ToolRenderableResult, ToolResult


@dataclass(frozen=True)
class Score:
    points: int
    note: str | None = None


@dataclass(frozen=True)
class Table:
    rows: tuple[str, ...] = ("a", "b")

    def render(self) -> str:
        return "| a | b |"


class Raising(Table):
    def render(self) -> str:
        raise ValueError("broken")


class Odd(Table):
    def render(self) -> Any:
        return 7


@dataclass(frozen=True)
class Search:
    text: str = field(metadata={"description": "What to look for", "min_length": 1})
    limit: int = field(default=10, metadata={"description": "Most results"})


# Making results


def test_ok_is_a_success_and_error_a_failure_without_a_value() -> None:
    assert ToolResult.ok(Score(3), "Done") == ToolResult("Done", Score(3), success=True)
    assert ToolResult.error("No") == ToolResult("No", None, success=False)


def test_a_result_may_be_built_with_an_explicit_type() -> None:
    assert (
        ToolResult[Score].ok(Score(3)) == ToolResult[Score]("", Score(3)) == ToolResult.ok(Score(3))
    )


def test_a_result_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        ToolResult.ok(Score(3)).message = "other"


# Rendering


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("as it is", "as it is"),
        (Table(), "| a | b |"),
        ({"a": [1, None]}, {"a": [1, None]}),
        ((1, 2), [1, 2]),
        (Score(3), {"points": 3}),
        ([Score(3, "x")], [{"points": 3, "note": "x"}]),
    ],
)
def test_values_render_with_their_own_method_or_as_json(value: object, text: object) -> None:
    rendered = ToolResult.ok(value).render()

    assert (rendered if isinstance(text, str) else json.loads(rendered)) == text


def test_a_dataclass_without_render_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    @dataclass(frozen=True)
    class Fresh:
        points: int = 1

    for _ in range(2):
        assert json.loads(ToolResult.ok(Fresh()).render()) == {"points": 1}

    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "Fresh has no render()" in caplog.text


def test_a_value_excluded_from_the_context_needs_no_render(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @dataclass(frozen=True)
    class Unseen:
        points: int = 1

    result = ToolResult.ok(Unseen(), "Done.", exclude_value_from_context=True)

    assert (result.provider_text(result.render()), caplog.text) == ("Done.", "")


@pytest.mark.behaviour(12)
@pytest.mark.parametrize(
    ("value", "logged"), [(Raising(), "broken"), (Odd(), "Odd.render() gave int")], ids=repr
)
def test_a_render_that_fails_gives_json_and_is_logged(
    value: Table, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert json.loads(ToolResult.ok(value).render()) == {"rows": ["a", "b"]}
    assert logged in caplog.text


def test_only_values_with_render_are_renderable() -> None:
    assert isinstance(Table(), ToolRenderableResult)
    assert not isinstance(Score(1), ToolRenderableResult)


# What the provider sees


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult.ok("body", "Read a.txt."), "Read a.txt.\n\nbody"),
        (ToolResult.ok(None, "Done."), "Done."),
        (ToolResult.ok("body"), "body"),
        (ToolResult.ok("same", "same"), "same"),
        (ToolResult.ok(None), ""),
        (ToolResult.error("No such file."), "No such file."),
        (ToolResult("No.", "details", success=False), "No.\n\ndetails"),
    ],
)
def test_the_provider_sees_the_message_then_the_value(result: ToolResult[Any], text: str) -> None:
    assert result.provider_text() == text


def test_an_earlier_rendering_is_used_again() -> None:
    assert ToolResult.ok(Table(), "Two.").provider_text("shown before") == "Two.\n\nshown before"


@pytest.mark.behaviour(11)
def test_an_excluded_value_is_not_shown_but_kept() -> None:
    result = ToolResult.ok("a" * 9999, "Read 9999 characters.", exclude_value_from_context=True)

    assert result.provider_text() == "Read 9999 characters."
    assert result.render() == result.value == "a" * 9999


# Arguments and schemas

SEARCH = Tool[Search, None](name="search", description="Search.")
PING = Tool[None, None](name="ping", description="Ping.")


@pytest.mark.parametrize(
    "arguments",
    [{"text": "x", "limit": 3}, '{"text": "x", "limit": 3}', '\n{"limit":3,"text":"x"} '],
)
def test_arguments_may_be_an_object_or_json_text(arguments: Any) -> None:
    assert SEARCH.parse(arguments) == Search("x", 3)


@pytest.mark.parametrize("arguments", [None, {}, "", " \n", "{}"])
def test_a_tool_without_params_accepts_every_form_of_no_arguments(arguments: Any) -> None:
    assert PING.parse(arguments) is None


@pytest.mark.behaviour(14)
@pytest.mark.behaviour(15)
@pytest.mark.parametrize(
    ("tool", "arguments", "problems"),
    [
        (SEARCH, {"text": 7, "limit": "many", "more": 1}, ("text", "limit", "more")),
        (SEARCH, {}, ("text",)),
        (SEARCH, None, ("text",)),
        (SEARCH, {"text": ""}, ("text",)),
        (SEARCH, '{"text": ', ("",)),
        (SEARCH, "[1]", ("",)),
        (SEARCH, [], ("",)),
        (SEARCH, "null", ("",)),
        (PING, {"host": "x"}, ("host",)),
        (PING, "[1]", ("",)),
    ],
)
def test_invalid_arguments_are_refused_with_every_problem(
    tool: Tool[Any, Any], arguments: Any, problems: tuple[str, ...]
) -> None:
    with pytest.raises(ParseError, match=f"arguments of {tool.name}") as caught:
        tool.parse(arguments)

    assert sorted(problem.path for problem in caught.value.problems) == sorted(problems)


@pytest.mark.behaviour(10)
def test_descriptions_and_defaults_reach_the_provider() -> None:
    schema: Any = SEARCH.provider_schema()
    described = SEARCH.param_descriptions()

    assert schema["properties"]["text"]["description"].startswith("What to look for")
    assert schema["additionalProperties"] is False
    assert (described["limit"].description, described["limit"].default) == ("Most results", "10")


def test_a_tool_without_params_has_an_empty_closed_schema() -> None:
    schema = PING.provider_schema()

    assert (schema["type"], schema["properties"]) == ("object", {})
    assert schema["additionalProperties"] is False
    assert dict(PING.param_descriptions()) == {}
