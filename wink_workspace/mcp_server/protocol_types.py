"""Tools, results and prompts in the types of the protocol.

Rule 1: results are text for the model. Only a catalog with ``structured`` adds values: a client
that gets both shows the model the JSON, in which lines are escaped strings without numbers. A
structured result is always an object, as the protocol's versions with sessions require. A value
whose schema is not an object is the member ``result`` of one.
Rule 2: hints are the tool's annotations. A client assumes the worst for a missing hint, so a
hint of the worst is left out.
Rule 3: a definition has what a model needs to write a call: a schema without limits, and the first
example if its arguments are more than a word. Every byte of it costs each user tokens in each
conversation. The check of a call keeps the rest, and its errors say what is wrong. Claude Code
shows a result whole up to the size that its tool declares.
Rule 4: text that UTF-8 cannot encode, such as undecodable file names, is sent with escapes.
``request_handlers`` does this for all results and errors.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Any, Final, cast

from mcp_types import (
    CallToolResult,
    GetPromptResult,
    ImageContent,
    PromptArgument,
    PromptMessage,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Prompt as McpPrompt
from mcp_types import Tool as McpTool

from wink_workspace import serde
from wink_workspace.prompt import Prompt, Tool, ToolImage
from wink_workspace.runtime import MOST_TEXT_CHARS
from wink_workspace.sections import PlanningStrategy, PlanningToolsSection

from .hosting import Answer

_LIMITS: Final = (
    *("maxLength", "minLength", "maxItems", "minItems"),
    *("exclusiveMinimum", "maximum", "minimum"),
)
"""Limits that a call rarely meets."""
_SHORT_EXAMPLE: Final = 90
_LONG_RESULTS: Final = frozenset(
    {"compare_branches", "evaluate_python", "grep", "read_file", "service_logs", "shell_execute",
     "workspace_diff", "workspace_log"}
)  # fmt: skip
_META: Final = {"anthropic/maxResultSizeChars": MOST_TEXT_CHARS + 10_000}
"""For Claude Code; a result also has some words about what is missing."""


def mcp_tool(tool: Tool[Any, Any], *, structured: bool) -> McpTool:
    """*tool* with its hints and input schema; with its output schema if *structured*."""
    schema = _output(tool.result_type)[1] if structured else None
    return McpTool(
        name=tool.name,
        description=_described(tool),
        input_schema=_brief(_without_classes(serde.schema(tool.params_type))),
        output_schema=schema,
        annotations=_hints(tool),
        _meta=_META if tool.name in _LONG_RESULTS else None,
    )


def _described(tool: Tool[Any, Any]) -> str:
    """The description of *tool*, with its first example if its arguments are worth it."""
    arguments = tool.examples[0].arguments if tool.examples else ""
    if len(arguments) < _SHORT_EXAMPLE:
        return tool.description
    return f"{tool.description}\n\nExample: {arguments}"


def _hints(tool: Tool[Any, Any]) -> ToolAnnotations:
    """The hints of *tool* that differ from the protocol's defaults."""
    own = tool.annotations
    changes = not own.read_only
    return ToolAnnotations(
        read_only_hint=own.read_only or None,
        destructive_hint=False if changes and own.destructive is False else None,
        idempotent_hint=True if changes and own.idempotent else None,
        open_world_hint=False if own.open_world is False else None,
    )


def _brief(schema: Mapping[str, Any]) -> dict[str, Any]:
    """*schema* without limits, closed objects, and empty defaults (rule 3)."""
    match schema:
        case {"anyOf": [given, {"type": "null"}], "default": None}:
            own = cast("dict[str, Any]", given)
            return _brief({**own, **_without(schema, "anyOf", "default")})
        case _:
            brief = _without(schema, *_LIMITS)
    if brief.get("additionalProperties") is False:
        del brief["additionalProperties"]
    if not brief.get("default", True):
        del brief["default"]
    for key in ("properties", "$defs"):
        if key in brief:
            brief[key] = {name: _brief(each) for name, each in brief[key].items()}
    return brief


def _without(schema: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keys}


def call_result(tool: Tool[Any, Any] | None, answer: Answer, *, structured: bool) -> CallToolResult:
    """The result of a call: the text for the model; if *structured*, its value as JSON, too."""
    content = None
    image = ToolImage.of(answer.value)
    if structured and tool is not None and answer.success:
        wrapped, schema = _output(tool.result_type)
        if schema is not None:
            # Escaped here as well: the library cannot serialize a key that UTF-8 cannot encode
            value = printable(serde.dump(answer.value))
            if image is not None:
                value["image"] = None  # it is sent once
            content = {"result": value} if wrapped else value
    return CallToolResult(
        content=[TextContent(text=answer.text), *map(_image_content, [image] if image else [])],
        structured_content=content,
        is_error=not answer.success,
    )


def _image_content(image: ToolImage) -> ImageContent:
    data = base64.b64encode(image.data).decode("ascii")
    return ImageContent(data=data, mime_type=image.media_type)


def printable(value: Any) -> Any:
    """The JSON *value* with escapes for characters that UTF-8 cannot encode."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {printable(key): printable(item) for key, item in items}
        case list():
            return [printable(item) for item in cast("list[Any]", value)]
        case _:
            return value


@cache
def _output(result_type: Any) -> tuple[bool, dict[str, Any] | None]:
    """Whether values are wrapped, and the output schema; ``None`` if there is no value."""
    if result_type is NoneType:
        return False, None
    schema = _without_classes(serde.schema(result_type))
    if schema.get("type") == "object":
        return False, schema
    definitions = schema.pop("$defs", None)
    outer = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    return True, outer if definitions is None else {**outer, "$defs": definitions}


def _without_classes(schema: Mapping[str, Any]) -> dict[str, Any]:
    """*schema* without the names and docstrings of classes, for which a model has no use.

    Each definition stands where it is used, unless it contains itself.
    """
    plain = _of_no_class(schema)
    definitions: dict[str, Any] = plain.pop("$defs", {})
    while leaves := {
        f"#/$defs/{name}": _of_no_class(each)
        for name, each in definitions.items()
        if "$ref" not in json.dumps(each)
    }:
        definitions = {k: v for k, v in definitions.items() if f"#/$defs/{k}" not in leaves}
        plain, definitions = _replaced(plain, leaves), _replaced(definitions, leaves)
    return {**plain, "$defs": definitions} if definitions else plain


def _of_no_class(schema: Mapping[str, Any]) -> dict[str, Any]:
    return _without(schema, "title", "description")


def _replaced(node: Any, leaves: Mapping[str, dict[str, Any]]) -> Any:
    """*node* with each reference to one of *leaves* replaced by it."""
    match node:
        case {"$ref": str(name)} if name in leaves:
            own = cast("dict[str, Any]", node)
            return {**leaves[name], **{key: own[key] for key in own if key != "$ref"}}
        case dict():
            items = cast("dict[str, Any]", node).items()
            return {key: _replaced(value, leaves) for key, value in items}
        case list():
            return [_replaced(each, leaves) for each in cast("list[Any]", node)]
        case _:
            return node


# The planning strategies, as prompts that a user can choose in a client

_DESCRIPTIONS: Final = {
    PlanningStrategy.REACT: "Plan a few steps ahead; think, act and observe in turns.",
    PlanningStrategy.PLAN_ACT_REFLECT: "Plan all steps first, then act and reflect step by step.",
    PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE: (
        "Restate the goal, split it into parts, solve each one, and combine the results."
    ),
}

STRATEGIES: Final = tuple(
    McpPrompt(
        name=strategy.value,
        title=strategy.value.replace("_", " ").capitalize(),
        description=description,
        arguments=[PromptArgument(name="task", description="The task.", required=False)],
    )
    for strategy, description in _DESCRIPTIONS.items()
)
"""The prompts that a client can list."""


def strategy_prompt(name: str, task: str = "") -> GetPromptResult | None:
    """The prompt *name*, with *task* before it; ``None`` if there is no such prompt."""
    if name not in _DESCRIPTIONS:
        return None
    strategy = PlanningStrategy(name)
    section = PlanningToolsSection(strategy=strategy)
    text = Prompt[None](ns="wink-workspace", key="strategy", sections=[section]).render().text
    text = f"{task.strip()}\n\n{text}" if task.strip() else text
    return GetPromptResult(
        description=_DESCRIPTIONS[strategy],
        messages=[PromptMessage(role="user", content=TextContent(text=text))],
    )
