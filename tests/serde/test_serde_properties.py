"""Property tests with any value and any JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import examples

from wink_workspace.errors import ParseError
from wink_workspace.serde import dump, dump_json, parse, parse_json, without_defaulted_nulls


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Pair(NamedTuple):
    left: int
    right: str = ""


@dataclass(frozen=True, slots=True)
class Leaf:
    name: str
    weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Rich:
    text: str
    n: int
    ratio: float
    flag: bool
    data: bytes
    color: Color
    mode: Literal["a", 1]
    moment: datetime
    day: date
    hour: time
    took: timedelta
    uid: UUID
    amount: Decimal
    pair: Pair
    fixed: tuple[int, str]
    leaves: tuple[Leaf, ...]
    names: frozenset[str]
    days: frozenset[date]
    by_name: Mapping[str, Leaf]
    by_number: dict[int, Color]
    union: Leaf | int | None
    path: PurePosixPath
    rows: list[list[int]] = field(default_factory=list)
    inner: Rich | None = None


TEXT = st.text(st.characters(codec="utf-8"))
STRATEGIES = {
    str: TEXT,
    float: st.floats(allow_nan=False, allow_infinity=False),
    datetime: st.datetimes(timezones=st.sampled_from([UTC, None])),
    time: st.times(),
    timedelta: st.timedeltas(timedelta(days=-999_999), timedelta(days=999_999)),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    PurePosixPath: TEXT.map(PurePosixPath),
}
for type_, strategy in STRATEGIES.items():
    st.register_type_strategy(type_, strategy)
RICH = st.builds(Rich, inner=st.none() | st.builds(Rich, inner=st.none()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
LIGHT = settings(max_examples=examples(25), deadline=None)
FIELDS = st.fixed_dictionaries({}, optional=dict.fromkeys(Rich.__slots__, JSON))


def explained(refusal: ParseError) -> None:
    """Assert that it names a problem, in text that UTF-8 can encode."""
    assert refusal.problems
    assert str(refusal).encode()


@LIGHT
@given(RICH)
def test_dumped_value_parses_to_an_equal_value(value: Rich) -> None:
    assert parse(Rich, dump(value)) == value
    assert parse_json(Rich, dump_json(value)) == value
    assert parse(Rich, without_defaulted_nulls(Rich, dump(value))) == value


@LIGHT
@given(RICH)
def test_dump_is_deterministic_json(value: Rich) -> None:
    assert json.loads(dump_json(value)) == dump(value)
    assert dump_json(parse(Rich, dump(value))) == dump_json(value)


@LIGHT
@given(JSON | FIELDS)
def test_any_json_parses_or_is_refused_with_problems(data: Any) -> None:
    for type_ in (Rich, Leaf | Pair, dict[str, Leaf | int], list[Color | Literal[1, True]]):
        try:
            parse(type_, data)
        except ParseError as refusal:
            explained(refusal)


@LIGHT
@given(st.text() | st.binary() | JSON.map(json.dumps))
def test_any_text_parses_or_is_refused_with_problems(text: str | bytes) -> None:
    try:
        parse_json(Rich, text)
    except ParseError as refusal:
        explained(refusal)


@LIGHT
@given(FIELDS)
def test_conversion_from_strict_mode_leaves_out_only_nulls(data: dict[str, Any]) -> None:
    restored = without_defaulted_nulls(Rich, data)
    assert restored.keys() <= data.keys()
    assert all(data[name] is None for name in data.keys() - restored.keys())
