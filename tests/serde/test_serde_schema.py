"""A schema has every rule that parsing enforces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import pytest

from wink_workspace.errors import SchemaError
from wink_workspace.serde import JsonValue, ParamDescription, field_descriptions, schema


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    title: str = field(metadata={"description": "What to do", "min_length": 1, "alias": "t"})
    done: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    children: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...] = field(metadata={"description": "In order", "min_length": 1})
    color: Color
    first: Step | None = None
    n: int = field(default=5, metadata={"ge": 1, "le": 9, "description": "How many"})
    tags: frozenset[str] = frozenset({"b", "a"})
    data: bytes = b"hi"
    anything: JsonValue = None
    mode: Literal["a", 1] = "a"
    rows: list[list[int | str]] = field(default_factory=list)
    names: tuple[str, ...] = field(default_factory=tuple[str, ...])
    made: list[int] = field(default_factory=lambda: [1])
    odd: object = object()
    env: Mapping[str, int] = field(default_factory=dict)
    n_steps: int = field(init=False, default=0)


@pytest.mark.behaviour(10)
def test_schema_has_descriptions_constraints_and_defaults() -> None:
    properties: Any = schema(Plan)["properties"]
    assert properties["n"] == {
        "type": "integer",
        "description": "How many",
        "minimum": 1,
        "maximum": 9,
        "default": 5,
    }
    assert properties["steps"]["minItems"] == 1
    assert properties["tags"]["default"] == ["a", "b"]
    assert properties["data"] == {
        "type": "string",
        "contentEncoding": "base64",
        "default": "aGk=",
    }


@pytest.mark.behaviour(10)
def test_every_object_is_closed_at_any_depth() -> None:
    plan: Any = schema(Plan)
    assert plan["additionalProperties"] is False
    assert plan["$defs"]["Step"]["additionalProperties"] is False
    assert plan["required"] == ["steps", "color"]


def test_field_without_init_is_not_in_the_schema() -> None:
    properties: Any = schema(Plan)["properties"]
    assert "n_steps" not in properties


def test_schema_has_the_default_of_a_factory_of_a_builtin_collection() -> None:
    properties: Any = schema(Plan)["properties"]
    assert properties["rows"]["default"] == []
    assert properties["names"]["default"] == []
    assert properties["env"]["default"] == {}
    assert "default" not in properties["made"]
    assert "default" not in properties["odd"]


def test_recursive_type_is_under_definitions() -> None:
    node: Any = schema(Node)
    assert node["type"] == "object"
    assert node["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert node["$defs"]["Node"]["type"] == "object"


def test_schema_of_no_parameters_is_an_empty_closed_object() -> None:
    assert schema(None) == {"type": "object", "properties": {}, "additionalProperties": False}
    assert field_descriptions(None) == {}


def test_changing_a_schema_does_not_affect_the_cached_one() -> None:
    schema(Plan)["properties"] = {}
    assert schema(Plan)["properties"]


@pytest.mark.parametrize("type_", [int, list[int], Step | int, dict[str, Step]])
def test_schema_of_other_types_is_complete(type_: Any) -> None:
    assert schema(type_).keys() <= {"type", "items", "anyOf", "additionalProperties", "$defs"}


def test_type_without_a_schema_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match=r"Callable.* has no JSON Schema"):
        schema(Callable[[], int])


def test_each_field_is_described_in_words() -> None:
    assert field_descriptions(Plan) == {
        "steps": ParamDescription("In order", "array of Step object"),
        "color": ParamDescription("", '"red" or "blue"'),
        "first": ParamDescription("", "Step object or null", "null"),
        "n": ParamDescription("How many", "integer", "5"),
        "tags": ParamDescription("", "array of string", '["a", "b"]'),
        "data": ParamDescription("", "string", '"aGk="'),
        "anything": ParamDescription("", "anything", "null"),
        "mode": ParamDescription("", '"a" or 1', '"a"'),
        "rows": ParamDescription("", "array of array of (integer or string)", "[]"),
        "names": ParamDescription("", "array of string", "[]"),
        "made": ParamDescription("", "array of integer", ""),
        "odd": ParamDescription("", "anything", ""),
        "env": ParamDescription("", "object", "{}"),
    }


def test_only_a_field_without_a_default_is_required() -> None:
    described = field_descriptions(Plan)
    assert [name for name, each in described.items() if each.required] == ["steps", "color"]
