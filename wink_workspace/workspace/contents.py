"""What is in a directory on disk, told as the ledger would keep it; nothing is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from wink_workspace.filesystem import FileKind
from wink_workspace.filesystem.disk.tree import DiskEntry, DiskTree
from wink_workspace.ledger import SOME_DIRECTORY, TreeEntry

__all__ = ["UNKNOWN_CONTENT", "content_of", "same_content"]

UNKNOWN_CONTENT: Final = TreeEntry(FileKind.FILE, "")
"""What the ledger cannot keep: a pipe, a socket, a device; it is like nothing else."""

_CHUNK_BYTES: Final = 1_048_576


def content_of(tree: DiskTree, there: DiskEntry | None) -> TreeEntry | None:
    """What is there; of a directory, only that it is one.

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


def same_content(one: TreeEntry | None, other: TreeEntry | None, *, but_mode: bool = False) -> bool:
    """Whether two are the same, directories whatever is in them; *but_mode* leaves out the bit."""
    if one is None or other is None:
        return one is other
    if one.kind is not other.kind:
        return False
    if one.kind is FileKind.DIRECTORY:
        return True
    return one.id == other.id and (but_mode or one.executable == other.executable)


def _blob_id(size_bytes: int, pieces: Iterable[bytes]) -> str:
    """The id that git gives to a content."""
    digest = hashlib.sha1(b"blob %d\0" % size_bytes, usedforsecurity=False)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
