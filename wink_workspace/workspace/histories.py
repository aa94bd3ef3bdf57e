"""What a workspace asks of the history of its files, however these are kept.

There are two: of a copy, which is ours and is put back whole (``CopyHistory``), and of the user's
own directory, where only what a call did is undone (``InPlaceHistory``). Why two:
docs/design/020.
"""

from __future__ import annotations

from typing import Protocol

from wink_workspace.filesystem import FileChange

from .tree_history import Discarding, TreeHistory

__all__ = ["CopyHistory", "FilesHistory", "FilesState"]


class FilesState(Protocol):
    """A token of a history; ``root`` is the id of its tree."""

    @property
    def root(self) -> str:
        """The id of its tree."""
        ...


class FilesHistory(Protocol):
    """A history of files that a workspace can put back and commit."""

    discarding: Discarding | None
    """Knows why a restore throws something away."""

    def snapshot(self) -> FilesState:
        """The present state; the same token while nothing changes."""
        ...

    def restore(self, token: object) -> None:
        """Put back the state of one of its tokens, or raise ``SnapshotError``."""
        ...

    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        """The paths that differ between two tokens (*after* defaults to now), in path order."""
        ...

    def diff(self, before: object, after: object | None = None) -> str:
        """The same as a git-style diff, in which a path that is too large has one line."""
        ...

    def accept(self) -> None:
        """Take the state of the last snapshot as meant so: what follows is a call's."""
        ...

    def reuse_look(self, allowed: bool, /) -> None:
        """Whether the next ``snapshot`` may answer as the last one did, without another look.

        For the moment between the entry of external edits and the snapshot of a call. An edit
        in between counts as made during the call, as one an instant later does.
        """
        ...

    def after_call(self) -> str:
        """The root of what is to be committed for the call that just ended."""
        ...

    def go_to(self, root: str, *, kept: str) -> None:
        """Make the files those of a tree; what is replaced need not be kept if it is *kept*."""
        ...

    def put_back(self, root: str) -> str:
        """Undo what a call did that a crash interrupted, after *root* was committed.

        What the call left is kept, if that can be done. The answer is half a sentence that says
        what was undone.
        """
        ...

    def tidy(self, root: str) -> None:
        """Remove what a dead process left beside its effects; *root* is what was committed."""
        ...


class CopyHistory(TreeHistory):
    """The history of files that are ours alone; implements ``FilesHistory``."""

    def reuse_look(self, allowed: bool, /) -> None:
        """Let the next ``snapshot`` skip its look, or forbid it."""
        self._is_fresh = allowed

    def after_call(self) -> str:
        """The present state: whatever is there is the call's."""
        self._is_fresh = False
        return self.snapshot().root

    def go_to(self, root: str, *, kept: str) -> None:
        """Make the files those of *root*, whatever they are."""
        self.move_to(self.token_of(root), reason="replaced", kept=kept)

    def put_back(self, root: str) -> str:
        """Make the files those of *root*."""
        self.move_to(self.token_of(root), reason="interrupted")
        return "what it did to files was undone"

    def tidy(self, root: str) -> None:
        """Nothing: unfinished files are part of what is put back."""
