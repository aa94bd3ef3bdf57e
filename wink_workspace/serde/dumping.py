"""Values to JSON."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property, lru_cache
from pathlib import PurePath
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from wink_workspace.errors import UsageError

from .json_values import JsonValue, is_encodable


def dump(value: object, *, exclude_none: bool = False, computed: bool = False) -> JsonValue:
    """*value* as JSON-shaped Python, converted by its run-time type.

    Dataclasses become objects, with the field names or the ``alias`` of the field's metadata as
    keys, without fields with ``init=False``. Enums become their values; paths, UUIDs, decimals,
    dates and times strings; durations ISO 8601 strings; bytes base64; named tuples and all
    sequences arrays; sets arrays in a fixed order. A float without a JSON form becomes ``"NaN"``,
    ``"Infinity"`` or ``"-Infinity"``, which ``parse`` refuses.

    Args:
        value: The value.
        exclude_none: Leave out the fields of dataclasses that are ``None``.
        computed: Also write the public properties of dataclasses, after the fields.
            ``parse`` accepts the result with ``extra="ignore"``.

    Raises:
        UsageError: If a value inside has no JSON form or contains itself, or if two keys of a
            mapping become the same string.
    """
    try:
        is_default = not exclude_none and not computed
        return _dump(value, _FIELDS_ONLY if is_default else _Options(exclude_none, computed))
    except RecursionError:
        raise UsageError(
            f"a {type(value).__name__} contains itself, or is nested too deeply for JSON",
            hint="Remove the cycle, or write the value in parts.",
        ) from None


def dump_json(
    value: object,
    *,
    exclude_none: bool = False,
    computed: bool = False,
    indent: int | None = None,
) -> str:
    """*value* as JSON text that UTF-8 can encode; *indent* spaces a level, or all on one line.

    Raises:
        UsageError: As ``dump``.
    """
    plain = dump(value, exclude_none=exclude_none, computed=computed)
    text = (
        _encode(plain)
        if indent is None
        else json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=indent)
    )
    # Lone surrogates, as in undecodable file names, are written as escapes.
    return text if is_encodable(text) else json.dumps(plain, allow_nan=False, indent=indent)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class _Options(NamedTuple):
    """The arguments of ``dump`` that apply at every depth."""

    exclude_none: bool
    computed: bool


_FIELDS_ONLY: Final = _Options(exclude_none=False, computed=False)

# Most values are of these types. They are checked inline, as a call of _dump would cost more.
_PLAIN: Final[frozenset[type]] = frozenset((str, int, bool, type(None)))


def _dump(value: Any, options: _Options) -> Any:
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType] - of anything
    if kind in _PLAIN:
        return value
    if kind is datetime:
        return value.isoformat()
    if kind is float and math.isfinite(value):
        return value
    if (members := _members(kind, options.computed)) is not None:
        return {
            key: item if type(item) in _PLAIN else _dump(item, options)
            for name, key in members
            if (item := getattr(value, name)) is not None or not options.exclude_none
        }
    if issubclass(kind, (list, tuple)):
        if not value:
            return []
        return [item if type(item) in _PLAIN else _dump(item, options) for item in value]
    if issubclass(kind, Enum):
        plain: object = value._value_
        return plain if type(plain) in _PLAIN else _dump(plain, options)
    if issubclass(kind, Mapping):
        return _dump_mapping(value, options)
    return _dump_other(value, options)


def _dump_other(value: Any, options: _Options) -> Any:
    match value:
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else _non_finite_name(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(cast("bytes", value)).decode("ascii")
        case PurePath() | UUID() | Decimal():
            return str(value)
        case date() | time():  # a datetime is a date
            return value.isoformat()
        case timedelta():
            return _duration(value)
        case Set():
            items = cast("Set[object]", value)
            return _in_fixed_order(_dump(item, options) for item in items)
        case Sequence():
            return [_dump(item, options) for item in cast("Sequence[object]", value)]
        case _:
            return _dump_foreign(value)


def _dump_foreign(value: object) -> Any:
    """Other values that pydantic can convert, such as its own models."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        plain = to_jsonable_python(value, bytes_mode="base64")
    except PydanticSerializationError as error:
        raise UsageError(
            f"a {type(value).__qualname__} has no JSON form",
            hint="Use only dataclasses, collections and scalars in the value.",
        ) from error
    return _dump(plain, _FIELDS_ONLY)  # converts the floats in it


@lru_cache(maxsize=1024)
def _members(kind: type, computed: bool) -> tuple[tuple[str, str], ...] | None:
    """Attribute and JSON key of each written member of a dataclass; ``None`` for other types."""
    if not is_dataclass(kind):
        return None
    written = [(f.name, str(f.metadata.get("alias", f.name))) for f in fields(kind) if f.init]
    if computed:
        names = dict.fromkeys(
            name
            for base in reversed(kind.__mro__)
            for name, member in vars(base).items()
            if isinstance(member, (property, cached_property)) and not name.startswith("_")
        )
        written += [(name, name) for name in names]
    return tuple(written)


def _dump_mapping(mapping: Mapping[object, object], options: _Options) -> dict[str, Any]:
    dumped = {
        key if type(key) is str else _dump_key(key): (
            item if type(item) in _PLAIN else _dump(item, options)
        )
        for key, item in mapping.items()
    }
    if len(dumped) < len(mapping):
        raise UsageError(
            "two keys of a mapping become the same JSON string",
            hint="Use keys of only one type in a mapping.",
        )
    return dumped


def _dump_key(key: object) -> str:
    plain = _dump(key, _FIELDS_ONLY)
    if isinstance(plain, str):
        return plain
    if plain is None or isinstance(plain, (int, float)):
        return json.dumps(plain)
    raise UsageError(
        f"a {type(key).__qualname__} cannot be the key of a JSON object",
        hint="Use strings, numbers, enums or paths as keys.",
    )


def _in_fixed_order(items: Iterable[Any]) -> list[Any]:
    listed = list(items)
    try:
        return sorted(listed)
    except TypeError:  # items of mixed types, or objects
        return sorted(listed, key=lambda item: json.dumps(item, sort_keys=True))


def _non_finite_name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _duration(value: timedelta) -> str:
    sign, size = ("-", -value) if value < timedelta(0) else ("", value)
    fraction = f".{size.microseconds:06d}" if size.microseconds else ""
    return f"{sign}P{size.days}DT{size.seconds}{fraction}S"
