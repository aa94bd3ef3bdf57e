"""``map_strings`` changes every string in a value, and nothing else."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath

import immutables
import pytest

from wink_workspace.serde import map_strings


class Mood(StrEnum):
    GOOD = "secret"


Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    length: int = field(init=False)

    def __post_init__(self) -> None:
        if self.text == "***":
            raise ValueError("a token is never masked")
        object.__setattr__(self, "length", len(self.text))


@dataclass
class Unset:
    text: str
    later: str = field(init=False)


def mask(text: str) -> str:
    return text.replace("secret", "***")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a secret", "a ***"),
        (["secret", 1, None], ["***", 1, None]),
        (("secret", ["secret"]), ("***", ["***"])),
        (Pair("secret", 1), Pair("***", 1)),
        ({"secret", "b"}, {"***", "b"}),
        (frozenset({"secret"}), frozenset({"***"})),
        ({"secret": 1, "b": "secret"}, {"***": 1, "b": "***"}),
        (OrderedDict(b="secret", a=1), OrderedDict(b="***", a=1)),
        (immutables.Map(a="secret"), immutables.Map(a="***")),
        (PurePosixPath("a/secret"), PurePosixPath("a/***")),
    ],
)
def test_strings_change_at_any_depth_and_containers_keep_their_type(
    value: object, expected: object
) -> None:
    changed = map_strings(value, mask)
    assert changed == expected
    assert type(changed) is type(expected)


def test_dataclass_is_copied_without_calling_its_init() -> None:
    token = Token("secret")
    changed = map_strings([token], mask)[0]
    assert (changed.text, changed.length) == ("***", 6)
    assert token.text == "secret"


def test_field_that_was_never_set_stays_unset() -> None:
    assert not hasattr(map_strings(Unset("secret"), mask), "later")


def test_copied_mapping_keeps_its_default_factory() -> None:
    changed = map_strings(defaultdict(list, a=["secret"]), mask)
    assert changed["a"] == ["***"]
    assert changed["missing"] == []


@pytest.mark.parametrize(
    "value",
    [
        "plain",
        Mood.GOOD,
        b"secret",
        range(3),
        3,
        PurePosixPath("a"),
        ["a", {"b": ("c", None)}],
        Token("plain"),
        Token,
        object(),
    ],
)
def test_value_without_changes_is_returned_itself(value: object) -> None:
    assert map_strings(value, mask) is value
