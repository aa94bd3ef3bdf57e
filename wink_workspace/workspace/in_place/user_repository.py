"""The paths of a directory that belong to its user's git repository: never shown, never written.

Rule 1: at the top, these are all names that git takes for ``.git`` on any system: the directory
may be shared with a system that folds case.
Rule 2: where ``.git`` is a link, or a file with the path of the repository, and the repository is
inside the directory, it is hidden there, too. So is the main repository of a linked working tree.
Rule 3: a workspace cannot be in a git repository's own directory, or below it.

Repositories elsewhere in the directory are not hidden; ``ledger.git_discovery`` finds them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from wink_workspace.errors import FilesystemError, UsageError
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.tree import DiskTree, HiddenPaths
from wink_workspace.filesystem.paths import ROOT
from wink_workspace.ledger import (
    DiskView,
    is_git_directory_name,
    is_repository,
    repository_directories,
)


class UserRepository:
    """The paths below *root* that belong to its user's repository; implements ``HiddenPaths``.

    So are those that *excluded* hides.
    """

    def __init__(self, root: Path, excluded: HiddenPaths | None = None) -> None:
        self._root = root
        self._excluded = excluded
        self._seen: tuple[int, ...] | None = None
        self._inside: frozenset[Parts] = frozenset()
        self.refresh()

    def refresh(self) -> Iterable[Parts]:
        """Look again where the repository is; the paths that became hidden or visible.

        Costs one ``lstat`` while ``.git`` stays the same.
        """
        seen = _identity(self._root / ".git")
        if seen == self._seen and seen is not None:
            return ()
        self._seen = seen
        before, self._inside = self._inside, frozenset(self._directories_inside())
        return before ^ self._inside

    def hides(self, parts: Parts, *, is_directory: bool = True) -> bool:
        """Whether a path is the repository, lies in it, or is excluded."""
        if not parts:
            return False
        if self._excluded is not None and self._excluded.hides(parts, is_directory=is_directory):
            return True
        return self._is_own(parts)

    def _is_own(self, parts: Parts) -> bool:
        return is_git_directory_name(parts[0]) or any(
            parts[: len(path)] == path for path in self._inside
        )

    def hidden_in(
        self, directory: Parts, names: Sequence[str], directories: Sequence[str]
    ) -> Collection[str]:
        """Those of the *names* in *directory* that are the repository, or excluded."""
        excluded: Collection[str] = ()
        if self._excluded is not None:
            excluded = self._excluded.hidden_in(directory, names, directories)
        if directory and not any(path[:-1] == directory for path in self._inside):
            return excluded
        return {*excluded, *(name for name in names if self._is_own((*directory, name)))}

    def holds_some(self, directory: Parts) -> bool:
        """Whether a part of it lies below *directory*."""
        return any(path[: len(directory)] == directory for path in self._inside)

    def _directories_inside(self) -> Iterator[Parts]:
        root = self._root.resolve()
        for path in repository_directories(self._root / ".git"):
            if path.is_relative_to(root) and path != root:
                yield path.relative_to(root).parts


def refuse_repository(path: Path) -> None:
    """Raise ``UsageError`` if *path* is a git repository's own directory, or in one."""
    own = set(repository_directories(path / ".git"))
    for directory in (path, *path.parents):
        if _is_repository(directory) or directory in own:
            raise UsageError(
                f"{path} is, or lies in, the git repository {directory} itself",
                hint="Work in a working tree of it, or in a copy.",
            )


def _is_repository(directory: Path) -> bool:
    """Whether git could take *directory* itself for a repository."""
    try:
        with DiskTree(directory) as tree:
            return is_repository(DiskView(tree), ROOT)
    except (FilesystemError, UsageError):  # git cannot enter it, either
        return False


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    # A directory's times change with its entries, which do not move the repository.
    times = () if path.is_dir() and not path.is_symlink() else (status.st_ctime_ns,)
    return (status.st_dev, status.st_ino, status.st_mode, *times)
