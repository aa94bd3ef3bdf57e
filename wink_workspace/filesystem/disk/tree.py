"""A host directory, entry by entry, while untrusted code may be changing it.

Rule 1: nothing outside the root is read or written. Every path is walked from the root's
descriptor, one directory inside the other, and a link on the way ends the walk.
Rule 2: a file appears whole under its name or not at all: it is written under a name that
nobody can guess and then renamed. Other names of the same file (hard links) keep what they
had.
Rule 3: the ``ChangeTracker`` hears of every change, also of one that failed.

``put_file``, ``put_symlink``, ``put_directory``, ``put_mode`` and ``remove`` make a path be
what is wanted whatever is there, as a restore needs it; the other methods refuse what a
filesystem refuses.
"""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from wink_workspace.clock import Clock
from wink_workspace.errors import DirectoryExpectedError, FileMissingError, UsageError
from wink_workspace.filesystem.changes import ChangeTracker
from wink_workspace.filesystem.model import FileKind, WriteMode
from wink_workspace.filesystem.paths import ROOT, WorkspacePath

from .descriptors import (
    Listing,
    Parts,
    adopt,
    change_mode,
    entries_of,
    give_name,
    lift_mode,
    listings,
    look,
    open_directory,
    open_listing,
    open_regular,
    open_root,
    remove,
    require_regular,
    telling,
    temporary_name,
)

__all__ = ["DiskEntry", "DiskTree", "identity_of", "settled_before_ns"]

_CHUNK_BYTES = 1_048_576
_COARSEST_TICK_NS = 2_000_000_000
_KINDS = {
    stat.S_IFREG: FileKind.FILE,
    stat.S_IFDIR: FileKind.DIRECTORY,
    stat.S_IFLNK: FileKind.SYMLINK,
}


_NOTHING_THERE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG))


@dataclass(frozen=True, slots=True)
class DiskEntry:
    """What is known of a path without reading it.

    ``kind`` is ``None`` for what a workspace cannot keep: pipes, sockets and devices.
    ``mode`` holds the permission bits. ``identity`` (device, inode, size, modification and
    change time in ns) differs after every change, unless two fell into one tick of the
    filesystem's clock.
    """

    path: WorkspacePath
    kind: FileKind | None
    size_bytes: int
    mode: int
    identity: tuple[int, int, int, int, int]
    n_links: int
    target: str | None = None

    @property
    def changed_ns(self) -> int:
        """When the status last changed, in ns since the epoch."""
        return self.identity[4]

    @property
    def executable(self) -> bool:
        """Whether it is a file that its owner may execute."""
        return self.kind is FileKind.FILE and bool(self.mode & stat.S_IXUSR)


def identity_of(status: os.stat_result) -> tuple[int, int, int, int, int]:
    """See ``DiskEntry.identity``."""
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def settled_before_ns(clock: Clock) -> int:
    """A file whose change time lies before this can no longer change without its changing.

    Filesystems count time in ticks, mostly of some milliseconds and on FAT of 2 s, and a
    second change in the tick of the first leaves no trace in the status.
    """
    return int(clock.now().timestamp() * 1e9) - _COARSEST_TICK_NS


class DiskTree:
    """The entries below *root*.

    Args:
        root: An existing directory; what leads to it is trusted and followed once.
        tracker: Is told of every change made here.
        lift_modes: Change modes that keep the owner out of files and directories, when they
            are met; for directories that are ours. Otherwise what is behind them is out of
            reach (``ReadOnlyError``).
        durable: Wait until what is written would survive a loss of power.

    Methods raise the errors of ``Filesystem``. Files get the mode 0644 or 0755, directories
    0755, whatever the umask is; what root makes belongs to the owner of the directory.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        tracker: ChangeTracker | None = None,
        lift_modes: bool = False,
        durable: bool = False,
    ) -> None:
        self.root = Path(root).absolute()
        self.tracker = tracker
        self._lift_modes = lift_modes
        self._durable = durable
        with telling(self.root):
            self._root = open_root(self.root)
        self._finalizer = weakref.finalize(self, os.close, self._root)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the root; no method works any more."""
        self._root = -1  # the number may soon be that of another directory
        self._finalizer()

    # Looking

    def entry(self, path: WorkspacePath) -> DiskEntry | None:
        """What is at *path*; ``None`` if nothing is, or if its parent is no directory."""
        with telling(path):
            try:
                if not path.parts:
                    return _entry(path, os.fstat(self._root), None)
                with self._parent(path) as (directory, name):
                    return _entry(path, *look(name, directory))
            except OSError as error:
                if error.errno not in _NOTHING_THERE:
                    raise
                return None

    def entries(self, path: WorkspacePath) -> list[DiskEntry]:
        """What is in the directory *path*, by name."""
        with self.opened(path) as listed, telling(path):
            return _entries(path, Listing((), listed, entries_of(listed)))

    def walk(self, path: WorkspacePath = ROOT) -> Iterator[DiskEntry]:
        """Everything below the directory *path*, parents first; links are not descended."""
        for listing in self.listings(path):
            yield from _entries(WorkspacePath(path.parts + listing.parts), listing)

    def listings(
        self,
        path: WorkspacePath = ROOT,
        *,
        before: Callable[[Parts, int], None] | None = None,
        unreadable: Callable[[Parts], None] | None = None,
    ) -> Iterator[Listing]:
        """Every directory from *path* down; see ``descriptors.listings``."""
        with telling(path), self._entered(path) as top:
            yield from listings(top, lift=self._lift_modes, before=before, unreadable=unreadable)

    @contextmanager
    def opened(self, path: WorkspacePath) -> Generator[int]:
        """A descriptor of the directory *path*, open for listing."""
        with (
            telling(path),
            self._entered(path) as directory,
            _closing(open_listing(directory)) as listed,
        ):
            yield listed

    def statuses(self, path: WorkspacePath, names: Iterable[str]) -> dict[str, os.stat_result]:
        """The status of those of the *names* in the directory *path* that exist."""
        found: dict[str, os.stat_result] = {}
        with (
            suppress(FileMissingError, DirectoryExpectedError),
            telling(path),
            self._entered(path) as directory,
        ):
            for name in names:
                if (status := _status(name, directory)) is not None:
                    found[name] = status
        return found

    def open(self, path: WorkspacePath) -> BinaryIO:
        """The regular file *path*, for reading and seeking; the caller closes it."""
        with telling(path), self._parent(path) as (directory, name):
            return os.fdopen(open_regular(name, directory, lift=self._lift_modes), "rb")

    # Changing, with the checks of a filesystem

    def write_file(
        self,
        path: WorkspacePath,
        content: Iterable[bytes],
        *,
        mode: WriteMode = "overwrite",
        executable: bool | None = None,
    ) -> None:
        """Write a file, whose parent exists, from pieces of any size.

        Args:
            path: A file, nothing, or something else than a directory, which is replaced.
            content: The pieces, written as they come.
            mode: As in ``Filesystem.write_bytes``; an append copies what is there.
            executable: Sets the mode to 0755 or 0644; by default a file keeps its mode.
        """
        with telling(path), self._changing(path), self._parent(path) as (directory, name):
            there = _status(name, directory)
            was_file = there is not None and stat.S_ISREG(there.st_mode)
            with self._temporary(directory) as (temporary, out):
                if mode == "append" and there is not None:
                    self._copy(name, directory, out)
                out.writelines(content)
                out.flush()
                owner = there if there is not None and was_file else os.fstat(directory)
                adopt(out.fileno(), owner)
                os.fchmod(out.fileno(), _file_mode(there if was_file else None, executable))
                self._sync(out.fileno())
                give_name(temporary, name, directory, replace=mode != "create")
            self._sync_directory(directory)

    def make_directory(self, path: WorkspacePath) -> None:
        """Make a directory, whose parent exists and which does not."""
        with (
            telling(path),
            self._changing(path, below=True),
            self._parent(path) as (directory, name),
        ):
            os.mkdir(name, 0o700, dir_fd=directory)
            with (
                _closing(open_directory(name, directory)) as entered,
                _closing(open_listing(entered)) as made,
            ):
                adopt(made, os.fstat(directory))
                os.fchmod(made, 0o755)
            if self.tracker is not None:
                self.tracker.made(path)
            self._sync_directory(directory)

    def make_symlink(self, path: WorkspacePath, target: str) -> None:
        """Make a link, whose parent exists and which does not, to any *target*."""
        with telling(path), self._changing(path), self._parent(path) as (directory, name):
            os.symlink(target, name, dir_fd=directory)
            self._sync_directory(directory)

    def delete(self, path: WorkspacePath, *, recursive: bool) -> None:
        """Delete a file, a link, or a directory that is empty unless *recursive*.

        A recursive delete changes modes that stand in its way. If the system stops it, a
        part is gone.
        """
        with (
            telling(path),
            self._changing(path, below=True),
            self._parent(path) as (directory, name),
        ):
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) and not recursive:
                os.rmdir(name, dir_fd=directory)
            else:
                remove(name, directory)
            self._sync_directory(directory)

    def move(self, source: WorkspacePath, destination: WorkspacePath) -> None:
        """Rename; a file or link at *destination*, whose parent exists, is replaced."""
        if source == destination:
            return
        with (
            self._changing(source, below=True),
            self._changing(destination, below=True),
            telling(source),
            self._parent(source) as (old_directory, old_name),
        ):
            moved = os.stat(old_name, dir_fd=old_directory, follow_symlinks=False)
            with telling(destination), self._parent(destination) as (new_directory, new_name):
                replaced = _status(new_name, new_directory)
                if replaced is not None and os.path.samestat(moved, replaced):
                    # Between two names of one file, rename does nothing.
                    os.unlink(old_name, dir_fd=old_directory)
                else:
                    if self._lift_modes and stat.S_ISDIR(moved.st_mode):
                        os.close(open_directory(old_name, old_directory, lift=True))
                    os.rename(
                        old_name, new_name, src_dir_fd=old_directory, dst_dir_fd=new_directory
                    )
                self._sync_directory(new_directory)
                self._sync_directory(old_directory)

    def set_executable(self, path: WorkspacePath, *, executable: bool) -> None:
        """Set or clear the executable bits of a file; its other bits stay."""

        def changed(status: os.stat_result) -> int:
            require_regular(status)
            mode = stat.S_IMODE(status.st_mode)
            return mode | 0o100 | (mode & 0o444) >> 2 if executable else mode & ~0o111

        with telling(path), self._changing(path), self._parent(path) as (directory, name):
            change_mode(name, directory, changed)

    # Changing, whatever is there

    def put_file(
        self, path: WorkspacePath, content: Iterable[bytes], *, executable: bool = False
    ) -> None:
        """Make *path* a file with this content and the mode 0644 or 0755."""
        self._make_way(path, lambda kind: kind is not FileKind.DIRECTORY)  # the rest is replaced
        self.write_file(path, content, executable=executable)

    def put_symlink(self, path: WorkspacePath, target: str) -> None:
        """Make *path* a link to *target*."""
        self._make_way(path, lambda _: False)
        self.make_symlink(path, target)

    def put_directory(self, path: WorkspacePath) -> None:
        """Make *path* a directory with the mode 0755; what is in one stays."""
        if self._make_way(path, lambda kind: kind is FileKind.DIRECTORY):
            self.put_mode(path, executable=True)
        else:
            self.make_directory(path)

    def put_mode(self, path: WorkspacePath, *, executable: bool) -> None:
        """Give a file the mode 0755 or 0644, and a directory 0755; its content stays."""

        def changed(status: os.stat_result) -> int:
            return 0o755 if executable or stat.S_ISDIR(status.st_mode) else 0o644

        with telling(path), self._changing(path), self._parent(path) as (directory, name):
            change_mode(name, directory, changed)

    def remove(self, path: WorkspacePath) -> None:
        """Make *path* nothing, with all that is below it."""
        with suppress(FileMissingError, DirectoryExpectedError):
            self.delete(path, recursive=True)

    def _make_way(self, path: WorkspacePath, may_stay: Callable[[FileKind | None], bool]) -> bool:
        """Make the parent a directory; whether what is at *path* may stay, which else is gone."""
        if not self._is_directory(path.parent):
            for ancestor in (*path.ancestors(),)[1:]:
                if not self._is_directory(ancestor):
                    self.remove(ancestor)
                    self.make_directory(ancestor)
        there = self.entry(path)
        stays = there is not None and may_stay(there.kind)
        if there is not None and not stays:
            self.remove(path)
        return stays

    def _is_directory(self, path: WorkspacePath) -> bool:
        there = self.entry(path)
        return there is not None and there.kind is FileKind.DIRECTORY

    # Entering

    @contextmanager
    def _entered(self, path: WorkspacePath) -> Generator[int]:
        """A descriptor for entering the directory *path*."""
        directory = os.dup(self._root)
        try:
            if self._lift_modes:
                lift_mode(directory)
            for name in path.parts:
                above = directory
                directory = open_directory(name, above, lift=self._lift_modes)
                os.close(above)
            yield directory
        finally:
            os.close(directory)

    @contextmanager
    def _parent(self, path: WorkspacePath) -> Generator[tuple[int, str]]:
        """A descriptor of the directory that holds *path*, and its name there."""
        if not path.parts:
            raise UsageError("the root is not an entry", hint="Name something below it.")
        with self._entered(path.parent) as directory:
            yield directory, path.name

    @contextmanager
    def _changing(self, path: WorkspacePath, *, below: bool = False) -> Generator[None]:
        try:
            yield
        finally:
            if self.tracker is not None:
                self.tracker.note(path, below=below)

    # Writing

    @contextmanager
    def _temporary(self, directory: int) -> Generator[tuple[str, BinaryIO]]:
        """A new file under a name of its own, removed if the block raises."""
        name = temporary_name()
        if self.tracker is not None:
            self.tracker.expect(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(name, flags, 0o600, dir_fd=directory)
        try:
            with os.fdopen(file, "wb") as out:
                yield name, out
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=directory)
            raise

    def _copy(self, name: str, directory: int, out: BinaryIO) -> None:
        file = open_regular(name, directory, lift=self._lift_modes)
        with os.fdopen(file, "rb") as source:
            out.writelines(iter(lambda: source.read(_CHUNK_BYTES), b""))

    def _sync(self, file: int) -> None:
        if self._durable:
            os.fsync(file)

    def _sync_directory(self, directory: int) -> None:
        if self._durable:
            with _closing(open_listing(directory)) as listing:
                os.fsync(listing)


def _file_mode(there: os.stat_result | None, executable: bool | None) -> int:
    if executable is None and there is not None:
        return there.st_mode & 0o777
    return 0o755 if executable else 0o644


def _status(name: str, directory: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _entry(path: WorkspacePath, status: os.stat_result, target: str | None) -> DiskEntry:
    return DiskEntry(
        path=path,
        kind=_KINDS.get(stat.S_IFMT(status.st_mode)),
        size_bytes=status.st_size,
        mode=stat.S_IMODE(status.st_mode),
        identity=identity_of(status),
        n_links=status.st_nlink,
        target=target,
    )


def _entries(path: WorkspacePath, listing: Listing) -> list[DiskEntry]:
    entries: list[DiskEntry] = []
    for name, listed in listing.entries:
        status, target = listed, None
        if stat.S_ISLNK(listed.st_mode):
            try:
                status, target = look(name, listing.fd)
            except FileNotFoundError:
                continue
        entries.append(_entry(path / name, status, target))
    return entries


@contextmanager
def _closing(descriptor: int) -> Generator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
