"""The filesystem that every backend offers, and all of it that no backend decides.

Rule 1: public methods parse each path once, check limits and read-only parts, and follow
links; *primitives* (the underscored methods at the end) act on one physical path, in which
no component is a link, and follow nothing.
Rule 2: a primitive either does all of its work or raises and changes nothing. What needs
several of them undoes the earlier ones when a later one fails.
Rule 3: between two primitives anything may have happened to the files, so a primitive
checks what it relies on and raises the error of this package that fits.

Links whose target is relative and stays inside the root are followed when a path is read,
written or examined; ``delete``, ``move`` and ``symlink`` act on the link itself, and walks
(``walk``, ``glob``, ``grep``) never descend through one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from wink_workspace.clock import SYSTEM_CLOCK, Clock

from .model import (
    EditResult,
    FileChange,
    FileStat,
    FilesystemLimits,
    GlobResult,
    GrepResult,
    PatchResult,
    TextWindow,
    WriteMode,
    WriteResult,
)
from .paths import WorkspacePath

__all__ = ["Filesystem"]


class Filesystem(ABC):
    """Files below one root, as text and as bytes.

    Args:
        limits: Bounds on single operations.
        read_only: Refuse every change with ``ReadOnlyError``.
        clock: Measures the time that searches take.

    Every method that takes a path takes text or a ``WorkspacePath`` and raises
    ``InvalidPathError`` (``PathEscapeError`` for one that leads outside),
    ``FileMissingError``, ``DirectoryExpectedError`` or ``FileExpectedError`` where the path
    is not what it has to be, and ``LinkError`` where a link on the way leads outside or
    loops.
    """

    def __init__(
        self,
        *,
        limits: FilesystemLimits | None = None,
        read_only: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.limits = limits or FilesystemLimits()
        self.read_only = read_only
        self.read_only_paths: tuple[WorkspacePath, ...] = ()
        self.clock = clock

    # Reading

    def stat(self, path: str | WorkspacePath, *, follow: bool = True) -> FileStat:
        """What is at *path*; with ``follow=False`` a link is described itself."""
        raise NotImplementedError

    def exists(self, path: str | WorkspacePath) -> bool:
        """Whether something is at *path*; a link that leads nowhere does not count."""
        raise NotImplementedError

    def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
        """The entries of a directory by name, links as links."""
        raise NotImplementedError

    def walk(self, path: str | WorkspacePath = ".") -> Iterator[FileStat]:
        """Everything below a directory, parents first and names in order, links as links."""
        raise NotImplementedError

    def read_bytes(
        self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None
    ) -> bytes:
        """*limit* bytes (default: all) from *offset* on; fewer when the file ends."""
        raise NotImplementedError

    def read_text(
        self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None
    ) -> TextWindow:
        """*limit* lines after the first *offset*; the rest of the file is not read."""
        raise NotImplementedError

    def glob(self, pattern: str, path: str | WorkspacePath = ".") -> GlobResult:
        """The paths below *path* that match *pattern*."""
        raise NotImplementedError

    def grep(
        self, pattern: str, path: str | WorkspacePath = ".", *, glob: str | None = None
    ) -> GrepResult:
        """The lines that match a regular expression, in a file or below a directory."""
        raise NotImplementedError

    def fingerprint(self, path: str | WorkspacePath = ".") -> str:
        """A text that differs whenever the content at *path* (a file or all below) does."""
        raise NotImplementedError

    # Changing

    def write_bytes(
        self, path: str | WorkspacePath, data: bytes, *, mode: WriteMode = "overwrite"
    ) -> WriteResult:
        """Write a file, making the directories it needs."""
        raise NotImplementedError

    def write_text(
        self, path: str | WorkspacePath, text: str, *, mode: WriteMode = "overwrite"
    ) -> WriteResult:
        """Write *text* as UTF-8, line ends as they are."""
        raise NotImplementedError

    def edit(
        self, path: str | WorkspacePath, old: str, new: str, *, replace_all: bool = False
    ) -> EditResult:
        """Replace *old*, which must occur exactly once unless *replace_all*."""
        raise NotImplementedError

    def apply_patch(self, patch: str) -> PatchResult:
        """Apply a unified diff or a ``*** Begin Patch`` text: to all its files or to none."""
        raise NotImplementedError

    def delete(self, path: str | WorkspacePath, *, recursive: bool = False) -> None:
        """Delete a file, a link or an empty directory; with *recursive* a full one too."""
        raise NotImplementedError

    def mkdir(
        self, path: str | WorkspacePath, *, parents: bool = True, exist_ok: bool = True
    ) -> None:
        """Make a directory."""
        raise NotImplementedError

    def move(
        self,
        source: str | WorkspacePath,
        destination: str | WorkspacePath,
        *,
        overwrite: bool = False,
    ) -> None:
        """Give a file, link or directory the full path *destination*, parents made."""
        raise NotImplementedError

    def set_executable(self, path: str | WorkspacePath, executable: bool) -> None:
        """Set or clear a file's executable bit."""
        raise NotImplementedError

    def symlink(self, path: str | WorkspacePath, target: str) -> None:
        """Make a link to *target*, which is relative to the link's directory."""
        raise NotImplementedError

    # History

    @abstractmethod
    def snapshot(self) -> object:
        """A token for the present state; the same object while nothing changes."""

    @abstractmethod
    def restore(self, token: object) -> None:
        """Put back the state of a token of this filesystem.

        Raises:
            SnapshotError: For any other token; nothing has changed then.
        """

    @abstractmethod
    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        """The paths that differ between two snapshots (*after* defaults to now), by path.

        Directories count as paths, so an empty one that came or went is a change.
        """

    def diff(self, before: object, after: object | None = None) -> str:
        """``changes`` as a git-style diff, which ``git apply`` and ``patch -p1`` accept."""
        raise NotImplementedError

    # Primitives: one physical path each, no link followed

    @abstractmethod
    def _stat(self, path: WorkspacePath) -> FileStat | None:
        """What is at *path*; ``None`` if nothing is, or if its parent is no directory."""

    @abstractmethod
    def _children(self, path: WorkspacePath) -> Iterable[FileStat]:
        """The entries of the directory *path*, in any order."""

    @abstractmethod
    def _open(self, path: WorkspacePath) -> BinaryIO:
        """The file *path*, open for reading and seeking; the caller closes it."""

    @abstractmethod
    def _write(self, path: WorkspacePath, data: bytes, *, mode: WriteMode) -> None:
        """Write the file *path*, whose parent exists; its executable bit stays."""

    @abstractmethod
    def _delete(self, path: WorkspacePath, *, recursive: bool) -> None:
        """Delete a file, a link, or a directory that is empty unless *recursive*."""

    @abstractmethod
    def _mkdir(self, path: WorkspacePath) -> None:
        """Make the directory *path*, whose parent exists and which does not."""

    @abstractmethod
    def _move(self, source: WorkspacePath, destination: WorkspacePath) -> None:
        """Rename; a file or link at *destination* is replaced, its parent exists."""

    @abstractmethod
    def _set_executable(self, path: WorkspacePath, *, executable: bool) -> None:
        """Set or clear the executable bit of the file *path*."""

    @abstractmethod
    def _symlink(self, path: WorkspacePath, target: str) -> None:
        """Make the link *path*, whose parent exists and which does not; any *target*."""

    def _fingerprint(self, path: WorkspacePath) -> str:
        """``fingerprint`` of a physical path; a backend that can, keeps it."""
        raise NotImplementedError
