"""JSON values, and the problems of values that JSON cannot represent."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Annotated, Any, TypeAlias, TypeVar, cast

from typing_extensions import TypeAliasType

from wink_workspace.errors import Problem

# ------------------------------------------------------------------------------------ value names


_QUOTED_LENGTH = 60
"""Characters of a string that a message quotes."""

_MOST_TEXT_CHARS = 16_384
_MOST_DEPTH = 8
"""What an agent program reports is kept up to these."""

_WRITTEN_BITS = 200
"""Up to this many bits a message shows an integer in digits."""


def quoted(value: object) -> str:
    """``repr`` of *value*, shortened if it is long."""
    if isinstance(value, int) and value.bit_length() > _WRITTEN_BITS:
        return f"of {value.bit_length()} bits"
    if isinstance(value, str) and len(value) > _QUOTED_LENGTH:
        return f"{value[:_QUOTED_LENGTH]!r}… ({len(value)} characters)"
    return repr(value)


def described(value: object) -> str:
    """JSON data by its JSON type, other values by their Python type: ``the string 'x'``."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the string {quoted(value)}"
        case int():
            return f"the integer {quoted(value)}"
        case float():
            return f"the number {value}"
        case Mapping():
            return "an object"
        case list() | tuple():
            return "an array"
        case _:
            return f"a Python {type(value).__name__}"


def path_text(path: Iterable[object]) -> str:
    """``steps[2].title``; a key that is not an identifier is quoted: ``env['a b']``."""
    text = ""
    for step in path:
        if isinstance(step, str) and _is_plain(step):
            text += f".{step}" if text else step
        else:
            text += f"[{quoted(step)}]"
    return text


def _is_plain(key: str) -> bool:
    return len(key) <= _QUOTED_LENGTH and key.replace("-", "_").isidentifier()


def type_name(type_: object) -> str:
    """The qualified name of a class, or the source form of another type."""
    return type_.__qualname__ if isinstance(type_, type) else str(type_)


def clause(error: Exception) -> str:
    """An exception's message as a clause of a sentence."""
    return str(error).strip().removesuffix(".") or f"was refused with {type(error).__name__}"


def first_sentence(error: Exception) -> str:
    """The first sentence of an exception's message as a clause."""
    return clause(error).partition("\n")[0].partition(". ")[0]


# ------------------------------------------------------------------------------------ json values


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


# ---------------------------------------------------------------------------------------- strings


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


def bounded_json(value: object, change: Callable[[str], str] = str, depth: int = 0) -> object:
    """A value of JSON with *change* applied to each text, which then has at most 16,384 characters.

    Nesting of more than 8 levels becomes ``"…"``, and texts are valid Unicode.
    """
    if isinstance(value, str):
        text = change(value.encode("utf-8", "replace").decode())
        return text if len(text) <= _MOST_TEXT_CHARS else f"{text[:_MOST_TEXT_CHARS]}…"
    if isinstance(value, dict | list) and depth >= _MOST_DEPTH:
        return "…"
    if isinstance(value, dict):
        given = cast("dict[str, object]", value)
        return {
            str(bounded_json(name, change)): bounded_json(each, change, depth + 1)
            for name, each in given.items()
        }
    if isinstance(value, list):
        return [bounded_json(each, change, depth + 1) for each in cast("list[object]", value)]
    return value
