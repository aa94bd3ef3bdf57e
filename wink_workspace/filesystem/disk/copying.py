"""A whole directory copied into an empty one, each file read once.

What is read is written and handed to ``Keeping`` at the same time, in threads: the system's
calls, hashing and compressing run beside one another.

Rule 1: the original is read as ``descriptors`` says; what cannot be read, or is no file,
directory or link, is skipped and told.
Rule 2: the copy is nobody else's yet (``filling``). Whatever goes wrong there ends the
copying, with what was done left to be deleted.
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
from wink_workspace.filesystem.paths import WorkspacePath

from .descriptors import (
    Descriptor,
    Listing,
    Parts,
    open_seen,
    translate_os_error,
    write_all,
)
from .filling import NewTree
from .tree import DiskTree

__all__ = ["CopiedEntry", "CopiedPart", "Keeping", "TreeCopy"]

_KeptT = TypeVar("_KeptT")
_KeptT_co = TypeVar("_KeptT_co", covariant=True)

_CHUNK_BYTES = 1_048_576
_FILES_A_BATCH = 64
_BYTES_A_BATCH = 4 * _CHUNK_BYTES
_LARGE_BYTES = 8 * _CHUNK_BYTES
_WORKERS = 2
_BATCHES_UNDER_WAY = 4 * _WORKERS


class Keeping(Protocol[_KeptT_co]):
    """What becomes of contents beside their copy."""

    def keep(self, content: bytes) -> _KeptT_co:
        """Take the content of a file; called in any thread."""
        ...

    def keep_large(self, file: int) -> _KeptT_co:
        """Take what the copy *file* holds from its position on; called where ``run`` is."""
        ...


class CopiedEntry(NamedTuple, Generic[_KeptT]):
    """An entry of the copy; ``kept`` is set for files, ``target`` for links."""

    name: str
    status: os.stat_result
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
        original: Is only read.
        copy: Is filled as a ``NewTree``.
        keeping: Is given every content.
        left_out: Names at the top that are passed over.
    """

    def __init__(
        self,
        original: DiskTree,
        copy: DiskTree,
        keeping: Keeping[_KeptT],
        *,
        left_out: Iterable[str] = (),
    ) -> None:
        self._original = original
        self._copy = NewTree(copy)
        self._keeping = keeping
        self._left_out = frozenset(left_out)

    def run(self) -> Iterator[CopiedPart[_KeptT]]:
        """Copy while what was copied is asked for; a directory comes before its entries.

        Raises:
            FilesystemError: If the copy cannot be written, or directories of the original are
                moved about meanwhile.
        """
        under_way: deque[Future[CopiedPart[_KeptT]]] = deque()
        unreadable: list[Parts] = []
        with ThreadPoolExecutor(_WORKERS, "wink-copy") as workers:
            for listing in self._original.listings(unreadable=unreadable.append):
                if not listing.parts:
                    listing.entries[:] = [
                        entry for entry in listing.entries if entry[0] not in self._left_out
                    ]
                large, batches = _sorted_out(listing)
                yield self._made(listing)
                for names in batches:
                    source = Descriptor(os.dup(listing.fd))
                    target = self._copy.entered(listing.parts)
                    under_way.append(
                        workers.submit(self._copied, listing.parts, source, target, names)
                    )
                    if len(under_way) > _BATCHES_UNDER_WAY:
                        yield under_way.popleft().result()
                for name in large:
                    yield self._copied_large(listing, name)
            while under_way:
                yield under_way.popleft().result()
        for parts in unreadable:
            if not parts:
                raise ReadOnlyError(f"{self._original.root} cannot be read")
            yield CopiedPart(parts, skipped=[str(WorkspacePath(parts))])

    def _made(self, listing: Listing) -> CopiedPart[_KeptT]:
        """Make the directories and links of a directory, and tell what is nothing of a copy."""
        made: CopiedPart[_KeptT] = CopiedPart(listing.parts)
        with self._copy.entered(listing.parts) as target:
            for name, status in listing.entries:
                link = _link_target(name, listing.fd) if stat.S_ISLNK(status.st_mode) else None
                path = WorkspacePath((*listing.parts, name))
                with translate_os_error(path):
                    if stat.S_ISDIR(status.st_mode):
                        now = self._copy.make_directory(name, target)
                        made.entries.append(CopiedEntry(name, now))
                    elif link is not None:
                        now = self._copy.make_symlink(name, link, target)
                        made.entries.append(CopiedEntry(name, now, target=link))
                    elif not stat.S_ISREG(status.st_mode):
                        made.skipped.append(str(path))
        return made

    # Files; the system's errors in reading skip one, those in writing end it all

    def _copied(
        self, directory: Parts, original: Descriptor, copy: Descriptor, names: list[str]
    ) -> CopiedPart[_KeptT]:
        """Copy small files; runs in a thread and closes both directories."""
        part: CopiedPart[_KeptT] = CopiedPart(directory)
        with original as source, copy as target:
            for name in names:
                try:
                    content, executable = _read(name, source)
                except OSError:
                    part.skipped.append(str(WorkspacePath((*directory, name))))
                    continue
                with translate_os_error(WorkspacePath((*directory, name))):
                    status = self._copy.write_file(name, (content,), target, executable=executable)
                part.entries.append(CopiedEntry(name, status, self._keeping.keep(content)))
        return part

    def _copied_large(self, listing: Listing, name: str) -> CopiedPart[_KeptT]:
        """Copy a file that is not to be in memory as a whole."""
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
            _pour(original, file)
            status = self._copy.finish(file, executable=executable)
            os.lseek(file, 0, os.SEEK_SET)
            part.entries.append(CopiedEntry(name, status, self._keeping.keep_large(file)))
        return part


def _sorted_out(listing: Listing) -> tuple[list[str], list[list[str]]]:
    """The large files of a directory, and the others in batches."""
    large: list[str] = []
    batches: list[list[str]] = []
    room = 0
    for name, status in listing.entries:
        if not stat.S_ISREG(status.st_mode):
            continue
        if status.st_size >= _LARGE_BYTES:
            large.append(name)
            continue
        if room < status.st_size or not batches or len(batches[-1]) == _FILES_A_BATCH:
            batches.append([])
            room = _BYTES_A_BATCH
        batches[-1].append(name)
        room -= status.st_size
    return large, batches


def _link_target(name: str, directory: int) -> str | None:
    """Where a link leads; ``None`` if it is none any more."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError:
        return None


def _read(name: str, source: int) -> tuple[bytes, bool]:
    """A file's content, and whether its owner may execute it."""
    file, status = open_seen(name, source)
    with Descriptor(file):
        content = os.read(file, status.st_size + 1)
        if len(content) != status.st_size:  # it may be growing
            pieces = [content]
            while pieces[-1]:
                pieces.append(os.read(file, _CHUNK_BYTES))
            content = b"".join(pieces)
        return content, bool(status.st_mode & stat.S_IXUSR)


def _pour(source: int, target: int) -> None:
    """Copy all of a file, within the system where it can: some filesystems share the blocks."""
    try:
        while os.copy_file_range(source, target, _LARGE_BYTES):
            pass
    except OSError:  # not between these two; what was copied so far counts
        while piece := os.read(source, _CHUNK_BYTES):
            write_all(target, piece)
