"""Directories that did not change since an earlier index; they are compared, not listed.

A directory did not change if its own status and those of all its entries are those of the index;
in a tree that does not keep times, every directory is listed.
"""

from __future__ import annotations

import os

from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.tree import DiskTree

from .index import FileIndex, KnownListing
from .index_file import directory_status, row_of

__all__ = ["UnchangedDirectories"]


class UnchangedDirectories:
    """Compares the directories of a walk of *tree* with an earlier index."""

    def __init__(self, tree: DiskTree, earlier: FileIndex | None) -> None:
        is_known = earlier is not None and tree.keeps_times
        self._known = earlier.known_listings() if is_known and earlier is not None else {}

    def find(self, parts: Parts, directory: int) -> KnownListing | None:
        """What the index has of a directory that did not change, else ``None``.

        Args:
            parts: Its path.
            directory: A descriptor for listing it.
        """
        known = self._known.get(parts)
        if known is None:
            return None
        own, entries = known
        if directory_status(os.fstat(directory)) != own:
            return None
        try:
            for name, row in entries.items():
                if row_of(os.stat(name, dir_fd=directory, follow_symlinks=False)) != row:
                    return None
        except OSError:
            return None
        return known
