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
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from wink_workspace.errors import ReadOnlyError
from wink_workspace.filesystem.paths import WorkspacePath

from .descriptors import (
    Descriptor,
    Listing,
    Parts,
    copy_content,
    is_sparse,
    open_seen,
    translate_os_error,
)
from .filling import NewTree
from .tree import DiskTree

__all__ = ["ContentStore", "CopiedEntry", "CopiedPart", "TreeCopy"]

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
    """Some of the entries of one directory, and the status of its original before it was listed."""

    directory: Parts
    original: os.stat_result | None = None
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
        part: CopiedPart[_KeptT] = CopiedPart(listing.parts, listing.status)
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
