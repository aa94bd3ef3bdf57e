"""Replace the strings inside a value."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any, TypeVar, cast

from .json_values import is_encodable

__all__ = ["map_strings", "well_formed"]

T = TypeVar("T")

_Change = Callable[[str], str]


def map_strings(value: T, change: Callable[[str], str]) -> T:
    """A copy of *value* with *change* applied to every string and path in it.

    Covers dataclasses, mappings (also their keys), sequences and sets; enums, bytes and other
    values stay. An object without changes is returned itself. Dataclasses are copied without
    calling ``__init__``, so that validation does not refuse a changed string.
    """
    return cast("T", _mapped(value, change))


def well_formed(text: str) -> str:
    """*text* with U+FFFD for each lone surrogate, which UTF-8 cannot encode; often *text* itself.

    A pair of surrogates becomes the character that it stands for.
    """
    if is_encodable(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _mapped(value: Any, change: _Change) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _mapped_fields(value, change)
    match value:
        case Enum() | bytes() | bytearray() | memoryview() | range():
            return cast("object", value)
        case str():
            return change(value)
        case PurePath():
            changed = change(str(value))
            return value if changed == str(value) else type(value)(changed)
        case Mapping():
            return _mapped_items(cast("Mapping[Any, Any]", value), change)
        case Sequence() | Set():
            return _mapped_members(cast("Sequence[Any] | Set[Any]", value), change)
        case _:
            return value


def _mapped_fields(value: Any, change: _Change) -> Any:
    names = [field.name for field in fields(value) if hasattr(value, field.name)]
    before = {name: getattr(value, name) for name in names}
    after = {name: _mapped(item, change) for name, item in before.items()}
    if all(after[name] is item for name, item in before.items()):
        return value
    copied = copy.copy(value)
    for name, item in after.items():
        object.__setattr__(copied, name, item)
    return copied


def _mapped_items(value: Mapping[Any, Any], change: _Change) -> Mapping[Any, Any]:
    after = {_mapped(key, change): _mapped(item, change) for key, item in value.items()}
    if all(key in after and after[key] is item for key, item in value.items()):
        return value
    if isinstance(
        value, MutableMapping
    ):  # a copy keeps other attributes, such as a default factory
        copied = copy.copy(value)
        copied.clear()
        copied.update(after)
        return copied
    return _of_kind(value)(after)


def _mapped_members(value: Sequence[Any] | Set[Any], change: _Change) -> Any:
    before = list(value)
    after = [_mapped(item, change) for item in before]
    if all(new is old for new, old in zip(after, before, strict=True)):
        return value
    make = getattr(value, "_make", _of_kind(value))  # a named tuple takes its items one by one
    return make(after)


def _of_kind(value: object) -> Callable[[object], Any]:
    return cast("Callable[[object], Any]", type(value))
