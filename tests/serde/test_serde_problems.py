"""Every problem of data is reported at once, with its path, in a sentence."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from annotated_types import Gt, Len, Lt, MultipleOf
from pydantic import Field

from wink_workspace.errors import ParseError
from wink_workspace.serde import parse, parse_json


@dataclass(frozen=True, slots=True)
class Step:
    title: str = field(metadata={"min_length": 1, "max_length": 5, "pattern": "^[a-z]*$"})
    n: int = field(default=0, metadata={"ge": 0, "le": 9})
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    path: str
    steps: tuple[Step, ...] = ()
    env: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Add:
    kind: Literal["add"]
    n: int


@dataclass(frozen=True, slots=True)
class Remove:
    kind: Literal["remove"]
    path: str


@dataclass(frozen=True, slots=True)
class Edit:
    change: Add | Remove | int


class Pair(NamedTuple):
    left: int
    right: int


def problems(type_: Any, data: object) -> list[str]:
    with pytest.raises(ParseError) as caught:
        parse(type_, data)
    return [str(problem) for problem in caught.value.problems]


def problems_of_text(text: str | bytes) -> list[str]:
    with pytest.raises(ParseError) as caught:
        parse_json(Plan, text)
    return [str(problem) for problem in caught.value.problems]


def test_every_problem_is_reported_with_its_path() -> None:
    data = {
        "pth": "a",
        "steps": [{"title": "ok"}, {"title": 7, "n": True}, "x", {"n": 10, "steps": [{}]}],
        "env": {"A": 1, "a b": "1"},
    }
    assert problems(Plan, data) == [
        "path: is required",
        "steps[1].title: must be a string, not the integer 7",
        "steps[1].n: must be an integer, not true",
        "steps[2]: must be an object, not the string 'x'",
        "steps[3].title: is required",
        "steps[3].n: must be at most 9, not 10",
        "steps[3].steps[0].title: is required",
        "env['a b']: must be an integer, not the string '1'",
        "pth: is not a known field; did you mean 'path'? Known fields: path, steps, env",
    ]


@pytest.mark.parametrize(
    ("type_", "data", "expected"),
    [
        (Step, {"title": ""}, "title: must have at least 1 character"),
        (Step, {"title": "abcdef"}, "title: must have at most 5 characters, not 6"),
        (Step, {"title": "A"}, "title: must match the regular expression ^[a-z]*$"),
        (Step, {"title": "a", "n": -1}, "n: must be at least 0, not -1"),
        (Annotated[int, Gt(3)], 3, "must be greater than 3, not 3"),
        (Annotated[float, Lt(1)], 2.5, "must be less than 1.0, not 2.5"),
        (Annotated[int, MultipleOf(4)], 6, "must be a multiple of 4, not 6"),
        (Annotated[list[int], Len(2)], [1], "must have at least 2 items, not 1"),
        (Annotated[list[int], Len(0, 1)], [1, 2], "must have at most 1 item"),
        (tuple[int, str], [1], "[1]: is required"),
        (Pair, {"left": 1}, "right: is required"),
        (Pair, 3, "must be an array or an object, not the integer 3"),
        (dict[int, str], {"x": "a"}, "x: is a key that must be an integer, not the string 'x'"),
        (Annotated[str, Field(json_schema_extra={})], 1, "must be a string, not the integer 1"),
    ],
)
def test_broken_constraint_is_named_with_its_limit(type_: Any, data: object, expected: str) -> None:
    assert problems(type_, data) == [expected]


def test_unknown_kind_of_error_keeps_the_message_of_the_validator() -> None:
    @dataclass
    class Money:
        amount: Annotated[Decimal, Field(max_digits=3)]

    assert problems(Money, {"amount": "12345"}) == [
        "amount: decimal input should have no more than 3 digits in total"
    ]


def test_long_values_are_cut_and_unusual_keys_are_quoted() -> None:
    assert problems(int, "x" * 100) == [
        f"must be an integer, not the string '{'x' * 60}'… (100 characters)"
    ]
    assert problems(dict[str, int], {"k" * 70: "", "a.b": ""}) == [
        f"['{'k' * 60}'… (70 characters)]: must be an integer, not the string ''",
        "['a.b']: must be an integer, not the string ''",
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("x", ["change: must be an object or an integer, not the string 'x'"]),
        ({"kind": "add", "n": "1"}, ["change.n: must be an integer, not the string '1'"]),
        (
            {"kind": "remove", "paht": "a"},
            [
                "change.path: is required",
                "change.paht: is not a known field; did you mean 'path'? Known fields: kind, path",
            ],
        ),
        (
            {"kind": "add", "a": 1, "b": 2, "n": 3},
            [
                "change.a: is not a known field. Known fields: kind, n",
                "change.b: is not a known field. Known fields: kind, n",
            ],
        ),
    ],
)
def test_problems_of_a_union_are_those_of_the_intended_member(
    change: object, expected: list[str]
) -> None:
    assert problems(Edit, {"change": change}) == expected


def test_problem_of_a_union_is_a_broken_constraint_before_a_wrong_kind() -> None:
    assert problems(Annotated[str, Len(2)] | int, "a") == ["must have at least 2 characters"]


def test_intended_members_of_nested_unions_are_found() -> None:
    data = {"a": [{"change": {"kind": "add", "n": "1"}}]}
    assert problems(dict[str, list[Edit] | int] | str, data) == [
        "a[0].change.n: must be an integer, not the string '1'"
    ]


def test_unknown_field_of_a_type_without_a_schema_is_reported_without_known_fields() -> None:
    @dataclass
    class Job:
        run: Callable[[], None] | None = None

    assert problems(Job, {"go": 1}) == ["go: is not a known field; no fields are listed"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"path": NaN}',
            "is not valid JSON: NaN is not a JSON value; use a finite number or null",
        ),
        (
            "[-Infinity]",
            "is not valid JSON: -Infinity is not a JSON value; use a finite number or null",
        ),
        ('{"path": 1e999}', "path: must be a finite number, not inf"),
        ('{"path": "a",}', "is not valid JSON: Illegal trailing comma"),
        ("{\n 'a': 1}", "double quotes (line 2, column 2)"),
        ("", "is not valid JSON: Expecting value (line 1, column 1)"),
        (b'{"path": "\xff"}', "is not valid JSON: invalid start byte (byte 10)"),
        ('{"path": "a", "path": "b"}', "the key 'path' is given twice in one object"),
        ('{"path": "\\ud800"}', "path: must be valid Unicode, without lone surrogates"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"path": ' + "[" * 300 + "]" * 300 + "}", "is nested more than 199 levels deep"),
        ("1" * 5000, "holds a number with too many digits"),
        ("[]", "must be an object, not an array"),
        ("null", "must be an object, not null"),
    ],
)
@pytest.mark.behaviour(15)
def test_invalid_json_is_reported_with_line_and_column(text: str | bytes, expected: str) -> None:
    (problem,) = problems_of_text(text)
    if "comma" in expected and "comma" not in problem:  # the message before Python 3.13
        expected = "is not valid JSON: Expecting property name enclosed in double quotes"
    assert expected in problem


def test_all_values_without_a_json_form_are_reported_at_once() -> None:
    looped: list[object] = []
    looped.append(looped)
    data = {
        "a": float("nan"),
        "b": ["\ud800", b"x", {1, 2}],
        "c\udc80": 10**6000,
        "d": {1: float("inf"), (1, 2): 3, None: 1, float("inf"): 1},
        "e": looped,
        "f": Step("a"),
    }
    assert problems(Plan, data) == [
        "has the key 'c\\udc80', which is not valid Unicode",
        "a: must be a finite number, not nan",
        "b[0]: must be valid Unicode, without lone surrogates",
        "b[1]: must be JSON data, not a Python bytes",
        "b[2]: must be JSON data, not a Python set",
        "['c\\udc80']: has too many digits",
        "d: has the key (1, 2), which must be a string",
        "d: has the key inf, which must be a string",
        "d[1]: must be a finite number, not inf",
        "e[0]: contains itself",
        "f: must be JSON data, not a Python Step",
    ]


def test_python_objects_are_refused_as_json_data() -> None:
    assert problems(Plan, {"path": Step("a")}) == ["path: must be JSON data, not a Python Step"]


def test_nesting_is_accepted_up_to_the_limit_and_refused_beyond() -> None:
    nested: Any = 1
    for _ in range(199):
        nested = [nested]
    assert parse(list[Any], nested) == nested
    assert problems(list[Any], [nested]) == ["is nested more than 199 levels deep"]


def test_nesting_beyond_the_limit_of_python_is_refused() -> None:
    nested: Any = 1
    for _ in range(100_000):
        nested = [nested]
    assert problems(list[Any], nested) == ["is nested more than 199 levels deep"]
    while isinstance(nested, list):  # drop it level by level: its destructor recurses
        nested = nested.pop()


def test_first_thousand_problems_are_reported_and_the_others_counted() -> None:
    many = {f"key{n}": n for n in range(30_000)}
    reported = problems(Step, many | {"title": "a"})
    assert len(reported) == 1_001
    assert reported[-1] == "has 29,000 more problems"


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        (Step, {"title": "a"} | {f"key{n}": n for n in range(9_000)}),
        (list[str], [0] * 9_000),
        (dict[str, int | bool], {f"key{n}": "x" for n in range(9_000)}),
        (Plan, {"path": "p", "steps": [{"title": 1, "x": 2, "y": 3}] * 3_000}),
    ],
)
def test_reporting_many_problems_needs_little_more_memory_than_one(type_: Any, data: Any) -> None:
    """A client may send millions of values; work for each of them delays other clients."""
    of_one, _ = peak_while(lambda: problems(None, {"wrong": data}))
    of_all, found = peak_while(lambda: problems(type_, data))
    assert of_all - of_one < 4_000_000
    assert len(found) <= 1_001
    assert found[-1].endswith("more problems")


def peak_while(report: Callable[[], list[str]]) -> tuple[int, list[str]]:
    tracemalloc.start()
    try:
        found = report()
        return tracemalloc.get_traced_memory()[1], found
    finally:
        tracemalloc.stop()


def test_problems_beyond_the_excerpt_are_counted() -> None:
    env = {f"key{n}": n for n in range(2_000)}
    found = problems(Plan, {"path": "p", "env": env, "steps": [1] * 2_000})
    assert found == ["has 2,000 problems, none of them in its first 1,000 values"]


def test_field_beyond_the_excerpt_is_not_reported_as_missing() -> None:
    found = problems(Plan, {f"key{n}": n for n in range(30_000)} | {"path": "p"})
    assert not [line for line in found if "is required" in line]
    assert found[-1] == "has 29,000 more problems"
