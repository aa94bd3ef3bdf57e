"""Former states of the user's own directory, which other programs change at the same time.

Rule 1: the effects of a call are those that it planned (``CallEffects``). Its commit has these;
other changes of that time are found afterwards, and become an entry of their own.
Rule 2: a rollback undoes the effects of the call, path by path, where our bytes still are. A path
that another program changed since stays, and becomes part of an entry of its own, too.
Rule 3: moving to another state is all or nothing. A path that another program changed raises
``FileChangedError``, and the steps until then are undone.
Rule 4: moving to another state writes a git repository only as an earlier state of this history
had it. Calls do not create repositories, so that one is the user's. A mixture of states could
contain one that a call prepared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from wink_workspace.errors import (
    DirectoryExpectedError,
    FileMissingError,
    FilesystemError,
    GitRepositoryError,
    LedgerError,
    ReadOnlyError,
    SnapshotError,
)
from wink_workspace.filesystem import FileChange, FileKind, WorkspacePath
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
from wink_workspace.workspace.files.discard_records import Discards
from wink_workspace.workspace.files.tree_history import FilesToken, TreeHistory
from wink_workspace.workspace.place.mode_store import ModeStore

from .call_effects import CallEffects
from .guarded_checkout import Checkout
from .in_place_tree import InPlaceTree
from .private_paths import PrivatePaths
from .user_repository import UserRepository

_log = logging.getLogger(__name__)

_ATTEMPTS = 3


class PresentState(TreeHistory):
    """The tree of what is in the directory now, while other programs change it.

    A path that disappears during the scan counts as missing. An unreadable path is skipped.

    Args:
        tree: The directory.
        tracker: Knows what may have changed in it.
        store: The store of contents and trees.
        root: As for ``TreeHistory``.
        modes: Gets the mode of every path that is read.
    """

    def __init__(
        self,
        tree: InPlaceTree,
        tracker: ChangeTracker,
        store: ObjectStore,
        *,
        root: str,
        modes: ModeStore,
    ) -> None:
        super().__init__(tree, tracker, store, root=root)
        self.modes = modes

    def snapshot(self) -> FilesToken:
        """As ``TreeHistory.snapshot``."""
        token = super().snapshot()
        self.modes.save()
        return token

    def _stored_entry(self, entry: DiskEntry) -> TreeEntry | None:
        for n_left in reversed(range(_ATTEMPTS)):
            try:
                kept = super()._stored_entry(entry)
            except (FileMissingError, DirectoryExpectedError, ReadOnlyError):
                return None
            except LedgerError:  # it may have changed while it was read
                if not n_left:
                    raise
            else:
                if kept is not None:
                    self.modes.observe(entry.path, entry.mode, kept)
                return kept
        return None

    def _walk(self, top: WorkspacePath) -> Iterator[DiskEntry]:
        try:
            yield from [*super()._walk(top)]
        except (FileMissingError, DirectoryExpectedError, ReadOnlyError):
            return

    def _write_many(self, tops: Sequence[WorkspacePath], paths: Sequence[WorkspacePath]) -> str:
        """Read each path alone, as other programs may be changing it, and keep its mode."""
        return self._write_few(tops, chain.from_iterable(map(self._walk, tops)), paths)


@dataclass(frozen=True, slots=True, eq=False)
class _Token:
    """A state: its tree, the call (``epoch``), its number of effects and the last of them."""

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
        present: Reads what is in it.
        effects: The effects of the running call.
        store: The store of contents.
        git: The user's repository.
        earlier: Returns the roots of earlier states of the directory, newest first.
        private: Splits off what the history does not name.
    """

    def __init__(
        self,
        tree: InPlaceTree,
        present: PresentState,
        effects: CallEffects,
        store: ObjectStore,
        git: UserRepository,
        *,
        earlier: Callable[[], Iterable[str]],
        private: PrivatePaths | None = None,
    ) -> None:
        self.discard_recorder: Discards | None = None
        self._tree = tree
        self._present = present
        self._effects = effects
        self._store = store
        self._git = git
        self._earlier = earlier
        self._private = private
        self._checkout = Checkout(tree, effects, store, present.modes)
        self._token = _Token(self, effects.base, effects.epoch, 0, None)

    def snapshot(self) -> _Token:
        """The present state, including changes of other programs."""
        self._tree.remove_leftovers()
        for directory in self._git.refresh():
            if self._tree.tracker is not None:
                self._tree.tracker.note(WorkspacePath(directory), below=True)
        root, effects = self._present.snapshot().root, self._effects
        if self._private is not None:
            root = self._private.public_root(root, self._keep_private)
        if not self._token.is_at(root, effects):
            self._token = _Token(self, root, effects.epoch, effects.position, effects.last)
        return self._token

    def _keep_private(self, old: Mapping[WorkspacePath, TreeEntry | None]) -> None:
        if self.discard_recorder is not None:
            self.discard_recorder.keep_paths(old, "changed")

    def attribute(self, committed: str, chosen: Callable[[WorkspacePath], bool]) -> None:
        """Let the call that begins now have the *chosen* changes since the tree *committed*.

        They happened already, so neither a rollback nor a recovery undoes them.
        """
        self._effects.begin(committed)
        changes = diff(self._store, committed, self.snapshot().root)
        self._effects.observe(
            Effect(each.path, each.before, each.after) for each in changes if chosen(each.path)
        )

    def put_private(
        self, changes: Mapping[WorkspacePath, TreeEntry | None]
    ) -> frozenset[WorkspacePath]:
        """Write those of *changes* that are private files; their paths."""
        private = self._private
        if private is None:
            return frozenset()
        found = {path: each for path, each in changes.items() if private.holds(path, each)}
        with self._tree.without_absorbing():
            for path, entry in found.items():
                present = self._tree.content(path)  # the last snapshot has it, so it is kept
                self._effects.observe([Effect(path, None, present)])
                if entry is None:
                    self._tree.remove(path)
                elif entry.kind is FileKind.DIRECTORY:
                    self._tree.put_directory(path)
                elif entry.kind is FileKind.SYMLINK:
                    target = self._store.read(entry.id).decode("utf-8", "surrogateescape")
                    self._tree.put_symlink(path, target)
                else:
                    content = self._store.chunks(entry.id)
                    self._tree.put_file(path, content, executable=entry.executable)
        self._effects.begin(self.snapshot().root)
        return frozenset(found)

    def reread(self) -> None:
        """Let the next snapshot read all files: the ledger lost objects of the present one."""
        self._present.reread()

    def restore(self, token: object) -> None:
        """Undo the effects since *token*; see rules 2 and 3.

        Raises:
            SnapshotError: If the token is not of this history; nothing changed.
            FileChangedError: If the token is older than the last call and another program changed
                a path that would have to change; nothing changed.
            GitRepositoryError: If it would write a git repository of no earlier state; likewise.
            FilesystemError: If a path cannot be restored; the others were.
        """
        wanted = self._checked_token(token)
        with self._tree.without_absorbing():
            self._restore(wanted)

    def _restore(self, wanted: _Token) -> None:
        effects = self._effects
        if wanted.epoch != effects.epoch or not effects.extends(wanted.position, wanted.last):
            self._check_out(wanted.root)
            return
        self._keep_discard()
        left = self._checkout.take_back(wanted.position)
        self._token = wanted
        if left:
            _log.warning("changed by another program, so not undone: %s", ", ".join(map(str, left)))

    def check_out(self, root: str, *, kept: str) -> None:
        """Make the directory equal to a tree; raises as ``restore``."""
        del kept  # what is replaced is part of the history
        with self._tree.without_absorbing():
            self._check_out(root)

    def _check_out(self, root: str) -> None:
        self._check_repositories(list(diff(self._store, self._effects.root(), root)), root)
        self._checkout.check_out(root)

    def _check_repositories(self, steps: Sequence[TreeChange], root: str) -> None:
        """Rule 4."""
        changes = {step.path: found_of(self._store, step.after) for step in steps}
        for directory in sorted(set(repositories_in(DiskView(self._tree), changes).values())):
            wanted = entry_at(self._store, root, directory)
            if wanted is not None and not self._was_repository(directory, wanted, root):
                raise GitRepositoryError(
                    f"git would take {directory} for a repository that no earlier state had;"
                    " a repository can make git run programs",
                    hint="Restore a whole entry, or leave out this path.",
                )

    def _was_repository(self, directory: WorkspacePath, wanted: TreeEntry, root: str) -> bool:
        """Whether it is a repository by itself, and an earlier state has the same.

        One that needs a ``commondir`` may have been ordinary files of a call before.
        """
        is_one = enclosing_repository(LedgerView(self._store, root), directory) is not None
        return is_one and any(
            entry_at(self._store, earlier, directory) == wanted for earlier in self._earlier()
        )

    def accept(self) -> None:
        """Continue from the state of the last snapshot."""
        self._effects.begin(self._token.root)
        for path in self._tree.leftovers:
            self._effects.begin_file(path)

    def reuse_snapshot(self, allowed: bool, /) -> None:
        """Do nothing: in the user's own directory each snapshot scans."""

    def root_after_call(self) -> str:
        """The state before the call with its effects."""
        return self._effects.root()

    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        """The paths that differ between two tokens, in path order, with their contents."""
        now = self.snapshot() if after is None else self._checked_token(after)
        changed = diff(self._store, self._checked_token(before).root, now.root)
        return tuple(file_changes(self._store, changed))

    def diff(self, before: object, after: object | None = None) -> str:
        """The same as a git-style diff; a path that is too large has one line."""
        now = self.snapshot() if after is None else self._checked_token(after)
        changed = diff(self._store, self._checked_token(before).root, now.root)
        return tree_diff(self._store, changed).text()

    # After a crash

    def undo_interrupted(self, root: str) -> str:
        """Undo the effects of a dead process's call, where our bytes still are."""
        self._keep_present(root)
        changed, left = self._checkout.undo_interrupted(root)
        message = f"what it did to files was undone ({len(changed - set(left))} paths)"
        if left:
            message += f"; changed by another program, so not undone: {', '.join(map(str, left))}"
        return message

    def _keep_present(self, root: str) -> None:
        try:
            found = self.snapshot().root
        except (LedgerError, FilesystemError) as error:
            _log.warning("cannot keep what the interrupted call left: %s", error)
            return
        if self.discard_recorder is not None and found != root:
            self.discard_recorder.keep(found, "interrupted")

    def remove_unfinished(self, root: str) -> None:
        """Remove unfinished files; nothing is undone."""
        self._checkout.remove_unfinished(root)

    def _checked_token(self, token: object) -> _Token:
        if not isinstance(token, _Token) or token.history is not self:
            raise SnapshotError("unknown snapshot token: it belongs to another filesystem")
        return token

    def _keep_discard(self) -> None:
        """Keep the state after the call as a discard, if possible."""
        if self.discard_recorder is not None and self._effects.position:
            self.discard_recorder.keep(self._effects.root(), "rolled back")
