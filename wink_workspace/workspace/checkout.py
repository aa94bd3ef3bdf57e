"""Write a tree of the ledger into an empty directory that no other process knows of."""

from __future__ import annotations

from wink_workspace.filesystem import FileKind
from wink_workspace.filesystem.disk.descriptors import translate_os_error
from wink_workspace.filesystem.disk.filling import NewTree
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.ledger import ObjectStore, walk

from .last_seen import NewFileIndex

__all__ = ["write_files"]


def write_files(directory: DiskTree, store: ObjectStore, root: str) -> NewFileIndex:
    """Write the tree *root* into *directory*; the statuses of everything written.

    Raises:
        LedgerError: If something cannot be read.
        FilesystemError: If something cannot be written.
    """
    seen = NewFileIndex()
    tree = NewTree(directory)
    for path, entry in walk(store, root):
        above = path.parts[:-1]
        with translate_os_error(path), tree.entered(above) as parent:
            match entry.kind:
                case FileKind.DIRECTORY:
                    status = tree.make_directory(path.name, parent)
                    seen.add_directory(path.parts)
                case FileKind.SYMLINK:
                    target = store.read(entry.id).decode("utf-8", "surrogateescape")
                    status = tree.make_symlink(path.name, target, parent)
                case FileKind.FILE:
                    content = store.chunks(entry.id)
                    status = tree.write_file(
                        path.name, content, parent, executable=entry.executable
                    )
        seen.add(above, path.name, status)
    return seen
