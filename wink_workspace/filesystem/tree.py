"""Files and directories as immutable values that share what they have in common.

Rule 1: a node never changes. A change makes new directories from the root down to its place;
everything else is shared, so keeping an old root costs what differs and putting it back is
one reference.
Rule 2: nodes that are the same object are equal, so comparing two trees looks only at what
was rebuilt between them.
Rule 3: what a node loads from its source or computes from its content stays in the node;
that adds nothing to its value.

Trees are at most as deep as paths may be long (``Directory.height`` is there to keep it so),
which bounds every recursion here.
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

from .fingerprints import (
    directory_fingerprint,
    file_fingerprint,
    link_fingerprint,
    remote_fingerprint,
)
from .model import FileChange, FileKind, FileStat, FileState
from .paths import ROOT, WorkspacePath

__all__ = [
    "Directory",
    "DirectorySource",
    "File",
    "FileSource",
    "Node",
    "RemoteDirectory",
    "RemoteFile",
    "Symlink",
    "TreeCell",
    "TreeSnapshot",
    "lookup",
    "merged",
    "replaced",
    "stat_of",
    "tree_changes",
    "tree_of",
]

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
    """Where a remote file's content is; ``identity`` differs where the content does."""

    @property
    def identity(self) -> str:
        """What stands for the content in fingerprints."""
        ...

    @property
    def size_bytes(self) -> int:
        """The length of the content, known without loading it."""
        ...

    def open(self) -> BinaryIO:
        """The content as a stream, for reading and seeking."""
        ...


class RemoteFile(File):
    """A file whose content stays at its source until somebody reads it.

    It is then kept, so that it cannot change any more; one above 1 MiB is kept only when
    somebody needs the whole of it at once.
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
    """A link, which may point anywhere or nowhere."""

    target: str

    @property
    def fingerprint(self) -> str:
        """The hash of the target."""
        return link_fingerprint(self.target)


class Directory:
    """Named nodes."""

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
        """How many levels of entries there are below."""
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
    """Where a remote directory's entries are; ``identity`` differs where they do."""

    @property
    def identity(self) -> str:
        """What stands for the entries in fingerprints."""
        ...

    def load(self) -> Map[str, Node]:
        """The entries, listed now."""
        ...


class RemoteDirectory(Directory):
    """A directory that is listed when somebody first looks inside.

    Its fingerprint is that of its source, and its height 0, until then and after: neither
    is worth listing a remote tree for.
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
            self._loaded = self._source.load()
        return self._loaded


Node = File | Symlink | Directory


_EMPTY = Directory()


def stat_of(node: Node, path: WorkspacePath) -> FileStat:
    """What is known of a node without reading it."""
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
    """The node at *path*, ``None`` where there is none; links are not followed."""
    node: Node | None = root
    for name in path.parts:
        if not isinstance(node, Directory):
            return None
        node = node.children.get(name)
    return node


def replaced(root: Directory, path: WorkspacePath, node: Node | None) -> Directory:
    """The tree with *node* at *path* (below the root), or nothing for ``None``.

    Raises:
        FileMissingError: If the parent does not exist.
        DirectoryExpectedError: If it is no directory.
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
    """Every path whose state differs, in path order; what both trees share is not visited."""
    if before is after:
        return
    old, new = _state_of(before), _state_of(after)
    if old != new:
        yield FileChange(path, old, new)
    inside_old = (before if isinstance(before, Directory) else _EMPTY).children
    inside_new = (after if isinstance(after, Directory) else _EMPTY).children
    changed = [name for name, child in inside_new.items() if inside_old.get(name) is not child]
    gone = [name for name in inside_old if name not in inside_new]
    for name in sorted(changed + gone):
        yield from tree_changes(inside_old.get(name), inside_new.get(name), path / name)


def tree_of(nodes: Mapping[WorkspacePath, Node]) -> Directory:
    """The tree with each node at its path below the root, and the directories they need.

    A directory among *nodes* is empty, but others of them may be below it.

    Raises:
        DirectoryExpectedError: If a node is to be below a file or a link.
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
    """Both trees in one; where both have something, it has to be a directory.

    Raises:
        PathExistsError: If it is something else, or *above* has a remote directory there.
    """
    if not isinstance(below, RemoteDirectory) and not below.children:
        return above
    if isinstance(above, RemoteDirectory):
        raise PathExistsError(f"{path} is not empty")
    children = below.children
    for name, child in sorted(above.children.items(), key=itemgetter(0)):
        there = children.get(name)
        if isinstance(there, Directory) and isinstance(child, Directory):
            child = merged(there, child, path / name)
        elif there is not None:
            raise PathExistsError(f"{path / name} exists already")
        children = children.set(name, child)
    return Directory(children)


# State


@dataclass(frozen=True, slots=True, eq=False)
class TreeSnapshot:
    """The tree that a cell held at some moment."""

    cell: TreeCell
    root: Directory


class TreeCell:
    """The one place where a tree is exchanged for another."""

    def __init__(self, root: Directory) -> None:
        self._root = root
        self._snapshot = TreeSnapshot(self, root)
        self._lock = threading.Lock()

    @property
    def root(self) -> Directory:
        """The present tree."""
        return self._root

    def change(self, change: Callable[[Directory], Directory]) -> None:
        """Exchange the tree for what *change* makes of it; if it raises, nothing happens."""
        with self._lock:
            self._root = change(self._root)

    def snapshot(self) -> TreeSnapshot:
        """The present tree; the same object as long as nothing changes."""
        with self._lock:
            if self._snapshot.root is not self._root:
                self._snapshot = TreeSnapshot(self, self._root)
            return self._snapshot

    def restore(self, snapshot: object) -> None:
        """Put a tree back.

        Raises:
            SnapshotError: If this cell did not make the *snapshot*.
        """
        mine = self.checked(snapshot)
        with self._lock:
            self._root = mine.root
            self._snapshot = mine

    def checked(self, snapshot: object) -> TreeSnapshot:
        """*snapshot*, if this cell made it; else ``SnapshotError``."""
        if not isinstance(snapshot, TreeSnapshot) or snapshot.cell is not self:
            raise SnapshotError("the snapshot is not one of this filesystem")
        return snapshot
