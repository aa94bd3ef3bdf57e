"""A filesystem on a host directory that untrusted code may be changing at the same time.

Nothing outside of the directory is read or written, whatever links other processes create
(``tree`` describes how). Each operation sees the changes that other processes made before it.

It keeps no history itself: ``snapshot``, ``restore`` and ``changes`` are passed on to its
``history``. Differences to a filesystem in memory:

* Pipes, sockets and devices are listed as files. They can be deleted, but not read.
* Writing to one of several hard links separates it from the others.
* The fingerprint of a file above 64 MiB is computed from its identity, not from its content.
* A recursive delete that fails may have deleted a part.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import BinaryIO, Protocol

from wink_workspace._descriptors import ClosedAfterBlock
from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import (
    FilesystemError,
    LimitExceededError,
    PathExistsError,
    UsageError,
)
from wink_workspace.filesystem.model import (
    FileChange,
    FileKind,
    FileStat,
    FilesystemLimits,
    WriteMode,
)
from wink_workspace.filesystem.paths import MAX_PATH_DEPTH, WorkspacePath, parse_path
from wink_workspace.filesystem.protocol import Filesystem
from wink_workspace.filesystem.search import GlobPattern, Heads, SearchTimer

from .fingerprint_cache import DiskFingerprints
from .searching import disk_heads
from .tree import DiskEntry, DiskTree, kind_of


class DiskHistory(Protocol):
    """Stores the states of a directory; the methods are those of ``Filesystem``."""

    def snapshot(self) -> object:
        """A token for the current state; the same object while nothing changes."""
        ...

    def restore(self, token: object) -> None:
        """Restore the state of *token*, a snapshot of this history, or raise ``SnapshotError``."""
        ...

    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        """The paths that differ between the snapshots *before* and *after* (now), in path order."""
        ...

    def diff(self, before: object, after: object | None = None) -> str:
        """As ``Filesystem.diff``; a path above a limit has one line in it."""
        ...


class DiskFilesystem(Filesystem, ClosedAfterBlock):
    """The files of a host directory.

    Args:
        root: The directory, or a tree open on it, which the caller closes.
        history: Serves snapshots; without one, they raise ``UsageError``.
        limits: Limits of single operations.
        read_only: Refuse every change.
        clock: Measures the time of searches and the age of files.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | DiskTree,
        *,
        history: DiskHistory | None = None,
        limits: FilesystemLimits | None = None,
        read_only: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(limits=limits, read_only=read_only, clock=clock)
        self._owns_tree = not isinstance(root, DiskTree)
        self.tree = root if isinstance(root, DiskTree) else DiskTree(root)
        self.fingerprints = DiskFingerprints(self.tree, clock)
        self._history = history

    def close(self) -> None:
        """Close the directory, unless the caller passed a tree."""
        if self._owns_tree:
            self.tree.close()

    # History

    def snapshot(self) -> object:
        """A snapshot of the history."""
        self.fingerprints.written = None  # from here on, only the content on the disk counts
        return (self._history or self._require_history()).snapshot()

    def restore(self, token: object) -> None:
        """Restore a snapshot of the history."""
        self._require_history().restore(token)

    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        """The paths that differ between two snapshots of the history."""
        return self._require_history().changes(before, after)

    def diff(self, before: object, after: object | None = None) -> str:
        """As ``Filesystem.diff``; a path above a limit has one line in it."""
        return self._require_history().diff(before, after)

    def _require_history(self) -> DiskHistory:
        if self._history is None:
            raise UsageError(
                f"{self.tree.root} keeps no history",
                hint="Open it as a Workspace, whose ledger serves snapshots.",
            )
        return self._history

    # Reading: most paths contain no link, and need no second walk

    def open(self, path: str | WorkspacePath) -> BinaryIO:
        """A file as a stream, for reading and seeking; the caller closes it."""
        given = parse_path(path)
        with suppress(FilesystemError):
            if given.parts:
                return self.tree.open(given)
        return super().open(given)

    def identify(
        self, path: str | WorkspacePath, *, follow: bool = True
    ) -> tuple[WorkspacePath, str]:
        """The path of a file without links, and its fingerprint; see ``Filesystem.identify``."""
        given = parse_path(path)
        found = self.tree.status_and_target(given)
        if found is not None and stat.S_ISREG(found[0].st_mode):
            return given, self.fingerprints.of_file(given, found[0])
        return super().identify(given, follow=follow)

    # Primitives

    def _stat(self, path: WorkspacePath) -> FileStat | None:
        found = self.tree.status_and_target(path)
        if found is None:
            return None
        status, target = found
        kind = kind_of(status)
        if kind is FileKind.DIRECTORY:
            return FileStat(path, kind)
        executable = kind is FileKind.FILE and bool(status.st_mode & stat.S_IXUSR)
        return FileStat(path, kind or FileKind.FILE, status.st_size, executable, target)

    def _children(self, path: WorkspacePath) -> Iterable[FileStat]:
        return [_stat_of(entry) for entry in self.tree.entries(path)]

    def _open(self, path: WorkspacePath) -> BinaryIO:
        return self.tree.open(path)

    def _heads(
        self,
        base: WorkspacePath,
        wanted: GlobPattern,
        timer: SearchTimer,
    ) -> Iterator[Heads]:
        return disk_heads(self.tree, base, wanted, timer, self.exists)

    def _fingerprint(self, path: WorkspacePath) -> str:
        return self.fingerprints.of(path)

    def _write(self, path: WorkspacePath, data: bytes, *, mode: WriteMode) -> None:
        status = self.tree.write_file(path, (data,), mode=mode)
        if status is not None and mode != "append":
            self.fingerprints.know_written(status, data)

    def _delete(self, path: WorkspacePath, *, recursive: bool) -> None:
        self.tree.delete(path, recursive=recursive)

    def _mkdir(self, path: WorkspacePath) -> None:
        self.tree.make_directory(path)

    def _symlink(self, path: WorkspacePath, target: str) -> None:
        self.tree.make_symlink(path, target)

    def _set_executable(self, path: WorkspacePath, *, executable: bool) -> None:
        self.tree.set_executable(path, executable=executable)

    def _move(self, source: WorkspacePath, destination: WorkspacePath) -> None:
        moved, replaced = self._stat(source), self._stat(destination)
        if moved is not None and moved.kind is FileKind.DIRECTORY:
            self._check_depth(source, destination)
        if replaced is not None and replaced.kind is FileKind.DIRECTORY:
            raise PathExistsError(f"{destination} exists already")
        self.tree.move(source, destination)

    def _check_depth(self, source: WorkspacePath, destination: WorkspacePath) -> None:
        for listing in self.tree.listings(source):
            depth = len(destination.parts) + len(listing.parts) + bool(listing.entries)
            if depth > MAX_PATH_DEPTH:
                raise LimitExceededError(
                    f"a path of {depth} segments below {destination}, "
                    f"at most {MAX_PATH_DEPTH} allowed",
                    hint="Use fewer nested directories.",
                )


def _stat_of(entry: DiskEntry) -> FileStat:
    if entry.kind is FileKind.DIRECTORY:
        return FileStat(entry.path, FileKind.DIRECTORY)
    return FileStat(
        entry.path,
        entry.kind or FileKind.FILE,
        entry.size_bytes,
        entry.executable,
        entry.target,
    )
