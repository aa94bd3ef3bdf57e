"""JSON values, and the problems of values that JSON cannot represent."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, TypeAlias, cast

from typing_extensions import TypeAliasType

from wink_workspace.errors import Problem

from .value_names import described, path_text, quoted

__all__ = ["MAX_NESTING", "JsonValue", "Path", "encode", "excerpt", "is_encodable", "unencodable"]

Path: TypeAlias = tuple[str | int, ...]
"""The keys and indices that lead to a value."""

MAX_NESTING = 199
"""Levels of arrays and objects that the parser accepts, without its own array around them."""

_MAX_INTEGER_BITS = 14_000
"""About 4,200 digits; Python refuses to convert integers of more than 4,300 digits."""


class _Anything:
    """Makes pydantic accept the annotated value as parsed."""

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> dict[str, str]:
        return {"type": "any"}


JsonValue = TypeAliasType(
    "JsonValue",
    Annotated[
        "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None",
        _Anything(),
    ],
)
"""A JSON value; a field of this type accepts any JSON."""


def _plain(value: object) -> object:
    """For ``json``: other mappings and sequences as ``dict`` and ``list``."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if _is_array(value):
        return list(cast("Sequence[object]", value))
    raise TypeError


def _is_array(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(
        value, (str, bytes, bytearray, memoryview)
    )


encode = json.JSONEncoder(allow_nan=False, default=_plain).encode
"""A value as ASCII JSON; ``TypeError``, ``ValueError`` or ``RecursionError`` if it has none."""


def excerpt(data: object, *, max_values: int) -> tuple[object, set[Path]]:
    """The first values of encodable *data*, depth first, and the paths where others were cut."""
    n_left = max_values
    shortened: set[Path] = set()

    def copied(value: object, path: Path) -> object:
        if isinstance(value, Mapping):
            return dict(items(cast("Mapping[str, object]", value).items(), path))
        if _is_array(value):
            return [item for _, item in items(enumerate(cast("Sequence[object]", value)), path)]
        return value

    def items(
        container: Iterable[tuple[str | int, object]], path: Path
    ) -> Iterator[tuple[str | int, object]]:
        nonlocal n_left
        for key, value in container:
            if not n_left:
                shortened.add(path)
                return
            n_left -= 1
            yield key, copied(value, (*path, key))

    return copied(data, ()), shortened


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can encode *text*: it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def unencodable(data: object) -> list[Problem]:
    """The problems of *data* that cannot be encoded as JSON; never empty."""
    problems = [Problem(path_text(path), message) for path, message in _problems(data, (), ())]
    return problems or [Problem("", "is too large for JSON, or nested too deeply")]


def _problems(
    value: object, path: tuple[object, ...], around: tuple[int, ...]
) -> Iterator[tuple[tuple[object, ...], str]]:
    """Each problem with its path; *around* has the ids of the containers around *value*."""
    if value is None or isinstance(value, (str, int, float)):
        if problem := _scalar_problem(value):
            yield path, problem
        return
    if id(value) in around:
        yield path, "contains itself"
    elif len(path) >= MAX_NESTING:
        yield (), f"is nested more than {MAX_NESTING} levels deep"
    elif isinstance(value, Mapping):
        mapping = cast("Mapping[object, object]", value)
        for key in mapping:
            if problem := _key_problem(key):
                yield path, problem
        for key, inner in mapping.items():
            yield from _problems(inner, (*path, key), (*around, id(mapping)))
    elif _is_array(value):
        array = cast("Sequence[object]", value)
        for index, inner in enumerate(array):
            yield from _problems(inner, (*path, index), (*around, id(array)))
    else:
        yield path, f"must be JSON data, not {described(value)}"


def _scalar_problem(value: str | float | None) -> str | None:
    match value:
        case str() if not is_encodable(value):
            return f"must be valid Unicode, without lone surrogates{_byte_hint(value)}"
        case float() if not math.isfinite(value):
            return f"must be a finite number, not {value}"
        case int() if value.bit_length() > _MAX_INTEGER_BITS:
            return "has too many digits"
        case _:
            return None


def _byte_hint(text: str) -> str:
    """What to send instead of the first byte in *text* that Python decoded to a surrogate."""
    byte = next((ord(char) - 0xDC00 for char in text if "\udc80" <= char <= "\udcff"), None)
    if byte is None:
        return ""
    return f"; for the byte {byte:02X}, which is not UTF-8, send U+FFFD where that is accepted"


def _key_problem(key: object) -> str | None:
    if isinstance(key, str):
        return (
            None if is_encodable(key) else f"has the key {quoted(key)}, which is not valid Unicode"
        )
    is_valid = key is None or (isinstance(key, (int, float)) and not _scalar_problem(key))
    return None if is_valid else f"has the key {quoted(key)}, which must be a string"
