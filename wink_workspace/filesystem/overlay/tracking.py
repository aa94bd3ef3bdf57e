"""The change tracker of a branch on an overlay.

It tracks the upper layer only, with any other tracker: every change of a branch changes its upper
layer, which is small. Contents and statuses of the branch are read through the mount.

A path that changed in the upper layer changed in the branch. A directory that is new in the upper
layer may have been copied up, because an entry of it changed. So it is *resolved*: a directory that
is merged with the directory of the same name in the base stands for its entries in the upper layer,
now and earlier. Only an entry of one of these can differ from the base. Any other directory hides
what is in the base, and stands for everything below it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import FilesystemError
from wink_workspace.filesystem.changes import Dirty, FileIndex, open_tracker
from wink_workspace.filesystem.changes.index import Status
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.tree import DiskTree, HiddenPaths
from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import WorkspacePath

__all__ = ["OverlayTracker", "directory_form"]

_FORMS = (".overlay.opaque", ".overlay.redirect")
_FORM_BYTES = 6


def directory_form(directory: int) -> int:
    """The form of an open directory of an upper layer; see ``DirectoryForm``."""
    path = f"/proc/self/fd/{directory}"
    try:
        names = sorted(name for name in os.listxattr(path) if name.endswith(_FORMS))
        if not names:
            return 0
        digest = hashlib.blake2b(digest_size=_FORM_BYTES)
        for name in names:
            digest.update(name.encode() + b"\0" + os.getxattr(path, name) + b"\0")
    except OSError:  # it cannot be read, or changes right now: then it counts as hiding the base
        return 1
    return int.from_bytes(digest.digest(), "big") or 1


class OverlayTracker:
    """Tracks the upper layer of a branch; implements ``ChangeTracker``.

    Args:
        base: The files of the base.
        upper: The files of the upper layer.
        index: An earlier state of the upper layer; changes are reported since then. Without one,
            the first ``drain`` reports all paths in the upper layer.
        force_scan: Read every status of the upper layer in each drain.
        hidden: Paths that are not tracked.
        clock: Measures the age of files.
    """

    def __init__(
        self,
        base: Path,
        upper: Path,
        *,
        index: FileIndex | None = None,
        force_scan: bool = False,
        hidden: HiddenPaths | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._earlier: dict[Parts, set[str]] = {}
        if index is not None:
            for directory, entries in index.directories.items():
                self._earlier[directory] = set(entries)
        self._base = DiskTree(base)
        self._upper = DiskTree(upper)
        self._copied_up: set[WorkspacePath] = set()
        # Modes are made accessible through the mount only, which would not notice it here.
        self._tracker = open_tracker(
            upper,
            index=index,
            force_scan=force_scan,
            hidden=hidden,
            form=directory_form,
            clock=clock,
        )

    @property
    def n_visited(self) -> int:
        """The number of entries whose status was read so far, all of them in the upper layer."""
        return self._tracker.n_visited

    @property
    def index(self) -> FileIndex | None:
        """The index of the upper layer as of the last drain; ``None`` if unknown."""
        return self._tracker.index

    def note(self, path: WorkspacePath, *, below: bool = False) -> None:
        """Record that *path*, with *below* also everything below it, may have changed."""
        self._tracker.note(path, below=below)
        for above in path.ancestors():
            # The change may have copied up the directory. It is watched at once, so that its event
            # does not look like a directory of another process.
            if above.parts and above not in self._copied_up and self._is_in_upper(above):
                self._copied_up.add(above)
                self._tracker.directory_made(above)

    def expect(self, name: str) -> None:
        """Expect a new file of this process with the random *name*."""
        self._tracker.expect(name)

    def directory_made(self, path: WorkspacePath) -> None:
        """Record that this process created the directory *path*, empty."""
        self._tracker.directory_made(path)

    def directories_left(self, directories: Sequence[WorkspacePath]) -> None:
        """Record that *directories* were moved out of the root."""
        self._tracker.directories_left(directories)
        self._copied_up.clear()

    def drain(self) -> Dirty:
        """What may have changed since the last drain."""
        found = self._tracker.drain()
        if not found:
            return found
        paths: set[WorkspacePath] = set()
        prefixes: set[WorkspacePath] = set()
        index = self._tracker.index
        for path in found.paths:
            self._add(index, path, paths, prefixes)
        for prefix in found.prefixes:
            if index is None or prefix.parts in index.unreadable:
                prefixes.add(prefix)
            else:
                self._resolve(index, prefix, paths, prefixes)
        for path in paths | prefixes:
            if path.parts:
                self._earlier.setdefault(path.parts[:-1], set()).add(path.name)
        self._copied_up.difference_update(paths, prefixes)
        return Dirty(frozenset(paths), frozenset(prefixes), found.reason)

    def close(self) -> None:
        """Stop tracking."""
        self._tracker.close()
        self._upper.close()
        self._base.close()

    def _resolve(
        self,
        index: FileIndex,
        top: WorkspacePath,
        paths: set[WorkspacePath],
        prefixes: set[WorkspacePath],
    ) -> None:
        """Add what *top* stands for to *paths* and *prefixes*."""
        if not self._is_merged(index, top):
            prefixes.add(top)
            return
        todo = [top]
        while todo:
            directory = todo.pop()
            if directory.parts:
                paths.add(directory)
            now = index.directories.get(directory.parts, {})
            for name in now.keys() | self._earlier.get(directory.parts, set()):
                path = directory / name
                status = now.get(name)
                if status is not None and status.is_directory:
                    if self._is_merged_in(index, path, status.inode):
                        todo.append(path)
                    else:
                        prefixes.add(path)
                else:
                    self._add(index, path, paths, prefixes)

    def _add(
        self,
        index: FileIndex | None,
        path: WorkspacePath,
        paths: set[WorkspacePath],
        prefixes: set[WorkspacePath],
    ) -> None:
        """Add *path*; if it was a directory and is none, also everything below it."""
        status = index and path.parts and index.get(path.parts[:-1], path.name)
        is_directory = isinstance(status, Status) and status.is_directory
        was_directory = path.parts in self._earlier or self._is_directory_in_base(path)
        (prefixes if was_directory and not is_directory else paths).add(path)

    def _is_merged(self, index: FileIndex, path: WorkspacePath) -> bool:
        """Whether *path*, and so everything above it, is merged with the same path in the base."""
        for each in (*path.ancestors(), path):
            if not each.parts:
                continue
            status = index.get(each.parts[:-1], each.name)
            if status is None or not status.is_directory or status.inode:
                return False
        return self._is_directory_in_base(path)

    def _is_merged_in(self, index: FileIndex, path: WorkspacePath, form: int) -> bool:
        """As ``_is_merged``, if the parent is merged."""
        if form or path.parts in index.unreadable:
            return False
        return self._is_directory_in_base(path)

    def _is_directory_in_base(self, path: WorkspacePath) -> bool:
        try:
            there = self._base.entry(path)
        except FilesystemError:
            return False
        return there is not None and there.kind is FileKind.DIRECTORY

    def _is_in_upper(self, path: WorkspacePath) -> bool:
        try:
            return self._upper.entry(path) is not None
        except FilesystemError:
            return False
