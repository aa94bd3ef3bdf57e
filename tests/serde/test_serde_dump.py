"""``dump`` writes what ``parse`` accepts."""

from __future__ import annotations

import json
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntFlag, StrEnum
from functools import cached_property
from ipaddress import ip_address
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from wink_workspace.errors import ParseError, UsageError
from wink_workspace.serde import dump, dump_json, parse, schema


class Color(Enum):
    RED = "red"


class Mood(StrEnum):
    GOOD = "good"


class Bits(IntFlag):
    A = 1
    B = 2


class Loud(str):
    def __str__(self) -> str:
        return self.upper()


class Count(int):
    pass


class Model(BaseModel):
    x: float = float("inf")


Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True, slots=True)
class Leaf:
    name: str
    note: str | None = None
    length: int = field(init=False, default=0)


@dataclass
class Tree:
    leaves: tuple[Leaf, ...]
    by_name: dict[str, Leaf | None] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (Count(3), 3),
        (2.5, 2.5),
        ("a", "a"),
        (Loud("a"), "a"),
        (Color.RED, "red"),
        (Mood.GOOD, "good"),
        (Bits.A | Bits.B, 3),
        (b"hi\xff", "aGn/"),
        (bytearray(b"hi"), "aGk="),
        (memoryview(b"hi"), "aGk="),
        (PurePosixPath("a/b"), "a/b"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.50"), "1.50"),
        (datetime(2025, 1, 31, 9, 30, tzinfo=UTC), "2025-01-31T09:30:00+00:00"),
        (date(2025, 1, 31), "2025-01-31"),
        (time(9, 30), "09:30:00"),
        (timedelta(days=1, seconds=2, microseconds=3), "P1DT2.000003S"),
        (timedelta(microseconds=-1), "-P0DT0.000001S"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (Pair(1, 2), [1, 2]),
        (range(3), [0, 1, 2]),
        (deque([1, 2]), [1, 2]),
        (MappingProxyType({"a": 1}), {"a": 1}),
        ({1: "a", None: "b", 1.5: "c"}, {"1": "a", "null": "b", "1.5": "c"}),
        ({PurePosixPath("a"): 1, Color.RED: 2}, {"a": 1, "red": 2}),
        ({3, 1, 20}, [1, 3, 20]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ({1, "a", None}, ["a", 1, None]),
        (
            frozenset({Leaf("b"), Leaf("a")}),
            [{"name": "a", "note": None}, {"name": "b", "note": None}],
        ),
        (ip_address("127.0.0.1"), "127.0.0.1"),
        (Model(), {"x": "Infinity"}),
        (
            Tree((Leaf("a"),), {"b": None}),
            {"leaves": [{"name": "a", "note": None}], "by_name": {"b": None}},
        ),
    ],
)
def test_each_kind_of_value_has_its_json_form(value: Any, expected: object) -> None:
    dumped = dump(value)
    assert dumped == expected
    assert type(dumped) is type(expected)


def test_none_fields_can_be_left_out_of_dataclasses_but_not_out_of_mappings() -> None:
    tree = Tree((Leaf("a"),), {"b": None})
    assert dump(tree, exclude_none=True) == {"leaves": [{"name": "a"}], "by_name": {"b": None}}


def test_mapping_keeps_its_order() -> None:
    assert dump_json(OrderedDict(b=1, a=2)) == '{"b": 1, "a": 2}'


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (pytest, "a module has no JSON form"),
        ([lambda: 0], "a function has no JSON form"),
        ([Leaf], "a type has no JSON form"),
        ({1: "a", "1": "b"}, "two keys of a mapping become the same JSON string"),
        ({(1, 2): 3}, "a tuple cannot be the key of a JSON object"),
    ],
)
def test_value_without_a_json_form_is_refused_by_name(value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        dump(value)
    assert caught.value.hint


def test_value_that_contains_itself_is_refused() -> None:
    looped: list[object] = []
    looped.append(looped)
    with pytest.raises(UsageError, match="contains itself"):
        dump(looped)


def test_text_is_not_escaped_unless_utf8_cannot_encode_it() -> None:
    assert dump_json({"ä": "雪"}) == '{"ä": "雪"}'
    text = dump_json(["ä\udc80"])
    assert text.encode("ascii")
    assert json.loads(text) == ["ä\udc80"]


def test_indent_writes_one_item_per_line() -> None:
    assert dump_json([1, 2], indent=2) == "[\n  1,\n  2\n]"


@dataclass(frozen=True)
class Size:
    width_px: int = field(metadata={"alias": "widthPx"})
    height_px: int = 1

    @property
    def area_px(self) -> int:
        return self.width_px * self.height_px

    @cached_property
    def is_square(self) -> bool:
        return self.width_px == self.height_px

    @property
    def _hidden(self) -> int:
        raise AssertionError("a private property was read")


def test_field_with_an_alias_is_written_by_its_alias_and_parsed_back() -> None:
    size = Size(3, 2)
    assert dump(size) == {"widthPx": 3, "height_px": 2}
    assert parse(Size, dump(size)) == size
    properties: Any = schema(Size)["properties"]
    assert list(properties) == ["widthPx", "height_px"]


def test_properties_are_written_only_on_request_and_at_any_depth() -> None:
    sizes = [Size(3, 2)]
    written = [{"widthPx": 3, "height_px": 2, "area_px": 6, "is_square": False}]
    assert dump(sizes, computed=True) == written
    assert json.loads(dump_json(sizes, computed=True)) == written
    assert parse(list[Size], written, extra="ignore") == sizes
    with pytest.raises(ParseError, match="area_px: is not a known field"):
        parse(list[Size], written)
