"""The stored form of a session's state: JSON with a schema version.

::

    {"schema": 1, "slices": {"module:Class": [value, ...], ...}}

A class is found by name among those that the session knows; a file never causes an import. Reading
makes all views or raises; the session replaces its slices afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from types import GenericAlias
from typing import TypeVar, cast

from wink_workspace import serde
from wink_workspace.errors import ParseError, SessionError, SnapshotError, SnapshotVersionError

from .slices import SliceView

SCHEMA_VERSION = 1

S = TypeVar("S")


def dump_slices(views: Iterable[SliceView[object]]) -> str:
    """The non-empty views as ASCII JSON; the same values give the same text."""
    by_type = {view.slice_type: view for view in views if len(view)}
    slices = {
        name: [serde.dump(value) for value in by_type[slice_type]]
        for name, slice_type in sorted(_by_name(by_type).items())
    }
    return json.dumps({"schema": SCHEMA_VERSION, "slices": slices})


def parse_slices(text: str, known: Iterable[type[object]]) -> list[SliceView[object]]:
    """The views in *text*, whose classes must be among *known*.

    Raises:
        SnapshotVersionError: If *text* has another schema version.
        SnapshotError: If it is not a stored state, names an unknown class, or has a value that
            does not fit its class.
    """
    types = _by_name(known)
    views: list[SliceView[object]] = []
    for name, values in _stored_slices(text).items():
        if name not in types:
            raise SnapshotError(
                f"the stored state has a slice {name!r} that this session does not know",
                hint="Install the sections that own it, or declare the slice, and load again.",
            )
        views.append(_parse_slice(types[name], name, values))
    return views


def _by_name(types: Iterable[type[object]]) -> dict[str, type[object]]:
    named: dict[str, type[object]] = {}
    for slice_type in types:
        name = f"{slice_type.__module__}:{slice_type.__qualname__}"
        if name in named:
            raise SessionError(
                f"two slices are called {name!r}, so their stored form would be ambiguous",
                hint="Rename one of the classes.",
            )
        named[name] = slice_type
    return named


def _stored_slices(text: str) -> dict[str, object]:
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _malformed(f"not JSON: {error}") from error
    content = _object(document, "the document")
    version = content.get("schema")
    if version != SCHEMA_VERSION:
        raise SnapshotVersionError(
            f"the stored state has schema version {version!r}, this session reads {SCHEMA_VERSION}"
        )
    return _object(content.get("slices"), "'slices'")


def _object(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _malformed(f"{what} must be an object, not {type(value).__name__}")
    return cast("dict[str, object]", value)


def _parse_slice(slice_type: type[S], name: str, values: object) -> SliceView[S]:
    try:
        parsed = serde.parse(GenericAlias(tuple, (slice_type, ...)), values, what=f"slice {name!r}")
    except ParseError as error:
        raise _malformed(error.message) from error
    return SliceView(slice_type, parsed)


def _malformed(problem: str) -> SnapshotError:
    return SnapshotError(
        f"the stored state cannot be read: {problem}",
        hint="Load only text that dump_state wrote.",
    )
