"""Follow symbolic links inside the workspace, and never out of it.

A path is walked name by name with a backend's ``stat``, which follows no links. Each link is
replaced by its target. The result is a *physical* path: none of its components was a link
when the walk read it. Backends refuse links in physical paths, so a link that another process
creates afterwards has no effect.
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

_IN_A_SANDBOX = "/workspace/"
"""Where a command finds the root; links that commands made may begin with it."""
_MAX_LINKS = 40
_MAX_TARGET_BYTES = 4_095

Stat = Callable[[WorkspacePath], FileStat | None]


def physical_path(stat: Stat, path: WorkspacePath, *, follow: bool) -> WorkspacePath:
    """*path* with all links resolved; with ``follow=False``, a link at its end is kept.

    The path need not exist.

    Raises:
        LinkError: If a link leaves the root, if there are more than 40 links, or if a dangling link
            leads to a path that is not valid. An absolute link leaves the root, unless it leads to
            ``/workspace``, which is the root for commands in a sandbox.
        FileMissingError: If a link leads through something that does not exist.
        DirectoryExpectedError: If a link leads through something that is a file.
    """
    if _is_physical(stat(path), follow=follow):
        return path
    return _Walk(stat, path).to_end(follow=follow)


def resolve(
    stat: Stat, path: WorkspacePath, *, follow: bool
) -> tuple[WorkspacePath, FileStat | None]:
    """The ``physical_path`` of *path*, and its entry."""
    entry = stat(path)
    if entry is not None and (entry.kind is not FileKind.SYMLINK or not follow):
        return path, entry  # the test of ``_is_physical``
    physical = _Walk(stat, path).to_end(follow=follow)
    return physical, stat(physical)


def _is_physical(entry: FileStat | None, *, follow: bool) -> bool:
    """Whether a path with this *entry* is physical.

    ``stat`` follows no links, so the components before an existing entry are not links.
    """
    return entry is not None and (entry.kind is not FileKind.SYMLINK or not follow)


class _Walk:
    """Resolves one path; ``_todo`` are the remaining names, which may include ``..``."""

    def __init__(self, stat: Stat, path: WorkspacePath) -> None:
        self._stat = stat
        self._path = path
        self._todo = list(reversed(path.parts))
        self._current = ROOT
        self._n_links = 0

    def to_end(self, *, follow: bool) -> WorkspacePath:
        while self._todo:
            name = self._todo.pop()
            if name == "..":
                self._ascend()
                continue
            entry = self._stat(self._current / name)
            if entry is None:
                return self._missing_path(name)
            if entry.kind is FileKind.SYMLINK and (follow or self._todo):
                self._enter_link(entry)
            else:
                self._require_directory_if_more(entry)
                self._current /= name
        return self._current

    def _ascend(self) -> None:
        if not self._current.parts:
            raise LinkError(f"{self._path} leads outside the workspace")
        self._current = self._current.parent

    def _enter_link(self, link: FileStat) -> None:
        self._n_links += 1
        if self._n_links > _MAX_LINKS:
            raise LinkError(f"{self._path} follows more than {_MAX_LINKS} links; they may loop")
        target = link.target or ""
        if f"{target}/".startswith(_IN_A_SANDBOX):
            target = target.removeprefix("/workspace")
            self._current = ROOT
        elif target.startswith("/"):
            raise LinkError(f"{self._path} leads outside the workspace: {link.path} -> {target}")
        names = [name for name in target.split("/") if name not in ("", ".")]
        self._todo += reversed(names)

    def _require_directory_if_more(self, entry: FileStat) -> None:
        if entry.kind is FileKind.FILE and ".." in self._todo:
            raise DirectoryExpectedError(f"{self._path} leads through the file {entry.path}")

    def _missing_path(self, name: str) -> WorkspacePath:
        """The path of a missing entry and the names after it; names from a link are checked."""
        if ".." in self._todo:
            raise FileMissingError(
                f"{self._path} leads through {self._current / name}, which is missing"
            )
        rest = WorkspacePath((*self._current.parts, name, *reversed(self._todo)))
        if self._n_links == 0:
            return rest
        try:
            return parse_path(str(rest))
        except (InvalidPathError, LimitExceededError) as error:
            raise LinkError(
                f"{self._path} does not lead to a valid path: {error.message}"
            ) from error


def check_target(path: WorkspacePath, target: str) -> None:
    """Refuse a link at the physical *path* whose target is not inside the workspace.

    Raises:
        InvalidPathError: If *target* is empty, contains a NUL, or is not valid Unicode.
        LimitExceededError: If it is longer than 4,095 bytes.
        LinkError: If it is absolute or climbs above the root.
    """
    try:
        n_bytes = len(target.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        raise InvalidPathError(f"{target!r} is not valid Unicode") from error
    if not target or "\0" in target:
        raise InvalidPathError(f"{target!r} cannot be the target of a link")
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
