"""Translate pydantic's errors to sentences for a model."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from wink_workspace.counts import counted
from wink_workspace.errors import Problem, SchemaError

from .json_values import Path, clause, described, path_text
from .schemas import complete_schema

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from .schemas import Node

from .schemas import alternatives, child

_MOMENT = "a date and time such as '2025-01-31T09:30:00Z'"
_DATE = "a date such as '2025-01-31'"
_TIME = "a time such as '09:30:00'"
_DURATION = "a duration such as 'PT1H30M'"
_KINDS = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "decimal_type": "a decimal number",
    "decimal_parsing": "a decimal number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "none_required": "null",
    "string_type": "a string",
    "bytes_type": "a base64 string",
    "bytes_invalid_encoding": "a base64 string",
    "list_type": "an array",
    "tuple_type": "an array",
    "set_type": "an array",
    "frozen_set_type": "an array",
    "dict_type": "an object",
    "mapping_type": "an object",
    "dataclass_type": "an object",
    "model_type": "an object",
    "arguments_type": "an array or an object",  # a named tuple, before pydantic 2.14
    "named_tuple_type": "an array or an object",
    "datetime_type": _MOMENT,
    "datetime_parsing": _MOMENT,
    "datetime_from_date_parsing": _MOMENT,
    "date_type": _DATE,
    "date_parsing": _DATE,
    "date_from_datetime_parsing": _DATE,
    "date_from_datetime_inexact": _DATE,
    "time_type": _TIME,
    "time_parsing": _TIME,
    "time_delta_type": _DURATION,
    "time_delta_parsing": _DURATION,
    "uuid_type": "a UUID",
    "uuid_parsing": "a UUID",
}
_CHOICES = ("enum", "literal_error")
_MISSING = ("missing", "missing_argument")
_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")
_LIMITS = {
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
}


@dataclass(frozen=True, slots=True)
class _Finding:
    """One of pydantic's errors, its location split into data path and union members.

    ``members`` has each union member that pydantic had entered, outermost first, with the length
    of the path to that union.
    """

    detail: ErrorDetails
    path: tuple[str | int, ...]
    members: tuple[tuple[int, str], ...]
    of_key: bool

    @property
    def expected(self) -> str | None:
        """The kind of value that is expected; ``None`` if the value is of that kind."""
        kind = self.detail["type"]
        if kind in _CHOICES:
            return self.detail.get("ctx", {})["expected"]
        return _KINDS.get(kind)

    def is_wrong_kind_at(self, depth: int) -> bool:
        """Whether the value at exactly *depth* steps is of the wrong kind."""
        return len(self.path) == depth and self.expected is not None


MAX_PROBLEMS = 1_000
"""The most problems that are reported one by one. Each takes time and memory, and hostile data may
have millions. If data has more, only an excerpt is checked."""


def to_problems(
    type_: Any,
    data: object,
    details: Sequence[ErrorDetails],
    *,
    shortened: Collection[Path] = (),
) -> list[Problem]:
    """The problems of *data* as a *type_*, from pydantic's errors.

    Args:
        type_: The type.
        data: The data; an ``excerpt`` if *shortened* is not empty.
        details: Pydantic's errors; only the first 1,000 are used.
        shortened: Paths where items were cut. Missing items, and too few items, are not reported
            there.
    """
    found = (_located(detail, data) for detail in details)
    kept = (each for each in found if not _follows_from_excerpt(each, shortened))
    return list(_problems(type_, islice(kept, MAX_PROBLEMS), level=0))


def _follows_from_excerpt(found: _Finding, shortened: Collection[Path]) -> bool:
    missing = found.detail["type"] in _MISSING and found.path[:-1] in shortened
    return missing or (found.path in shortened and found.expected is None)


def _located(detail: ErrorDetails, data: Any) -> _Finding:
    """Follow the error's location in *data*; a step that *data* lacks is a union member's name."""
    path: list[str | int] = []
    members: list[tuple[int, str]] = []
    _, *steps = detail["loc"]  # the first step is the index in the array around the value
    of_key = steps[-1:] == ["[key]"]
    if of_key:
        steps.pop()
    for n_left, step in zip(reversed(range(len(steps))), steps, strict=True):
        if _has_step(step, data):
            data = data[step]
        elif n_left or detail["type"] not in _MISSING:
            members.append((len(path), str(step)))
            continue
        path.append(step)
    return _Finding(detail, tuple(path), tuple(members), of_key)


def _has_step(step: str | int, data: Any) -> bool:
    if isinstance(data, list):
        return isinstance(step, int) and step < len(cast("list[Any]", data))
    return isinstance(data, dict) and step in data


def _problems(type_: Any, found: Iterable[_Finding], *, level: int) -> Iterator[Problem]:
    """One problem for each finding outside a union; for a union, those of the intended member.

    *level* is the number of unions around *found* whose member was chosen already.
    """
    unions: dict[tuple[str | int, ...], dict[str, list[_Finding]]] = {}
    for finding in found:
        if len(finding.members) <= level:
            yield Problem(path_text(finding.path), _sentence(type_, finding))
        else:
            depth, name = finding.members[level]
            unions.setdefault(finding.path[:depth], {}).setdefault(name, []).append(finding)
    for path, members in unions.items():
        if intended := _intended_member(len(path), members.values()):
            yield from _problems(type_, intended, level=level + 1)
        else:
            tried = [finding for member in members.values() for finding in member]
            yield Problem(path_text(path), _mismatch(tried))


def _intended_member(depth: int, members: Iterable[Sequence[_Finding]]) -> Sequence[_Finding]:
    """The findings of the union member that was intended; empty if no member is of that kind.

    A member with a wrong tag (``kind: Literal["add"]``) is chosen last.
    """
    right_kind = [
        member for member in members if not any(each.is_wrong_kind_at(depth) for each in member)
    ]
    return min(right_kind, key=lambda member: (_n_wrong_choices(member), len(member)), default=())


def _n_wrong_choices(found: Iterable[_Finding]) -> int:
    return sum(finding.detail["type"] in _CHOICES for finding in found)


def _mismatch(found: Sequence[_Finding]) -> str:
    *most, last = dict.fromkeys(finding.expected for finding in found if finding.expected)
    wanted = f"{', '.join(most)} or {last}" if most else last
    return f"must be {wanted}, not {described(found[0].detail['input'])}"


def _sentence(type_: Any, finding: _Finding) -> str:
    detail = finding.detail
    if finding.expected:
        text = _mismatch([finding])
    elif detail["type"] in _MISSING:
        text = "is required"
    elif detail["type"] in _UNKNOWN:
        text = _unknown_field(type_, finding)
    else:
        text = _constraint(detail)
    return f"is a key that {text}" if finding.of_key else text


def _unknown_field(type_: Any, finding: _Finding) -> str:
    *path, name = finding.path
    known = _fields_at(type_, path, {member for _, member in finding.members})
    if not known:
        return "is not a known field; no fields are listed"
    close = difflib.get_close_matches(str(name), known, n=1)
    guess = f"; did you mean {close[0]!r}?" if close else "."
    return f"is not a known field{guess} Known fields: {', '.join(known)}"


def _fields_at(type_: Any, path: Iterable[str | int], members: set[str]) -> list[str]:
    """The fields of the object at *path*; in a union, those of the *members* named."""
    try:
        root = complete_schema(type_)
    except SchemaError:
        return []
    definitions: dict[str, Node] = root.get("$defs", {})
    nodes = list(alternatives(root, definitions))
    for step in path:
        inner = [found for node in nodes if (found := child(node, step)) is not None]
        nodes = [each for node in inner for each in alternatives(node, definitions)]
    named = [node for node in nodes if node.get("title") in members]
    return [*dict.fromkeys(name for node in named or nodes for name in node.get("properties", {}))]


def _constraint(detail: ErrorDetails) -> str:
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind in _LIMITS:
        return f"must be {_LIMITS[kind].format_map(context)}, not {given}"
    match kind:
        case "string_too_short":
            return f"must have at least {counted(context['min_length'], 'character')}"
        case "string_too_long":
            limit = counted(context["max_length"], "character")
            return f"must have at most {limit}, not {len(given):,}"
        case "too_short":
            limit = counted(context["min_length"], "item")
            return f"must have at least {limit}, not {context['actual_length']:,}"
        case "too_long":
            return f"must have at most {counted(context['max_length'], 'item')}"
        case "string_pattern_mismatch":
            return f"must match the regular expression {context['pattern']}"
        case "value_error" | "assertion_error":
            return clause(context["error"])
        case _:
            message = detail["msg"].replace("Input should", "must", 1)
            return message[:1].lower() + message[1:]
