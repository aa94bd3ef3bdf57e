"""Write trees of the ledger into empty directories that no other process knows of.

The files of a branch are written when they are missing: those of a fork when it is first opened,
those of the main branch if they were deleted.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager

from wink_workspace.errors import LedgerDamagedError, UsageError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.changes.index import FileIndex, status_of
from wink_workspace.filesystem.disk.copying import NewTree
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.os_errors import translate_os_error
from wink_workspace.ledger import MAIN_BRANCH, LogEntry, ObjectStore, TreeChange, TreeEntry, walk
from wink_workspace.sandbox.git_directory import give_to_sandbox
from wink_workspace.workspace.place.path_rules import Unrecorded
from wink_workspace.workspace.place.shared_folders import delete_tree
from wink_workspace.workspace.place.storage import WorkspaceFolder

from .derived_paths import copy_checkpoint
from .seen_statuses import SourceTimes, finish_index, save_last_seen

_log = logging.getLogger(__name__)


@contextmanager
def _naming_damage(path: WorkspacePath) -> Generator[None]:
    """Let an error about a damaged object name the file."""
    try:
        yield
    except LedgerDamagedError as error:
        raise LedgerDamagedError(f"{path} is damaged: {error.message}") from error


def write_files(
    directory: DiskTree, store: ObjectStore, root: str, times: SourceTimes | None = None
) -> FileIndex:
    """Write the tree *root* into *directory*, with *times*; the statuses of everything written.

    Raises:
        LedgerError: If something cannot be read.
        FilesystemError: If something cannot be written.
    """
    written = _Written(directory, store, times)
    for path, entry in walk(store, root):
        written.add(path, entry)
    return written.seen


def write_layer(
    directory: DiskTree,
    store: ObjectStore,
    changes: Iterable[TreeChange],
    times: SourceTimes | None = None,
) -> FileIndex:
    """Write into *directory* the upper layer with *changes*, which ``diff`` returned.

    It is written without a mount: through one, each changed file would be copied up and synced
    first. Raises as ``write_files``.
    """
    written = _Written(directory, store, times)
    hidden: set[Parts] = set()
    for change in changes:
        above = change.path.parts[:-1]
        if change.before is not None and change.before.kind is FileKind.DIRECTORY:
            hidden.add(change.path.parts)
        if change.after is None and above in hidden:
            continue  # what is at the path of its directory hides it
        for directory_above in change.path.ancestors():
            if directory_above.parts not in written.directories:
                written.add(directory_above, TreeEntry(FileKind.DIRECTORY, ""))
        written.add(change.path, change.after)
    return written.seen


class _Written:
    """What has been written. ``seen`` has the statuses, ``directories`` the directories."""

    def __init__(self, directory: DiskTree, store: ObjectStore, times: SourceTimes | None) -> None:
        self._times = times
        self.seen = FileIndex()
        self.seen.put((), {})
        self.directories: set[Parts] = {()}
        self._tree = NewTree(directory)
        self._store = store

    def add(self, path: WorkspacePath, entry: TreeEntry | None) -> None:
        """Write *entry* at *path*, whose directory exists; ``None`` marks it as deleted."""
        above, tree = path.parts[:-1], self._tree
        with _naming_damage(path), translate_os_error(path), tree.entered(above) as parent:
            match entry:
                case None:
                    status = tree.mark_deleted(path.name, parent)
                case TreeEntry(kind=FileKind.DIRECTORY):
                    status = tree.make_directory(path.name, parent)
                    self.seen.put(path.parts, {})
                    self.directories.add(path.parts)
                case TreeEntry(kind=FileKind.SYMLINK):
                    target = self._store.read(entry.id).decode("utf-8", "surrogateescape")
                    status = tree.make_symlink(path.name, target, parent)
                case TreeEntry():
                    content = self._store.chunks(entry.id)
                    status = tree.write_file(
                        path.name,
                        content,
                        parent,
                        executable=entry.executable,
                        modified_ns=self._times and self._times.at(path),
                    )
        self.seen.put(above, {path.name: status_of(status)})


def check_out(
    store: ObjectStore,
    entry: LogEntry,
    folder: WorkspaceFolder,
    *,
    unrecorded: Unrecorded | None = None,
    is_new: bool = False,
) -> None:
    """Write the files of *entry* into *folder*, unless they exist already.

    They appear all at once or not at all, with *unrecorded* together with the derived paths of the
    branch's checkpoint. The caller holds the writer lock of the branch. Files of a main branch that
    is not new were lost, which is logged.

    Raises:
        UsageError: If a link is in their place: its target does not belong to the workspace.
        LedgerError: If something cannot be read.
        FilesystemError: If something cannot be written.
    """
    if folder.files.is_symlink():
        raise UsageError(
            f"{folder.files} is a link, and its target does not belong to this workspace",
            hint="Put the directory itself there, or delete the link: then the files of the "
            "newest entry are written again.",
        )
    if folder.files.is_dir():
        return
    if folder.branch == MAIN_BRANCH and not is_new:
        _log.warning("%s is missing; it is written again from the history", folder.files)
    unfinished = folder.files.with_name("files.new")
    delete_tree(unfinished)
    unfinished.mkdir(parents=True)
    unfinished.chmod(0o755)  # whatever the umask is
    give_to_sandbox(unfinished)
    with DiskTree(unfinished) as tree:
        seen = write_files(tree, store, entry.files, SourceTimes(folder, store, entry.files))
        if unrecorded is not None:
            copy_checkpoint(folder.checkpoint, tree, unrecorded)
    save_last_seen(folder.index, finish_index(seen, folder.branch_dir), entry)
    unfinished.rename(folder.files)


def copy_runs(source: WorkspaceFolder, target: WorkspaceFolder) -> None:
    """Copy the runs of a branch to a fork that nothing has opened."""
    if source.runs.is_dir():
        target.runs.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copytree(source.runs, target.runs)
