"""Checks a history that came from outside, before anything refers to it.

Rule 1: every object that a ref leads to exists and has the kind that its place needs.
Rule 2: every name in a tree is one that the ledger would have written, so that no file is written
outside of the workspace, and no ``.git`` appears in it.
Rule 3: the files of each entry are within the limits. A few small objects can name the same
directory so often that their files fill every disk; each directory is counted where it is used.

What the receiver has already is not checked again.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from wink_workspace.errors import BundleError, LedgerError
from wink_workspace.filesystem.model import FileKind
from wink_workspace.ledger.store.git_tree import EMPTY_TREE, EMPTY_TREE_ID, GitTree, TreeEntry
from wink_workspace.ledger.store.names import stored_name, workspace_name
from wink_workspace.ledger.store.objects import ObjectStore
from wink_workspace.ledger.store.trees import MAX_TREE_DEPTH

from .commits import Commit, parse_commit
from .history import LogEntry, entry_of, read_entry, skip_of
from .records import parse_record

_MOST_LINK_BYTES: Final = 4_096
_MOST_NAME_BYTES: Final = 1_024


@dataclass(frozen=True, slots=True)
class _Measure:
    """What a tree has below it, each directory counted as often as it is used."""

    n_files: int = 0
    n_bytes: int = 0
    height: int = 0


class HistoryCheck:
    """Checks commits and all that they lead to.

    Args:
        store: The objects.
        boundary: The commits whose parents are not kept.
        known: Commits that the receiver had before.
        known_files: A tree of files that the receiver had before.
        most_files: The most files of one entry.
        most_bytes: The most bytes of the files of one entry.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        boundary: Collection[str],
        known: Collection[str] = (),
        known_files: str | None = None,
        most_files: int,
        most_bytes: int,
    ) -> None:
        self._store = store
        self._boundary = boundary
        self._checked = set(known)
        self._known = known
        self._known_files = known_files
        self._most_files = most_files
        self._most_bytes = most_bytes
        self._measures = {EMPTY_TREE_ID: _Measure()}

    def branch(self, head: str) -> None:
        """Check every entry that leads to *head*.

        Raises:
            BundleError: If one is not what a ledger writes, or exceeds a limit.
        """
        following: str | None = head
        number = 0
        while following is not None and following not in self._checked:
            self._checked.add(following)
            commit = self._commit(following)
            root = self._tree(commit.tree)
            try:
                entry = entry_of(following, commit, root)
                parse_record(self._store.read(entry.record_id))
            except (LedgerError, RecursionError) as error:
                raise _refusal(f"an entry cannot be read: {error}") from error
            if entry.number < 1 or (number and entry.number != number - 1):
                raise _refusal(f"the entry {entry.number} is not in order")
            number = entry.number
            self._check_skip(entry)
            self._files(root, commit)
            following = None if following in self._boundary else commit.parent

    def _check_skip(self, entry: LogEntry) -> None:
        """Check the entry to which *entry* skips; one that is no longer kept is never read."""
        if not entry.skip or entry.parent is None or entry.id in self._boundary:
            return
        try:
            expected = skip_of(read_entry(self._store, entry.parent))
            if expected is not None:
                expected = skip_of(read_entry(self._store, expected[1]))
        except LedgerError:
            return
        if expected != skip_of(entry):
            raise _refusal(f"the entry {entry.number} skips to another one")

    def discard(self, commit_id: str) -> None:
        """Check a discard; raises as ``branch``."""
        commit = self._commit(commit_id)
        if commit.parent is not None:
            raise _refusal("a discard has a parent")
        self._files(self._tree(commit.tree), None)

    def _commit(self, commit_id: str) -> Commit:
        try:
            return parse_commit(commit_id, self._store.read(commit_id, "commit"))
        except (LedgerError, ValueError, OverflowError, OSError) as error:
            raise _refusal(f"the commit {commit_id} cannot be read: {error}") from error

    def _tree(self, tree_id: str) -> GitTree:
        try:
            return EMPTY_TREE if tree_id == EMPTY_TREE_ID else self._store.read_tree(tree_id)
        except LedgerError as error:
            raise _refusal(f"the directory {tree_id} cannot be read: {error.message}") from error

    def _files(self, root: GitTree, commit: Commit | None) -> None:
        """Check the tree of a commit, without what the commit before has in the same place."""
        before = EMPTY_TREE
        parent = None if commit is None else commit.parent
        if parent is not None and parent in self._known:
            before = self._tree(self._commit(parent).tree)
        elif self._known_files is not None:
            before = GitTree.of({b"files": TreeEntry(FileKind.DIRECTORY, self._known_files)})
        self._check_names(root)
        for name, entry in root:
            measure = self._entry(entry, _same(before, name), 1)
            if measure.n_files > self._most_files or measure.n_bytes > self._most_bytes:
                raise BundleError(
                    f"the bundle has an entry with {measure.n_files:,} files of "
                    f"{measure.n_bytes:,} bytes, at most {self._most_files:,} files of "
                    f"{self._most_bytes:,} bytes are allowed",
                    hint="Import it with a higher limit only if you trust where it comes from.",
                )

    def _directory(self, tree_id: str, before: str | None, depth: int) -> _Measure:
        known = self._measures.get(tree_id)
        if known is not None or tree_id == before:
            return known or _Measure()
        if depth > MAX_TREE_DEPTH + 1:
            raise _refusal(f"it has more than {MAX_TREE_DEPTH} nested directories")
        tree = self._tree(tree_id)
        self._check_names(tree)
        old = EMPTY_TREE if before is None else self._tree(before)
        n_files = n_bytes = height = 0
        for name, entry in tree.rows_not_in(old):
            measure = self._entry(entry, _same(old, name), depth + 1)
            n_files += measure.n_files
            n_bytes += measure.n_bytes
            height = max(height, measure.height + 1)
        if depth + height > MAX_TREE_DEPTH + 1:
            raise _refusal(f"it has more than {MAX_TREE_DEPTH} nested directories")
        found = self._measures[tree_id] = _Measure(n_files, n_bytes, height)
        return found

    def _entry(self, entry: TreeEntry, before: str | None, depth: int) -> _Measure:
        if entry.is_tree:
            return self._directory(entry.id, before, depth)
        try:
            kind, size_bytes = self._store.repository.header(entry.id)
        except LedgerError as error:
            raise _refusal(f"a file cannot be read: {error.message}") from error
        if kind != "blob":
            raise _refusal(f"{entry.id} is a {kind}, and a file is expected")
        if entry.kind is FileKind.SYMLINK and size_bytes >= _MOST_LINK_BYTES:
            raise _refusal(f"a link has a target of {size_bytes:,} bytes")
        return _Measure(1, size_bytes)

    def _check_names(self, tree: GitTree) -> None:
        names = [name for name, _ in tree]
        keys = [name + b"/" if entry.is_tree else name for name, entry in tree]
        if len(set(names)) != len(names) or keys != sorted(keys):
            raise _refusal("the names in a directory are not sorted, or not unique")
        for name in names:
            if not _is_file_name(name):
                raise _refusal(f"{name!r} cannot be the name of a file")


def _is_file_name(stored: bytes) -> bool:
    """Whether the ledger would store some file under this name."""
    if stored in (b"", b".", b"..") or b"/" in stored:
        return False
    try:
        name = workspace_name(stored)
    except LedgerError:
        return False
    is_short = len(os.fsencode(name)) <= _MOST_NAME_BYTES
    return is_short and stored_name(name) == stored


def _same(before: GitTree, name: bytes) -> str | None:
    """The directory of that name, if there was one."""
    found = before.get(name)
    return found.id if found is not None and found.is_tree else None


def _refusal(why: str) -> BundleError:
    return BundleError(f"the bundle has a history that no workspace writes: {why}")
