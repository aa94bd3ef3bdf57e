"""Three-way merges, of files and of STATE, for an undo below later changes.

Undoing an entry is merging the tree before it into the present one, with the tree after it as
the base: what the entry did goes, what happened since stays. Redoing is undoing the undo.

A path that only one side changed takes that side's state. A text file that both changed is
merged line by line, as git does it. All else that both changed is a conflict; then there is
no result at all, so that nobody writes half of one.

STATE is merged slice by slice, since nobody knows how to merge two plans. What both sides
changed stays as it is now, and is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import WorkspacePath

from .names import workspace_name
from .objects import LARGE_BYTES, ObjectStore
from .trees import (
    EMPTY_TREE_ID,
    SOME_DIRECTORY,
    TreeChange,
    TreeEntry,
    build,
    diff,
    entry_at,
)

__all__ = ["Conflict", "Merge", "SliceMerge", "merge_slices", "merge_trees"]

_TEXT_SAMPLE_BYTES: Final = 8_000  # git's own measure of what is binary


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path that cannot be merged; ``reason`` is a clause such as ``was deleted since``."""

    path: WorkspacePath
    reason: str

    def __str__(self) -> str:
        return f"{self.path} {self.reason}"


@dataclass(frozen=True, slots=True)
class Merge:
    """The merged tree, or the conflicts in path order; exactly one of them is there."""

    tree: str | None
    conflicts: tuple[Conflict, ...] = ()


class _ConflictFound(Exception):  # noqa: N818 - it never leaves this module
    """Why one path cannot be merged."""


def merge_trees(store: ObjectStore, *, base: str, ours: str, theirs: str) -> Merge:
    """*ours* with what changed from *base* to *theirs*; costs what changed there.

    Raises:
        LedgerError: If an object cannot be read or written.
    """
    changes: dict[WorkspacePath, TreeEntry | None] = {}
    conflicts: list[Conflict] = []
    merger = _Merger(store, base, ours)
    for change in diff(store, base, theirs):
        try:
            changes.update(merger.merged(change))
        except _ConflictFound as found:
            conflicts.append(Conflict(change.path, str(found)))
    if conflicts:
        return Merge(None, tuple(conflicts))
    return Merge(build(store, ours, changes))


@dataclass(frozen=True, slots=True)
class _Merger:
    store: ObjectStore
    base: str
    ours: str

    def merged(self, change: TreeChange) -> Iterator[tuple[WorkspacePath, TreeEntry | None]]:
        """What is to become of the path; nothing if it is right already."""
        present = entry_at(self.store, self.ours, change.path)
        if _same(present, change.after):
            return
        if not _same(present, change.before):
            yield change.path, self._merged_file(change, present)
        elif not _is_directory(change.before):
            self._check_place(change)
            yield change.path, _placed(change.after)
        elif not self._has_more(change.path):
            yield change.path, change.after
        elif change.after is not None:
            raise _ConflictFound("holds files that were made since")

    def _check_place(self, change: TreeChange) -> None:
        """Refuse what would put a directory in the place of a file made since."""
        if change.after is None:
            return
        for ancestor in change.path.ancestors():
            there = entry_at(self.store, self.ours, ancestor)
            known = entry_at(self.store, self.base, ancestor)
            if there not in (None, known) and not _is_directory(there):
                raise _ConflictFound(f"cannot be inside {ancestor}, which is a file now")

    def _has_more(self, path: WorkspacePath) -> bool:
        """Whether our directory holds anything that the base's does not."""
        ours, base = (entry_at(self.store, root, path) for root in (self.ours, self.base))
        added = diff(self.store, _tree_id(base), _tree_id(ours))
        return any(change.before is None for change in added)

    def _merged_file(self, change: TreeChange, present: TreeEntry | None) -> TreeEntry:
        before, after = change.before, change.after
        if present is None:
            raise _ConflictFound("was deleted since")
        if before is None:
            raise _ConflictFound("was made since, with another content")
        if after is None:
            raise _ConflictFound("was changed since, and would be deleted")
        if {before.kind, after.kind, present.kind} != {FileKind.FILE}:
            raise _ConflictFound("was changed since, and is not a file on all sides")
        executable = (after if present.executable == before.executable else present).executable
        return TreeEntry(FileKind.FILE, self._merged_blob(before, present, after), executable)

    def _merged_blob(self, before: TreeEntry, present: TreeEntry, after: TreeEntry) -> str:
        if present.id in (before.id, after.id):
            return after.id
        if after.id == before.id:
            return present.id
        for entry in (before, present, after):
            if not self._is_text(entry.id):
                raise _ConflictFound("was changed since, and is not text that could be merged")
        merged = self.store.repository.merge_blobs(before.id, present.id, after.id)
        if merged is None:
            raise _ConflictFound("was changed since, in the same lines")
        return merged

    def _is_text(self, blob: str) -> bool:
        if self.store.size_bytes(blob) >= LARGE_BYTES:
            return False
        return b"\0" not in self.store.read(blob)[:_TEXT_SAMPLE_BYTES]


def _is_directory(entry: TreeEntry | None) -> bool:
    return entry is not None and entry.kind is FileKind.DIRECTORY


def _same(one: TreeEntry | None, other: TreeEntry | None) -> bool:
    """Whether two paths are in the same state; what is in a directory are other paths."""
    return one == other or (_is_directory(one) and _is_directory(other))


def _placed(entry: TreeEntry | None) -> TreeEntry | None:
    """A directory comes without its content, which is merged path by path."""
    return SOME_DIRECTORY if _is_directory(entry) else entry


def _tree_id(entry: TreeEntry | None) -> str:
    return EMPTY_TREE_ID if entry is None else entry.id


# STATE


@dataclass(frozen=True, slots=True)
class SliceMerge:
    """The merged STATE, and the names of the slices that could not be merged."""

    tree: str
    conflicts: tuple[str, ...] = ()


def merge_slices(store: ObjectStore, *, base: str, ours: str, theirs: str) -> SliceMerge:
    """The STATE *ours* with the slices that changed from *base* to *theirs*.

    Raises:
        LedgerError: If an object cannot be read or written.
    """
    before, present, after = store.tree(base), store.tree(ours), store.tree(theirs)
    moved = {name for name, _ in before.rows_not_in(after)}
    moved |= {name for name, _ in after.rows_not_in(before)}
    free = {name for name in moved if present.get(name) == before.get(name)}
    merged = present.changed({name: after.get(name) for name in free})
    conflicts = sorted(
        workspace_name(name) for name in moved - free if present.get(name) != after.get(name)
    )
    return SliceMerge(store.write_tree(merged), tuple(conflicts))
