"""A filesystem on a host directory that untrusted code may be changing at the same time.

Nothing outside of the directory is read or written, whatever links are swapped in meanwhile;
``tree`` says how. What other processes do between two operations is simply found by the
second one.

It keeps no history: ``snapshot``, ``restore`` and ``changes`` are those of the ``history``
that it is given. Where it differs from a filesystem in memory:

* Pipes, sockets and devices are listed as files, which cannot be read but be deleted.
* Writing to one of several hard links gives that name a file of its own.
* The fingerprint of a file above 64 MiB stands for its identity, not for its content.
* A recursive delete that the system stops half-way has deleted a part.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import BinaryIO, Protocol, Self

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

from .fingerprints import DiskFingerprints
from .tree import DiskEntry, DiskTree, kind_of

__all__ = ["DiskFilesystem", "DiskHistory"]


class DiskHistory(Protocol):
    """Keeps the former states of a directory; the methods are those of ``Filesystem``."""

    def snapshot(self) -> object:
        """A token for the present state; the same object while nothing changes."""
        ...

    def restore(self, token: object) -> None:
        """Put back the state of one of its tokens, or raise ``SnapshotError``."""
        ...

    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        """The paths that differ between two snapshots (*after* defaults to now), in path order."""
        ...

    def diff(self, before: object, after: object | None = None) -> str:
        """The same as a git-style diff, in which a path that is too large has one line."""
        ...


class DiskFilesystem(Filesystem):
    """The files of a host directory.

    Args:
        root: The directory, or a tree open on it, which stays the caller's to close.
        history: Serves snapshots; without one they are refused with ``UsageError``.
        limits: Bounds on single operations.
        read_only: Refuse every change.
        clock: Measures the time that searches take, and tells how old files are.
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the directory, unless the tree is the caller's."""
        if self._owns_tree:
            self.tree.close()

    # History

    def snapshot(self) -> object:
        """A snapshot of the history."""
        self.fingerprints.written = None  # from here on, what is on the disk alone counts
        return (self._history or self._kept()).snapshot()

    def restore(self, token: object) -> None:
        """Put back a snapshot of the history."""
        self._kept().restore(token)

    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        """The paths that differ between two snapshots of the history."""
        return self._kept().changes(before, after)

    def diff(self, before: object, after: object | None = None) -> str:
        """The same as a git-style diff, in which a path that is too large has one line."""
        return self._kept().diff(before, after)

    def _kept(self) -> DiskHistory:
        if self._history is None:
            raise UsageError(
                f"{self.tree.root} keeps no history",
                hint="Open it as a Workspace, whose ledger serves snapshots.",
            )
        return self._history

    # Looking: in most paths nothing is a link, and one walk is enough

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
        """Where a file is, without links, and its fingerprint; see ``Filesystem.identify``."""
        given = parse_path(path)
        there = self.tree.looked_at(given)
        if there is not None and stat.S_ISREG(there[0].st_mode):
            return given, self.fingerprints.of_file(given, there[0])
        return super().identify(given, follow=follow)

    # Primitives

    def _stat(self, path: WorkspacePath) -> FileStat | None:
        there = self.tree.looked_at(path)
        if there is None:
            return None
        status, target = there
        kind = kind_of(status)
        if kind is FileKind.DIRECTORY:
            return FileStat(path, kind)
        executable = kind is FileKind.FILE and bool(status.st_mode & stat.S_IXUSR)
        return FileStat(path, kind or FileKind.FILE, status.st_size, executable, target)

    def _children(self, path: WorkspacePath) -> Iterable[FileStat]:
        return [_stat_of(entry) for entry in self.tree.entries(path)]

    def _open(self, path: WorkspacePath) -> BinaryIO:
        return self.tree.open(path)

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
