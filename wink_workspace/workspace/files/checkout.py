"""Write trees of the ledger into empty directories that no other process knows of."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from wink_workspace.errors import LedgerDamagedError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.disk.copying import NewTree
from wink_workspace.filesystem.disk.descriptors import Parts, translate_os_error
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.ledger import ObjectStore, TreeChange, TreeEntry, walk

from .seen_statuses import NewFileIndex, SourceTimes

__all__ = ["write_files", "write_layer"]


@contextmanager
def _naming_damage(path: WorkspacePath) -> Generator[None]:
    """Let an error about a damaged object name the file."""
    try:
        yield
    except LedgerDamagedError as error:
        raise LedgerDamagedError(f"{path} is damaged: {error.message}") from error


def write_files(
    directory: DiskTree, store: ObjectStore, root: str, times: SourceTimes | None = None
) -> NewFileIndex:
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
) -> NewFileIndex:
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
        self.seen = NewFileIndex()
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
                    self.seen.add_directory(path.parts)
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
        self.seen.add(above, path.name, status)
