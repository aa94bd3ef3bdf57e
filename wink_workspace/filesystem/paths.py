"""Workspace paths: parsed once, confined from then on.

A ``WorkspacePath`` is a sequence of names below the workspace root. It cannot hold
``..``, ``.``, an empty name, a ``/`` or a NUL, so no later check is needed and every
spelling of one path is one value. Names are compared exactly: no case or Unicode folding,
no trimming. A backslash is a character like any other. What a name may be on disk is the
backend's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from wink_workspace.errors import InvalidPathError, LimitExceededError, PathEscapeError

__all__ = [
    "MAX_PATH_DEPTH",
    "MAX_SEGMENT_BYTES",
    "ROOT",
    "WorkspacePath",
    "parse_path",
]

MAX_PATH_DEPTH = 64
MAX_SEGMENT_BYTES = 255


@dataclass(frozen=True, slots=True, order=True)
class WorkspacePath:
    """A place below the workspace root; ``ROOT`` has no parts.

    Build one with ``parse_path`` (from a caller's text) or with ``/`` (from a name that a
    backend listed, non-UTF-8 bytes as surrogate escapes).
    """

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return "/".join(self.parts) or "."

    def __truediv__(self, name: str) -> WorkspacePath:
        return WorkspacePath((*self.parts, name))

    @property
    def name(self) -> str:
        """The last part, empty for the root."""
        return self.parts[-1] if self.parts else ""

    @property
    def parent(self) -> WorkspacePath:
        """The directory that holds it; the root's parent is the root."""
        return WorkspacePath(self.parts[:-1])

    def ancestors(self) -> Iterator[WorkspacePath]:
        """Every directory above it, the root first, itself not included."""
        for n in range(len(self.parts)):
            yield WorkspacePath(self.parts[:n])

    def is_below(self, other: WorkspacePath) -> bool:
        """Whether it is *other* or lies inside it."""
        return self.parts[: len(other.parts)] == other.parts

    def moved(self, source: WorkspacePath, destination: WorkspacePath) -> WorkspacePath:
        """The same place after *source*, which it is or lies below, became *destination*."""
        return WorkspacePath((*destination.parts, *self.parts[len(source.parts) :]))


ROOT = WorkspacePath(())


def parse_path(given: str | WorkspacePath) -> WorkspacePath:
    """Turn a caller's text into a confined path.

    ``""``, ``"."`` and ``"./"`` mean the root; doubled, trailing and ``.`` segments vanish.

    Raises:
        PathEscapeError: For a ``..`` segment or a leading ``/``.
        InvalidPathError: For a NUL, or text that UTF-8 cannot hold; or no text.
        LimitExceededError: For more than 64 segments, or a segment over 255 bytes.
    """
    return given if isinstance(given, WorkspacePath) else _parsed(given)


@lru_cache(maxsize=1_024)  # params, policies and filesystem each parse the few texts of a call
def _parsed(given: str) -> WorkspacePath:
    if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a Path is easily given
        raise InvalidPathError(f"{given!r} is no text")
    if "\0" in given:
        raise InvalidPathError(f"{given!r} contains a NUL character")
    if given.startswith("/"):
        raise PathEscapeError(given)
    parts = tuple(part for part in given.split("/") if part not in ("", "."))
    if ".." in parts:
        raise PathEscapeError(given)
    if len(parts) > MAX_PATH_DEPTH:
        raise LimitExceededError(
            f"a path of {len(parts)} segments, at most {MAX_PATH_DEPTH} allowed",
            hint="Use fewer nested directories.",
        )
    for part in parts:
        _check_segment(part)
    return WorkspacePath(parts)


def _check_segment(part: str) -> None:
    try:
        n_bytes = len(part.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        raise InvalidPathError(f"{part!r} is not valid Unicode") from error
    if n_bytes > MAX_SEGMENT_BYTES:
        raise LimitExceededError(
            f"a name of {n_bytes} bytes ({part[:20]!r}…), at most {MAX_SEGMENT_BYTES} allowed",
            hint="Use a shorter name.",
        )
