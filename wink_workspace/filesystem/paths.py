"""Workspace paths: parsed once, and then known to stay inside the workspace.

A ``WorkspacePath`` is a sequence of names below the workspace root. It cannot hold
``..``, ``.``, an empty name, a ``/`` or a NUL, so no later check is needed. All spellings of
a path give equal values. Names are compared exactly: no case or Unicode folding, no
trimming. A backslash is an ordinary character. Backends may refuse further names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from wink_workspace.errors import InvalidPathError, LimitExceededError, PathEscapeError

MAX_PATH_DEPTH = 64
MAX_SEGMENT_BYTES = 255


@dataclass(frozen=True, slots=True, order=True)
class WorkspacePath:
    """A path below the workspace root; ``ROOT`` has no parts.

    Make one with ``parse_path`` (from text), or with ``/`` from a name that a backend listed,
    in which bytes that are not UTF-8 are surrogate escapes.
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
        """The directory that contains it; the root is its own parent."""
        return WorkspacePath(self.parts[:-1])

    def ancestors(self) -> Iterator[WorkspacePath]:
        """Every directory above it, the root first."""
        for n in range(len(self.parts)):
            yield WorkspacePath(self.parts[:n])

    def is_below(self, other: WorkspacePath) -> bool:
        """Whether it is *other* or lies below it."""
        return self.parts[: len(other.parts)] == other.parts

    def moved(self, source: WorkspacePath, destination: WorkspacePath) -> WorkspacePath:
        """Its path after *source*, which is the path itself or above it, became *destination*."""
        return WorkspacePath((*destination.parts, *self.parts[len(source.parts) :]))


ROOT = WorkspacePath(())


def parse_path(given: str | WorkspacePath) -> WorkspacePath:
    """The workspace path that a text names.

    ``""``, ``"."`` and ``"./"`` name the root. Empty segments and ``.`` are removed.

    Raises:
        PathEscapeError: For a ``..`` segment or a leading ``/``.
        InvalidPathError: For a NUL, for text that UTF-8 cannot encode, or if it is not text.
        LimitExceededError: For more than 64 segments, or a segment over 255 bytes.
    """
    return given if isinstance(given, WorkspacePath) else _parsed(given)


@lru_cache(maxsize=1_024)  # one call parses the same texts several times
def _parsed(given: str) -> WorkspacePath:
    if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers pass a Path by mistake
        raise InvalidPathError(f"{given!r} is not text")
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


# ------------------------------------------------------------------------------------- path names

# Names of paths that hold no source: secrets, and what programs can make again.
#
# Patterns are lines of a ``.gitignore``; upper and lower case differ.


CACHE_NAMES: Final = (
    *("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"),
    ".parcel-cache",
)
"""What programs make again at any time, by name."""

DERIVED_NAMES: Final = (
    *CACHE_NAMES,
    *("node_modules", ".venv", ".tox", ".nox", ".gradle", ".terraform", ".next", ".nuxt", ".turbo"),
    ".wink-agent",  # the home of an agent program that runs in the workspace
)
"""What programs can make again, by name."""

SECRET_NAMES: Final = (
    *(".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.keystore", "*.jks"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".pypirc", ".npmrc"),
)
"""Files that hold secrets, by name."""

PUBLIC_NAMES: Final = (".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults")
"""Match ``SECRET_NAMES``, but by convention hold no secret."""
