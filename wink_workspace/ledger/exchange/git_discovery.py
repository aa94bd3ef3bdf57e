"""Detect git repositories, and changes that would create one.

git searches for a repository from the current directory upwards. In each directory it uses
``.git``, or the directory itself if it has the layout of a bare repository: ``HEAD`` names a ref or
an object, and ``objects`` and ``refs`` exist, or ``commondir`` says where they are. The ``config``
and the ``hooks`` of that repository can run any program, even on ``git status``.

Rule 1: a directory counts as a repository if git could use it as one. ``objects`` is not required,
as ``GIT_OBJECT_DIRECTORY`` can replace it. ``refs`` and ``commondir`` count whatever their kind:
git accepts links and executable files, and a later ``chmod`` makes a file executable.
Rule 2: for changes that would *complete* a repository, names are compared as on systems that fold
case and ignore characters, since files may be copied to such systems. A repository that exists
already is recognized by exact names only (or by what this system treats as equal).
Rule 3: only an added entry completes a repository, a removed one never does. So only changes with
a name of the layout are checked.
Rule 4: in the directory that a ``commondir`` names, ``refs`` completes a repository without a
``HEAD``. Only a ``commondir`` of the user can name one. The whole tree is searched for them when a
``refs``, a link, or a directory with content is added.

This module never writes. A ``DirectoryView`` is a tree on disk, in the ledger, or with changes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from wink_workspace.errors import FilesystemError
from wink_workspace.filesystem.disk.tree import DiskTree, kind_of
from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import WorkspacePath
from wink_workspace.ledger.store.names import is_git_directory_name, workspace_name
from wink_workspace.ledger.store.objects import ObjectStore
from wink_workspace.ledger.store.trees import TreeEntry, entry_at

_HEAD: Final = "HEAD"
_COMMON: Final = "commondir"
_REFS: Final = ("refs", "reftable", _COMMON)
_FOLDED_HEAD: Final = "head"
_LAYOUT: Final = frozenset((_FOLDED_HEAD, *_REFS))
_READ_BYTES: Final = 255  # git reads no more of a HEAD
_HEAD_CONTENT: Final = re.compile(rb"ref:[ \t\n\r]*refs/|[0-9a-fA-F]{40}")


@dataclass(frozen=True, slots=True)
class Found:
    """The entry at a path: its kind (``None`` for a device) and the start of its content or target.

    ``beginning`` returns at least the first 255 bytes, or all. ``is_whole`` marks an added
    directory with content that the changes do not list.
    """

    kind: FileKind | None
    beginning: Callable[[], bytes] = bytes
    is_whole: bool = False


class DirectoryView(Protocol):
    """A tree of files in which repositories are looked for."""

    def names(self, directory: WorkspacePath) -> Iterable[str]:
        """The names in *directory*; none if it is not a directory."""
        ...

    def look(self, path: WorkspacePath) -> Found | None:
        """The entry at *path*, links not followed; ``None`` if there is none."""
        ...

    def common_directories(self) -> Mapping[WorkspacePath, WorkspacePath]:
        """The directories with ``commondir`` and ``HEAD``, each with the directory it names.

        Empty for a view that cannot resolve links.
        """
        ...


Changes = Mapping[WorkspacePath, Found | None]
"""The new entry of each path; ``None`` to remove it. Every path below a new directory is included,
unless the directory ``is_whole``."""


def is_layout_name(name: str) -> bool:
    """Whether an entry of this name may complete a repository, on this or on any other system."""
    return _folded(name) in _LAYOUT


def is_repository(view: DirectoryView, directory: WorkspacePath) -> bool:
    """Whether git on this system could use *directory* itself as a repository."""
    head = view.look(directory / _HEAD)
    if head is None or not any(view.look(directory / name) for name in _REFS):
        return False
    return _is_head(head)


def enclosing_repository(view: DirectoryView, path: WorkspacePath) -> WorkspacePath | None:
    """The outermost repository that *path* is or lies in; a ``.git`` of any spelling is one."""
    return _enclosing(view, path, partial(is_repository, view))


def repositories_in(view: DirectoryView, changes: Changes) -> Mapping[WorkspacePath, WorkspacePath]:
    """The changed paths that belong to a repository, each with that repository.

    The repository exists in *view*, or the changes would complete it. If a directory existed
    before, only the entries of git's layout belong to the repository that it would become.
    """
    known: dict[WorkspacePath, bool] = {}

    def is_one(directory: WorkspacePath) -> bool:
        if directory not in known:
            known[directory] = is_repository(view, directory)
        return known[directory]

    inside = {path: _enclosing(view, path, is_one) for path in changes}
    found = {path: directory for path, directory in inside.items() if directory is not None}
    others = {path: change for path, change in changes.items() if path not in found}
    completed = {*_completed(view, others), *_completed_common(view, others)}
    if completed:
        added = {
            directory
            for directory in completed.intersection(others)
            if _is_added(view, others, directory)
        }
        inside = {path: _would_belong_to(path, completed, added) for path in others}
        found |= {path: directory for path, directory in inside.items() if directory is not None}
    return found


def paths_left_behind(
    store: ObjectStore,
    views: Iterable[DirectoryView],
    changes: Iterable[tuple[WorkspacePath, TreeEntry | None]],
) -> frozenset[WorkspacePath]:
    """The changed paths that must not be applied to any of *views*; see ``repositories_in``.

    *changes* has each path with its new entry, ``None`` if it is deleted.
    """
    found = {path: found_of(store, entry) for path, entry in changes}
    return frozenset(path for view in views for path in repositories_in(view, found))


def _enclosing(
    view: DirectoryView, path: WorkspacePath, is_one: Callable[[WorkspacePath], bool]
) -> WorkspacePath | None:
    for directory in path.ancestors():
        if is_git_directory_name(directory.name) or is_one(directory):
            return directory
    if is_git_directory_name(path.name):
        return path
    found = view.look(path)  # looking below a file fails, which costs more
    is_directory = not path.parts or (found is not None and found.kind is FileKind.DIRECTORY)
    return path if is_directory and is_one(path) else None


def _completed(view: DirectoryView, changes: Changes) -> Iterable[WorkspacePath]:
    """The directories that *changes* complete."""
    suspects = {path.parent for path, at in changes.items() if at and is_layout_name(path.name)}
    if not suspects:
        return ()
    after = _ChangedView(view, changes)
    return (directory for directory in suspects if _would_be_repository(after, directory))


def _completed_common(view: DirectoryView, changes: Changes) -> Iterable[WorkspacePath]:
    """Rule 4: the common directories that *changes* complete, or the entries that replace them."""
    refs = {path.parent for path, at in changes.items() if at and _folded(path.name) in _REFS}
    whole = {path for path, at in changes.items() if at and _may_add_unlisted(at)}
    if not (refs or whole):
        return
    for directory in set(view.common_directories().values()):
        if directory in refs:
            yield directory
        yield from whole.intersection((*directory.ancestors(), directory))


def _may_add_unlisted(found: Found) -> bool:
    """Whether it makes paths reachable that the changes do not list."""
    return found.is_whole or found.kind is FileKind.SYMLINK


def _is_added(view: DirectoryView, changes: Changes, directory: WorkspacePath) -> bool:
    """Whether *directory* is new, or a link before or after the change."""
    before, after = view.look(directory), changes[directory]
    kinds = {at.kind for at in (before, after) if at is not None}
    return before is None or kinds != {FileKind.DIRECTORY}


def _would_belong_to(
    path: WorkspacePath, completed: Container[WorkspacePath], added: Container[WorkspacePath]
) -> WorkspacePath | None:
    """The repository of *path*: any path in an added one, only the layout in an older directory."""
    for directory in (*path.ancestors(), path):
        if directory in added:
            return directory
        if (
            directory in completed
            and directory != path
            and is_layout_name(path.parts[len(directory.parts)])
        ):
            return directory
    return None


def _would_be_repository(view: DirectoryView, directory: WorkspacePath) -> bool:
    folded = [(_folded(name), name) for name in view.names(directory)]
    if not any(name in _REFS for name, _ in folded):
        return False
    heads = (view.look(directory / name) for fold, name in folded if fold == _FOLDED_HEAD)
    return any(head is not None and _is_head(head) for head in heads)


def _is_head(found: Found) -> bool:
    """Whether git accepts *found* as the ``HEAD`` of a repository."""
    match found.kind:
        case FileKind.FILE:
            return _HEAD_CONTENT.match(found.beginning()[:_READ_BYTES]) is not None
        case FileKind.SYMLINK:
            return found.beginning().startswith(b"refs/")
        case _:
            return False


def _folded(name: str) -> str:
    """*name* without what some system ignores: case, trailing dots and spaces, streams.

    Systems differ in the non-ASCII characters that they ignore; dropping all of them is safe.
    """
    if not name.isascii():
        name = "".join(filter(str.isascii, name.casefold()))
    return name.partition(":")[0].rstrip(" .").lower()


# Views


class DiskView:
    """A directory on disk. Unreadable entries count as missing, as git cannot read them either."""

    def __init__(self, tree: DiskTree) -> None:
        self._tree = tree

    def names(self, directory: WorkspacePath) -> Iterator[str]:
        """See ``DirectoryView``."""
        with suppress(FilesystemError):
            yield from (entry.path.name for entry in self._tree.entries(directory))

    def look(self, path: WorkspacePath) -> Found | None:
        """See ``DirectoryView``."""
        try:
            there = self._tree.status_and_target(path)
        except FilesystemError:
            return None
        if there is None:
            return None
        status, target = there
        if target is not None:
            return Found(FileKind.SYMLINK, partial(_encoded, target))
        return Found(kind_of(status), partial(self._beginning, path))

    def common_directories(self) -> Mapping[WorkspacePath, WorkspacePath]:
        """See ``DirectoryView``; reads the whole tree."""
        found: dict[WorkspacePath, WorkspacePath] = {}
        root = self._tree.root.resolve()
        for listing in self._tree.listings(unreadable=lambda _: None):
            names = {name for name, _ in listing.entries}
            if _COMMON in names and _HEAD in names:
                holder = WorkspacePath(listing.parts)
                target = os.fsdecode(self._beginning(holder / _COMMON).rstrip(b"\r\n"))
                with suppress(OSError, RuntimeError, ValueError):
                    directory = root.joinpath(*holder.parts, target).resolve()
                    found[holder] = WorkspacePath(directory.relative_to(root).parts)
        return found

    def _beginning(self, path: WorkspacePath) -> bytes:
        try:
            with self._tree.open(path) as file:
                return file.read(_READ_BYTES)
        except (FilesystemError, OSError):
            return b""


class LedgerView:
    """The tree with the id *root* of the ledger, as a view."""

    def __init__(self, store: ObjectStore, root: str) -> None:
        self._store = store
        self._root = root

    def names(self, directory: WorkspacePath) -> Iterable[str]:
        """See ``DirectoryView``."""
        entry = entry_at(self._store, self._root, directory)
        if entry is None or entry.kind is not FileKind.DIRECTORY:
            return ()
        return [workspace_name(stored) for stored, _ in self._store.tree(entry.id)]

    def common_directories(self) -> Mapping[WorkspacePath, WorkspacePath]:
        """See ``DirectoryView``; empty."""
        return {}

    def look(self, path: WorkspacePath) -> Found | None:
        """See ``DirectoryView``."""
        return found_of(self._store, entry_at(self._store, self._root, path))


def found_of(store: ObjectStore, entry: TreeEntry | None) -> Found | None:
    """*entry* as ``Found``; its content is read on demand."""
    return None if entry is None else Found(entry.kind, partial(_stored_beginning, store, entry))


class _ChangedView:
    """Another view with changes."""

    def __init__(self, view: DirectoryView, changes: Changes) -> None:
        self._view = view
        self._changes = changes
        self._added: dict[WorkspacePath, set[str]] = {}
        for path, found in changes.items():
            if found is not None:
                self._added.setdefault(path.parent, set()).add(path.name)

    def names(self, directory: WorkspacePath) -> Iterable[str]:
        stay = {
            name for name in self._view.names(directory) if directory / name not in self._changes
        }
        return stay | self._added.get(directory, set())

    def common_directories(self) -> Mapping[WorkspacePath, WorkspacePath]:
        return self._view.common_directories()

    def look(self, path: WorkspacePath) -> Found | None:
        return self._changes[path] if path in self._changes else self._view.look(path)


def _encoded(target: str) -> bytes:
    return target.encode("utf-8", "surrogateescape")


def _stored_beginning(store: ObjectStore, entry: TreeEntry) -> bytes:
    beginning = b""
    for piece in store.chunks(entry.id):
        beginning += piece
        if len(beginning) >= _READ_BYTES:
            break
    return beginning
