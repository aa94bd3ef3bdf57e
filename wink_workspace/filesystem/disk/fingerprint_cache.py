"""Content hashes of files on disk, cached until the files change.

Rule 1: the hash of a file is cached under its identity (device, inode, size, times), but not if
the file is racily clean (below): its next change might not alter the identity.
Rule 2: a file above 64 MiB is not read: its identity replaces its content. Its fingerprint
differs after every write, also of the same content.
"""

from __future__ import annotations

import os
import stat
import time
from typing import BinaryIO, Final

from wink_workspace.clock import Clock, SystemClock
from wink_workspace.errors import FileMissingError, FilesystemError
from wink_workspace.filesystem.model import (
    FileKind,
    directory_fingerprint,
    file_fingerprint,
    link_fingerprint,
)
from wink_workspace.filesystem.os_errors import translated
from wink_workspace.filesystem.paths import ROOT, WorkspacePath

from .tree import DiskEntry, DiskTree, entry_of, identity_of

# ----------------------------------------------------------------------------------- change times

# Which files are racily clean: their next change may leave their status as it is.
#
# A filesystem takes the time of a change from the kernel's coarse clock, which ticks every few
# milliseconds, and rounds it down to its own resolution, which is 2 s on FAT. So a second change in
# the same tick does not alter the status.
#
# Rule 1: a file whose status was read at the time *t* is racily clean if it changed at
# ``racy_ns`` or later, where ``racy_ns`` was determined before *t*. Any other change gets another
# change time. Rule 2: without further knowledge, ``racy_ns`` is 2 s ago by the clock of this
# process. Rule 3: on a filesystem of this machine that stores times exactly, ``racy_ns`` is the
# present time of the coarse clock: a later change cannot get an earlier time. Since Linux 6.13
# some times are finer, but none is earlier than the coarse clock. Rule 4: the times of other
# filesystems (``DiskTree.keeps_times``) may be those of a server, whose clock is late. So
# ``racy_ns`` is also not later than 2 s before the newest change that was read: the server's
# clock was there already. Files that changed together last are read again each time.


COARSEST_TICK_NS: Final = 2_000_000_000
_CLOCK_REALTIME_COARSE: Final = 5  # <linux/time.h>; the module ``time`` has no name for it


def racy_from_ns(clock: Clock) -> int:
    """``racy_ns`` for any filesystem."""
    return int(clock.now().timestamp() * 1e9) - COARSEST_TICK_NS


class ChangeTimes:
    """Determines ``racy_ns`` for the files of *tree*.

    Args:
        tree: The files.
        clock: The time. The kernel's clock is used only if this is the system's.
        is_local: Whether all files are on one filesystem, which takes its times from this machine.
    """

    def __init__(self, tree: DiskTree, clock: Clock, *, is_local: bool) -> None:
        self._clock = clock
        self.is_exact = is_local and isinstance(clock, SystemClock) and _stores_times_exactly(tree)

    def racy_from_ns(self) -> int:
        """``racy_ns`` for statuses that are read from now on."""
        if self.is_exact:
            return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
        return int(self._clock.now().timestamp() * 1e9) - COARSEST_TICK_NS  # inline: in each call


def _stores_times_exactly(tree: DiskTree) -> bool:
    """Whether a file that changes now gets the present time, not one rounded down.

    It is a file without a name, which no other process can find and no tracker notices.
    """
    try:
        with tree.opened(ROOT) as directory:
            file = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=directory)
            try:
                earliest_ns = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
                os.utime(file)
                return earliest_ns <= os.fstat(file).st_ctime_ns <= time.time_ns()
            finally:
                os.close(file)
    except (OSError, FilesystemError):  # the filesystem has no files without a name, as FAT
        return False


# ------------------------------------------------------------------------------ fingerprint cache


_CHUNK_BYTES = 1_048_576
_MAX_HASHED_BYTES = 67_108_864
_MAX_CACHED = 100_000


class DiskFingerprints:
    """The fingerprints of a tree.

    Attributes:
        n_hashed_bytes: The number of bytes read for hashing so far.
        written: See ``know_written``; set it to ``None`` to forget it.
    """

    def __init__(self, tree: DiskTree, clock: Clock) -> None:
        self.n_hashed_bytes = 0
        self._tree = tree
        self._clock = clock
        self._newest_ns = 0
        self._cached: dict[tuple[int, int], tuple[tuple[int, ...], str]] = {}
        self.written: tuple[os.stat_result, bytes] | None = None

    def of(self, path: WorkspacePath) -> str:
        """The fingerprint of a file, a link, or a directory with everything below it."""
        entry = self._tree.entry(path)
        if entry is None:
            raise FileMissingError(f"{path} does not exist")
        if entry.kind is FileKind.DIRECTORY:
            return self._of_directory(path)
        return self.of_entry(entry)

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
        """The fingerprint of an entry that is not a directory."""
        if entry.kind is FileKind.SYMLINK:
            return link_fingerprint(entry.target or "")
        if entry.kind is not FileKind.FILE or entry.size_bytes > _MAX_HASHED_BYTES:
            identity = repr(entry.identity).encode()
            return file_fingerprint((identity,), executable=entry.executable)
        return self._cached_fingerprint(entry.identity) or self._hashed(entry)

    def of_file(self, path: WorkspacePath, status: os.stat_result) -> str:
        """The fingerprint of a file that has this status."""
        identity = identity_of(status)
        written, self.written = self.written, None
        if written is not None and identity_of(written[0]) == identity:
            executable = bool(status.st_mode & stat.S_IXUSR)
            return file_fingerprint((written[1],), executable=executable)
        return self._cached_fingerprint(identity) or self.of_entry(entry_of(path, status, None))

    def know_written(self, status: os.stat_result, data: bytes) -> None:
        """Use *data*, which was just written, for the next fingerprint of the file.

        It is used only once and until ``written`` is reset: the file is racily clean, so its
        status may not show a later change. The next caller is the writer, which knows *data*.
        """
        self.written = (status, data) if len(data) <= _CHUNK_BYTES else None

    def read_known(self, stream: BinaryIO, entry: DiskEntry) -> bytes:
        """Read a small file and cache its fingerprint."""
        racy_ns = racy_from_ns(self._clock)
        try:
            data = stream.read()
            status = os.fstat(stream.fileno())
        except OSError as error:
            raise translated(entry.path, error) from error
        if (
            (self._tree.keeps_times or not self._is_among_newest(entry))
            and entry.changed_ns < racy_ns
            and identity_of(status) == entry.identity
        ):
            self._cache(entry, file_fingerprint((data,), executable=entry.executable))
        return data

    def _is_among_newest(self, entry: DiskEntry) -> bool:
        """Whether it changed up to 2 s before the newest change that was seen here."""
        self._newest_ns = max(self._newest_ns, entry.changed_ns)
        return entry.changed_ns >= self._newest_ns - COARSEST_TICK_NS

    def _cache(self, entry: DiskEntry, fingerprint: str) -> None:
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[entry.identity[:2]] = (entry.identity, fingerprint)

    def _cached_fingerprint(self, identity: tuple[int, int, int, int, int]) -> str | None:
        cached = self._cached.get(identity[:2])
        return cached[1] if cached is not None and cached[0] == identity else None

    def _hashed(self, entry: DiskEntry) -> str:
        racy_ns = racy_from_ns(self._clock)
        with self._tree.open(entry.path) as stream:
            chunks = iter(lambda: self._read(stream), b"")
            fingerprint = file_fingerprint(chunks, executable=entry.executable)
            unchanged = identity_of(os.fstat(stream.fileno())) == entry.identity
        is_clean = self._tree.keeps_times or not self._is_among_newest(entry)
        if unchanged and is_clean and entry.changed_ns < racy_ns:
            self._cache(entry, fingerprint)
        return fingerprint

    def _read(self, stream: BinaryIO) -> bytes:
        chunk = stream.read(_CHUNK_BYTES)
        self.n_hashed_bytes += len(chunk)
        return chunk
