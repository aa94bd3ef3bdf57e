"""The pending mark of a call: written before its first effect, removed after its last.

A process that finds a mark when it opens a workspace knows that the previous one died during a
call. If the head is the commit of that call, with the parent that the mark names, the call was
committed and only the mark has to be removed. Otherwise the call's changes are undone. Each step
may be repeated, so a crash during recovery does no harm.

The file is created once, stays open, and is renamed back and forth for each call: if files are
created and deleted all the time, the filesystem searches longer and longer for a free one. A text
is padded with spaces to the length of the longest one, so that the file is never truncated.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from wink_workspace._kill_points import KillPoint, passed

from .disk import ledger_failure, ledger_failures, sync

__all__ = ["CallTimes", "PendingMark", "PendingMarks"]

_MOST_TRIES: Final = 10_000  # some 20 ms

_encode = json.JSONEncoder().encode


@dataclass(frozen=True, slots=True)
class PendingMark:
    """A call that began: its id and tool, the head before it, and the time.

    An unreadable mark still means that there was a call; its texts are empty then.
    """

    call_id: str
    tool: str
    parent: str | None
    started_at: datetime


@dataclass(frozen=True, slots=True)
class CallTimes:
    """When a call began and what time it is now, in ns, by the clock that sets change times."""

    since_ns: int
    until_ns: int

    def include(self, changed_ns: int) -> bool:
        """Whether a file with this change time was changed during the call.

        A file from the future was changed before the clock was set back. If that happened during
        the call, all files that changed since its beginning count.
        """
        if self.until_ns < self.since_ns:
            return changed_ns >= self.since_ns
        return self.since_ns <= changed_ns <= self.until_ns


class PendingMarks:
    """The pending mark of a branch.

    Args:
        path: The mark's file.
        durable: Whether a mark survives a loss of power.
    """

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self._path = str(path)
        self._unused = f"{path}.new"
        self._durable = durable
        self._fd = -1
        self._n_bytes = 0

    def close(self) -> None:
        """Close the file; may be repeated."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def write(self, mark: PendingMark) -> None:
        """Write *mark* atomically.

        Raises:
            LedgerError: If it cannot be written.
        """
        fields = {
            "call_id": mark.call_id,
            "tool": mark.tool,
            "parent": mark.parent,
            "started_at": mark.started_at.isoformat(),
        }
        text = _encode(fields).encode()
        try:
            if self._fd < 0 or not self._put_in_place(text):
                self.close()
                self._open()
                if not self._put_in_place(text):
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            if self._durable:
                sync(os.path.dirname(self._path))  # noqa: PTH120 - as above
        except OSError as error:
            raise ledger_failure("the pending mark cannot be written", error) from error
        passed(KillPoint.MARK_IN_PLACE)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self._unused, flags, 0o600)
        self._n_bytes = os.fstat(self._fd).st_size

    def _put_in_place(self, text: bytes) -> bool:
        """Overwrite the unused file with *text* and rename it; false if it is no longer there."""
        text = text.ljust(self._n_bytes)
        self._n_bytes = len(text)  # first, as a disk that is full may take a part
        if os.pwrite(self._fd, text, 0) != len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self._durable:
            os.fsync(self._fd)
        passed(KillPoint.MARK_WRITTEN)
        try:
            os.rename(self._unused, self._path)  # noqa: PTH104 - hot, and a Path costs more
        except FileNotFoundError:
            return False
        return True

    def read(self) -> PendingMark | None:
        """The mark, ``None`` if no call is in progress.

        Raises:
            LedgerError: If the file cannot be read.
        """
        with ledger_failures("the pending mark cannot be read"):
            try:
                text = Path(self._path).read_bytes()
            except FileNotFoundError:
                return None
        try:
            fields = json.loads(text)
            started_at = datetime.fromisoformat(fields.pop("started_at"))
            return PendingMark(**fields, started_at=started_at)
        except (ValueError, TypeError, KeyError, AttributeError):
            return PendingMark("", "", None, datetime.fromtimestamp(0, UTC))

    def separate(self) -> None:
        """Give the mark of this process a later time than every file that was changed before.

        Most kernels have a clock that ticks every few milliseconds, and this waits for a tick.
        Since Linux 6.13 a file whose times were just read gets the exact time.

        Raises:
            LedgerError: If that is not possible.
        """
        with ledger_failures("the pending mark cannot be written"):
            before_ns = os.fstat(self._fd).st_mtime_ns
            for _ in range(_MOST_TRIES):
                os.utime(self._fd)
                if os.fstat(self._fd).st_mtime_ns > before_ns:
                    return

    def times(self) -> CallTimes | None:
        """The times of the call in progress; ``None`` if there is none."""
        try:
            os.chmod(self._path, 0o600)  # noqa: PTH101 - as above; sets the change time alone
            status = os.stat(self._path)  # noqa: PTH116 - as above
        except OSError:
            return None
        return CallTimes(status.st_mtime_ns, status.st_ctime_ns)

    def remove(self) -> None:
        """Remove the mark, if there is one.

        Raises:
            LedgerError: If it cannot be removed.
        """
        try:
            # Not synced: recovery removes a mark that reappears.
            os.rename(self._path, self._unused)  # noqa: PTH104 - as above
        except FileNotFoundError:
            pass
        except OSError as error:
            raise ledger_failure("the pending mark cannot be removed", error) from error
        passed(KillPoint.MARK_REMOVED)
