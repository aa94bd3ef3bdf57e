"""The contents of a directory on disk, in the form in which the ledger keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from contextlib import suppress
from typing import Final, NamedTuple

from wink_workspace.errors import FileMissingError, FilesystemError, LedgerError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.disk.tree import DiskEntry, DiskTree
from wink_workspace.filesystem.git_binary import git_hash, object_header
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    SOME_DIRECTORY,
    ObjectStore,
    TreeEntry,
    build,
    entry_at,
)

UNKNOWN_CONTENT: Final = TreeEntry(FileKind.FILE, "")
"""What the ledger cannot keep: a pipe, a socket, a device. It equals no other content."""

_CHUNK_BYTES: Final = 1_048_576


def content_of(tree: DiskTree, there: DiskEntry | None) -> TreeEntry | None:
    """The content of an entry; for a directory, only that it is one.

    Raises:
        FilesystemError: If a file cannot be read.
    """
    if there is None:
        return None
    match there.kind:
        case None:
            return UNKNOWN_CONTENT
        case FileKind.DIRECTORY:
            return SOME_DIRECTORY
        case FileKind.SYMLINK:
            target = (there.target or "").encode("utf-8", "surrogateescape")
            return TreeEntry(FileKind.SYMLINK, _blob_id(len(target), [target]))
        case FileKind.FILE:
            with tree.open(there.path) as file:
                pieces = iter(lambda: file.read(_CHUNK_BYTES), b"")
                found = _blob_id(there.size_bytes, pieces)
            return TreeEntry(FileKind.FILE, found, there.executable)


def same_content(
    one: TreeEntry | None, other: TreeEntry | None, *, ignore_mode: bool = False
) -> bool:
    """Whether two entries are equal; contents of directories and, on request, modes are ignored."""
    if one is None or other is None:
        return one is other
    if one.kind is not other.kind:
        return False
    if one.kind is FileKind.DIRECTORY:
        return True
    return one.id == other.id and (ignore_mode or one.executable == other.executable)


def file_id(entry: TreeEntry | None) -> str | None:
    """The blob of a file, if *entry* is one: the version before a later one."""
    return entry.id if entry is not None and entry.kind is FileKind.FILE else None


def without_contents(entry: TreeEntry | None) -> TreeEntry | None:
    """*entry*, reduced for a directory to the fact that it is one."""
    is_directory = entry is not None and entry.kind is FileKind.DIRECTORY
    return SOME_DIRECTORY if is_directory else entry


def _blob_id(size_bytes: int, pieces: Iterable[bytes]) -> str:
    """The id that git gives to this content."""
    digest = git_hash(object_header("blob", size_bytes))
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


# Reading a directory into a tree

_PLACEHOLDER: Final = b"\0this is not a regular file, or it cannot be read\n"
_ATTEMPTS: Final = 3


class Captured(NamedTuple):
    """A tree in which some paths have the present state of a directory.

    ``unknown`` are those of the paths that cannot be kept: pipes, sockets, devices, and what
    cannot be read.
    """

    root: str
    unknown: frozenset[WorkspacePath]


def captured(
    tree: DiskTree,
    store: ObjectStore,
    root: str,
    paths: Iterable[WorkspacePath],
    *,
    on_entry: Callable[[WorkspacePath, int, TreeEntry], None],
) -> Captured:
    """The tree *root* with the present state of *paths*, and of what leads to them, in *tree*.

    For a directory among *paths*, the names of its entries are included, too, so that a merge
    sees files that other programs added. *on_entry* is called with the mode of every path found.
    """
    with tree.listing_once():
        return _Capture(tree, store, root, on_entry, known=root).run(paths)


def capture_all(tree: DiskTree, store: ObjectStore, *, known: str) -> str:
    """The root of everything in *tree*; an unreadable path has its state of the tree *known*.

    Raises:
        LedgerError: If a content cannot be written, or changes during each attempt to read it.
    """
    unreadable: list[WorkspacePath] = []
    found: dict[WorkspacePath, TreeEntry | None] = {}
    listings = tree.listings(unreadable=lambda parts: unreadable.append(WorkspacePath(parts)))
    paths = [
        WorkspacePath((*listing.parts, name)) for listing in listings for name, _ in listing.entries
    ]
    capture = _Capture(tree, store, EMPTY_TREE_ID, lambda _path, _mode, _entry: None, known=known)
    with store.bulk(), tree.listing_once():
        for path in paths:
            entry, is_known = capture.entry(path)
            found[path] = entry if is_known else entry_at(store, known, path)
        found.update((path, entry_at(store, known, path)) for path in unreadable)
        return build(store, EMPTY_TREE_ID, found)


class _Capture:
    """Writes contents into *store*; *known* is a tree with earlier versions of large files."""

    def __init__(
        self,
        tree: DiskTree,
        store: ObjectStore,
        root: str,
        on_entry: Callable[[WorkspacePath, int, TreeEntry], None],
        *,
        known: str,
    ) -> None:
        self._tree = tree
        self._store = store
        self._root = root
        self._known = known
        self._on_entry = on_entry
        self._found: dict[WorkspacePath, TreeEntry | None] = {}
        self._unknown: set[WorkspacePath] = set()

    def run(self, paths: Iterable[WorkspacePath]) -> Captured:
        wanted = set(paths)
        above = {ancestor for path in wanted for ancestor in path.ancestors() if ancestor.parts}
        for path in sorted(wanted | above):
            if self._found.get(path.parent, SOME_DIRECTORY) != SOME_DIRECTORY:
                self._found[path] = None
                continue
            found, is_known = self.entry(path)
            if not is_known:
                self._unknown.add(path)
                found = self._placeholder()
            self._found[path] = found
            if found == SOME_DIRECTORY and path in wanted:
                self._add_names(path, wanted | above)
        # Nothing can be below a file, so such paths are left out.
        changes = {
            path: entry
            for path, entry in self._found.items()
            if self._found.get(path.parent, SOME_DIRECTORY) == SOME_DIRECTORY
        }
        return Captured(build(self._store, self._root, changes), frozenset(self._unknown))

    def _add_names(self, directory: WorkspacePath, known: Set[WorkspacePath]) -> None:
        with suppress(FilesystemError):
            for entry in self._tree.entries(directory):
                kept = entry_at(self._store, self._root, entry.path)
                if entry.path not in known and kept is None:
                    self._found[entry.path] = self._placeholder()

    def entry(self, path: WorkspacePath) -> tuple[TreeEntry | None, bool]:
        """The entry at *path* with its content in the ledger, and whether it could be read."""
        for n_left in reversed(range(_ATTEMPTS)):
            try:
                there = self._tree.entry(path)
                found = content_of(self._tree, there)
                if there is None or found is None:
                    return None, True
                if found == UNKNOWN_CONTENT:
                    break
                self._on_entry(path, there.mode, found)
                return self._kept(there, found), True
            except FileMissingError:
                continue
            except FilesystemError:  # not reachable, or not readable
                break
            except LedgerError:  # it may have changed while it was read
                if not n_left:
                    raise
        return None, False

    def _placeholder(self) -> TreeEntry:
        return TreeEntry(FileKind.FILE, self._store.write_blob(_PLACEHOLDER))

    def _kept(self, there: DiskEntry, found: TreeEntry) -> TreeEntry:
        """*found*, after its content is written to the ledger."""
        if found.kind is FileKind.DIRECTORY or found.id in self._store.repository:
            return found
        if found.kind is FileKind.SYMLINK:
            target = (there.target or "").encode("utf-8", "surrogateescape")
            return TreeEntry(FileKind.SYMLINK, self._store.write_blob(target))
        before = file_id(entry_at(self._store, self._known, there.path))
        with self._tree.open(there.path) as file:
            blob = self._store.write_blob_from(file.fileno(), like=before)
        return TreeEntry(FileKind.FILE, blob, there.executable)
