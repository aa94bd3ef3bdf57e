"""The files after one entry of the history, read-only, as a ``Filesystem``.

Nothing is read before it is used: a directory is listed, and a file loaded, at its first use.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

from wink_workspace.filesystem import (
    ROOT,
    FileKind,
    Filesystem,
    MemoryFilesystem,
    MountedTree,
    MountReport,
)
from wink_workspace.filesystem.memory_tree import Node, RemoteDirectory, RemoteFile, Symlink
from wink_workspace.ledger import LogEntry, ObjectStore, TreeEntry, entries_at, names_in

_IN_MEMORY_BYTES: Final = 1_048_576  # a larger file is copied to a temporary one


def files_after(store: ObjectStore, entry: LogEntry) -> Filesystem:
    """The files after *entry*; errors of the ledger are raised when a part of it is first used."""
    return MemoryFilesystem(mounts=[_EntryTree(store, entry)], read_only=True)


@dataclass(frozen=True, slots=True)
class _EntryTree:
    """The tree of an entry; implements ``Mount``."""

    store: ObjectStore
    entry: LogEntry

    def load(self) -> MountedTree:
        root = RemoteDirectory(_Tree(self.store, self.entry.files))
        report = MountReport(ROOT, f"entry {self.entry.number}")
        return MountedTree(ROOT, root, read_only=True, report=report)


@dataclass(frozen=True, slots=True)
class _Tree:
    """A directory in the ledger; implements ``DirectorySource``."""

    store: ObjectStore
    identity: str

    def load(self) -> Mapping[str, Node]:
        top = TreeEntry(FileKind.DIRECTORY, self.identity)
        found = entries_at(self.store, self.identity, ROOT, names_in(self.store, top)) or {}
        return {name: self._node(each) for name, each in found.items() if each is not None}

    def _node(self, entry: TreeEntry) -> Node:
        if entry.kind is FileKind.DIRECTORY:
            return RemoteDirectory(_Tree(self.store, entry.id))
        if entry.kind is FileKind.SYMLINK:
            return Symlink(self.store.read(entry.id).decode("utf-8", "surrogateescape"))
        return RemoteFile(_Blob(self.store, entry.id), executable=entry.executable)


@dataclass(frozen=True, slots=True)
class _Blob:
    """A file in the ledger; implements ``FileSource``."""

    store: ObjectStore
    identity: str

    @property
    def size_bytes(self) -> int:
        return self.store.size_bytes(self.identity)

    def open(self) -> BinaryIO:
        stream = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - for the caller
        for chunk in self.store.chunks(self.identity):
            stream.write(chunk)
        stream.seek(0)
        return cast("BinaryIO", stream)
