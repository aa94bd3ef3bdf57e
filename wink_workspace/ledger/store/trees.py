"""A workspace's files as a git tree: look up, build, walk, compare.

Rule 1: a root is the id of a tree object. It identifies one state of all files.
Rule 2: the cost follows the number of changes and the width of their directories. Building writes
those directories and their parents; comparing reads only directories whose ids differ.
Rule 3: a directory exists independently of its content. An empty one is stored as an empty tree,
and one that loses its last entry stays until it is removed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Protocol, TypeAlias

from wink_workspace.errors import LimitExceededError, UsageError
from wink_workspace.filesystem.model import Change, FileChange, FileKind, FileState
from wink_workspace.filesystem.paths import ROOT, WorkspacePath

from .compression import run_steps
from .git_tree import EMPTY_TREE, EMPTY_TREE_ID, GitTree, TreeEntry
from .names import stored_name, workspace_name
from .objects import LARGE_BYTES, ObjectStore

MAX_TREE_DEPTH: Final = 256
"""Most nested directories; callers' paths have at most 64, paths on disk may have more."""

_MIN_ENTRIES_OF_DELTA: Final = 32


class TreeWriter(Protocol):
    """Stores trees, or only computes their ids: an ``ObjectStore``, or a ``SeparatePack``."""

    def write_tree(self, tree: GitTree, /) -> str:
        """The id of a tree."""
        ...


EMPTY_DIRECTORY: Final = TreeEntry(FileKind.DIRECTORY, EMPTY_TREE_ID)
"""An empty directory."""

SOME_DIRECTORY: Final = TreeEntry(FileKind.DIRECTORY, "")
"""For ``build``: a directory with the content that the base has there."""


TreeChange: TypeAlias = Change[TreeEntry]
"""A change of a tree. Directories have one if they are added, removed, or replace a file."""


# Reading


def entry_at(store: ObjectStore, root: str, path: WorkspacePath) -> TreeEntry | None:
    """The entry of *root* at *path*, ``None`` if there is none; links are not followed."""
    entry: TreeEntry | None = TreeEntry(FileKind.DIRECTORY, root)
    for name in path.parts:
        if entry is None or not entry.is_tree:
            return None
        entry = store.tree(entry.id).get(stored_name(name))
    return entry


def entries_at(
    store: ObjectStore, root: str, directory: WorkspacePath, names: Iterable[str]
) -> dict[str, TreeEntry | None] | None:
    """``entry_at`` for each of *names* in one directory; ``None`` if there is no such directory."""
    top = entry_at(store, root, directory)
    if top is None or not top.is_tree:
        return None
    tree = store.tree(top.id)
    return {name: tree.get(stored_name(name)) for name in names}


def walk(
    store: ObjectStore, root: str, path: WorkspacePath = ROOT
) -> Iterator[tuple[WorkspacePath, TreeEntry]]:
    """Every path below *root*, without *root* itself, directories before their content.

    *path* is prepended to every path.
    """
    named = [(workspace_name(name), entry) for name, entry in store.tree(root)]
    for name, entry in sorted(named, key=lambda item: item[0]):
        yield path / name, entry
        if entry.is_tree:
            yield from walk(store, entry.id, path / name)


def links_in(store: ObjectStore, root: str) -> Iterator[tuple[WorkspacePath, str]]:
    """The path and the target of each link below *root*."""
    waiting = [(ROOT, root)]
    while waiting:
        directory, tree = waiting.pop()
        for name, entry in store.tree(tree):
            if entry.is_tree:
                waiting.append((directory / workspace_name(name), entry.id))
            elif entry.kind is FileKind.SYMLINK:
                target = store.read(entry.id).decode("utf-8", "surrogateescape")
                yield directory / workspace_name(name), target


def names_in(store: ObjectStore, directory: TreeEntry) -> list[str]:
    """The names in a directory."""
    return [workspace_name(name) for name, _ in store.tree(directory.id)]


def diff(store: ObjectStore, before: str, after: str) -> Iterator[TreeChange]:
    """Every path whose kind, mode or content differs in the trees *before* and *after*, sorted."""
    roots = TreeEntry(FileKind.DIRECTORY, before), TreeEntry(FileKind.DIRECTORY, after)
    return _differences(store, roots, ROOT)


def _differences(
    store: ObjectStore,
    sides: tuple[TreeEntry | None, TreeEntry | None],
    path: WorkspacePath,
) -> Iterator[TreeChange]:
    before, after = sides
    if not (before and before.is_tree and after and after.is_tree):
        yield Change(path, before, after)
    tree_before, tree_after = _tree_in(store, before), _tree_in(store, after)
    old = dict(tree_before.rows_not_in(tree_after))
    new = dict(tree_after.rows_not_in(tree_before))
    for name, stored in sorted((workspace_name(stored), stored) for stored in old | new):
        yield from _differences(store, (old.get(stored), new.get(stored)), path / name)


def additions(store: ObjectStore, before: str, after: str) -> tuple[str, list[WorkspacePath]]:
    """What differs in *after*, as a tree, and the paths that only *before* has, in order.

    The tree has a changed file at its path, and a new directory with all that is below it. Raises
    as ``build``.
    """
    removed: list[WorkspacePath] = []
    tree = _additions(store, store.tree(before), store.tree(after), ROOT, removed)
    removed.sort(key=attrgetter("parts"))
    return store.write_tree(tree), removed


def _additions(
    store: ObjectStore,
    before: GitTree,
    after: GitTree,
    path: WorkspacePath,
    removed: list[WorkspacePath],
) -> GitTree:
    found = after.without(before)
    inside: dict[bytes, TreeEntry | None] = {}
    for name, old in before.rows_not_in(after):
        new, below = after.get(name), path / workspace_name(name)
        if new is None:
            removed.append(below)
        if not old.is_tree:
            continue
        if new is None or not new.is_tree:
            removed += (each for each, _ in walk(store, old.id, below))
            continue
        tree = _additions(store, store.tree(old.id), store.tree(new.id), below, removed)
        made = TreeEntry(FileKind.DIRECTORY, store.write_tree(tree)) if tree.rows else None
        inside[name] = made
    return found.changed(inside)


# Building


@dataclass(slots=True)
class _Change:
    """The changes of a path and of the paths below it."""

    is_set: bool = False
    entry: TreeEntry | None = None
    inside: dict[str, _Change] = field(default_factory=dict[str, "_Change"])


def build(store: ObjectStore, base: str, changes: Mapping[WorkspacePath, TreeEntry | None]) -> str:
    """Apply *changes* to *base*; return the new root.

    Each path is set to its entry, and ``None`` removes it with everything below it. Missing parents
    are created and replace files. A directory gets the content of its id; ``SOME_DIRECTORY`` keeps
    its content. Changes below a path are applied after its own.

    Raises:
        UsageError: If a path is below a file or link of *changes*.
        LimitExceededError: For more than ``MAX_TREE_DEPTH`` nested directories.
        LedgerError: If a tree cannot be read or written.
    """
    whole = _Change()
    for path, entry in changes.items():
        if entry is None and len(path.parts) > MAX_TREE_DEPTH:
            continue  # it was never stored
        _check_depth(len(path.parts))
        change = whole
        for name in path.parts:
            inner = change.inside.get(name)
            if inner is None:
                inner = change.inside[name] = _Change()
            change = inner
        change.is_set, change.entry = True, entry
    root = _apply_change(store, TreeEntry(FileKind.DIRECTORY, base), whole)
    if root is None or not root.is_tree:
        raise UsageError("the root must be a directory", hint="Change the paths below it.")
    return root.id


def _check_depth(n_segments: int) -> None:
    if n_segments > MAX_TREE_DEPTH:
        raise LimitExceededError(
            f"a path has {n_segments} segments, but at most {MAX_TREE_DEPTH} can be stored",
            hint="Use fewer nested directories.",
        )


def _apply_change(
    store: ObjectStore, before: TreeEntry | None, change: _Change
) -> TreeEntry | None:
    own = _own_change(before, change) if change.is_set else before
    if not change.inside:
        return own
    is_tree = own is not None and own.is_tree
    tree = store.tree(own.id) if own is not None and is_tree else EMPTY_TREE
    entries: dict[bytes, TreeEntry | None] = {}
    for name, inner in change.inside.items():
        stored = stored_name(name)
        entry = inner.entry
        if inner.inside or not inner.is_set or (entry is not None and not entry.id):
            entries[stored] = _apply_change(store, tree.get(stored), inner)
        else:  # what is there does not matter
            entries[stored] = entry
    if not is_tree:
        if not any(entries.values()):
            return own  # there is nothing to remove
        if change.is_set and own is not None:
            raise UsageError(
                f"{next(iter(change.inside))!r} cannot be inside a file", hint="Remove the file."
            )
    changed = tree.changed(entries)
    if changed is tree and own is not None:
        return own
    is_wide = own is not None and len(tree.rows) >= _MIN_ENTRIES_OF_DELTA
    similar = (own.id, tree) if own is not None and is_wide else None
    return TreeEntry(FileKind.DIRECTORY, store.write_tree(changed, before=similar))


def _own_change(before: TreeEntry | None, change: _Change) -> TreeEntry | None:
    """The entry at the change's own path, before the changes below it."""
    if change.entry == SOME_DIRECTORY:
        return before if before is not None and before.is_tree else EMPTY_DIRECTORY
    return change.entry


def build_directories(
    store: TreeWriter, directories: Mapping[tuple[str, ...], Mapping[str, TreeEntry]]
) -> str:
    """Build a tree from whole directories, by their path segments; return its root.

    Among the entries, a directory is ``SOME_DIRECTORY``; one that is not in *directories* is empty,
    or has the content of its id.

    Raises:
        LimitExceededError: As ``build``.
        LedgerError: If a tree cannot be written.
    """
    _check_depth(max(len(names) for names in directories))
    top = run_steps(tree_steps(store, directories))
    return store.write_tree(GitTree.of({stored_name(name): top[name] for name in top}))


def tree_steps(
    writer: TreeWriter, directories: Mapping[tuple[str, ...], Mapping[str, TreeEntry]]
) -> Generator[None, None, dict[str, TreeEntry]]:
    """As ``build_directories``, some entries for each step, without the top itself.

    *directories* maps the path segments of each to its entries by name.

    Returns the entries of the top, each directory with its id.
    """
    ids: dict[tuple[str, ...], str] = {}
    for names in sorted(directories, key=len, reverse=True):
        entries = (
            (name, TreeEntry(entry.kind, ids.pop((*names, name), entry.id or EMPTY_TREE_ID)))
            if entry.kind is FileKind.DIRECTORY
            else (name, entry)
            for name, entry in directories[names].items()
        )
        if not names:
            return dict(entries)
        stored = ((stored_name(name), entry) for name, entry in entries)
        tree = yield from GitTree.of_steps(stored)
        yield
        ids[names] = writer.write_tree(tree)
        yield
    return {}


def with_paths_from(
    store: ObjectStore, root: str, source: str, paths: Iterable[WorkspacePath]
) -> str:
    """*root* with each of *paths*, and everything below it, as in *source*.

    A path that *source* does not have is removed; other paths do not change.
    """
    return build(store, root, {path: entry_at(store, source, path) for path in paths})


# Conversion


def entry_of(store: ObjectStore, state: FileState) -> TreeEntry:
    """Store the content of *state*; return its entry. A directory is ``SOME_DIRECTORY``."""
    if state.kind is FileKind.DIRECTORY:
        return SOME_DIRECTORY
    return TreeEntry(state.kind, store.write_blob(state.data), state.executable)


def file_state(
    store: ObjectStore, entry: TreeEntry | None, *, limit_bytes: int = LARGE_BYTES
) -> FileState | None:
    """The state of the file of *entry*, with its content.

    Raises:
        LimitExceededError: If the content is longer than *limit_bytes*; read its ``chunks``.
    """
    if entry is None:
        return None
    if entry.kind is FileKind.DIRECTORY:
        return FileState(FileKind.DIRECTORY)
    size_bytes = store.size_bytes(entry.id)
    if size_bytes > limit_bytes:
        raise LimitExceededError(
            f"a file has {size_bytes} bytes, but at most {limit_bytes} are read as a whole",
            hint="Read it in pieces.",
        )
    return FileState(entry.kind, store.read(entry.id), entry.executable)


def file_changes(
    store: ObjectStore, changes: Iterable[TreeChange], *, limit_bytes: int = LARGE_BYTES
) -> Iterator[FileChange]:
    """*changes* with contents, each read on demand.

    Raises:
        LimitExceededError: If a content is longer than *limit_bytes*; the message has its path.
    """
    for change in changes:
        try:
            before = file_state(store, change.before, limit_bytes=limit_bytes)
            after = file_state(store, change.after, limit_bytes=limit_bytes)
        except LimitExceededError as error:
            raise LimitExceededError(
                f"{change.path} cannot be read as a whole: {error.message}",
                hint="Look at the diff: it names files that are too large and shows the rest.",
            ) from error
        yield Change(change.path, before, after)


def _tree_in(store: ObjectStore, entry: TreeEntry | None) -> GitTree:
    return store.tree(entry.id) if entry is not None and entry.is_tree else EMPTY_TREE
