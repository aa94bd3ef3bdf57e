"""Following symbolic links inside the workspace, and never out of it.

A path is walked name by name over a backend's no-follow ``stat``; the target of each link on
the way is walked in its place. The result is *physical*: no component of it was a link when
it was looked at. A backend that meets one there later refuses, so a link put in between by
somebody else leads nowhere.
"""

from __future__ import annotations

from collections.abc import Callable

from wink_workspace.errors import (
    DirectoryExpectedError,
    FileMissingError,
    InvalidPathError,
    LimitExceededError,
    LinkError,
)

from .model import FileKind, FileStat
from .paths import ROOT, WorkspacePath, parse_path

__all__ = ["check_target", "located", "physical_path"]

_MAX_LINKS = 40
_MAX_TARGET_BYTES = 4_095

Stat = Callable[[WorkspacePath], FileStat | None]


def physical_path(stat: Stat, path: WorkspacePath, *, follow: bool) -> WorkspacePath:
    """Where *path* is; with ``follow=False`` a link at its end is not followed.

    What does not exist is where it would be made.

    Raises:
        LinkError: If a link is absolute, leaves the root, is one of more than 40, or leads to
            something missing whose path would not be valid.
        FileMissingError: If a link leads through something that does not exist.
        DirectoryExpectedError: If a link leads through something that is a file.
    """
    if _is_physical(stat(path), follow=follow):
        return path
    return _Walk(stat, path).to_end(follow=follow)


def located(
    stat: Stat, path: WorkspacePath, *, follow: bool
) -> tuple[WorkspacePath, FileStat | None]:
    """The ``physical_path``, and what is there."""
    there = stat(path)
    if there is not None and (there.kind is not FileKind.SYMLINK or not follow):
        return path, there  # as ``_is_physical`` says
    place = _Walk(stat, path).to_end(follow=follow)
    return place, stat(place)


def _is_physical(there: FileStat | None, *, follow: bool) -> bool:
    """Whether what is at a path's end tells that no component of it is to be followed.

    If something exists there, no component before the last is a link.
    """
    return there is not None and (there.kind is not FileKind.SYMLINK or not follow)


class _Walk:
    """The names still to go, as in a path that may contain ``..``."""

    def __init__(self, stat: Stat, path: WorkspacePath) -> None:
        self._stat = stat
        self._path = path
        self._todo = list(reversed(path.parts))
        self._here = ROOT
        self._n_links = 0

    def to_end(self, *, follow: bool) -> WorkspacePath:
        while self._todo:
            name = self._todo.pop()
            if name == "..":
                self._ascend()
                continue
            there = self._stat(self._here / name)
            if there is None:
                return self._unmade(name)
            if there.kind is FileKind.SYMLINK and (follow or self._todo):
                self._enter_link(there)
            else:
                self._require_directory_if_more(there)
                self._here /= name
        return self._here

    def _ascend(self) -> None:
        if not self._here.parts:
            raise LinkError(f"{self._path} leads outside the workspace")
        self._here = self._here.parent

    def _enter_link(self, link: FileStat) -> None:
        self._n_links += 1
        if self._n_links > _MAX_LINKS:
            raise LinkError(f"{self._path} follows more than {_MAX_LINKS} links; they may loop")
        target = link.target or ""
        if target.startswith("/"):
            raise LinkError(f"{self._path} leads outside the workspace: {link.path} -> {target}")
        names = [name for name in target.split("/") if name not in ("", ".")]
        self._todo += reversed(names)

    def _require_directory_if_more(self, there: FileStat) -> None:
        if there.kind is FileKind.FILE and ".." in self._todo:
            raise DirectoryExpectedError(f"{self._path} leads through the file {there.path}")

    def _unmade(self, name: str) -> WorkspacePath:
        """Where the rest would be made; names that a link brought in are checked first."""
        if ".." in self._todo:
            raise FileMissingError(
                f"{self._path} leads through {self._here / name}, which is missing"
            )
        rest = WorkspacePath((*self._here.parts, name, *reversed(self._todo)))
        if self._n_links == 0:
            return rest
        try:
            return parse_path(str(rest))
        except (InvalidPathError, LimitExceededError) as error:
            raise LinkError(f"{self._path} leads to no valid path: {error.message}") from error


def check_target(path: WorkspacePath, target: str) -> None:
    """Refuse a link at the physical *path* that could not be followed inside the workspace.

    Raises:
        InvalidPathError: If *target* is empty, holds a NUL, or is not valid Unicode.
        LimitExceededError: If it is longer than a link can be.
        LinkError: If it is absolute or climbs above the root.
    """
    try:
        n_bytes = len(target.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        raise InvalidPathError(f"{target!r} is not valid Unicode") from error
    if not target or "\0" in target:
        raise InvalidPathError(f"{target!r} cannot be a link's target")
    if n_bytes > _MAX_TARGET_BYTES:
        raise LimitExceededError(
            f"a link's target of {n_bytes} bytes, at most {_MAX_TARGET_BYTES} allowed",
            hint="Use a shorter path.",
        )
    depth = len(path.parent.parts)
    for name in target.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(name, 1)
        if depth < 0 or target.startswith("/"):
            raise LinkError(
                f"a link from {path} to {target!r} leads outside the workspace",
                hint="Use a target relative to the link's directory, inside the workspace.",
            )
