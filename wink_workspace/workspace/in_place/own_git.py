"""What in a directory belongs to its user's git alone: never shown, never written.

Rule 1: at the top, that is every name which git takes for ``.git``, on this or on any other
system: the directory may be shared with one that folds case.
Rule 2: where ``.git`` is a link or a file that says where the repository is, and that is inside
the directory, it is there, too; so is the repository that a linked working tree is of.
Rule 3: a directory that is a git repository's own, or lies in one, is no place to work in.

Repositories elsewhere in the directory are not hidden; ``ledger.git_discovery`` finds them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from wink_workspace.errors import FilesystemError, UsageError
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.paths import ROOT
from wink_workspace.ledger import DiskView, is_git_directory_name, is_repository

__all__ = ["OwnGit", "refuse_repository"]

_LONGEST_POINTER_BYTES = 65_536


class OwnGit:
    """The paths below *root* that are its user's git's; implements ``HiddenPaths``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: tuple[int, ...] | None = None
        self._inside: frozenset[Parts] = frozenset()
        self.refresh()

    def refresh(self) -> Iterable[Parts]:
        """Look again where the repository is; the places that became hidden or ceased to be.

        Costs one status while ``.git`` stays the same.
        """
        seen = _identity(self._root / ".git")
        if seen == self._seen and seen is not None:
            return ()
        self._seen = seen
        before, self._inside = self._inside, frozenset(self._places_inside())
        return before ^ self._inside

    def hides(self, parts: Parts) -> bool:
        """Whether a path is the repository, or lies in it."""
        if not parts:
            return False
        if is_git_directory_name(parts[0]):
            return True
        return any(parts[: len(place)] == place for place in self._inside)

    def may_be_in(self, directory: Parts) -> bool:
        """Whether it may be an entry of *directory*."""
        return not directory or any(place[:-1] == directory for place in self._inside)

    def holds_some(self, directory: Parts) -> bool:
        """Whether something of it lies below *directory*."""
        return any(place[: len(directory)] == directory for place in self._inside)

    def _places_inside(self) -> Iterator[Parts]:
        root = self._root.resolve()
        for place in repository_places(self._root / ".git"):
            if place.is_relative_to(root) and place != root:
                yield place.relative_to(root).parts


def repository_places(pointer: Path) -> Iterator[Path]:
    """Where the repository of a ``.git`` is: what it leads to, and what that shares with others."""
    place = pointer
    with suppress(OSError, RuntimeError):
        if pointer.is_file():
            text = pointer.read_bytes()[:_LONGEST_POINTER_BYTES]
            prefix, _, target = text.partition(b":")
            if prefix != b"gitdir":
                return
            place = pointer.parent / os.fsdecode(target.strip())
            yield pointer.resolve()
        place = place.resolve()
        yield place
        shared = (place / "commondir").read_bytes()[:_LONGEST_POINTER_BYTES]
        yield (place / os.fsdecode(shared.strip())).resolve()


def refuse_repository(place: Path) -> None:
    """Raise ``UsageError`` if *place* is a git repository's own directory, or in one."""
    own = set(repository_places(place / ".git"))
    for directory in (place, *place.parents):
        if _is_repository(directory) or directory in own:
            raise UsageError(
                f"{place} is, or lies in, the git repository {directory} itself",
                hint="Work in a working tree of it, or in a copy.",
            )


def _is_repository(directory: Path) -> bool:
    """Whether git could take *directory* itself for a repository."""
    try:
        with DiskTree(directory) as tree:
            return is_repository(DiskView(tree), ROOT)
    except (FilesystemError, UsageError):  # what we cannot enter, git cannot, either
        return False


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    # A directory's times move with its content, which says nothing of where the repository is.
    times = () if path.is_dir() and not path.is_symlink() else (status.st_ctime_ns,)
    return (status.st_dev, status.st_ino, status.st_mode, *times)
