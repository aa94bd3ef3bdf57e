"""Parsing accepts valid JSON for a type, and does not coerce other values."""

from __future__ import annotations

import json
from collections import UserDict, UserList
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import Enum, IntEnum
from pathlib import Path, PurePosixPath
from threading import Lock
from types import MappingProxyType, ModuleType
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pytest
from annotated_types import Gt

from wink_workspace.errors import FileMissingError, ParseError, SchemaError, UsageError
from wink_workspace.serde import JsonValue, parse, parse_json


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Share(Enum):
    HALF = 0.5
    ALL = 1.0


class Lenient(Enum):
    ONE = 1

    @classmethod
    def _missing_(cls, value: object) -> Lenient | None:
        return cls.ONE if value == "one" else None


class Point(NamedTuple):
    x: int
    y: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    path: str = field(metadata={"description": "The file", "unknown": object()})
    offset: int = field(default=0, metadata={"ge": 0})
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    items: tuple[str, ...]
    n_items: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_items", len(self.items))


@dataclass(frozen=True)
class Picky:
    name: str

    def __post_init__(self) -> None:
        match self.name:
            case "value":
                raise ValueError("a value is no name.")
            case "wink":
                raise UsageError("the name is taken", hint="Use another.")
            case "assert":
                raise AssertionError
            case "missing":
                raise FileMissingError("no such file")
            case _:
                pass


@dataclass(frozen=True)
class Group:
    inner: tuple[Picky, ...]


@pytest.mark.parametrize(
    ("type_", "data", "expected"),
    [
        (float, 3, 3.0),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (frozenset[int], [1, 2, 1], frozenset({1, 2})),
        (Sequence[str], ["a"], ["a"]),
        (Mapping[str, int], {"a": 1}, {"a": 1}),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (Color, "red", Color.RED),
        (Level, 2, Level.HIGH),
        (tuple[Level, Level], [1, 2], (Level.LOW, Level.HIGH)),
        (Share, 1, Share.ALL),
        (Lenient, "one", Lenient.ONE),
        (bool | Literal[1], True, True),
        (Path, "a/b", Path("a/b")),
        (PurePosixPath, "a/b", PurePosixPath("a/b")),
        (datetime, "2025-01-31T09:30:00Z", datetime(2025, 1, 31, 9, 30, tzinfo=UTC)),
        (date, "2025-01-31", date(2025, 1, 31)),
        (timedelta, "PT1H", timedelta(hours=1)),
        (UUID, "12345678123456781234567812345678", UUID(int=0x12345678123456781234567812345678)),
        (bytes, "aGk=", b"hi"),
        (Point, [1, 2], Point(1, 2)),
        (Point, {"x": 1}, Point(1)),
        (int | str, "1", "1"),
        (Literal["a", 1], 1, 1),
        (int, 10**30, 10**30),
        (JsonValue, {"a": [1, None, "x", {"b": True}]}, {"a": [1, None, "x", {"b": True}]}),
        (Annotated[int, ["unhashable"]], 3, 3),
        (Read, MappingProxyType({"path": "a"}), Read("a")),
        (Read, UserDict({"path": "a", "limit": 3}), Read("a", 0, 3)),
        (list[int], UserList([1]), [1]),
        (Counted, {"items": ["a", "b"]}, Counted(("a", "b"))),
    ],
)
def test_valid_json_for_a_type_is_parsed(type_: Any, data: object, expected: object) -> None:
    parsed = parse(type_, data)
    assert parsed == expected
    assert type(parsed) is type(expected)


@pytest.mark.behaviour(14)
@pytest.mark.parametrize(
    ("type_", "data", "message"),
    [
        (int, 3.9, "must be an integer, not the number 3.9"),
        (int, 3.0, "must be an integer, not the number 3.0"),
        (int, True, "must be an integer, not true"),
        (int, "7", "must be an integer, not the string '7'"),
        (float, "7", "must be a number, not the string '7'"),
        (float, False, "must be a number, not false"),
        (float, 10**400, "must be a finite number, not the integer of 1329 bits"),
        (bool, 1, "must be true or false, not the integer 1"),
        (bool, "true", "must be true or false, not the string 'true'"),
        (str, 3, "must be a string, not the integer 3"),
        (str, {}, "must be a string, not an object"),
        (str, None, "must be a string, not null"),
        (bytes, "a*", "must be a base64 string, not the string 'a*'"),
        (list[int], "12", "must be an array, not the string '12'"),
        (tuple[int, ...], {"0": 1}, "must be an array, not an object"),
        (Mapping[str, int], [], "must be an object, not an array"),
        (Read, "a", "must be an object, not the string 'a'"),
        (Color, "green", "must be 'red' or 'blue', not the string 'green'"),
        (Literal["a", 1], True, "must be 'a' or 1, not true"),
        (Literal["1"], 1, "must be '1', not the integer 1"),
        (Literal[True], 1, "must be True, not the integer 1"),
        (Level, True, "must be 1 or 2, not true"),
        (Level, 1.0, "must be 1 or 2, not the number 1.0"),
        (Level, 3, "must be 1 or 2, not the integer 3"),
        (date, 3, "must be a date such as '2025-01-31', not the integer 3"),
        (timedelta, "soon", "must be a duration such as 'PT1H30M', not the string 'soon'"),
        (type(None) | int, "a", "must be an integer, not the string 'a'"),
    ],
)
def test_value_of_another_type_is_refused_and_not_coerced(
    type_: Any, data: object, message: str
) -> None:
    with pytest.raises(ParseError) as caught:
        parse(type_, data)
    assert [str(problem) for problem in caught.value.problems] == [message]


@dataclass(frozen=True, slots=True)
class Move:
    source: str = field(metadata={"alias": "from"})
    reads: tuple[Read, ...] = ()


def test_field_with_an_alias_is_parsed_by_its_alias_or_its_own_name() -> None:
    assert parse(Move, {"from": "a"}) == parse(Move, {"source": "a"}) == Move("a")


def test_field_given_by_alias_and_by_name_is_refused() -> None:
    with pytest.raises(ParseError, match="source: is not a known field"):
        parse(Move, {"from": "a", "source": "b"})


def test_problem_with_an_aliased_field_names_the_alias() -> None:
    with pytest.raises(ParseError, match="from: must be a string"):
        parse(Move, {"from": 1})


def test_unknown_fields_are_left_out_at_any_depth_when_extras_are_ignored() -> None:
    data = {"from": "a", "x": 1, "reads": [{"path": "b", "y": 2}]}
    assert parse(Move, data, extra="ignore") == Move("a", (Read("b"),))
    assert parse_json(Move, json.dumps(data), extra="ignore") == Move("a", (Read("b"),))
    assert parse(None, {"x": 1}, extra="ignore") is None
    with pytest.raises(ParseError, match="x: is not a known field"):
        parse(Move, data)


def test_field_without_init_is_unknown() -> None:
    with pytest.raises(ParseError, match="n_items: is not a known field"):
        parse(Counted, {"items": [], "n_items": 3})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("value", "inner[0]: a value is no name"),
        ("wink", "inner[0]: the name is taken. Use another"),
        ("assert", "inner[0]: was refused with AssertionError"),
        ("missing", "was refused with FileMissingError: no such file. List"),
    ],
)
def test_exception_of_the_type_itself_is_a_problem_of_the_data(name: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(Group, {"inner": [{"name": name}]})
    assert str(caught.value.problems[0]).startswith(message)


def test_none_type_accepts_an_empty_object_or_null() -> None:
    assert parse(None, {}) is None
    assert parse(type(None), None) is None
    assert parse_json(None, "{}") is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"x": 1}, "x: is not a known field; no fields are accepted"),
        ([], "must be an empty object, not an array"),
    ],
)
def test_none_type_refuses_all_other_data(data: object, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(None, data)
    assert str(caught.value.problems[0]) == message


def test_message_says_what_was_parsed_and_what_to_do() -> None:
    with pytest.raises(ParseError) as caught:
        parse(Read, {}, what="arguments of 'read_file'")
    assert str(caught.value) == (
        "arguments of 'read_file': path: is required. Correct every problem listed and try again."
    )


def test_type_with_an_annotation_that_cannot_be_resolved_is_named() -> None:
    @dataclass
    class Unknown:
        inner: Nowhere  # noqa: F821 - the test needs an unknown name

    with pytest.raises(
        SchemaError, match=r"Unknown cannot be parsed into.*'Nowhere'.*module level"
    ):
        parse(Unknown, {})


@pytest.mark.parametrize("type_", [ModuleType, list[Lock], Annotated[int, Gt("a")]])
def test_unsupported_type_is_a_schema_error_with_a_hint(type_: Any) -> None:
    with pytest.raises(SchemaError, match="cannot be parsed into") as caught:
        parse(type_, {})
    assert (
        caught.value.hint
        == "Use dataclasses, collections, unions, enums and scalars in its annotations."
    )
