"""Copy a whole directory tree into an empty directory, reading each file once.

Threads write the content that was read and pass it to a ``ContentStore``, so that system calls,
hashing and compression run in parallel.

Rule 1: the original is read by the rules of ``descriptors``. Files that cannot be read, and
pipes, sockets and devices, are skipped and reported.
Rule 2: a file gets the modification time of its original, because build tools compare times.
Rule 3: no other process uses the copy yet (``filling``). An error there ends the copying; the
caller deletes the incomplete copy.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from wink_workspace.errors import ReadOnlyError
from wink_workspace.filesystem.os_errors import translate_os_error
from wink_workspace.filesystem.paths import ROOT, WorkspacePath

from .descriptors import (
    Descriptor,
    Listing,
    Parts,
    change_mode,
    copy_content,
    is_sparse,
    open_seen,
    usual_mode,
    write_with_holes,
)
from .tree import DiskTree

# ---------------------------------------------------------------------------------------- filling

# Fill a new directory that no other process uses yet.
#
# Files are created under their final names, without a rename, and the status of an entry after its
# creation is final. If anything fails, the caller deletes the whole directory.


_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NewTree:
    """Creates entries in *tree*, which is empty at first; raises ``OSError`` as the system does.

    Files get the mode 0644 or 0755, directories 0755, whatever the umask is. If this process is
    root, new files and directories, but not links, get the owner of the tree's root.
    """

    def __init__(self, tree: DiskTree) -> None:
        self._tree = tree
        with tree.entered(ROOT) as top:
            self._owner = _other_owner(top)

    def entered(self, parts: Parts) -> Descriptor:
        """A descriptor for entering a directory, for a ``with`` block."""
        return self._tree.entered(WorkspacePath(parts))

    def make_directory(self, name: str, dir_fd: int) -> os.stat_result:
        """Create a directory; its status."""
        os.mkdir(name, 0o755, dir_fd=dir_fd)
        if self._owner is not None:
            os.chown(name, *self._owner, dir_fd=dir_fd, follow_symlinks=False)
        made = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        if stat.S_IMODE(made.st_mode) == 0o755:
            return made
        change_mode(name, dir_fd, lambda _: 0o755)
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)

    def make_symlink(self, name: str, target: str, dir_fd: int) -> os.stat_result:
        """Create a link to any *target*; its status."""
        os.symlink(target, name, dir_fd=dir_fd)
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)

    def mark_deleted(self, name: str, dir_fd: int) -> os.stat_result:
        """Hide *name* in the layers below, if the tree is an upper layer; the mark's status.

        Since Linux 5.8 any user may create this one device.
        """
        os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=dir_fd)
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)

    def write_file(
        self,
        name: str,
        content: Iterable[bytes],
        dir_fd: int,
        *,
        executable: bool,
        modified_ns: int | None = None,
    ) -> os.stat_result:
        """Create a file from pieces of any size, long runs of zeros as holes; its status."""
        with self.new_file(name, dir_fd, executable=executable) as file:
            write_with_holes(file, content)
            return self.finish(file, executable=executable, modified_ns=modified_ns)

    def new_file(self, name: str, dir_fd: int, *, executable: bool) -> Descriptor:
        """Create an empty file, which the caller writes, finishes and closes."""
        return Descriptor(os.open(name, _NEW, usual_mode(executable=executable), dir_fd=dir_fd))

    def finish(
        self, file: int, *, executable: bool, modified_ns: int | None = None
    ) -> os.stat_result:
        """Set owner and time, and the mode, which the umask may have reduced; the status.

        A file keeps the present time without *modified_ns*, the modification time of its original.
        """
        if self._owner is not None:
            os.fchown(file, *self._owner)
        if modified_ns is not None:
            os.utime(file, ns=(modified_ns, modified_ns))
        status, mode = os.fstat(file), usual_mode(executable=executable)
        if stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(file, mode)
            status = os.fstat(file)
        return status


def _other_owner(directory: int) -> tuple[int, int] | None:
    """The owner and group for new entries; ``None`` if they need not be set."""
    status = os.fstat(directory)
    ours = (os.geteuid(), os.getegid())
    theirs = (status.st_uid, status.st_gid)
    return theirs if ours[0] == 0 and theirs != ours else None


# ---------------------------------------------------------------------------------------- copying


_KeptT = TypeVar("_KeptT")
_KeptT_co = TypeVar("_KeptT_co", covariant=True)

_CHUNK_BYTES = 1_048_576
_FILES_A_BATCH = 64
_BYTES_A_BATCH = 4 * _CHUNK_BYTES
_LARGE_BYTES = 8 * _CHUNK_BYTES
_WORKERS = 2
_MAX_RUNNING_BATCHES = 4 * _WORKERS


class ContentStore(Protocol[_KeptT_co]):
    """Receives the content of every copied file, such as to store it in a ledger."""

    def keep(self, content: bytes) -> _KeptT_co:
        """Store the content of a file; called in any thread."""
        ...

    def keep_large(self, file: int) -> _KeptT_co:
        """Store the content of the open copy *file*; called in the thread of ``run``."""
        ...


class CopiedEntry(NamedTuple, Generic[_KeptT]):
    """An entry of the copy, with the status of its original before that was read.

    ``kept`` is the result of the store, ``target`` the target of a link.
    """

    name: str
    status: os.stat_result
    original: os.stat_result
    kept: _KeptT | None = None
    target: str | None = None


@dataclass(frozen=True, slots=True)
class CopiedPart(Generic[_KeptT]):
    """Some of the entries of one directory."""

    directory: Parts
    entries: list[CopiedEntry[_KeptT]] = field(default_factory=list[CopiedEntry[_KeptT]])
    skipped: list[str] = field(default_factory=list[str])


class TreeCopy(Generic[_KeptT]):
    """Copies *original* into the empty directory *copy*.

    Args:
        original: The directory to read.
        copy: The directory to fill, as a ``NewTree``.
        store: Receives every content.
    """

    def __init__(
        self,
        original: DiskTree,
        copy: DiskTree,
        store: ContentStore[_KeptT],
    ) -> None:
        self._original = original
        self._copy = NewTree(copy)
        self._store = store

    def run(self) -> Iterator[CopiedPart[_KeptT]]:
        """Copy while the result is iterated; a directory comes before its entries.

        Raises:
            FilesystemError: If the copy cannot be written, or another process moves
                directories of the original.
        """
        running: deque[Future[CopiedPart[_KeptT]]] = deque()
        unreadable: list[Parts] = []
        with ThreadPoolExecutor(_WORKERS, "wink-copy") as workers:
            for listing in self._original.listings(unreadable=unreadable.append):
                large, batches = _batches_of(listing)
                yield self._create_directories_and_links(listing)
                for names in batches:
                    source = Descriptor(os.dup(listing.fd))
                    target = self._copy.entered(listing.parts)
                    running.append(
                        workers.submit(self._copy_batch, listing.parts, source, target, names)
                    )
                    if len(running) > _MAX_RUNNING_BATCHES:
                        yield running.popleft().result()
                for name in large:
                    yield self._copy_large(listing, name)
            while running:
                yield running.popleft().result()
        for parts in unreadable:
            if not parts:
                raise ReadOnlyError(f"{self._original.root} cannot be read")
            yield CopiedPart(parts, skipped=[str(WorkspacePath(parts))])

    def _create_directories_and_links(self, listing: Listing) -> CopiedPart[_KeptT]:
        """Create the directories and links of a directory, and list what cannot be copied."""
        part: CopiedPart[_KeptT] = CopiedPart(listing.parts)
        with self._copy.entered(listing.parts) as target:
            for name, status in listing.entries:
                link = _link_target(name, listing.fd) if stat.S_ISLNK(status.st_mode) else None
                path = WorkspacePath((*listing.parts, name))
                with translate_os_error(path):
                    if stat.S_ISDIR(status.st_mode):
                        created = self._copy.make_directory(name, target)
                        part.entries.append(CopiedEntry(name, created, status))
                    elif link is not None:
                        created = self._copy.make_symlink(name, link, target)
                        part.entries.append(CopiedEntry(name, created, status, target=link))
                    elif not stat.S_ISREG(status.st_mode):
                        part.skipped.append(str(path))
        return part

    # An OSError in reading skips a file; one in writing ends the copying

    def _copy_batch(
        self, directory: Parts, from_: Descriptor, to: Descriptor, names: list[str]
    ) -> CopiedPart[_KeptT]:
        """Copy small files; runs in a thread and closes both directories."""
        part: CopiedPart[_KeptT] = CopiedPart(directory)
        with from_ as source, to as target:
            for name in names:
                try:
                    content, original = _read(name, source)
                except OSError:
                    part.skipped.append(str(WorkspacePath((*directory, name))))
                    continue
                executable = bool(original.st_mode & stat.S_IXUSR)
                with translate_os_error(WorkspacePath((*directory, name))):
                    status = self._copy.write_file(
                        name,
                        (content,),
                        target,
                        executable=executable,
                        modified_ns=original.st_mtime_ns,
                    )
                part.entries.append(CopiedEntry(name, status, original, self._store.keep(content)))
        return part

    def _copy_large(self, listing: Listing, name: str) -> CopiedPart[_KeptT]:
        """Copy a file that is too large to be in memory as a whole, or that has holes."""
        part: CopiedPart[_KeptT] = CopiedPart(listing.parts)
        path = WorkspacePath((*listing.parts, name))
        try:
            original, seen = open_seen(name, listing.fd)
        except OSError:
            part.skipped.append(str(path))
            return part
        executable = bool(seen.st_mode & stat.S_IXUSR)
        with (
            translate_os_error(path),
            Descriptor(original),
            self._copy.entered(listing.parts) as target,
            self._copy.new_file(name, target, executable=executable) as file,
        ):
            copy_content(original, file)
            status = self._copy.finish(file, executable=executable, modified_ns=seen.st_mtime_ns)
            os.lseek(file, 0, os.SEEK_SET)
            part.entries.append(CopiedEntry(name, status, seen, self._store.keep_large(file)))
        return part


def _batches_of(listing: Listing) -> tuple[list[str], list[list[str]]]:
    """The large and the sparse files of a directory, and the others in batches."""
    large: list[str] = []
    batches: list[list[str]] = []
    room_bytes = 0
    for name, status in listing.entries:
        if not stat.S_ISREG(status.st_mode):
            continue
        if status.st_size >= _LARGE_BYTES or is_sparse(status):
            large.append(name)
            continue
        if room_bytes < status.st_size or not batches or len(batches[-1]) == _FILES_A_BATCH:
            batches.append([])
            room_bytes = _BYTES_A_BATCH
        batches[-1].append(name)
        room_bytes -= status.st_size
    return large, batches


def _link_target(name: str, directory: int) -> str | None:
    """The target of a link; ``None`` if it is no longer a link."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError:
        return None


def _read(name: str, source: int) -> tuple[bytes, os.stat_result]:
    """A file's content, and its status before the content was read."""
    file, status = open_seen(name, source)
    with Descriptor(file):
        content = os.read(file, status.st_size + 1)
        if len(content) != status.st_size:  # its size is changing
            pieces = [content]
            while pieces[-1]:
                pieces.append(os.read(file, _CHUNK_BYTES))
            content = b"".join(pieces)
        return content, status
