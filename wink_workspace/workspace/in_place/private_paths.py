"""Paths of the user's directory that its history does not name: what git ignores, and secrets.

Rule 1: their contents are kept in the ledger, in a tree of their own that no entry, bundle or
report has. When one changes or disappears, the old content becomes a discard, within the budget of
the discards.
Rule 2: a path is private or not from its first appearance on: changing a ``.gitignore`` later does
not move it. What git tracks is never private.
Rule 3: the present tree is split here, and nowhere else: see ``public_root``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.ignoring import path_patterns
from wink_workspace.ledger import EMPTY_TREE_ID, ObjectStore, TreeChange, TreeEntry, build, entry_at
from wink_workspace.ledger import diff as tree_changes
from wink_workspace.ledger.store.disk import ledger_failures, write_whole
from wink_workspace.workspace.changes.source_rules import GitView, open_git_view
from wink_workspace.workspace.place.path_rules import PathRules

_Changes = dict[WorkspacePath, TreeEntry | None]


@dataclass(frozen=True, slots=True)
class _Roots:
    """The trees of all files, of those that the history has, and of the private ones."""

    whole: str = EMPTY_TREE_ID
    public: str = EMPTY_TREE_ID
    private: str = EMPTY_TREE_ID


class PrivatePaths:
    """Splits the tree of a directory.

    Args:
        path: The file that remembers the trees.
        source: The directory.
        store: The store of the trees.
        rules: ``derived`` are patterns of private paths, and ``content`` of exceptions.
    """

    def __init__(self, path: Path, source: Path, store: ObjectStore, rules: PathRules) -> None:
        self._path = path
        self._source = source
        self._store = store
        self._secret = path_patterns(rules.derived)
        self._content = path_patterns(rules.content)
        self._roots = _read(path)

    def whole_root(self, public: str) -> str | None:
        """The tree of all files when the history had *public*; ``None`` if that is not known."""
        return self._roots.whole if self._roots.public == public else None

    def public_root(self, whole: str, keep: Callable[[_Changes], object]) -> str:
        """The tree *whole* without its private paths.

        Args:
            whole: The root of all files.
            keep: Gets the old entries of private paths that changed since the last call of this.

        Raises:
            LedgerError: If the trees cannot be read or written.
        """
        roots, store = self._roots, self._store
        if whole == roots.whole:
            return roots.public
        public, private, old = self._split(tree_changes(store, roots.whole, whole))
        if old:
            keep(old)
        self._roots = _Roots(
            whole,
            build(store, roots.public, public) if public else roots.public,
            build(store, roots.private, private) if private else roots.private,
        )
        with ledger_failures("the trees of private files cannot be saved"):
            write_whole(self._path, json.dumps(asdict(self._roots)).encode(), durable=False)
        return self._roots.public

    def _split(self, changes: Iterable[TreeChange]) -> tuple[_Changes, _Changes, _Changes]:
        """What changes in the public and in the private tree, and the old private entries."""
        public: _Changes = {}
        private: _Changes = {}
        old: _Changes = {}
        with open_git_view(self._source) as git:
            for change in changes:
                was_public = entry_at(self._store, self._roots.public, change.path)
                was_private = entry_at(self._store, self._roots.private, change.path)
                if was_private is not None and was_private.kind is not FileKind.DIRECTORY:
                    old[change.path] = was_private
                if change.after is None:
                    if was_public is not None:
                        public[change.path] = None
                    if was_private is not None:
                        private[change.path] = None
                elif was_private is None and (
                    was_public is not None or not self._is_private(change, git, private)
                ):
                    public[change.path] = change.after
                else:
                    private[change.path] = change.after
        return public, private, old

    def _is_private(self, change: TreeChange, git: GitView, private: _Changes) -> bool:
        path = change.path
        is_directory = change.after is not None and change.after.kind is FileKind.DIRECTORY
        if path.parent in private:
            return True
        parts = path.parts
        if self._secret.match(parts, is_directory=is_directory):
            found = not self._content.match(parts, is_directory=is_directory)
        else:
            found = git.ignores(parts, is_directory=is_directory)
        return found and not git.tracks(parts)

    def holds(self, path: WorkspacePath, entry: TreeEntry | None) -> bool:
        """Whether a path at which a restore would put *entry* is private."""
        if entry_at(self._store, self._roots.public, path) is not None:
            return False
        if entry_at(self._store, self._roots.private, path) is not None:
            return True
        with open_git_view(self._source) as git:
            return self._is_private(TreeChange(path, None, entry), git, {})


def private_roots(path: Path) -> frozenset[str]:
    """The trees that *path* remembers, which no entry has."""
    roots = _read(path)
    return frozenset({roots.whole, roots.private} - {EMPTY_TREE_ID})


def _read(path: Path) -> _Roots:
    try:
        return _Roots(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):  # it is made again from the files
        return _Roots()
