"""Strict schemas use the common subset, and the inverse conversion loses nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from pathlib import PurePosixPath
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from wink_workspace.errors import ParseError
from wink_workspace.serde import (
    JsonValue,
    field_descriptions,
    parse,
    provider_schema,
    without_defaulted_nulls,
)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    title: str = field(metadata={"description": "What to do", "min_length": 1})
    n: int = field(default=1, metadata={"ge": 0, "lt": 9, "multiple_of": 1})


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    double: Node | None = field(default=None, metadata={"description": "Its double"})
    head: Node | int = 0
    children: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Add:
    n: int
    kind: Literal["add"] = "add"


@dataclass(frozen=True, slots=True)
class Remove:
    n: int
    path: str = "."
    kind: Literal["remove"] = "remove"


@dataclass(frozen=True, slots=True)
class Everything:
    color: Color
    mode: Literal["a", 1, None]
    moment: datetime
    path: PurePosixPath
    tags: frozenset[str]
    pair: tuple[int, str]
    data: bytes
    anything: JsonValue
    plain: list
    change: Add | Remove
    env: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    by_color: Mapping[Color, Step] = field(default_factory=dict)
    first: Step | None = None
    maybe: int | None = 3
    choice: Literal["a", None] = "a"
    free: dict[str, Any] = field(default_factory=dict)
    either: Mapping[str, Step] | list[Step] = field(default_factory=list)
    made: list[int] = field(default_factory=lambda: [1])


STEP = {
    "type": "object",
    "description": "One step.",
    "properties": {
        "title": {"type": "string", "description": "What to do. At least 1 character."},
        "n": {
            "anyOf": [{"type": "integer"}, {"type": "null"}],
            "description": "At least 0. Less than 9. A multiple of 1. Default: 1 (null selects it).",
        },
    },
    "required": ["title", "n"],
    "additionalProperties": False,
}
NULL = {"type": "null"}


def nodes(node: object) -> Iterator[dict[str, Any]]:
    """*node* and every schema inside it."""
    if isinstance(node, dict):
        yield node
        for key, inner in node.items():
            inside = inner.values() if key in ("properties", "$defs") else [inner]
            for each in inside:
                yield from nodes(each)
    elif isinstance(node, list):
        for each in node:
            yield from nodes(each)


@pytest.mark.parametrize("type_", [None, Step, Node, Everything, dict[str, int]])
@pytest.mark.behaviour(10)
def test_schema_has_only_keywords_of_strict_modes(type_: Any) -> None:
    known = {"type", "properties", "required", "additionalProperties", "items", "enum", "anyOf"}
    for node in nodes(provider_schema(type_)):
        assert node.keys() <= known | {"description", "format", "$ref", "$defs"}
        assert len(node.keys() & {"type", "anyOf", "$ref"}) == 1
        if node.get("type") == "object":
            assert node["additionalProperties"] is False
            assert node["required"] == list(node["properties"])
        if node.get("type") == "array":
            assert "items" in node
        assert "$ref" not in node or node.keys() == {"$ref"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("color", {"type": "string", "enum": ["red", "blue"]}),
        (
            "mode",
            {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "enum": [1]}, NULL]},
        ),
        ("moment", {"type": "string", "format": "date-time"}),
        ("path", {"type": "string"}),
        (
            "tags",
            {
                "type": "array",
                "items": {"type": "string"},
                "description": "Order and repetition have no meaning.",
            },
        ),
        (
            "pair",
            {
                "type": "array",
                "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "description": "Exactly these, in this order: integer, string.",
            },
        ),
        ("data", {"type": "string", "description": "Encoded as base64."}),
        (
            "env",
            {
                "anyOf": [
                    {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {"key": {"type": "string"}, "value": {"type": "integer"}},
                            "required": ["key", "value"],
                            "additionalProperties": False,
                        },
                    },
                    NULL,
                ],
                "description": "A mapping, as an array of entries with distinct keys."
                " Default: {} (null selects it).",
            },
        ),
        (
            "steps",
            {
                "anyOf": [{"type": "array", "items": STEP}, NULL],
                "description": "Default: [] (null selects it).",
            },
        ),
        ("first", {"anyOf": [STEP, NULL], "description": "Default: null."}),
        ("maybe", {"anyOf": [{"type": "integer"}, NULL], "description": "Default: 3."}),
        (
            "choice",
            {"anyOf": [{"type": "string", "enum": ["a"]}, NULL], "description": 'Default: "a".'},
        ),
        (
            "made",
            {
                "anyOf": [{"type": "array", "items": {"type": "integer"}}, NULL],
                "description": "Null selects the default.",
            },
        ),
    ],
)
def test_keywords_that_strict_modes_lack_become_descriptions(name: str, expected: object) -> None:
    properties: Any = provider_schema(Everything)["properties"]
    assert properties[name] == expected


def test_tag_of_a_union_member_stays_required() -> None:
    properties: Any = provider_schema(Everything)["properties"]
    add, remove = properties["change"]["anyOf"]
    assert add["properties"]["kind"] == {"type": "string", "enum": ["add"]}
    assert remove["properties"]["kind"] == {"type": "string", "enum": ["remove"]}


def test_value_of_any_type_is_a_scalar_or_an_array_of_scalars() -> None:
    properties: Any = provider_schema(Everything)["properties"]
    assert {"type": "number"} in properties["anything"]["anyOf"]
    assert {"type": "object"} not in properties["anything"]["anyOf"]
    assert properties["plain"]["items"] == properties["anything"]


def test_fixed_keys_of_a_mapping_are_fixed_in_its_entries() -> None:
    properties: Any = provider_schema(Everything)["properties"]
    entry = properties["by_color"]["anyOf"][0]["items"]
    assert entry["properties"]["key"] == {"type": "string", "enum": ["red", "blue"]}


def test_description_of_a_field_can_be_replaced_and_its_constraints_stay() -> None:
    own: Any = provider_schema(Step)
    words = dict(field_descriptions(Step))
    words["n"] = replace(words["n"], description="How often", type="a small number", default="once")
    new: Any = provider_schema(Step, descriptions=words)

    assert own["properties"]["n"]["description"] == (
        "At least 0. Less than 9. A multiple of 1. Default: 1 (null selects it)."
    )
    assert new["properties"]["n"]["description"] == (
        "How often. At least 0. Less than 9. A multiple of 1. Default: once (null selects it)."
        " Type: a small number."
    )
    assert new["properties"]["title"] == own["properties"]["title"]
    assert provider_schema(Step) == own


def test_only_a_recursive_type_keeps_a_reference() -> None:
    assert "$defs" not in provider_schema(Everything)
    node: Any = provider_schema(Node)
    reference = {"$ref": "#/$defs/Node"}
    assert node["$defs"].keys() == {"Node"}
    assert node["properties"]["double"] == {
        "anyOf": [reference, NULL],
        "description": "Its double. Default: null.",
    }
    assert node["properties"]["head"]["anyOf"] == [reference, {"type": "integer"}, NULL]


def test_field_that_refers_to_a_shared_type_keeps_its_own_description() -> None:
    class Holder(BaseModel):
        node: Node = Field(description="The root.")

    properties: Any = provider_schema(Holder)["properties"]
    assert properties["node"] == {"anyOf": [{"$ref": "#/$defs/Node"}], "description": "The root."}


def test_tool_without_parameters_has_an_empty_closed_object() -> None:
    assert provider_schema(None) == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


SENT = {
    "color": "red",
    "mode": None,
    "moment": "2025-01-31T09:30:00Z",
    "path": "a",
    "tags": ["a"],
    "pair": [1, "a"],
    "data": "aGk=",
    "anything": None,
    "plain": [None, 1],
    "change": {"n": 1, "path": None, "kind": "remove"},
    "env": [{"key": "A", "value": 1}],
    "steps": [{"title": "a", "n": None}, {"title": "b", "n": 2}],
    "by_color": [{"key": "red", "value": {"title": "c", "n": None}}],
    "first": {"title": "d", "n": None},
    "maybe": None,
    "choice": None,
    "free": None,
    "either": [{"title": "e", "n": None}],
    "made": None,
}


def test_converted_arguments_of_a_model_parse() -> None:
    parsed = parse(Everything, without_defaulted_nulls(Everything, SENT))
    assert parsed.mode is None
    assert parsed.change == Remove(1)
    assert parsed.env == {"A": 1}
    assert parsed.steps == (Step("a"), Step("b", 2))
    assert parsed.by_color == {Color.RED: Step("c")}
    assert parsed.first == Step("d")
    assert (parsed.maybe, parsed.choice) == (None, None)
    assert (parsed.free, parsed.made) == ({}, [1])
    assert parsed.either == [Step("e")]


def test_arguments_without_defaulted_nulls_are_unchanged() -> None:
    data = {"env": {"A": 1}, "steps": [{"title": "a"}], "either": {"x": {"title": "a"}}}
    assert without_defaulted_nulls(Everything, data) == data
    assert without_defaulted_nulls(None, {"x": None}) == {"x": None}


@pytest.mark.parametrize(
    "data",
    [
        {"color": None},
        {"unknown": None, "steps": 3},
        {"env": [{"key": "A", "value": 1}, {"key": "A", "value": 2}]},
        {"env": [{"key": 1, "value": 1}]},
        {"env": [{"key": "A"}]},
        {"first": [{"key": "title", "value": "a"}]},
        {"pair": [None, None]},
    ],
)
def test_mistakes_are_left_to_parse(data: dict[str, Any]) -> None:
    assert without_defaulted_nulls(Everything, data) == data


def test_entries_become_a_mapping_even_if_an_array_is_allowed() -> None:
    data = {"either": [{"key": "x", "value": {"title": "a", "n": None}}]}
    assert without_defaulted_nulls(Everything, data) == {"either": {"x": {"title": "a"}}}


def test_member_of_a_union_is_found_by_its_fields_or_its_tag() -> None:
    def restored(change: dict[str, Any]) -> object:
        return without_defaulted_nulls(Everything, {"change": change})["change"]

    assert restored({"n": 1, "path": None}) == {"n": 1}
    assert restored({"kind": "remove", "path": None, "n": 1}) == {"kind": "remove", "n": 1}
    assert restored({"nonsense": None}) == {"nonsense": None}


def test_too_deep_nesting_is_left_to_parse() -> None:
    nested: dict[str, Any] = {"name": "a"}
    for _ in range(2_000):
        nested = {"name": "a", "children": [nested]}
    with pytest.raises(ParseError, match="nested more than 199 levels deep"):
        parse(Node, without_defaulted_nulls(Node, nested))
