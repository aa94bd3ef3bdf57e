"""Moving a directory that other programs change, too, from one tree to another: all or nothing.

``CallEffects`` knows the state of the directory, and records each change. A path that another
program changed stops the move and keeps its content. The changes until then are undone, path by
path, where our bytes still are. The contents of files are on the device before the first name
changes, and the names before the end.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from wink_workspace.counts import counted
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
from wink_workspace.workspace.files.disk_entries import same_content
from wink_workspace.workspace.place.mode_store import ModeStore

from .call_effects import CallEffects
from .in_place_tree import InPlaceTree

_log = logging.getLogger(__name__)

_CHANGED_BY_OTHERS = (
    DirectoryExpectedError,
    DirectoryNotEmptyError,
    FileChangedError,
    FileMissingError,
    PathExistsError,
)
"""Raised for a path if another program has just changed it, or a directory above it."""


class Checkout:
    """Moves a directory from one tree to another.

    Args:
        tree: The directory.
        effects: Its known state, and the record of changes.
        store: The store of contents.
        modes: The permissions for restored paths.
    """

    def __init__(
        self, tree: InPlaceTree, effects: CallEffects, store: ObjectStore, modes: ModeStore
    ) -> None:
        self._tree = tree
        self._effects = effects
        self._store = store
        self._modes = modes

    def check_out(self, root: str) -> None:
        """Make the directory equal to a tree, or leave it as it was.

        Raises:
            FileChangedError: If another program changed one of the paths; that one is not touched.
            FilesystemError: If a path cannot be written, or not be restored.
        """
        position = self._effects.position
        try:
            self.make(root)
        except BaseException:
            self.take_back(position)
            raise

    def make(self, root: str) -> None:
        """As ``check_out``, but the changes before a failure stay."""
        with _raise_file_changed(), self._tree.flushing_once():
            self._make(list(diff(self._store, self._effects.root(), root)))

    def take_back(self, position: int) -> list[WorkspacePath]:
        """Undo the effects from *position* on; the paths that another program changed since.

        Raises:
            FilesystemError: If a path cannot be restored. The others were, and another call tries
                it again.
        """
        self._tree.remove_leftovers()
        undoing = _Undo(self._tree, self._store, self._effects.since(position))
        with self._tree.flushing_once():
            undoing.run()
        if undoing.failures:
            shown = "; ".join(str(error) for error in undoing.failures.values())
            raise FilesystemError(
                f"{counted(len(undoing.failures), 'path')} could not be restored: {shown}",
                hint="Fix what the system reports, then close the workspace and open it again.",
            ) from next(iter(undoing.failures.values()))
        self._effects.forget_since(position)
        return sorted(undoing.left)

    # After a crash

    def undo_interrupted(self, root: str) -> tuple[set[WorkspacePath], list[WorkspacePath]]:
        """Undo the journal of a dead process, which began with the tree *root*.

        Returns the paths that it changed, and those among them that another program changed since.
        """
        self._effects.base = root
        self._finish(self._effects.load_journal(), undo=True)
        changed = {effect.path for effect in self._effects.since(0)}
        return changed, self.take_back(0)

    def remove_unfinished(self, root: str) -> None:
        """Remove the unfinished files of a dead process; the directory holds *root*."""
        self._effects.base = root
        self._finish(self._effects.load_journal(), undo=False)
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
                _log.warning("cannot remove an unfinished file of a dead process: %s", error)

    # Steps

    def _make(self, steps: Sequence[TreeChange]) -> None:
        made = set[WorkspacePath]()
        files = list[tuple[WorkspacePath, str]]()
        # Where the system folds case, a new name may be that of what is deleted first
        gone = {
            str(step.path).casefold()
            for step in steps
            if step.before is not None and not _can_become(step.before, step.after)
        }
        for step in steps:
            if step.after is None or not (step.before is None or step.before.kind is FileKind.FILE):
                continue
            if any(str(each).casefold() in gone for each in (*step.path.ancestors(), step.path)):
                continue
            if step.after.kind is FileKind.FILE:
                if step.before is None or step.before.id != step.after.id:
                    files.append((step.path, step.after.id))
            elif step.before is None and self._tree.has_parent(step.path):
                self._make_entry(step.path, step.after)
                made.add(step.path)
        self._tree.stage(files)
        for step in reversed(steps):
            if step.before is not None and not _can_become(step.before, step.after):
                self._tree.delete(step.path, recursive=False)
        for step in steps:
            if step.after is not None and step.path not in made:
                self._make_entry(step.path, step.after)

    def _make_entry(self, path: WorkspacePath, entry: TreeEntry) -> None:
        now = self._tree.content(path)
        match entry.kind:
            case FileKind.DIRECTORY:
                self._tree.make_directory(path)
                if (mode := self._modes.mode_for(path, entry)) is not None:
                    self._tree.set_permissions(path, mode)
            case FileKind.SYMLINK:
                self._tree.make_symlink(path, _target(self._store, entry))
            case FileKind.FILE:
                if now is None or now.id != entry.id:
                    self._tree.write_file(
                        path,
                        self._tree.content_to_write(path, entry.id),
                        executable=entry.executable if now is None else None,
                        permissions=self._permissions(path, entry),
                    )
                if now is not None and now.executable != entry.executable:
                    self._tree.set_executable(path, executable=entry.executable)

    def _permissions(self, path: WorkspacePath, entry: TreeEntry) -> int | None:
        """Permissions as narrow as those of the present file and of the wanted one."""
        mode, there = self._modes.mode_for(path, entry), self._tree.entry(path)
        return mode if mode is None or there is None else mode & there.mode


class _Undo:
    """Undoes effects, path by path.

    Attributes:
        left: The paths that another program changed.
        failures: The paths that could not be restored, and why.
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
        """Remove, then write, everything possible."""
        for path in sorted(self._first, reverse=True):
            with self._collect_errors(path):
                self._clear(path, self._first[path].before)
        wanted = {path: effect.before for path, effect in self._first.items()}
        directories = {
            path for path, entry in wanted.items() if entry and entry.kind is FileKind.DIRECTORY
        }
        for paths in (directories, wanted.keys() - directories):
            found = sorted(paths - self.left - self.failures.keys())
            with suppress(WinkError):  # what is not staged is written later
                self._tree.stage(self._differing(found))
            for path in found:
                with self._collect_errors(path):
                    self._restore(path, self._first[path])

    def _differing(self, paths: Iterable[WorkspacePath]) -> Iterator[tuple[WorkspacePath, str]]:
        """The files that have another content now, each with the id of the former one."""
        for path in paths:
            wanted, now = self._first[path].before, self._tree.content(path)
            can_be_written = now is None or now.kind is FileKind.FILE
            if wanted and wanted.kind is FileKind.FILE and can_be_written and now != wanted:
                yield path, wanted.id

    def _clear(self, path: WorkspacePath, wanted: TreeEntry | None) -> None:
        """Remove what is ours and cannot be replaced by the former state."""
        now = self._tree.content(path)
        if now is None or same_content(now, wanted):
            return
        if not any(same_content(now, state) for state in self._ours[path]):
            self.left.add(path)
        elif not _can_become(now, wanted):
            self._tree.delete(path, recursive=False)
            self._ours[path].append(None)

    def _restore(self, path: WorkspacePath, effect: Effect) -> None:
        wanted, now = effect.before, self._tree.content(path)
        if wanted is None:
            return
        if now is None and None not in self._ours[path]:
            self.left.add(path)  # another program removed it
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
                content = self._tree.content_to_write(path, wanted.id)
                self._tree.write_file(path, content, executable=wanted.executable, permissions=mode)

    @contextmanager
    def _collect_errors(self, path: WorkspacePath) -> Generator[None]:
        try:
            yield
        except _CHANGED_BY_OTHERS:
            self.left.add(path)
        except WinkError as error:
            self.failures[path] = error


def _can_become(now: TreeEntry, wanted: TreeEntry | None) -> bool:
    """Whether *now* is replaced by *wanted*, and not removed first."""
    return wanted is not None and now.kind is wanted.kind and now.kind is not FileKind.SYMLINK


def _target(store: ObjectStore, link: TreeEntry) -> str:
    return store.read(link.id).decode("utf-8", "surrogateescape")


@contextmanager
def _raise_file_changed() -> Generator[None]:
    """Raise ``FileChangedError`` for the errors that changes of other programs cause."""
    try:
        yield
    except FileChangedError:
        raise
    except _CHANGED_BY_OTHERS as error:
        raise FileChangedError(f"{error.message}: another program changed it meanwhile") from error
