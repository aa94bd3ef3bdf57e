"""Moving a directory that others change, too, from one tree to another: all of it or nothing.

``CallEffects`` says what the directory holds as far as we know, and notes what becomes of it.
A path that somebody changed stops the move and is left alone; what was done until then is taken
back, path by path, where our bytes still are.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from wink_workspace.errors import (
    DirectoryExpectedError,
    DirectoryNotEmptyError,
    FileChangedError,
    FileMissingError,
    FilesystemError,
    PathExistsError,
    WinkError,
)
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.ledger import Effect, ObjectStore, TreeChange, TreeEntry, diff
from wink_workspace.wording import counted
from wink_workspace.workspace.contents import same_content
from wink_workspace.workspace.known_modes import KnownModes

from .call_effects import CallEffects
from .tree import InPlaceTree

__all__ = ["Mover"]

_log = logging.getLogger(__name__)

_SOMEBODY_ELSES = (
    DirectoryExpectedError,
    DirectoryNotEmptyError,
    FileChangedError,
    FileMissingError,
    PathExistsError,
)
"""What acting on a path raises if somebody else has just changed it, or what is above it."""


class Mover:
    """Moves a directory.

    Args:
        tree: The directory.
        effects: What it holds, and what was done to it.
        store: Where contents are kept.
        modes: The permissions with which a path may come back.
    """

    def __init__(
        self, tree: InPlaceTree, effects: CallEffects, store: ObjectStore, modes: KnownModes
    ) -> None:
        self._tree = tree
        self._effects = effects
        self._store = store
        self._modes = modes

    def go_to(self, root: str) -> None:
        """Make the directory what a tree has, or leave it as it was.

        Raises:
            FileChangedError: If somebody changed one of the paths; that one is left alone.
            FilesystemError: If a path cannot be written, or not be put back.
        """
        position = self._effects.position
        try:
            self.make(root)
        except BaseException:
            self.take_back(position)
            raise

    def make(self, root: str) -> None:
        """As ``go_to``; what was done before a failure stays."""
        with _as_conflicts():
            self._make(list(diff(self._store, self._effects.root(), root)))

    def take_back(self, position: int) -> list[WorkspacePath]:
        """Take back the effects from *position* on; the paths that somebody else changed since.

        Raises:
            FilesystemError: If a path cannot be put back. The others were, and asking once more
                tries it again.
        """
        self._tree.remove_leftovers()
        undoing = _Undoing(self._tree, self._store, self._effects.since(position))
        undoing.run()
        if undoing.failures:
            shown = "; ".join(str(error) for error in undoing.failures.values())
            raise FilesystemError(
                f"{counted(len(undoing.failures), 'path')} could not be put back: {shown}",
                hint="Mend what the system complains of, then recover the workspace.",
            ) from next(iter(undoing.failures.values()))
        self._effects.forget_since(position)
        return sorted(undoing.left)

    # After a crash

    def put_back(self, root: str) -> tuple[set[WorkspacePath], list[WorkspacePath]]:
        """Undo what the journal says of a dead process, which began with the tree *root*.

        The paths that it had changed, and those that were left as somebody else changed them.
        """
        self._effects.base = root
        self._finish(self._effects.recall(), undo=True)
        changed = {effect.path for effect in self._effects.since(0)}
        return changed, self.take_back(0)

    def tidy(self, root: str) -> None:
        """Remove the unfinished files of a dead process that had come to *root*."""
        self._effects.base = root
        self._finish(self._effects.recall(), undo=False)
        self._effects.begin(root)

    def _finish(self, unfinished: Iterable[WorkspacePath], *, undo: bool) -> None:
        reasons = {
            effect.path.parent / effect.temporary: effect
            for effect in self._effects.since(0)
            if effect.temporary
        }
        for path in unfinished:
            try:
                self._tree.finish(path, reasons.get(path), undo=undo)
            except FilesystemError as error:
                _log.warning("An unfinished file of a dead process stays: %s", error)

    # Steps

    def _make(self, steps: Sequence[TreeChange]) -> None:
        for step in reversed(steps):
            if step.before is not None and not _can_become(step.before, step.after):
                self._tree.delete(step.path, recursive=False)
        for step in steps:
            if step.after is not None:
                self._make_entry(step.path, step.after)

    def _make_entry(self, path: WorkspacePath, entry: TreeEntry) -> None:
        now = self._tree.content(path)
        match entry.kind:
            case FileKind.DIRECTORY:
                self._tree.make_directory(path)
                if (mode := self._modes.of(path, entry)) is not None:
                    self._tree.set_permissions(path, mode)
            case FileKind.SYMLINK:
                self._tree.make_symlink(path, _target(self._store, entry))
            case FileKind.FILE:
                if now is None or now.id != entry.id:
                    self._tree.write_file(
                        path,
                        self._store.chunks(entry.id),
                        executable=entry.executable if now is None else None,
                        permissions=self._permissions(path, entry),
                    )
                if now is not None and now.executable != entry.executable:
                    self._tree.set_executable(path, executable=entry.executable)

    def _permissions(self, path: WorkspacePath, entry: TreeEntry) -> int | None:
        """No more than what is there gives, nor than what is to come had given."""
        mode, there = self._modes.of(path, entry), self._tree.entry(path)
        return mode if mode is None or there is None else mode & there.mode


class _Undoing:
    """Takes back effects, path by path.

    Attributes:
        left: The paths that somebody else changed.
        failures: The paths that could not be put back, and why.
    """

    def __init__(self, tree: InPlaceTree, store: ObjectStore, effects: Sequence[Effect]) -> None:
        self.left: set[WorkspacePath] = set()
        self.failures: dict[WorkspacePath, WinkError] = {}
        self._tree = tree
        self._store = store
        self._first: dict[WorkspacePath, Effect] = {}
        self._ours: dict[WorkspacePath, list[TreeEntry | None]] = {}
        for effect in effects:
            self._first.setdefault(effect.path, effect)
            self._ours.setdefault(effect.path, []).append(effect.after)

    def run(self) -> None:
        """Remove, then make, all that can be."""
        for path in sorted(self._first, reverse=True):
            with self._collecting(path):
                self._clear(path, self._first[path].before)
        for path in sorted(self._first.keys() - self.left - self.failures.keys()):
            with self._collecting(path):
                self._bring_back(path, self._first[path])

    def _clear(self, path: WorkspacePath, wanted: TreeEntry | None) -> None:
        """Remove what is ours and cannot become what was there."""
        now = self._tree.content(path)
        if now is None or same_content(now, wanted):
            return
        if not any(same_content(now, state) for state in self._ours[path]):
            self.left.add(path)
        elif not _can_become(now, wanted):
            self._tree.delete(path, recursive=False)
            self._ours[path].append(None)

    def _bring_back(self, path: WorkspacePath, effect: Effect) -> None:
        wanted, now = effect.before, self._tree.content(path)
        if wanted is None:
            return
        if now is None and None not in self._ours[path]:
            self.left.add(path)  # somebody else removed what we had made of it
            return
        if not same_content(now, wanted):
            self._make(path, wanted, effect.mode)
        there = self._tree.entry(path)
        if there is not None and effect.mode not in (None, there.mode):
            self._tree.set_permissions(path, effect.mode or 0)

    def _make(self, path: WorkspacePath, wanted: TreeEntry, mode: int | None) -> None:
        match wanted.kind:
            case FileKind.DIRECTORY:
                self._tree.make_directory(path)
            case FileKind.SYMLINK:
                self._tree.make_symlink(path, _target(self._store, wanted))
            case FileKind.FILE:
                content = self._store.chunks(wanted.id)
                self._tree.write_file(path, content, executable=wanted.executable, permissions=mode)

    @contextmanager
    def _collecting(self, path: WorkspacePath) -> Generator[None]:
        try:
            yield
        except _SOMEBODY_ELSES:
            self.left.add(path)
        except WinkError as error:
            self.failures[path] = error


def _can_become(now: TreeEntry, wanted: TreeEntry | None) -> bool:
    """Whether the one is replaced by the other, rather than removed before."""
    return wanted is not None and now.kind is wanted.kind and now.kind is not FileKind.SYMLINK


def _target(store: ObjectStore, link: TreeEntry) -> str:
    return store.read(link.id).decode("utf-8", "surrogateescape")


@contextmanager
def _as_conflicts() -> Generator[None]:
    """Tell what somebody else put in the way as what it is."""
    try:
        yield
    except FileChangedError:
        raise
    except _SOMEBODY_ELSES as error:
        raise FileChangedError(f"{error.message}: somebody else changed it meanwhile") from error
