"""Changing a directory that other programs change, too.

Rule 1: before a path is changed, its content is compared with its known state (``CallEffects``).
Another content raises ``FileChangedError``, and stays.
Rule 2: each change is planned, durably, before it is made; so is the path of an unfinished file.
Rule 3: a file is not replaced but exchanged, or set aside under a temporary name, compared again,
and put back if it differs. So an edit of the last moment is not overwritten.
Rule 4: what could not be restored (pipes, sockets, devices) is not deleted.

Rule 5: a file that another program has open for writing is not replaced or deleted: the program
could still write to it when it has no name.
Rule 6: the content of a file is on the device before it gets its name, and its name before the
change is done. Several changes together wait for the device twice (``stage``, ``flushing_once``).

Limits: rule 5 needs a filesystem with leases, and a file that is ours or the rights of root. On a
filesystem that cannot exchange two names, the second comparison of rule 3 is missing.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import (
    FileChangedError,
    FilesystemError,
    ReadOnlyError,
)
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.changes import ChangeTracker
from wink_workspace.filesystem.disk.descriptors import (
    TEMPORARY_PREFIX,
    change_mode,
    exchange_names,
    is_open_for_writing,
    rename_to_free,
    usual_mode,
    with_executable_bits,
    write_all,
)
from wink_workspace.filesystem.disk.tree import DiskEntry, DiskTree, Unfinished
from wink_workspace.filesystem.model import WriteMode
from wink_workspace.filesystem.os_errors import translate_os_error
from wink_workspace.ledger import (
    SOME_DIRECTORY,
    Effect,
    ObjectStore,
    TreeEntry,
)
from wink_workspace.ledger.store.disk import sync_filesystem
from wink_workspace.processes import OwnProcess
from wink_workspace.workspace.files.disk_entries import (
    UNKNOWN_CONTENT,
    content_of,
    file_id,
    same_content,
)

from .call_effects import CallEffects
from .user_repository import UserRepository

_log = logging.getLogger(__name__)

_Found = tuple[DiskEntry, TreeEntry]


class InPlaceTree(DiskTree):
    """The entries below the user's own directory.

    Args:
        root: The directory.
        effects: Its known state, and the record of changes.
        store: The store of contents.
        git: The user's repository.
        tracker: Is notified of every change made here.
        process: The only process that may change anything; any, if left out.

    Attributes:
        before_change: Called at the beginning of each change.
        leftovers: Temporary files that may exist, with the effect that each belongs to.
    """

    _skips_unreadable = True

    def __init__(
        self,
        root: Path,
        *,
        effects: CallEffects,
        store: ObjectStore,
        git: UserRepository,
        tracker: ChangeTracker | None = None,
        process: OwnProcess | None = None,
    ) -> None:
        super().__init__(root, tracker=tracker, durable=True, hidden=git, process=process)
        self.before_change: Callable[[], None] = lambda: None
        self.leftovers: dict[WorkspacePath, Effect | None] = {}
        self._effects = effects
        self._store = store
        self._git = git
        self._staged: dict[WorkspacePath, str] = {}

    # Looking

    def content(self, path: WorkspacePath) -> TreeEntry | None:
        """The content at *path*, as the ledger would keep it."""
        return content_of(self, self.entry(path))

    def _checked(self, path: WorkspacePath) -> tuple[DiskEntry | None, TreeEntry | None]:
        """The entry and content at *path*; ``FileChangedError`` if it is not the known state."""
        there = self.entry(path)
        found = content_of(self, there)
        if found == UNKNOWN_CONTENT and self._effects.states(path)[-1] is None:
            raise FilesystemError(
                f"{path} is a pipe, a socket or a device, which could not be restored",
                hint="Do not change it, or ask its owner to remove it.",
            )
        if not self._effects.is_ours(path, found):
            raise _changed(path)
        return there, found

    def _checked_below(self, path: WorkspacePath) -> list[_Found]:
        """*path* and everything below it, parents first."""
        there, found = self._checked(path)
        if there is None or found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if there.kind is not FileKind.DIRECTORY:
            return [(there, found)]
        if self._git.holds_some(path.parts):
            raise ReadOnlyError(
                f"{path} holds the user's git repository, so it cannot be moved or removed"
            )
        below: list[_Found] = [(there, found)]
        for entry in self.walk(path):
            _, content = self._checked(entry.path)
            if content is not None:
                below.append((entry, content))
        return below

    # Changing, with the checks of a filesystem

    def write_file(
        self,
        path: WorkspacePath,
        content: Iterable[bytes],
        *,
        mode: WriteMode = "overwrite",
        executable: bool | None = None,
        permissions: int | None = None,
    ) -> None:
        """As ``DiskTree.write_file``."""
        with self._change(path), self._parent(path) as directory:
            there, before = self._checked(path)
            _check_writable(there, mode)
            if permissions is None:
                permissions = _permissions(there, executable)
            staged = self._staged.pop(path, None)
            with Unfinished(self, path, directory, name=staged) as (temporary, file):
                if mode == "append" and there is not None:
                    self._copy(path.name, directory, file)
                for piece in () if staged else content:
                    write_all(file, piece)
                self._copy_owner(file, path.name if there is not None else None, directory)
                os.lseek(file, 0, os.SEEK_SET)
                blob = self._store.write_blob_from(file, like=file_id(before))
                os.fchmod(file, permissions)
                if not staged:
                    os.fsync(file)
                after = TreeEntry(FileKind.FILE, blob, executable=bool(permissions & 0o100))
                effect = Effect(path, before, after, _mode_of(there), temporary)
                with _PlannedEffects(self, [effect]):
                    self._put(effect, directory)
            self._sync_directory(directory)

    def make_directory(self, path: WorkspacePath) -> None:
        """As ``DiskTree.make_directory``."""
        with (
            self._change(path, below=True),
            _PlannedEffects(self, [self._creation(path, SOME_DIRECTORY)]),
        ):
            super().make_directory(path)
            passed(KillPoint.EFFECT_IN_PROGRESS)

    def make_symlink(self, path: WorkspacePath, target: str) -> None:
        """As ``DiskTree.make_symlink``."""
        with self._change(path):
            blob = self._store.write_blob(target.encode("utf-8", "surrogateescape"))
            with _PlannedEffects(self, [self._creation(path, TreeEntry(FileKind.SYMLINK, blob))]):
                super().make_symlink(path, target)
                passed(KillPoint.EFFECT_IN_PROGRESS)

    def set_executable(self, path: WorkspacePath, *, executable: bool) -> None:
        """As ``DiskTree.set_executable``; other hard links to the file keep their mode."""
        with self._change(path):
            there, before = self._checked(path)
            if there is None or before is None or before.kind is not FileKind.FILE:
                super().set_executable(path, executable=executable)  # raises the right error
            elif there.n_links > 1:
                with self.open(path) as file:
                    content = file.read()
                self.write_file(
                    path,
                    (content,),
                    permissions=with_executable_bits(there.mode, executable=executable),
                )
            else:
                after = TreeEntry(FileKind.FILE, before.id, executable=executable)
                with _PlannedEffects(self, [Effect(path, before, after, there.mode)]):
                    super().set_executable(path, executable=executable)
                    passed(KillPoint.EFFECT_IN_PROGRESS)

    def delete(self, path: WorkspacePath, *, recursive: bool) -> None:
        """As ``DiskTree.delete``; a directory is deleted completely or not at all."""
        with self._change(path, below=True):
            entries = self._checked_below(path)
            if len(entries) > 1 and not recursive:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            effects = [self._removal(entry, content) for entry, content in reversed(entries)]
            batch = self.flushing_once() if len(effects) > 1 else nullcontext()
            with batch, _PlannedEffects(self, effects):
                for effect in effects:
                    self._remove(effect)

    def move(self, source: WorkspacePath, destination: WorkspacePath) -> None:
        """As ``DiskTree.move``."""
        if source == destination:
            return
        with (
            self._change(destination, below=True),
            self._change(source, below=True),
            self._parent(source) as old,
            translate_os_error(destination),
            self._parent(destination) as new,
        ):
            moved = self._checked_below(source)
            replaced, before = self._checked(destination)
            aside = self.begin_unfinished(destination) if replaced is not None else ""
            removals = [Effect(at.path, found, None, _mode_of(at)) for at, found in moved]
            additions = [
                Effect(effect.path.moved(source, destination), None, effect.before)
                for effect in removals
            ]
            additions[0] = Effect(
                destination, before, removals[0].before, _mode_of(replaced), aside
            )
            with _PlannedEffects(self, [*removals, *additions]):
                if aside:
                    self._set_aside(additions[0], new)
                try:
                    rename_to_free(source.name, old, destination.name, new)
                except OSError:
                    if aside:
                        rename_to_free(aside, new, destination.name, new)
                    raise
                passed(KillPoint.EFFECT_IN_PROGRESS)
                if aside:
                    self._delete_aside(
                        additions[0],
                        new,
                        lambda: rename_to_free(destination.name, new, source.name, old),
                    )
            self._sync_directory(new)
            self._sync_directory(old)

    # Several changes together

    def stage(self, files: Iterable[tuple[WorkspacePath, str]]) -> None:
        """Write the content of files, each with the id of its blob, under temporary names.

        ``write_file`` uses them, and they are on the device before. Files without a parent are
        left out.
        """
        for path, blob in files:
            if not self.has_parent(path):
                continue
            with self._change(path), self._parent(path) as directory:
                with Unfinished(self, path, directory) as (temporary, file):
                    for piece in self._store.chunks(blob):
                        write_all(file, piece)
                self._staged[path] = temporary
        if self._staged:
            self._flush()

    def content_to_write(self, path: WorkspacePath, blob: str) -> Iterable[bytes]:
        """The content of *blob* for ``write_file``; empty if it is staged already."""
        return () if path in self._staged else self._store.chunks(blob)

    def has_parent(self, path: WorkspacePath) -> bool:
        """Whether the parent of *path* is a directory."""
        parent = self.entry(path.parent)
        return parent is not None and parent.kind is FileKind.DIRECTORY

    @contextmanager
    def flushing_once(self) -> Generator[None]:
        """Wait for the device once, after the block, and not after each change in it."""
        before, self._durable = self._durable, False
        try:
            yield
            if before:
                self._flush()
        finally:
            self._durable = before
            if self._staged:  # an error left them, or they were not needed
                self._staged.clear()
                self.remove_leftovers()

    def _flush(self) -> None:
        """Wait until the directory, the journal and the ledger would survive a loss of power."""
        ledger = self._store.repository.directory
        with translate_os_error(self.root):
            for path in {each.stat().st_dev: each for each in (ledger, self.root)}.values():
                sync_filesystem(path)

    # For rollback and recovery

    def set_permissions(self, path: WorkspacePath, mode: int) -> None:
        """Give a file or a directory of ours its former permissions."""
        with translate_os_error(path), self._changing(path), self._parent(path) as directory:
            change_mode(path.name, directory, lambda _: mode)

    def remove_leftovers(self) -> None:
        """Remove temporary files that an error or Ctrl-C left; failures are tried again later."""
        for path, effect in [*self.leftovers.items()]:
            with suppress(FilesystemError):
                self.finish(path, effect, undo=False)
                del self.leftovers[path]

    def finish(self, path: WorkspacePath, effect: Effect | None, *, undo: bool) -> None:
        """Finish a file that a dead process left unfinished, or set aside for *effect*.

        With *undo*, what was set aside gets its name back. So does, in any case, an edit of
        another program that was set aside unseen.
        """
        found = self.content(path)
        if found is None or not path.name.startswith(TEMPORARY_PREFIX):
            return
        with translate_os_error(path), self._changing(path), self._parent(path) as directory:
            if effect is not None and self._must_return(found, effect, undo=undo):
                with self._changing(effect.path):
                    self._restore_name(effect, path, directory)
            else:
                os.unlink(path.name, dir_fd=directory)

    def _must_return(self, found: TreeEntry, effect: Effect, *, undo: bool) -> bool:
        if same_content(found, effect.after):
            return False
        return undo or not self._effects.is_ours(effect.path, found)

    def _restore_name(self, effect: Effect, path: WorkspacePath, directory: int) -> None:
        there = self.content(effect.path)
        if there is None:
            rename_to_free(path.name, directory, effect.path.name, directory)
        elif same_content(there, effect.after):
            os.replace(path.name, effect.path.name, src_dir_fd=directory, dst_dir_fd=directory)
        else:
            _log.warning("%s is an earlier version of %s, by another program", path, effect.path)

    @contextmanager
    def without_absorbing(self) -> Generator[None]:
        """Commit external edits before the block, and none during it."""
        if self._process is not None:
            self._process.check()
        self.before_change()
        before_change, self.before_change = self.before_change, lambda: None
        try:
            yield
        finally:
            self.before_change = before_change

    # Steps

    def _change(self, path: WorkspacePath, *, below: bool = False) -> _ChangeErrors:
        changing = self._changing(path, below=below)  # refuses hidden paths
        self.before_change()
        return _ChangeErrors(path, changing)

    def begin_unfinished(self, beside: WorkspacePath) -> str:
        """As ``DiskTree.begin_unfinished``, recorded so that it is removed also after a crash."""
        name = super().begin_unfinished(beside)
        self.leftovers[beside.parent / name] = None
        self._effects.begin_file(beside.parent / name)
        return name

    def drop_unfinished(self, name: str, beside: WorkspacePath, directory: int) -> None:
        """As ``DiskTree.drop_unfinished``; a failure is tried again later."""
        try:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)
        except OSError:
            return  # tried again later
        self.leftovers.pop(beside.parent / name, None)

    def _creation(self, path: WorkspacePath, after: TreeEntry) -> Effect:
        _, before = self._checked(path)
        if before is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        return Effect(path, None, after)

    def _removal(self, entry: DiskEntry, content: TreeEntry) -> Effect:
        is_directory = entry.kind is FileKind.DIRECTORY
        aside = "" if is_directory else self.begin_unfinished(entry.path)
        return Effect(entry.path, content, None, _mode_of(entry), aside)

    def _put(self, effect: Effect, directory: int) -> None:
        """Give the finished file its name."""
        name, temporary = effect.path.name, effect.temporary
        try:
            if effect.before is None:
                rename_to_free(temporary, directory, name, directory)
                passed(KillPoint.EFFECT_IN_PROGRESS)
                return
            if not exchange_names(temporary, name, directory):
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
                return
        except (FileExistsError, FileNotFoundError) as error:
            raise _changed(effect.path) from error
        passed(KillPoint.EFFECT_IN_PROGRESS)
        try:
            self._check_aside(effect, directory)
            os.unlink(temporary, dir_fd=directory)
        except Exception:
            exchange_names(temporary, name, directory)
            raise

    def _remove(self, effect: Effect) -> None:
        with translate_os_error(effect.path), self._parent(effect.path) as directory:
            if effect.before == SOME_DIRECTORY:
                self._remove_directory(effect.path, directory)
            else:
                self._set_aside(effect, directory)
                passed(KillPoint.EFFECT_IN_PROGRESS)
                self._delete_aside(effect, directory)
            self._sync_directory(directory)

    def _remove_directory(self, path: WorkspacePath, directory: int) -> None:
        try:
            os.rmdir(path.name, dir_fd=directory)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            raise _changed(path) from error

    def _set_aside(self, effect: Effect, directory: int) -> None:
        """Rename what an effect removes to its temporary name, unless it changed meanwhile."""
        name, temporary = effect.path.name, effect.temporary
        try:
            rename_to_free(name, directory, temporary, directory)
        except FileNotFoundError as error:
            raise _changed(effect.path) from error
        try:
            self._check_aside(effect, directory)
        except Exception:
            rename_to_free(temporary, directory, name, directory)
            raise

    def _delete_aside(
        self, effect: Effect, directory: int, before_back: Callable[[], None] = lambda: None
    ) -> None:
        """Remove what was set aside; if that fails, restore its name after *before_back*."""
        try:
            os.unlink(effect.temporary, dir_fd=directory)
        except OSError:
            before_back()
            rename_to_free(effect.temporary, directory, effect.path.name, directory)
            raise

    def _check_aside(self, effect: Effect, directory: int) -> None:
        """Raise ``FileChangedError`` unless what was set aside has the known state and is closed.

        A program that has it open for writing could write to it when it has no name.
        """
        is_file = effect.before is not None and effect.before.kind is FileKind.FILE
        if is_file and is_open_for_writing(effect.temporary, directory):
            raise FileChangedError(
                f"{effect.path} is open for writing in another program",
                hint="Close it there, then try again.",
            )
        found = self.content(effect.path.parent / effect.temporary)
        if not same_content(found, effect.before):
            raise _changed(effect.path)

    def _copy_owner(self, file: int, replaced: str | None, directory: int) -> None:
        """Copy the owner of the replaced file, or of the directory, if we are root."""
        if os.geteuid() == 0:
            like = os.fstat(directory)
            if replaced is not None:
                like = os.stat(replaced, dir_fd=directory, follow_symlinks=False)
            os.fchown(file, like.st_uid, like.st_gid)

    # Used by the context managers below

    def plan(self, effects: Sequence[Effect]) -> None:
        """Record what is about to be done."""
        self._effects.plan(effects)
        self.leftovers |= {e.path.parent / e.temporary: e for e in effects if e.temporary}
        passed(KillPoint.EFFECT_PLANNED)

    def done(self, effects: Sequence[Effect]) -> None:
        """Record that it was done."""
        self._effects.confirm(effects)
        for effect in effects:
            if effect.temporary:
                self.leftovers.pop(effect.path.parent / effect.temporary, None)
        passed(KillPoint.EFFECT_DONE)

    def failed(self, effects: Sequence[Effect]) -> None:
        """Record which effects did not happen; the others stay unconfirmed."""
        undone: list[Effect] = []
        for effect in effects:
            with suppress(FilesystemError):
                if same_content(self.content(effect.path), effect.before):
                    undone.append(effect)
        self._effects.retract(undone)


# Not generators: one that Ctrl-C leaves suspended would end when its traceback is deleted.


class _ChangeErrors(AbstractContextManager[None]):
    """Translates the errors of a change into this package's, and notifies the tracker."""

    def __init__(self, path: WorkspacePath, changing: AbstractContextManager[None]) -> None:
        self._changing = changing
        self._translating = translate_os_error(path)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._changing.__exit__(kind, error, trace)
        self._translating.__exit__(kind, error, trace)


class _PlannedEffects(AbstractContextManager[None]):
    """Plans effects before the block, and records after it which of them happened."""

    def __init__(self, tree: InPlaceTree, effects: Sequence[Effect]) -> None:
        self._tree = tree
        self._effects = effects

    def __enter__(self) -> None:
        self._tree.plan(self._effects)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._tree.done(self._effects)
        elif isinstance(error, Exception):  # after Ctrl-C, there is no time to look
            self._tree.failed(self._effects)


def _changed(path: WorkspacePath) -> FileChangedError:
    return FileChangedError(f"{path} was changed by another program meanwhile")


def _check_writable(there: DiskEntry | None, mode: WriteMode) -> None:
    if there is None:
        return
    if mode == "create":
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    if there.kind is FileKind.DIRECTORY:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def _permissions(there: DiskEntry | None, executable: bool | None) -> int:
    if executable is None and there is not None and there.kind is FileKind.FILE:
        return there.mode & 0o777
    return usual_mode(executable=bool(executable))


def _mode_of(there: DiskEntry | None) -> int | None:
    if there is None or there.kind is FileKind.SYMLINK:
        return None
    return there.mode
