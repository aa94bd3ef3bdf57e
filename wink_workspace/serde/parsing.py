"""Parse JSON into typed values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, overload

from wink_workspace.errors import ParseError, Problem

from .json_values import described, encode, excerpt, path_text, quoted, unencodable
from .problems import MAX_PROBLEMS, to_problems
from .validators import validator

if TYPE_CHECKING:
    from pydantic_core import ValidationError


T = TypeVar("T")

Extra: TypeAlias = Literal["forbid", "ignore"]
"""Whether fields that a dataclass does not have are refused or left out."""


@overload
def parse(type_: type[T], data: object, *, what: str = "value", extra: Extra = "forbid") -> T: ...
@overload
def parse(type_: object, data: object, *, what: str = "value", extra: Extra = "forbid") -> Any: ...
def parse(type_: Any, data: object, *, what: str = "value", extra: Extra = "forbid") -> Any:
    """A *type_* from JSON-shaped *data*.

    Args:
        type_: A dataclass, or any type made of dataclasses, collections, unions and scalars;
            ``None`` accepts an empty object or null and gives ``None``.
        data: Parsed JSON: mappings, sequences, strings, numbers, booleans, ``None``.
        what: The name of the data in messages: ``arguments of 'read_file'``.
        extra: Whether fields that a dataclass, at any depth, does not have are refused or left
            out. They cannot be kept: a frozen, slotted dataclass cannot store them.

    Raises:
        ParseError: If the data does not match; ``problems`` lists all problems. Also for data
            that is not valid JSON: NaN, infinity, lone surrogates, more than 199 levels.
        SchemaError: If the type is not supported.
    """
    if type_ is None or type_ is NoneType:
        return _parse_nothing(data, what, extra)
    try:
        text = encode([data])  # the validator needs an array around the value
    except (TypeError, ValueError, RecursionError):
        raise ParseError(what, unencodable(data)) from None
    return _validated(type_, text, data, what, extra)


@overload
def parse_json(
    type_: type[T], text: str | bytes, *, what: str = "value", extra: Extra = "forbid"
) -> T: ...
@overload
def parse_json(
    type_: object, text: str | bytes, *, what: str = "value", extra: Extra = "forbid"
) -> Any: ...
def parse_json(
    type_: Any, text: str | bytes, *, what: str = "value", extra: Extra = "forbid"
) -> Any:
    """A *type_* from *text*, which is JSON (bytes: UTF-8, -16 or -32); as ``parse``.

    A key given twice in one object is refused, since one of its values would be lost.

    Raises:
        ParseError: As ``parse``, and if the text is not JSON, with line and column.
        SchemaError: If the type is not supported.
    """
    try:
        data = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        message = f"is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})"
    except UnicodeDecodeError as error:
        message = f"is not valid JSON: {error.reason} (byte {error.start})"
    except RecursionError:
        message = "is nested too deeply"
    except _NotJsonError as error:
        message = f"is not valid JSON: {error}"
    except ValueError:  # Python's own limit on the digits of an integer
        message = "holds a number with too many digits"
    else:
        return parse(type_, data, what=what, extra=extra)
    raise ParseError(what, [Problem("", message)])


class _NotJsonError(ValueError):
    """A text that Python's parser accepts although it is not valid JSON."""


def _refuse_constant(name: str) -> object:
    raise _NotJsonError(f"{name} is not a JSON value; use a finite number or null")


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise _NotJsonError(f"the key {quoted(repeated)} is given twice in one object")
    return unique


def _parse_nothing(data: object, what: str, extra: Extra) -> None:
    if data is None:
        return
    if not isinstance(data, Mapping):
        raise ParseError(what, [Problem("", f"must be an empty object, not {described(data)}")])
    names = cast("Mapping[object, object]", data)
    if names and extra == "forbid":
        message = "is not a known field; no fields are accepted"
        raise ParseError(what, [Problem(path_text((name,)), message) for name in names])


def _validated(type_: Any, text: str, given: object, what: str, extra: Extra) -> Any:
    type_validator = validator(type_)
    try:
        return type_validator.validate_json(text, strict=True, extra=extra)[0]
    except Exception as error:  # pydantic collects ValueErrors; a __post_init__ may raise others
        failure = _validation_error(error)
        if failure is None:
            refusal = f"was refused with {type(error).__name__}: {error}"
            raise ParseError(what, [Problem("", refusal)]) from error
    n_problems = failure.error_count()
    if n_problems > MAX_PROBLEMS:
        raise ParseError(what, _problems_of_excerpt(type_, given, n_problems))
    details = failure.errors(include_url=False)
    if details[0]["type"] == "json_invalid":
        raise ParseError(what, unencodable(given))
    raise ParseError(what, to_problems(type_, json.loads(text)[0], details))


def _problems_of_excerpt(type_: Any, given: object, n_problems: int) -> list[Problem]:
    """The problems of the first values: pydantic would build an object for each of all problems."""
    small, shortened = excerpt(given, max_values=MAX_PROBLEMS)
    text = encode([small])
    try:
        validator(type_).validate_json(text, strict=True, extra="forbid")
    except Exception as error:  # noqa: BLE001 - as in _validated
        failure = _validation_error(error)
        details = [] if failure is None else failure.errors(include_url=False)
        found = to_problems(type_, json.loads(text)[0], details, shortened=shortened)
    else:
        found = []
    if not found:
        message = f"has {n_problems:,} problems, none of them in its first {MAX_PROBLEMS:,} values"
        return [Problem("", message)]
    return [*found, Problem("", f"has {n_problems - len(found):,} more problems")]


def _validation_error(error: Exception) -> ValidationError | None:
    """*error*, if it is pydantic's error for invalid data."""
    from pydantic_core import ValidationError  # imported here, so that importing serde stays fast

    return error if isinstance(error, ValidationError) else None
