"""Absolute paths in the arguments of a call, as paths of the workspace.

Models often name a file by its absolute path: the one that the user wrote, below the source, or the
one that a command printed, below ``/workspace``. The filesystem and the policies know only paths of
the workspace, so the arguments are changed before they are parsed. A parameter class names its path
parameters in the class variable ``path_params``; patches and commands are not changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from wink_workspace.errors import PathEscapeError
from wink_workspace.filesystem import Filesystem

__all__ = ["with_workspace_paths"]

_Arguments = str | Mapping[str, object]

# A string in JSON that begins with /
_MAY_BE_ABSOLUTE: Final = re.compile(r'"(?:/|\\/|\\u002[fF])')


def with_workspace_paths(
    arguments: _Arguments, params_type: type[Any], files: Callable[[], Filesystem | None]
) -> _Arguments:
    """*arguments* with workspace paths in place of absolute ones; the same object if none is there.

    Args:
        arguments: JSON text or an object from the model; text that is not an object stays as it is.
        params_type: The parameters of the tool.
        files: Finds the filesystem; called only if there is an absolute path.

    Raises:
        PathEscapeError: For an absolute path outside of ``Filesystem.known_as``.
    """
    names: tuple[str, ...] = getattr(params_type, "path_params", ())
    if not names or (isinstance(arguments, str) and not _MAY_BE_ABSOLUTE.search(arguments)):
        return arguments
    given = _object(arguments) if isinstance(arguments, str) else arguments
    if given is None:
        return arguments
    absolute: list[str] = []
    for name in names:  # without calls of Python: this runs in every call of a tool
        value = given.get(name)
        if value.startswith("/") if isinstance(value, str) else _has_absolute(value):
            absolute.append(name)
    bound = files() if absolute else None
    if bound is None:
        return arguments
    return {**given, **{name: _relative(given[name], bound.known_as) for name in absolute}}


def _object(text: str) -> Mapping[str, object] | None:
    """The JSON object in *text*; ``None`` for anything else, which the tool's parser reports."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", found) if isinstance(found, dict) else None


def _has_absolute(value: object) -> bool:
    items: Sequence[object] = cast("list[object]", value) if isinstance(value, list) else ()
    return any(isinstance(item, str) and item.startswith("/") for item in items)


def _relative(value: object, roots: Sequence[str]) -> object:
    if isinstance(value, list):
        return [_relative(item, roots) for item in cast("list[object]", value)]
    if not isinstance(value, str) or not value.startswith("/"):
        return value
    for root in sorted(roots, key=len, reverse=True):  # one may lie below another
        if value == root or value.startswith(f"{root}/"):
            return value[len(root) :].lstrip("/") or "."
    raise PathEscapeError(
        value,
        hint="Use a path relative to the workspace root, or an absolute path below "
        f"{' or '.join(roots)}.",
    )
