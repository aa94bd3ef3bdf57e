"""The beginnings of all files below a directory of the disk, for a search.

Rule 1: the order is the order of paths, one directory after the other, as in ``search.find``;
directories with derived files, such as ``node_modules``, come last.
Rule 2: files are opened by name in a directory that the tree entered, without following links.
What was a regular file when its directory was listed is opened without blocking and read with
pread(2), which refuses pipes, sockets, terminals and directories. A device cannot take its place:
a sandbox has no right to make one.
Rule 3: the first files are read in this thread, which is the fastest way for a few. Once it has
waited often, the files come from a disk, and threads read the next batches ahead.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from enum import Enum, auto
from itertools import chain
from operator import itemgetter
from resource import RUSAGE_THREAD, getrusage
from typing import Final, TypeAlias

from wink_workspace.errors import FilesystemError
from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import DERIVED_NAMES, WorkspacePath
from wink_workspace.filesystem.search import (
    EVERYTHING,
    HEAD_BYTES,
    GlobPattern,
    Heads,
    SearchTimer,
)

from .descriptors import READ
from .tree import DiskTree

_BATCH_FILES: Final = 64
_FILES_A_WAIT: Final = 4
_MOST_WAITS: Final = 200
"""Threads are used once a thread waited this often more than once in 4 files."""
_N_THREADS: Final = 8
_N_AHEAD: Final = 8


class _Kind(Enum):
    FILE = auto()
    DIRECTORY = auto()
    LINK = auto()
    OTHER = auto()


_Batch: TypeAlias = tuple[WorkspacePath, list[str], bool]
"""A directory, names of files in it, and whether they can be read."""


def disk_heads(
    tree: DiskTree,
    base: WorkspacePath,
    wanted: GlobPattern,
    timer: SearchTimer,
    exists: Callable[[WorkspacePath], bool],
) -> Iterator[Heads]:
    """The files below *base* that match *wanted*, with their heads, in path order.

    Pipes, sockets, devices, and links that lead to nothing count as unreadable files.

    Args:
        tree: The directory.
        base: A physical path.
        wanted: A pattern for paths relative to *base*.
        timer: Ends the search.
        exists: Whether a link leads to anything.

    Raises:
        SearchTimeoutError: When the *timer* ends.
    """
    batches = _batches(tree, base, wanted, exists)
    n_waits = 0
    for batch in batches:
        timer.left_s()
        before = _n_switches()
        heads = _read(tree, *batch)
        n_waits = max(0, n_waits + _n_switches() - before - len(heads) // _FILES_A_WAIT)
        yield batch[0], batch[1], heads
        if n_waits > _MOST_WAITS:
            yield from _read_ahead(tree, batches, timer)


def _n_switches() -> int:
    """How often this thread waited until now."""
    return getrusage(RUSAGE_THREAD).ru_nvcsw


def _read_ahead(tree: DiskTree, batches: Iterator[_Batch], timer: SearchTimer) -> Iterator[Heads]:
    """The rest of *batches*, read by threads."""
    first = next(batches, None)
    if first is None:
        return
    with ThreadPoolExecutor(_N_THREADS, "wink-grep") as executor:
        ahead: deque[tuple[_Batch, Future[list[bytes | None]]]] = deque()
        try:
            for batch in chain((first,), batches):
                timer.left_s()
                ahead.append((batch, executor.submit(_read, tree, *batch)))
                if len(ahead) > _N_AHEAD:
                    yield _finished(*ahead.popleft(), timer)
            while ahead:
                yield _finished(*ahead.popleft(), timer)
        finally:
            for _, future in ahead:
                future.cancel()


def _finished(batch: _Batch, future: Future[list[bytes | None]], timer: SearchTimer) -> Heads:
    try:
        return batch[0], batch[1], future.result(timer.left_s())
    except FutureTimeoutError as error:
        raise timer.expired() from error


def _batches(
    tree: DiskTree,
    base: WorkspacePath,
    wanted: GlobPattern,
    exists: Callable[[WorkspacePath], bool],
) -> Iterator[_Batch]:
    levels = [(base, wanted.start, _entries(tree, base))]
    later: deque[tuple[WorkspacePath, frozenset[int]]] = deque()
    while levels:
        directory, at, entries = levels[-1]
        names: list[str] = []
        below: tuple[WorkspacePath, frozenset[int]] | None = None
        for name, kind in entries:
            here = at if wanted is EVERYTHING else wanted.step(at, name)
            if not here:
                continue
            if kind is _Kind.DIRECTORY and name in DERIVED_NAMES:
                later.append((directory / name, here))
                continue
            if kind is _Kind.DIRECTORY:
                below = directory / name, here
                break
            if wanted is not EVERYTHING and not wanted.accepts(here, FileKind.FILE):
                continue
            if kind is _Kind.FILE:
                names.append(name)
                if len(names) == _BATCH_FILES:
                    break
            elif kind is _Kind.OTHER or not exists(directory / name):
                if names:
                    yield directory, names, True
                names = []
                yield directory, [name], False
        else:
            levels.pop()
        if names:
            yield directory, names, True
        if below is None and not levels and later:
            below = later.popleft()
        if below is not None:
            levels.append((*below, _entries(tree, below[0])))


def _entries(tree: DiskTree, path: WorkspacePath) -> Iterator[tuple[str, _Kind]]:
    """The entries of a directory by name; none if it vanished or cannot be read."""
    try:
        with tree.opened(path) as listed, os.scandir(listed) as found:
            entries = [(entry.name, _kind_of(entry)) for entry in found]
    except (FilesystemError, OSError):
        return iter(())
    if tree.hidden is not None:
        below = [name for name, kind in entries if kind is _Kind.DIRECTORY]
        hidden = tree.hidden.hidden_in(path.parts, [name for name, _ in entries], below)
        if hidden:
            entries = [entry for entry in entries if entry[0] not in hidden]
    entries.sort(key=itemgetter(0))
    return iter(entries)


def _kind_of(entry: os.DirEntry[str]) -> _Kind:
    if entry.is_file(follow_symlinks=False):
        return _Kind.FILE
    if entry.is_dir(follow_symlinks=False):
        return _Kind.DIRECTORY
    return _Kind.LINK if entry.is_symlink() else _Kind.OTHER


def _read(
    tree: DiskTree, directory: WorkspacePath, names: list[str], is_readable: bool
) -> list[bytes | None]:
    """The head of each file; ``None`` for one that cannot be read. May run in any thread."""
    if not is_readable:
        return [None] * len(names)
    heads: list[bytes | None] = []
    try:
        entered = tree.entered(directory)
    except (FilesystemError, OSError):
        return [None] * len(names)
    with entered as dir_fd:
        for name in names:
            try:
                file = os.open(name, READ, dir_fd=dir_fd)
                try:
                    heads.append(os.pread(file, HEAD_BYTES, 0))
                finally:
                    os.close(file)
            except OSError:
                heads.append(_read_again(tree, directory / name))
    return heads


def _read_again(tree: DiskTree, path: WorkspacePath) -> bytes | None:
    """The head of a file whose mode may have to be changed first."""
    try:
        with tree.open(path) as stream:
            return stream.read(HEAD_BYTES)
    except (FilesystemError, OSError):
        return None
