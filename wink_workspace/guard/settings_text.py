"""Adds and removes hooks in a file of JSON, comments allowed, without touching the rest of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from wink_workspace.errors import UsageError


@dataclass(frozen=True, slots=True)
class _Part:
    """A member of an object or an element of an array: where it and its value are."""

    begin: int
    value: int
    end: int
    name: str = ""


def with_hooks(text: str, hooks: Mapping[str, object]) -> str:
    """*text* with one more hook at the end of each event's list.

    Args:
        text: The file; empty if there is none.
        hooks: The hook of each event.

    Raises:
        UsageError: If it is not an object in JSON, or ``hooks`` in it is not one of lists.
    """
    with _well_formed():
        return _with_hooks(text or "{}\n", hooks)


def _with_hooks(text: str, hooks: Mapping[str, object]) -> str:
    if "hooks" not in _members(text, _root(text)):
        text = _inserted(text, _root(text), '"hooks": {}', 1)
    for event, hook in hooks.items():
        inside = _members(text, _root(text))["hooks"].value
        if event not in _members(text, inside):
            text = _inserted(text, inside, f"{json.dumps(event)}: []", 2)
        place = _members(text, _members(text, _root(text))["hooks"].value)[event].value
        text = _inserted(text, place, json.dumps(hook), 3, opens="[")
    return text


@contextmanager
def _well_formed() -> Generator[None]:
    try:
        yield
    except (ValueError, IndexError) as error:
        raise UsageError(
            f"the settings are not JSON: {error}", hint="Correct the file, then try again."
        ) from error


def without_hooks(text: str, is_ours: Callable[[str], bool]) -> str:
    """*text* without the hooks whose JSON *is_ours*, and without lists that become empty.

    Raises as ``with_hooks``.
    """
    with _well_formed():
        return _without_hooks(text, is_ours)


def _without_hooks(text: str, is_ours: Callable[[str], bool]) -> str:
    events = [*_members(text, _root(text)).values()]
    hooks = next((each for each in events if each.name == "hooks"), None)
    if hooks is None:
        return text
    for event in reversed([*_members(text, hooks.value).values()]):
        elements = [*_parts(text, event.value, "[")]
        ours = [each for each in elements if is_ours(text[each.begin : each.end])]
        if ours and len(ours) == len(elements):
            text = _cut(text, hooks.value, event)
            continue
        for each in reversed(ours):
            text = _cut(text, event.value, each)
    left = _members(text, _root(text))["hooks"]
    if not _members(text, left.value):
        text = _cut(text, _root(text), left)
    return text


# ------------------------------------------------------------------------------------ JSON as text


def _root(text: str) -> int:
    return _skipped(text, 0)


def _members(text: str, at: int) -> dict[str, _Part]:
    return {each.name: each for each in _parts(text, at, "{")}


def _parts(text: str, at: int, opens: str) -> Iterator[_Part]:
    """The parts of the object or array at *at*."""
    if text[at : at + 1] != opens:
        raise UsageError(
            f"the settings have {text[at : at + 20]!r} where {opens!r} is expected",
            hint="Correct the file, then try again.",
        )
    at = _skipped(text, at + 1)
    while text[at : at + 1] not in ("}", "]", ""):
        begin, name = at, ""
        if opens == "{":
            end = _end(text, at)
            name = str(json.loads(text[at:end]))
            at = _skipped(text, _skipped(text, end) + 1)  # the colon
        end = _end(text, at)
        yield _Part(begin, at, end, name)
        at = _skipped(text, end)
        if text[at : at + 1] == ",":
            at = _skipped(text, at + 1)


def _end(text: str, at: int) -> int:
    """The end of the value at *at*."""
    depth = 0
    while at < len(text):
        character = text[at]
        if character == '"':
            at = _string_end(text, at)
        elif character in "[{":
            depth, at = depth + 1, at + 1
        elif character in "]}":
            if not depth:
                return at
            depth, at = depth - 1, at + 1
        elif depth and _skipped(text, at) > at:
            at = _skipped(text, at)
        elif not depth and (character in ",:" or character.isspace() or character == "/"):
            return at
        else:
            at += 1
        if not depth and character in '"]}':
            return at
    raise UsageError("the settings end in the middle of a value", hint="Correct the file.")


def _string_end(text: str, at: int) -> int:
    at += 1
    while at < len(text) and text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    return at + 1


def _skipped(text: str, at: int) -> int:
    """The first place at or after *at* that is neither white space nor in a comment."""
    while at < len(text):
        if text[at].isspace() or text[at] == "\ufeff":
            at += 1
        elif text.startswith("//", at):
            at = (text + "\n").index("\n", at)
        elif text.startswith("/*", at):
            end = text.find("*/", at)
            at = len(text) if end < 0 else end + 2
        else:
            break
    return at


def _inserted(text: str, at: int, part: str, depth: int, *, opens: str = "{") -> str:
    """*text* with *part* as the last one of the object or array at *at*."""
    indent = "\n" + "  " * depth
    parts = [*_parts(text, at, opens)]
    if not parts:
        return text[: at + 1] + indent + part + indent[:-2] + text[_end(text, at) - 1 :]
    last = parts[-1].end
    comma = _skipped(text, last)
    if text[comma] == ",":
        return text[: comma + 1] + indent + part + text[comma + 1 :]
    return text[:last] + "," + indent + part + text[last:]


def _cut(text: str, at: int, part: _Part) -> str:
    """*text* without one part of the object or array at *at*, and its comma."""
    after = _skipped(text, part.end)
    if text[after] == ",":
        return text[: part.begin] + text[_skipped(text, after + 1) :]
    before = text.rfind(",", at, part.begin)
    begin = before if before >= 0 and not text[before + 1 : part.begin].strip() else at + 1
    return text[:begin] + text[part.end :]
