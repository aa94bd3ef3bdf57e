"""Read the contents of many files of a tree; threads hash and compress the larger ones.

A directory is entered once for all of its files, and a file needs five system calls: for a
thousand files or more, this takes a third of the time of ``DiskTree.open`` for each. Small contents
are not passed to threads: changing the thread that runs Python takes longer than compressing them.

Rule 1: the rules of ``descriptors`` hold. Only regular files are read, and no link is followed.
Rule 2: whatever needs more than that is returned by its path, for the caller to read alone: links,
pipes, large files, and files that cannot be opened.
Rule 3: the memory is bounded: contents of at most 32 MiB are read ahead of the caller.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

from wink_workspace.errors import FilesystemError
from wink_workspace.filesystem.paths import WorkspacePath

from .descriptors import READ, Parts, attributes_of
from .tree import DiskTree

_KeptT = TypeVar("_KeptT")

_LARGE_BYTES = 8 * 1_048_576
_INLINE_BYTES = 65_536
_FILES_A_PART = 256
_WORKERS = 2
_MAX_RUNNING_BYTES = 32 * 1_048_576


class ReadFile(NamedTuple, Generic[_KeptT]):
    """A regular file that was read; ``kept`` is the result for its content."""

    name: str
    kept: _KeptT
    mode: int
    has_attributes: bool


@dataclass(frozen=True, slots=True)
class ReadPart(Generic[_KeptT]):
    """Some entries of the directory *below* the path *top*; ``others`` are names of rule 2.

    ``missing`` are names that do not exist.
    ``entered`` is set in the first part of a directory: its mode, and whether it has attributes.
    """

    top: WorkspacePath
    below: Parts = ()
    files: list[ReadFile[_KeptT]] = field(default_factory=list[ReadFile[_KeptT]])
    others: list[str] = field(default_factory=list[str])
    missing: list[str] = field(default_factory=list[str])
    entered: tuple[int, bool] | None = None


class BulkReading(Generic[_KeptT]):
    """Reads files of *tree*; *keep* gets each content, in any thread."""

    def __init__(self, tree: DiskTree, keep: Callable[[bytes], _KeptT]) -> None:
        self._tree = tree
        self._keep = keep

    def run(
        self, tops: Iterable[WorkspacePath], paths: Iterable[WorkspacePath]
    ) -> Iterator[ReadPart[_KeptT]]:
        """Everything below the directories *tops*, and *paths* alone.

        The top of one of *paths* is its parent. A directory comes before its entries.

        Raises:
            FilesystemError: If one of *tops*, or a directory below it, cannot be read.
        """
        running: deque[_Running[_KeptT]] = deque()
        n_bytes = 0
        with ThreadPoolExecutor(_WORKERS, "wink-read") as workers:
            for part in chain(self._below(workers, tops), self._named(workers, paths)):
                if isinstance(part, ReadPart):
                    yield part
                    continue
                running.append(part)
                n_bytes += part.n_bytes
                while n_bytes > _MAX_RUNNING_BYTES:
                    n_bytes -= running[0].n_bytes
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()

    def _below(
        self, workers: ThreadPoolExecutor, tops: Iterable[WorkspacePath]
    ) -> Iterator[ReadPart[_KeptT] | _Running[_KeptT]]:
        for top in tops:
            for listing in self._tree.listings(top):
                mode = stat.S_IMODE(os.fstat(listing.fd).st_mode)
                has_attributes = bool(attributes_of(listing.fd, path_only=False))
                part: ReadPart[_KeptT] = ReadPart(
                    top, listing.parts, entered=(mode, has_attributes)
                )
                files: list[str] = []
                for name, status in listing.entries:
                    if stat.S_ISREG(status.st_mode):
                        files.append(name)
                    elif not stat.S_ISDIR(status.st_mode):
                        part.others.append(name)
                yield part
                yield from self._files(workers, top, listing.parts, listing.fd, files)

    def _named(
        self, workers: ThreadPoolExecutor, paths: Iterable[WorkspacePath]
    ) -> Iterator[ReadPart[_KeptT] | _Running[_KeptT]]:
        by_directory: dict[Parts, list[str]] = {}
        for path in paths:
            by_directory.setdefault(path.parts[:-1], []).append(path.parts[-1])
        for parts, names in by_directory.items():
            directory = WorkspacePath(parts)
            try:
                found = self._tree.statuses(directory, names)
                entered = self._tree.entered(directory)
            except FilesystemError:
                yield ReadPart(directory, others=names)
            else:
                files: list[str] = []
                part: ReadPart[_KeptT] = ReadPart(directory)
                for name in names:
                    if name not in found:
                        part.missing.append(name)
                    else:
                        is_file = stat.S_ISREG(found[name].st_mode)
                        (files if is_file else part.others).append(name)
                yield part
                with entered as descriptor:
                    yield from self._files(workers, directory, (), descriptor, files)

    def _files(
        self,
        workers: ThreadPoolExecutor,
        top: WorkspacePath,
        below: Parts,
        directory: int,
        names: Sequence[str],
    ) -> Iterator[ReadPart[_KeptT] | _Running[_KeptT]]:
        """The files *names* of an open directory."""
        keep = self._keep
        for start in range(0, len(names), _FILES_A_PART):
            part: ReadPart[_KeptT] = ReadPart(top, below)
            for name in names[start : start + _FILES_A_PART]:
                try:
                    file = os.open(name, READ, dir_fd=directory)
                    try:
                        status = os.fstat(file)
                        size_bytes = status.st_size
                        if not stat.S_ISREG(status.st_mode) or size_bytes >= _LARGE_BYTES:
                            part.others.append(name)
                            continue
                        content = os.read(file, size_bytes + 1)
                        has_attributes = bool(attributes_of(file, path_only=False))
                    finally:
                        os.close(file)
                except OSError:
                    part.others.append(name)
                    continue
                mode = stat.S_IMODE(status.st_mode)
                if len(content) != size_bytes:  # it is changing
                    part.others.append(name)
                elif size_bytes <= _INLINE_BYTES:
                    part.files.append(ReadFile(name, keep(content), mode, has_attributes))
                else:
                    kept = workers.submit(keep, content)
                    yield _Running(top, below, name, kept, mode, has_attributes, len(content))
            yield part


class _Running(NamedTuple, Generic[_KeptT]):
    """A file whose content is in a thread."""

    top: WorkspacePath
    below: Parts
    name: str
    kept: Future[_KeptT]
    mode: int
    has_attributes: bool
    n_bytes: int

    def result(self) -> ReadPart[_KeptT]:
        file = ReadFile(self.name, self.kept.result(), self.mode, self.has_attributes)
        return ReadPart(self.top, self.below, [file])
