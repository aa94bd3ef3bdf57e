"""The rules that decide which changes are left out: present rules of the source, and changed ones.

A path is ignored if git ignores it in the source now, or would ignore it there with the changes.
So a rule counts that the user adds during the review of a run, and so does a ``.gitignore`` that
a tool writes into its cache.

Rule 1: the ``.gitignore`` of every directory and ``info/exclude`` are read, from the top of the
repository that holds the source. Without a repository, only the ``.gitignore`` files of the
source count.
Rule 2: no configuration is read, neither the repository's nor the user's, and git is not started.
Rule files are read as git does: links are not followed, and a file above 1 MiB has no rules.
Rule 3: a source that its own repository ignores counts as a directory without a repository.
Rule 4: if the source is missing, the imported rules count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from wink_workspace.errors import FilesystemError, UsageError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.ignoring import RULES_NAME, IgnoreRules, Parts
from wink_workspace.ledger import (
    DirectoryView,
    DiskView,
    LedgerView,
    ObjectStore,
    TreeChange,
    entry_at,
    found_of,
    repositories_in,
    tracked_names,
)

ReadRules = Callable[[Parts], bytes | None]
"""Returns the ``.gitignore`` of a directory; ``None`` if there is none."""

_LARGEST_BYTES: Final = 1_048_576
_GIT: Final = ".git"


@dataclass(frozen=True, slots=True)
class SourceFilter:
    """What is known of the source, to decide which changes are left out.

    Attributes:
        ignores: Whether its rules ignore a path; the second argument is whether it is a directory.
        in_repository: Which of the changes are part of a git repository, or would create one.
        holds: Whether the source is known to have something at a path.
    """

    ignores: Callable[[WorkspacePath, bool], bool]
    in_repository: Callable[[Sequence[TreeChange]], frozenset[WorkspacePath]]
    holds: Callable[[WorkspacePath], bool] = lambda _: False


no_filter: Final = SourceFilter(lambda _, __: False, lambda _: frozenset())
"""Leaves out only the kept output of commands."""


def rules_in(store: ObjectStore, root: str) -> ReadRules:
    """The rule files in a tree of the ledger."""
    return lambda parts: _content(store, root, (*parts, RULES_NAME))


@contextmanager
def open_source_filter(
    source: Path,
    wanted: ReadRules,
    *,
    imported: tuple[ObjectStore, str] | None = None,
    known: Collection[str] = (),
    include_ignored: bool = False,
) -> Generator[SourceFilter]:
    """The filter for changes that would be applied to *source*, valid inside the block.

    Args:
        source: The directory.
        wanted: The rule files of the changed state.
        imported: The ledger and the root of the imported files, if there is a ledger.
        known: Other roots of which the source may hold parts. A path in one of them was not
            created since, so it is not left out because it is ignored.
        include_ignored: Include ignored files, too.
    """
    with ExitStack() as opened:
        there = _Source.opened(source, imported, opened)
        views: list[DirectoryView] = [] if imported is None else [LedgerView(*imported)]
        with suppress(FilesystemError, UsageError):
            views.append(DiskView(opened.enter_context(DiskTree(source))))
        either = _PresentOrWantedRules(there, wanted)
        yield SourceFilter(
            ignores=(lambda _, __: False) if include_ignored else either.ignores,
            in_repository=lambda changes: _in_repository(changes, views, imported),
            holds=lambda path: (
                imported is not None
                and any(entry_at(imported[0], root, path) is not None for root in known)
            ),
        )


class GitView:
    """What git says of the paths of a source: which it ignores and which it tracks."""

    def __init__(self, source: _Source, top: Path, above: Parts) -> None:
        self._rules = source.rules(source.read)
        self._top = top
        self._above = above
        self._tracked: dict[Parts, list[str] | None] = {}

    def ignores(self, parts: Parts, *, is_directory: bool) -> bool:
        """Whether the ignore rules of the source match."""
        return self._rules.ignores(parts, is_directory=is_directory)

    def _tracked_in(self, repository: Parts) -> list[str] | None:
        """What a repository tracks, by its path below the top; a nested one must lie in the top."""
        if repository not in self._tracked:
            directory = _private_directory(self._top.joinpath(*repository))
            is_inside = not repository or directory.resolve().is_relative_to(self._top)
            self._tracked[repository] = tracked_names(directory / "index") if is_inside else []
        return self._tracked[repository]

    def tracks(self, parts: Parts) -> bool:
        """Whether git tracks this path, or something below it, in the repository that holds it.

        If the index cannot be read, what the rules do not ignore counts as tracked.
        """
        whole = (*self._above, *parts)
        n = self._rules.top(whole[:-1])
        tracked = self._tracked_in(whole[:n])
        if tracked is None:
            return not self.ignores(parts, is_directory=True)
        name = "/".join(whole[n:])
        at = bisect_left(tracked, name)
        if at < len(tracked) and tracked[at] == name:
            return True
        at = bisect_left(tracked, f"{name}/")
        return at < len(tracked) and tracked[at].startswith(f"{name}/")


@contextmanager
def open_git_view(source: Path) -> Generator[GitView]:
    """What git says of *source* now, valid inside the block."""
    with ExitStack() as opened:
        there = _Source.opened(source, None, opened)
        above = there._above  # noqa: SLF001 - of this module
        top = source.resolve()
        for _ in above:
            top = top.parent
        yield GitView(there, top, above)


class _PresentOrWantedRules:
    """What the source ignores now, or would ignore with other rule files."""

    def __init__(self, source: _Source, wanted: ReadRules) -> None:
        self._read_now = source.read
        self._read_then = wanted
        self._now = source.rules(source.read)
        self._then = source.rules(wanted)
        self._differs: dict[Parts, bool] = {}

    def ignores(self, path: WorkspacePath, is_directory: bool) -> bool:
        """See ``SourceFilter``."""
        parts = path.parts
        return self._now.ignores(parts, is_directory=is_directory) or (
            self._differ(parts[:-1]) and self._then.ignores(parts, is_directory=is_directory)
        )

    def _differ(self, directory: Parts) -> bool:
        """Whether other rules apply to the entries of *directory*."""
        if directory not in self._differs:
            self._differs[directory] = self._read_now(directory) != self._read_then(directory) or (
                bool(directory) and self._differ(directory[:-1])
            )
        return self._differs[directory]


def _in_repository(
    changes: Sequence[TreeChange],
    views: Sequence[DirectoryView],
    imported: tuple[ObjectStore, str] | None,
) -> frozenset[WorkspacePath]:
    """The changed paths that git would take for part of a present or completed repository."""
    arriving = {
        change.path: imported and change.after and found_of(imported[0], change.after)
        for change in changes
    }
    return frozenset(path for view in views for path in repositories_in(view, arriving))


class _Source:
    """Reads rules from a source.

    Args:
        content: Returns the file at a path below the top, ``None`` if there is none.
        is_there: Whether such a path exists.
        above: The path of the source below the top.
        git_directory: The git directory at the top; ``None`` if there is none.
    """

    def __init__(
        self,
        content: Callable[[Parts], bytes | None],
        is_there: Callable[[Parts], bool],
        *,
        above: Parts = (),
        git_directory: Path | None = None,
    ) -> None:
        self._content = content
        self._is_there = is_there
        self._above = above
        self._git_directory = git_directory

    @classmethod
    def opened(
        cls, source: Path, imported: tuple[ObjectStore, str] | None, opened: ExitStack
    ) -> _Source:
        try:
            directory = source.resolve(strict=True)
            top = next(
                (each for each in (directory, *directory.parents) if _has_git(each)), directory
            )
            found = cls._of(opened.enter_context(DiskTree(top)), top, directory)
            if found._above and found.rules(found.read).ignores_itself():  # noqa: SLF001 - of this class
                found = cls._of(opened.enter_context(DiskTree(directory)), directory, directory)
        except (FilesystemError, UsageError, OSError):
            if imported is None:
                return cls(lambda _: None, lambda _: False)
            return cls(
                partial(_content, *imported),
                lambda parts: entry_at(*imported, WorkspacePath(parts)) is not None,
            )
        return found

    @classmethod
    def _of(cls, tree: DiskTree, top: Path, directory: Path) -> _Source:
        return cls(
            partial(_read, tree),
            partial(_exists, tree),
            above=directory.relative_to(top).parts,
            git_directory=_git_directory(top),
        )

    def read(self, parts: Parts) -> bytes | None:
        """The ``.gitignore`` of a directory of the source."""
        return self._content((*self._above, *parts, RULES_NAME))

    def rules(self, inside: ReadRules) -> IgnoreRules:
        """The rules of the source with other rule files inside of it."""
        n_above = len(self._above)

        def read(parts: Parts) -> bytes | None:
            if len(parts) < n_above:
                return self._content((*parts, RULES_NAME))
            return inside(parts[n_above:])

        return IgnoreRules(
            read,
            is_repository=lambda parts: self._is_there((*parts, _GIT)),
            exclude=self._exclude,
            above=self._above,
        )

    def _exclude(self, parts: Parts) -> bytes | None:
        if parts:
            return self._content((*parts, _GIT, "info", "exclude"))
        if self._git_directory is None:
            return None
        try:
            with (self._git_directory / "info" / "exclude").open("rb") as file:
                return file.read(_LARGEST_BYTES)
        except OSError:
            return None


def _has_git(directory: Path) -> bool:
    return (directory / _GIT).exists()


def _git_directory(top: Path) -> Path | None:
    """The directory that all working trees of the repository share."""
    directory = top / _GIT
    try:
        if directory.is_file():
            where = directory.read_text(encoding="utf-8", errors="surrogateescape")
            directory = top / where.removeprefix("gitdir:").strip()
        if (shared := directory / "commondir").is_file():
            directory /= shared.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return None
    return directory if directory.is_dir() else None


def _private_directory(top: Path) -> Path:
    """The git directory of this working tree alone."""
    directory = top / _GIT
    with suppress(OSError):
        if directory.is_file():
            where = directory.read_text(encoding="utf-8", errors="surrogateescape")
            return top / where.removeprefix("gitdir:").strip()
    return directory


def _content(store: ObjectStore, root: str, parts: Parts) -> bytes | None:
    entry = entry_at(store, root, WorkspacePath(parts))
    if entry is None or entry.kind is not FileKind.FILE:
        return None
    return store.read(entry.id) if store.size_bytes(entry.id) <= _LARGEST_BYTES else None


def _read(tree: DiskTree, parts: Parts) -> bytes | None:
    path = WorkspacePath(parts)
    try:
        entry = tree.entry(path)
        if entry is None or entry.kind is not FileKind.FILE or entry.size_bytes > _LARGEST_BYTES:
            return None
        with tree.open(path) as file:
            return file.read(_LARGEST_BYTES)
    except (FilesystemError, OSError):  # git continues without rules that it cannot read
        return None


def _exists(tree: DiskTree, parts: Parts) -> bool:
    try:
        return tree.entry(WorkspacePath(parts)) is not None
    except FilesystemError:
        return False
