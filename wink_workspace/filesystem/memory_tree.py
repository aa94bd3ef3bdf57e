"""The files of a ``MemoryFilesystem`` as a persistent tree.

Rule 1: a node never changes. A change makes new directories from the root down to the changed
path and shares everything else. So an old root costs only what differs, and restoring it is
one assignment.
Rule 2: a shared node is equal without a comparison, so comparing two trees visits only
directories that were rebuilt.
Rule 3: a node caches what it loads from its source or computes from its content. That does not
change its value.

Trees are at most ``MAX_PATH_DEPTH`` deep (``Directory.height`` serves to check it), which bounds
every recursion here.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import BinaryIO, Protocol

from immutables import Map

from wink_workspace.errors import (
    DirectoryExpectedError,
    FileMissingError,
    PathExistsError,
    SnapshotError,
)

from .model import (
    Change,
    FileChange,
    FileKind,
    FileStat,
    FileState,
    directory_fingerprint,
    file_fingerprint,
    link_fingerprint,
    remote_fingerprint,
)
from .paths import ROOT, WorkspacePath

_KEPT_BYTES = 1_048_576


# Nodes


class File:
    """A file: its bytes and whether it is executable."""

    __slots__ = ("_data", "_fingerprint", "executable")

    def __init__(self, data: bytes, *, executable: bool = False) -> None:
        self._data = data
        self._fingerprint: str | None = None
        self.executable = executable

    @property
    def data(self) -> bytes:
        """The whole content."""
        return self._data

    @property
    def size_bytes(self) -> int:
        """The length of the content."""
        return len(self.data)

    @property
    def fingerprint(self) -> str:
        """The hash of content and executable bit."""
        if self._fingerprint is None:
            self._fingerprint = file_fingerprint((self.data,), executable=self.executable)
        return self._fingerprint

    def open(self) -> BinaryIO:
        """The content as a stream."""
        return io.BytesIO(self.data)


class FileSource(Protocol):
    """The source of a remote file; ``identity`` differs if the content does."""

    @property
    def identity(self) -> str:
        """Replaces the content in fingerprints."""
        ...

    @property
    def size_bytes(self) -> int:
        """The length of the content, known without loading it."""
        ...

    def open(self) -> BinaryIO:
        """The content as a stream, for reading and seeking."""
        ...


class RemoteFile(File):
    """A file whose content stays at its source until it is read.

    It is then kept, so that it can no longer change. Content above 1 MiB is kept only if
    ``data`` is used.
    """

    __slots__ = ("_loaded", "_source")

    def __init__(self, source: FileSource, *, executable: bool = False) -> None:
        super().__init__(b"", executable=executable)
        self._loaded: bytes | None = None
        self._fingerprint = remote_fingerprint(f"{executable} {source.identity}")
        self._source = source

    @property
    def data(self) -> bytes:
        """The whole content, loaded at its first use."""
        if self._loaded is None:
            with self._source.open() as stream:
                self._loaded = stream.read()
        return self._loaded

    @property
    def size_bytes(self) -> int:
        """The length of the content, known without loading it."""
        return self._source.size_bytes if self._loaded is None else len(self._loaded)

    def open(self) -> BinaryIO:
        """The content as a stream."""
        stays_remote = self._loaded is None and self._source.size_bytes > _KEPT_BYTES
        return self._source.open() if stays_remote else super().open()


@dataclass(frozen=True, slots=True)
class Symlink:
    """A link to any target; it may be dangling."""

    target: str

    @property
    def fingerprint(self) -> str:
        """The hash of the target."""
        return link_fingerprint(self.target)


class Directory:
    """A directory: nodes by name."""

    __slots__ = ("_children", "_fingerprint", "_height")

    def __init__(self, children: Map[str, Node] | None = None) -> None:
        self._children: Map[str, Node] = Map() if children is None else children
        self._fingerprint: str | None = None
        self._height: int | None = None

    @property
    def children(self) -> Map[str, Node]:
        """The entries."""
        return self._children

    @property
    def fingerprint(self) -> str:
        """The hash of everything below."""
        if self._fingerprint is None:
            self._fingerprint = directory_fingerprint(
                (name, child.fingerprint) for name, child in self.children.items()
            )
        return self._fingerprint

    @property
    def height(self) -> int:
        """The number of levels of entries below."""
        if self._height is None:
            self._height = max(
                (
                    1 + child.height if isinstance(child, Directory) else 1
                    for child in self.children.values()
                ),
                default=0,
            )
        return self._height


class DirectorySource(Protocol):
    """The source of a remote directory; ``identity`` differs if the entries do."""

    @property
    def identity(self) -> str:
        """Replaces the entries in fingerprints."""
        ...

    def load(self) -> Mapping[str, Node]:
        """List the entries."""
        ...


class RemoteDirectory(Directory):
    """A directory that is listed when its entries are first used.

    Its fingerprint is that of its source, and its height is 0, before and after: computing
    them would list the whole remote tree.
    """

    __slots__ = ("_loaded", "_source")

    def __init__(self, source: DirectorySource) -> None:
        super().__init__()
        self._loaded: Map[str, Node] | None = None
        self._fingerprint = remote_fingerprint(source.identity)
        self._height = 0
        self._source = source

    @property
    def children(self) -> Map[str, Node]:
        """The entries, listed at their first use."""
        if self._loaded is None:
            self._loaded = Map(self._source.load())
        return self._loaded


Node = File | Symlink | Directory


_EMPTY = Directory()


def stat_of(node: Node, path: WorkspacePath) -> FileStat:
    """The metadata of a node, without loading its content."""
    match node:
        case File():
            return FileStat(path, FileKind.FILE, node.size_bytes, node.executable)
        case Symlink():
            size_bytes = len(_target_bytes(node))
            return FileStat(path, FileKind.SYMLINK, size_bytes, target=node.target)
        case Directory():
            return FileStat(path, FileKind.DIRECTORY)


def _state_of(node: Node | None) -> FileState | None:
    match node:
        case None:
            return None
        case File():
            return FileState(FileKind.FILE, node.data, node.executable)
        case Symlink():
            return FileState(FileKind.SYMLINK, _target_bytes(node))
        case Directory():
            return FileState(FileKind.DIRECTORY)


def _target_bytes(link: Symlink) -> bytes:
    return link.target.encode("utf-8", "surrogateescape")


# Trees


def lookup(root: Directory, path: WorkspacePath) -> Node | None:
    """The node at *path*, or ``None``; links are not followed."""
    node: Node | None = root
    for name in path.parts:
        if not isinstance(node, Directory):
            return None
        node = node.children.get(name)
    return node


def replaced(root: Directory, path: WorkspacePath, node: Node | None) -> Directory:
    """The tree with *node* at *path* (below the root); for ``None``, without *path*.

    Raises:
        FileMissingError: If the parent does not exist.
        DirectoryExpectedError: If the parent is not a directory.
    """
    return _replaced(root, path, 0, node)


def _replaced(
    directory: Directory, path: WorkspacePath, depth: int, node: Node | None
) -> Directory:
    name = path.parts[depth]
    before = directory.children.get(name)
    if depth + 1 < len(path.parts):
        here = WorkspacePath(path.parts[: depth + 1])
        if before is None:
            raise FileMissingError(f"{here} does not exist")
        if not isinstance(before, Directory):
            raise DirectoryExpectedError(f"{here} is not a directory")
        after = _replaced(before, path, depth + 1, node)
    else:
        after = node
    if after is before:
        return directory
    if after is None:
        return Directory(directory.children.delete(name))
    return Directory(directory.children.set(name, after))


def tree_changes(
    before: Node | None, after: Node | None, path: WorkspacePath = ROOT
) -> Iterator[FileChange]:
    """Every path whose state differs, in path order; shared nodes are not visited."""
    if before is after:
        return
    old, new = _state_of(before), _state_of(after)
    if old != new:
        yield Change(path, old, new)
    inside_old = (before if isinstance(before, Directory) else _EMPTY).children
    inside_new = (after if isinstance(after, Directory) else _EMPTY).children
    changed = [name for name, child in inside_new.items() if inside_old.get(name) is not child]
    deleted = [name for name in inside_old if name not in inside_new]
    for name in sorted(changed + deleted):
        yield from tree_changes(inside_old.get(name), inside_new.get(name), path / name)


def tree_of(nodes: Mapping[WorkspacePath, Node]) -> Directory:
    """The tree with each node at its path below the root, and all parent directories.

    Each directory in *nodes* must be empty, but other nodes may be below its path.

    Raises:
        DirectoryExpectedError: If a node would be below a file or a link.
    """
    by_parent: dict[WorkspacePath, dict[str, Node]] = {ROOT: {}}
    for path, node in nodes.items():
        for ancestor in path.ancestors():
            by_parent.setdefault(ancestor, {})
        by_parent[path.parent][path.name] = node
    deepest_first = sorted(by_parent, key=lambda path: len(path.parts), reverse=True)
    for parent in deepest_first[:-1]:
        siblings = by_parent[parent.parent]
        if not isinstance(siblings.get(parent.name, _EMPTY), Directory):
            raise DirectoryExpectedError(f"{parent} is not a directory")
        siblings[parent.name] = Directory(Map(by_parent[parent]))
    return Directory(Map(by_parent[ROOT]))


def merged(below: Directory, above: Directory, path: WorkspacePath = ROOT) -> Directory:
    """The union of two trees; directories are merged.

    Raises:
        PathExistsError: If both have a path that is not a directory in both, or if *above* has
            a remote directory where *below* is not empty.
    """
    if not isinstance(below, RemoteDirectory) and not below.children:
        return above
    if isinstance(above, RemoteDirectory):
        raise PathExistsError(f"{path} is not empty")
    children = below.children
    for name, child in sorted(above.children.items(), key=itemgetter(0)):
        existing = children.get(name)
        if isinstance(existing, Directory) and isinstance(child, Directory):
            child = merged(existing, child, path / name)
        elif existing is not None:
            raise PathExistsError(f"{path / name} exists already")
        children = children.set(name, child)
    return Directory(children)


# State


@dataclass(frozen=True, slots=True, eq=False)
class TreeSnapshot:
    """The tree of a cell at the time of a snapshot."""

    cell: TreeCell
    root: Directory


class TreeCell:
    """A mutable reference to the current tree."""

    def __init__(self, root: Directory) -> None:
        self._root = root
        self._snapshot = TreeSnapshot(self, root)
        self._lock = threading.Lock()

    @property
    def root(self) -> Directory:
        """The current tree."""
        return self._root

    def change(self, change: Callable[[Directory], Directory]) -> None:
        """Replace the tree by the result of *change*; if that raises, nothing changes."""
        with self._lock:
            self._root = change(self._root)

    def snapshot(self) -> TreeSnapshot:
        """A snapshot of the current tree; the same object while nothing changes."""
        with self._lock:
            if self._snapshot.root is not self._root:
                self._snapshot = TreeSnapshot(self, self._root)
            return self._snapshot

    def restore(self, snapshot: object) -> None:
        """Restore the tree of a snapshot.

        Raises:
            SnapshotError: If this cell did not make the *snapshot*.
        """
        own = self.checked(snapshot)
        with self._lock:
            self._root = own.root
            self._snapshot = own

    def checked(self, snapshot: object) -> TreeSnapshot:
        """*snapshot*, if this cell made it; else ``SnapshotError``."""
        if not isinstance(snapshot, TreeSnapshot) or snapshot.cell is not self:
            raise SnapshotError("unknown snapshot token: it belongs to another filesystem")
        return snapshot
