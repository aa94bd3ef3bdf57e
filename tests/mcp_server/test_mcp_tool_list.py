"""The tool list of a server: short, and without names of our own code."""

from __future__ import annotations

import ast
import functools
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import wink_workspace
from wink_workspace import serde
from wink_workspace.cli.serve.mcp_command import served_sections
from wink_workspace.errors import ParseError
from wink_workspace.mcp_server import Catalog
from wink_workspace.mcp_server.protocol_types import mcp_tool
from wink_workspace.prompt import Tool, ToolAnnotations

MAX_TOKENS = 3_500
CHARS_PER_TOKEN = 4
OF_PYTHON = {"read_text"}  # a method of pathlib
SANDBOXES = ["none", "python", "podman"]
COMPOUND = re.compile(r"[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|[a-z0-9]+(?:_[a-z0-9]+)+")
"""A name of several words, which prose does not contain by chance."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree."""

    children: tuple[Tree, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """An order."""

    title: str = field(metadata={"description": "The title.", "min_length": 1})
    default: str = ""
    n: int = field(default=2, metadata={"ge": 1})
    of: dict[str, str] = field(default_factory=dict[str, str])
    either: int | str | None = None


def tool_list(
    sandbox: str, *, operations: bool = True, structured: bool = False
) -> list[dict[str, object]]:
    catalog = Catalog(served_sections(sandbox, in_place=False), operations=operations)
    return [
        mcp_tool(tool, structured=structured).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        for tool in catalog.tools
    ]


@functools.cache
def names_of_our_code() -> frozenset[str]:
    """The names of all modules, classes, functions and methods that have several words."""
    names = {"wink_workspace"}
    for path in Path(wink_workspace.__file__).parent.rglob("*.py"):
        names.add(path.stem)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names.add(node.name.lstrip("_"))
    return frozenset(filter(COMPOUND.fullmatch, names))


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_list_of_tools_has_at_most_3500_tokens(sandbox: str) -> None:
    """With the tools for history and branches, too."""
    listed = json.dumps(tool_list(sandbox), separators=(",", ":"))
    assert len(listed) <= MAX_TOKENS * CHARS_PER_TOKEN


def test_listed_input_has_what_a_call_needs_and_its_check_keeps_the_rest() -> None:
    listed = mcp_tool(Tool[Order, None](name="order", description="Order."), structured=False)
    assert listed.input_schema == {
        "type": "object",
        "required": ["title"],
        "properties": {
            "title": {"type": "string", "description": "The title."},
            "default": {"type": "string"},
            "n": {"type": "integer", "default": 2},
            "of": {"type": "object", "additionalProperties": {"type": "string"}},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
        },
    }
    for wrong in ({"title": ""}, {"title": "a", "n": 0}, {"title": "a", "other": 1}):
        with pytest.raises(ParseError):
            serde.parse(Order, wrong)


@pytest.mark.parametrize(
    ("own", "listed"),
    [
        (ToolAnnotations(), {}),
        (ToolAnnotations(read_only=True, destructive=False), {"readOnlyHint": True}),
        (ToolAnnotations(read_only=False, destructive=True, open_world=True), {}),
        (
            ToolAnnotations(destructive=False, idempotent=True, open_world=False),
            {"destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
        ),
    ],
)
def test_hint_that_a_client_assumes_is_left_out(
    own: ToolAnnotations, listed: dict[str, bool]
) -> None:
    tool = Tool[Order, None](name="order", description="Order.", annotations=own)
    hints = mcp_tool(tool, structured=False).annotations
    assert hints is not None
    assert hints.model_dump(by_alias=True, exclude_none=True) == listed


def test_recursive_result_keeps_its_definition() -> None:
    tool = Tool[Tree, Tree](name="grow", description="Grow.")
    listed = mcp_tool(tool, structured=False).input_schema
    assert listed["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}


@pytest.mark.share(3)
@pytest.mark.parametrize("structured", [False, True])
@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_no_name_of_our_code_is_in_the_list_of_tools(sandbox: str, structured: bool) -> None:
    listed = tool_list(sandbox, structured=structured)
    of_the_model = {str(tool["name"]) for tool in listed}
    for tool in listed:
        for schema in (tool["inputSchema"], tool.get("outputSchema") or {}):
            of_the_model |= set(properties(schema))
    used = set(COMPOUND.findall(json.dumps(listed)))
    assert not used & names_of_our_code() - of_the_model - OF_PYTHON


def properties(schema: object) -> list[str]:
    """The names of all properties in *schema*, which a model writes or reads."""
    match schema:
        case dict():
            own = schema.get("properties")
            below = [name for value in schema.values() for name in properties(value)]
            return [*(own if isinstance(own, dict) else ()), *below]
        case list():
            return [name for each in schema for name in properties(each)]
        case _:
            return []
