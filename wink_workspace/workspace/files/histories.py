"""What a workspace needs from the history of its files, with two implementations.

``CopyHistory`` serves a copy, which belongs to the workspace alone and is restored as a whole.
``InPlaceHistory`` serves the user's own directory, where only the effects of a call are undone.
Why there are two: docs/design/006.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from wink_workspace.errors import EntryMissingError, LedgerDamagedError
from wink_workspace.filesystem import FileChange, WorkspacePath
from wink_workspace.ledger import ObjectStore, TreeEntry, has_lost_objects

from .discard_records import Discards
from .tree_history import TreeHistory

_log = logging.getLogger(__name__)


class FilesState(Protocol):
    """A snapshot of a history; ``root`` is the id of its tree."""

    @property
    def root(self) -> str:
        """The id of its tree."""
        ...


class FilesHistory(Protocol):
    """A history of files that a workspace can restore and commit."""

    discard_recorder: Discards | None
    """Knows why a restore discards something."""

    def snapshot(self) -> FilesState:
        """The present state; the same token while nothing changes."""
        ...

    def reread(self) -> None:
        """Let the next snapshot read all files: the ledger lost objects of the present one."""
        ...

    def restore(self, token: object) -> None:
        """Restore the state of a token of this history, or raise ``SnapshotError``."""
        ...

    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        """The paths that differ between two tokens (*after* defaults to now), in path order."""
        ...

    def diff(self, before: object, after: object | None = None) -> str:
        """The same as a git-style diff; a path that is too large has one line."""
        ...

    def accept(self) -> None:
        """Accept the state of the last snapshot: later changes belong to the next call."""
        ...

    def attribute(self, committed: str, chosen: Callable[[WorkspacePath], bool]) -> None:
        """In place: let the call that begins now have the *chosen* changes since *committed*."""
        ...

    def put_private(
        self, changes: Mapping[WorkspacePath, TreeEntry | None]
    ) -> frozenset[WorkspacePath]:
        """In place: write those of *changes* that the history does not name; their paths."""
        ...

    def reuse_snapshot(self, allowed: bool, /) -> None:
        """Allow or forbid the next ``snapshot`` to return the last one, without another scan.

        It is for the moment between the entry of external edits and the snapshot of a call. An
        edit in between counts as made during the call, as would an edit an instant later.
        """
        ...

    def root_after_call(self) -> str:
        """The root of what is to be committed for the call that just ended."""
        ...

    def check_out(self, root: str, *, kept: str) -> None:
        """Make the files those of a tree; the tree *kept* needs no discard."""
        ...

    def undo_interrupted(self, root: str) -> str:
        """Undo the effects of a call that a crash interrupted, after *root* was committed.

        What the call left is kept as a discard, if possible. Returns the end of a sentence that
        says what was undone.
        """
        ...

    def remove_unfinished(self, root: str) -> None:
        """Remove unfinished files of a dead process; *root* is what was committed."""
        ...


def present_root(history: FilesHistory, store: ObjectStore, committed: str) -> str:
    """The root of the present files; the ledger has all its objects.

    Another process may have deleted objects of an older snapshot that no entry has. Then all files
    are read again.

    Args:
        history: The files.
        store: Where their snapshots are.
        committed: The root of the newest entry, whose objects are not deleted.
    """
    try:
        root = history.snapshot().root
        is_complete = root == committed or not has_lost_objects(store, root, committed)
    except (EntryMissingError, LedgerDamagedError):
        if not store.repository.have_others_deleted():
            raise
        root, is_complete = committed, False
    if not is_complete:
        _log.info("Objects of the last snapshot were deleted; all files are read again.")
        history.reread()
        root = history.snapshot().root
    return root


class CopyHistory(TreeHistory):
    """The history of files that only the workspace changes; implements ``FilesHistory``."""

    def reuse_snapshot(self, allowed: bool, /) -> None:
        """Allow or forbid the next ``snapshot`` to skip its scan."""
        self._is_fresh = allowed  # read and reset in ``TreeHistory``

    def attribute(self, committed: str, chosen: Callable[[WorkspacePath], bool]) -> None:
        """Do nothing: the call has all changes."""

    def put_private(
        self, changes: Mapping[WorkspacePath, TreeEntry | None]
    ) -> frozenset[WorkspacePath]:
        """Write nothing: the history names all that is restored."""
        del changes
        return frozenset()

    def root_after_call(self) -> str:
        """The present state: every change since the snapshot belongs to the call."""
        self._is_fresh = False
        return self.snapshot().root

    def check_out(self, root: str, *, kept: str) -> None:
        """Make the files those of *root*, whatever their present state."""
        self.move_to(self.token_of(root), reason="replaced", kept=kept)

    def undo_interrupted(self, root: str) -> str:
        """Make the files those of *root*."""
        self.move_to(self.token_of(root), reason="interrupted", may_fail=True)
        return "what it did to files was undone"

    def remove_unfinished(self, root: str) -> None:
        """Do nothing: unfinished files are removed by the restore."""
