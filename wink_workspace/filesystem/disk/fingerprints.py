"""Content hashes of what is on disk, computed again only where something changed.

Rule 1: the hash of a file is kept under its identity (device, inode, size, times), and only
if the file had been left alone for longer than a filesystem's clock may stand still, so that
the next change gives it another one.
Rule 2: a file above 64 MiB is not read: its identity stands for its content. Its fingerprint
differs after every change, and also after it was written again as it was.
"""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

from wink_workspace.clock import Clock
from wink_workspace.errors import FileMissingError
from wink_workspace.filesystem.fingerprints import (
    directory_fingerprint,
    file_fingerprint,
    link_fingerprint,
)
from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import WorkspacePath

from .descriptors import translated
from .tree import DiskEntry, DiskTree, entry_of, identity_of, racy_from_ns

__all__ = ["DiskFingerprints"]

_CHUNK_BYTES = 1_048_576
_MAX_HASHED_BYTES = 67_108_864
_MAX_KEPT = 100_000


class DiskFingerprints:
    """The fingerprints of a tree.

    Attributes:
        n_hashed_bytes: How much was read for them so far.
        written: See ``know_written``; set to ``None`` to forget it.
    """

    def __init__(self, tree: DiskTree, clock: Clock) -> None:
        self.n_hashed_bytes = 0
        self._tree = tree
        self._clock = clock
        self._kept: dict[tuple[int, int], tuple[tuple[int, ...], str]] = {}
        self.written: tuple[os.stat_result, bytes] | None = None

    def of(self, path: WorkspacePath) -> str:
        """The fingerprint of a file, a link, or a directory with all below it."""
        there = self._tree.entry(path)
        if there is None:
            raise FileMissingError(f"{path} does not exist")
        if there.kind is FileKind.DIRECTORY:
            return self._of_directory(path)
        return self.of_entry(there)

    def _of_directory(self, path: WorkspacePath) -> str:
        inside: dict[WorkspacePath, list[tuple[str, str]]] = {path: []}
        for entry in self._tree.walk(path):
            if entry.kind is FileKind.DIRECTORY:
                inside[entry.path] = []
            else:
                inside[entry.path.parent].append((entry.path.name, self.of_entry(entry)))
        for directory in reversed(list(inside)[1:]):
            fingerprint = directory_fingerprint(inside[directory])
            inside[directory.parent].append((directory.name, fingerprint))
        return directory_fingerprint(inside[path])

    def of_entry(self, entry: DiskEntry) -> str:
        """The fingerprint of what was found there and is no directory."""
        if entry.kind is FileKind.SYMLINK:
            return link_fingerprint(entry.target or "")
        if entry.kind is not FileKind.FILE or entry.size_bytes > _MAX_HASHED_BYTES:
            identity = repr(entry.identity).encode()
            return file_fingerprint((identity,), executable=entry.executable)
        return self._known(entry.identity) or self._hashed(entry)

    def of_file(self, path: WorkspacePath, status: os.stat_result) -> str:
        """The same of a file that has this status."""
        identity = identity_of(status)
        written, self.written = self.written, None
        if written is not None and identity_of(written[0]) == identity:
            executable = bool(status.st_mode & stat.S_IXUSR)
            return file_fingerprint((written[1],), executable=executable)
        return self._known(identity) or self.of_entry(entry_of(path, status, None))

    def know_written(self, status: os.stat_result, data: bytes) -> None:
        """Answer once with the fingerprint of *data*, which was written to a file just now.

        Once, and only until ``written`` is ``None`` again: the status does not tell yet whether
        the file changes again. Who asks next is the writer, who knows *data* and nothing later.
        """
        self.written = (status, data) if len(data) <= _CHUNK_BYTES else None

    def read_known(self, stream: BinaryIO, entry: DiskEntry) -> bytes:
        """The content of a small file, whose fingerprint is known from then on."""
        racy_ns = racy_from_ns(self._clock)
        try:
            data = stream.read()
            status = os.fstat(stream.fileno())
        except OSError as error:
            raise translated(entry.path, error) from error
        if entry.changed_ns < racy_ns and identity_of(status) == entry.identity:
            self._keep(entry, file_fingerprint((data,), executable=entry.executable))
        return data

    def _keep(self, entry: DiskEntry, fingerprint: str) -> None:
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        self._kept[entry.identity[:2]] = (entry.identity, fingerprint)

    def _known(self, identity: tuple[int, int, int, int, int]) -> str | None:
        kept = self._kept.get(identity[:2])
        return kept[1] if kept is not None and kept[0] == identity else None

    def _hashed(self, entry: DiskEntry) -> str:
        racy_ns = racy_from_ns(self._clock)
        with self._tree.open(entry.path) as stream:
            chunks = iter(lambda: self._read(stream), b"")
            fingerprint = file_fingerprint(chunks, executable=entry.executable)
            unchanged = identity_of(os.fstat(stream.fileno())) == entry.identity
        if unchanged and entry.changed_ns < racy_ns:
            self._keep(entry, fingerprint)
        return fingerprint

    def _read(self, stream: BinaryIO) -> bytes:
        chunk = stream.read(_CHUNK_BYTES)
        self.n_hashed_bytes += len(chunk)
        return chunk
