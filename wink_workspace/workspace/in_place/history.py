"""Former states of the user's own directory, where others work at the same time.

Rule 1: what a call did is what it planned (``CallEffects``), and nothing else. Its commit has
that; what others did meanwhile is found afterwards, and is an entry of its own.
Rule 2: a rollback takes back what the call did, path by path, where our bytes still are. What
somebody else made of a path since stays, and is an entry of its own, too.
Rule 3: moving to another state is all or nothing: a path that somebody changed is a
``FileChangedError``, and what was done until then is taken back.
Rule 4: moving to another state brings a git repository only as it was in an earlier state of this
history. Calls make none, so such a one is the user's; a mixture of states could be a call's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from wink_workspace.errors import (
    DirectoryExpectedError,
    FileMissingError,
    FilesystemError,
    GitRepositoryError,
    LedgerError,
    ReadOnlyError,
    SnapshotError,
)
from wink_workspace.filesystem import FileChange, WorkspacePath
from wink_workspace.filesystem.changes import ChangeTracker
from wink_workspace.filesystem.disk.tree import DiskEntry
from wink_workspace.ledger import (
    DiskView,
    Effect,
    LedgerView,
    ObjectStore,
    TreeChange,
    TreeEntry,
    diff,
    enclosing_repository,
    entry_at,
    file_changes,
    found_of,
    repositories_in,
    tree_diff,
)
from wink_workspace.workspace.known_modes import KnownModes
from wink_workspace.workspace.tree_history import Discarding, FilesToken, TreeHistory

from .call_effects import CallEffects
from .moving import Mover
from .own_git import OwnGit
from .tree import InPlaceTree

__all__ = ["InPlaceHistory", "PresentState"]

_log = logging.getLogger(__name__)

_ATTEMPTS = 3


class PresentState(TreeHistory):
    """The tree of what is in the directory now, while others change it.

    What vanishes while it is looked at is not there, and what cannot be read is nobody's
    business.

    Args:
        tree: The directory.
        tracker: Knows what moved in it.
        store: Where contents and trees are kept.
        root: As of ``TreeHistory``.
        modes: Is told of the mode of everything that is looked at.
    """

    def __init__(
        self,
        tree: InPlaceTree,
        tracker: ChangeTracker,
        store: ObjectStore,
        *,
        root: str,
        modes: KnownModes,
    ) -> None:
        super().__init__(tree, tracker, store, root=root)
        self.modes = modes

    def snapshot(self) -> FilesToken:
        """As ``TreeHistory.snapshot``."""
        token = super().snapshot()
        self.modes.save()
        return token

    def _kept(self, entry: DiskEntry) -> TreeEntry | None:
        for n_left in reversed(range(_ATTEMPTS)):
            try:
                kept = super()._kept(entry)
            except (FileMissingError, DirectoryExpectedError, ReadOnlyError):
                return None
            except LedgerError:  # it may have changed while it was read
                if not n_left:
                    raise
            else:
                if kept is not None:
                    self.modes.saw(entry.path, entry.mode, kept)
                return kept
        return None

    def _below(self, prefix: WorkspacePath) -> dict[WorkspacePath, TreeEntry | None]:
        try:
            return super()._below(prefix)
        except (FileMissingError, DirectoryExpectedError, ReadOnlyError):
            return {}


@dataclass(frozen=True, slots=True, eq=False)
class _Token:
    """A state: its tree, and how many effects of which call there were, with the last of them."""

    history: InPlaceHistory
    root: str
    epoch: int
    position: int
    last: Effect | None

    def is_at(self, root: str, effects: CallEffects) -> bool:
        """Whether it is the present state."""
        return (self.root, self.epoch, self.position) == (
            root,
            effects.epoch,
            effects.position,
        ) and self.last is effects.last


class InPlaceHistory:
    """Implements ``FilesHistory`` for the user's own directory.

    Args:
        tree: The directory.
        present: Tells what is in it.
        effects: What the call under way did.
        store: Where contents are kept.
        git: What belongs to the user's git.
        earlier: Gives the roots of the earlier states of the directory, the newest first.
    """

    def __init__(
        self,
        tree: InPlaceTree,
        present: PresentState,
        effects: CallEffects,
        store: ObjectStore,
        git: OwnGit,
        *,
        earlier: Callable[[], Iterable[str]],
    ) -> None:
        self.discarding: Discarding | None = None
        self._tree = tree
        self._present = present
        self._effects = effects
        self._store = store
        self._git = git
        self._earlier = earlier
        self._mover = Mover(tree, effects, store, present.modes)
        self._token = _Token(self, effects.base, effects.epoch, 0, None)

    def snapshot(self) -> _Token:
        """The present state, other people's changes included."""
        self._tree.remove_leftovers()
        for place in self._git.refresh():
            if self._tree.tracker is not None:
                self._tree.tracker.note(WorkspacePath(place), below=True)
        root, effects = self._present.snapshot().root, self._effects
        if not self._token.is_at(root, effects):
            self._token = _Token(self, root, effects.epoch, effects.position, effects.last)
        return self._token

    def restore(self, token: object) -> None:
        """Take back what was done since *token*; see rules 2 and 3.

        Raises:
            SnapshotError: If the token is not of this history; nothing changed.
            FileChangedError: If the token is older than the last call and somebody changed a
                path that would have to; nothing changed.
            GitRepositoryError: If it would bring a git repository of no earlier state; likewise.
            FilesystemError: If a path cannot be put back; the others were.
        """
        wanted = self._own(token)
        with self._tree.in_one_go():
            self._restore(wanted)

    def _restore(self, wanted: _Token) -> None:
        effects = self._effects
        if wanted.epoch != effects.epoch or not effects.is_ahead_of(wanted.position, wanted.last):
            self._go_to(wanted.root)
            return
        self._tell_discarding()
        left = self._mover.take_back(wanted.position)
        self._token = wanted
        if left:
            _log.warning("Left as somebody else changed it: %s", ", ".join(map(str, left)))

    def go_to(self, root: str, *, kept: str) -> None:
        """Make the directory what a tree has; raises as ``restore``."""
        del kept  # what is replaced is part of the history
        with self._tree.in_one_go():
            self._go_to(root)

    def _go_to(self, root: str) -> None:
        self._check_repositories(list(diff(self._store, self._effects.root(), root)), root)
        self._mover.go_to(root)

    def _check_repositories(self, steps: Sequence[TreeChange], root: str) -> None:
        """Rule 4."""
        changes = {step.path: found_of(self._store, step.after) for step in steps}
        for place in sorted(set(repositories_in(DiskView(self._tree), changes).values())):
            wanted = entry_at(self._store, root, place)
            if wanted is not None and not self._was_repository(place, wanted, root):
                raise GitRepositoryError(
                    f"git would take {place} for a repository, which is in no earlier state as it"
                    " would be then, and a repository can make git run programs",
                    hint="Go back to a whole entry, or leave out this path.",
                )

    def _was_repository(self, place: WorkspacePath, wanted: TreeEntry, root: str) -> bool:
        """Whether it is one by itself, and an earlier state has the same.

        What only a ``commondir`` makes one may have been a call's ordinary files before.
        """
        is_one = enclosing_repository(LedgerView(self._store, root), place) is not None
        return is_one and any(
            entry_at(self._store, earlier, place) == wanted for earlier in self._earlier()
        )

    def accept(self) -> None:
        """Begin anew with the state of the last snapshot."""
        self._effects.begin(self._token.root)
        for path in self._tree.leftovers:
            self._effects.begin_file(path)

    def reuse_look(self, allowed: bool, /) -> None:
        """Nothing: in the user's own directory each snapshot looks."""

    def after_call(self) -> str:
        """What was there before the call, and what it did."""
        return self._effects.root()

    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        """The paths that differ between two tokens, in path order, with their contents."""
        now = self.snapshot() if after is None else self._own(after)
        changed = diff(self._store, self._own(before).root, now.root)
        return tuple(file_changes(self._store, changed))

    def diff(self, before: object, after: object | None = None) -> str:
        """The same as a git-style diff, in which a path that is too large has one line."""
        now = self.snapshot() if after is None else self._own(after)
        changed = diff(self._store, self._own(before).root, now.root)
        return tree_diff(self._store, changed).text()

    # After a crash

    def put_back(self, root: str) -> str:
        """Undo what the journal says of a dead process's call, where our bytes still are."""
        self._keep_present(root)
        changed, left = self._mover.put_back(root)
        message = f"what it did to files was undone ({len(changed - set(left))} paths)"
        if left:
            message += f"; left as somebody else changed them: {', '.join(map(str, left))}"
        return message

    def _keep_present(self, root: str) -> None:
        try:
            found = self.snapshot().root
        except (LedgerError, FilesystemError) as error:
            _log.warning("What the interrupted call left cannot be kept: %s", error)
            return
        if self.discarding is not None and found != root:
            self.discarding.keep(found, "interrupted")

    def tidy(self, root: str) -> None:
        """Remove unfinished files; nothing is undone."""
        self._mover.tidy(root)

    def _own(self, token: object) -> _Token:
        if not isinstance(token, _Token) or token.history is not self:
            raise SnapshotError("the files were asked for a snapshot that they did not make")
        return token

    def _tell_discarding(self) -> None:
        """Have what the call did kept among what was thrown away, if that can be done."""
        if self.discarding is not None and self._effects.position:
            self.discarding.keep(self._effects.root(), "rolled back")
