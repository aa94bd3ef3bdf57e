"""The user's git repository, opened only if it lies in the working tree.

A ``.git`` that came with a download can lead to any repository of the user: as a file with
``gitdir:``, as a link, by ``commondir``, by ``alternates``, or by links below it. What commands see
of the history would then be another project's.

Rule 1: a repository is opened only if git would read nothing outside of the working tree, or only
directories that the caller lists.
Rule 2: libgit2 opens it, which runs no program. The configuration of user and system is not read.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wink_workspace.errors import UsageError

if TYPE_CHECKING:
    import pygit2


_LONGEST_POINTER_BYTES: Final = 65_536
_MOST_ALTERNATES: Final = 32
_READ_BY_GIT: Final = ("HEAD", "config", "index", "objects", "packed-refs", "refs", "shallow")


def repository_directories(pointer: Path) -> Iterator[Path]:
    """The directories of the repository of a ``.git``: its own, and one that it shares.

    If *pointer* is a file that names the directory, the file comes first.
    """
    path = pointer
    with suppress(OSError, RuntimeError):
        if pointer.is_file():
            prefix, _, target = _start_of(pointer).partition(b":")
            if prefix != b"gitdir":
                return
            path = pointer.parent / os.fsdecode(target.strip())
            yield pointer.resolve()
        path = path.resolve()
        yield path
        yield (path / os.fsdecode(_start_of(path / "commondir").strip())).resolve()


def outside_repositories(worktree: Path) -> tuple[Path, ...]:
    """The directories outside of *worktree* that git would read for its repository, sorted.

    A directory below another one is not listed.
    """
    root = worktree.resolve()
    found = set(repository_directories(worktree / ".git"))
    for directory in (root / ".git", *found):
        for name in _READ_BY_GIT:
            found.update(_led_to(directory / name))
    for directory in (root / ".git", *found):
        found.update(_alternates(directory / "objects"))
    outside = [path for path in found if not path.is_relative_to(root)]
    return tuple(sorted(path for path in outside if not any(at in outside for at in path.parents)))


def open_user_repository(worktree: Path, trusted: Collection[Path] = ()) -> pygit2.Repository:
    """The repository whose working tree is *worktree*.

    Args:
        worktree: The top of a working tree.
        trusted: Directories outside of *worktree* that git may read, resolved.

    Raises:
        UsageError: If there is no repository, libgit2 cannot read it, or it leads elsewhere.
    """
    import pygit2
    from pygit2.enums import RepositoryOpenFlag

    from wink_workspace.ledger.store.libgit2 import own_configuration_only

    for outside in outside_repositories(worktree):
        if not any(outside.is_relative_to(each) for each in trusted):
            raise UsageError(
                f"the .git of {worktree} leads to another directory: {outside}",
                hint=f"If that repository is yours, run `wink-workspace trust {worktree}`, or name"
                " it in ImportConfig.git_links.",
            )
    try:
        with own_configuration_only():
            return pygit2.Repository(str(worktree), RepositoryOpenFlag.NO_SEARCH)
    except pygit2.GitError as error:
        raise UsageError(
            f"{worktree} is not the top of a git repository: {error}",
            hint="Apply to the working tree, or write a patch.",
        ) from error


def _led_to(path: Path) -> Iterator[Path]:
    """What the links at *path* and below lead to."""
    if path.is_symlink():
        yield path.resolve()
        return
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if entry.is_symlink():
                yield Path(entry.path).resolve()
            elif entry.is_dir(follow_symlinks=False):
                yield from _led_to(Path(entry.path))


def _alternates(objects: Path) -> set[Path]:
    """The directories from which git also reads objects, also those that they name themselves."""
    found: set[Path] = set()
    waiting = [objects]
    while waiting and len(found) < _MOST_ALTERNATES:
        directory = waiting.pop()
        with suppress(OSError, RuntimeError):
            for line in _start_of(directory / "info/alternates").splitlines():
                if line and not line.startswith(b"#"):  # a quoted path is not parsed
                    name = "/" if line.startswith(b'"') else os.fsdecode(line)
                    further = (directory / name).resolve()
                    if further not in found:
                        found.add(further)
                        waiting.append(further)
    return found


def _start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_LONGEST_POINTER_BYTES)
