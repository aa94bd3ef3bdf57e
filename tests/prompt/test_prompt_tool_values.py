"""Values that match a result type, and types that are assignable to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, Never, NewType, Protocol, TypedDict, TypeVar

import pytest
from typing_extensions import TypeAliasType

from wink_workspace.prompt._values import assignable, mismatch
from wink_workspace.prompt.tool import Tool

T = TypeVar("T")


@dataclass(frozen=True)
class Page(Generic[T]):
    items: tuple[T, ...] = ()


@dataclass(frozen=True)
class LastPage(Page[int]): ...


class Named(Protocol):
    name: str


class Row(TypedDict):
    name: str


Rows = NewType("Rows", list[int])
Numbers = TypeAliasType("Numbers", list[int])


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (Page(), Page),
        (LastPage(), Page),
        (Page((1,)), Page[int]),
        ("text", str),
        (None, type(None)),
        (None, Page | None),
        ([1, 2], list[int]),
        ([1, 2], Sequence[float]),
        ((1, 2, 3), tuple[int, ...]),
        ((1, "a"), tuple[int, str]),
        ((), tuple[int, ...]),
        ({"a": [1]}, Mapping[str, list[int]]),
        ({"a": 1}, dict),
        (["a", 1], list[Any]),
        ([1], Rows),
        ([1], Numbers),
        ("a", Literal["a", "b"]),
        (["a"], Annotated[list[str], "words"]),
        ([3], list[T]),
        ([object()], list[Named]),
        ({"name": "x"}, Row),
        ("text", object),
    ],
)
def test_a_value_of_the_type_has_no_mismatch(value: object, type_: object) -> None:
    assert mismatch(value, type_) is None


@pytest.mark.parametrize(
    ("value", "type_", "problem"),
    [
        ("text", Page, "the value is of type str, not Page"),
        (Page, Page, "the value is of type type, not Page"),
        (None, Page, "the value is None, not Page"),
        (Page(), str, "the value is of type Page, not str"),
        (Page(), type(None), "the value is of type Page, not None"),
        (3, Page | None, "the value is of type int, not "),
        ("text", Sequence[str], "the value is of type str, not collections.abc.Sequence[str]"),
        (b"bytes", str, "the value is of type bytes, not str"),
        ([1], tuple[int, ...], "the value is of type list, not tuple[int, ...]"),
        ([1, "a"], list[int], "item 1 of the value is of type str, not int"),
        ([[True]], list[list[float]], "item 0 of item 0 of the value is of type bool, not float"),
        ((1, 2), tuple[int, str], "item 1 of the value is of type int, not str"),
        ((1,), tuple[int, str], "the value has 1 items, not 2"),
        ({"a": 1, "b": "c"}, Mapping[str, int], "'b' of the value is of type str, not int"),
        ({1: 1}, dict[str, int], "a key of the value is of type int, not str"),
        ("c", Literal["a", "b"], "the value is of type str, not Literal['a', 'b']"),
    ],
)
def test_mismatch_of_a_value_names_its_path(value: object, type_: object, problem: str) -> None:
    assert (mismatch(value, type_) or "").startswith(problem)


def test_a_tool_checks_values_by_its_result_type() -> None:
    tool = Tool[None, list[int]](name="t", description="d")

    assert tool.check_value([1]) is None
    assert tool.check_value(["a"]) == "item 0 of the value is of type str, not int"
    assert tool.check_value(None) is None, "the message may say all"


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (int, int),
        (bool, int),
        (int, object),
        (Any, Page),
        (Page, Any),
        (T, Page),
        (Never, Page),
        (int, int | None),
        (bool | None, int | None),
        (list[bool], Sequence[int]),
        (tuple[int, ...], Sequence[int]),
        (dict[str, int], Mapping[str, object]),
        (list[int], list),
        (Page, Named),
        (Rows, list[int]),
    ],
)
def test_a_narrower_type_is_assignable_to_a_wider_one(narrow: object, wide: object) -> None:
    assert assignable(narrow, wide)


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (int, str),
        (object, int),
        (int | None, int),
        (list[int], list[str]),
        (list[int], Mapping[str, int]),
        (5, int),
        (int, Literal[1]),
    ],
)
def test_a_wider_or_other_type_is_not_assignable(narrow: object, wide: object) -> None:
    assert not assignable(narrow, wide)
