"""The pending mark of a call: written before its first effect, removed after its last.

A process that finds a mark when it opens a workspace knows that the previous one died during a
call. If the head is the commit of that call, with the parent that the mark names, the call was
committed and only the mark has to be removed. Otherwise the call's changes are undone. Each step
may be repeated, so a crash during recovery does no harm.

The file is created once, stays open, and is renamed back and forth for each call: if files are
created and deleted all the time, the filesystem searches longer and longer for a free one. A text
is padded with spaces to the length of the longest one, so that the file is never truncated.

The times of the file are those of a call: the modification time is its beginning, the change time
its end. They are also the latest times known of earlier calls. If the clock was set back since, a
mark has the latest one as ``latest_ns``: until the clock passes it, change times do not show
whether a file was changed during this call or an earlier one. Other marks lack this field.
"""

from __future__ import annotations

import errno
import json
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.ledger.store.disk import ledger_failure, ledger_failures, sync

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
    """When a call began and what time it is now, in ns, by the clock that sets change times.

    If the clock was set back before the call, ``earlier_ns`` is the latest time of earlier calls.
    """

    since_ns: int
    until_ns: int
    earlier_ns: int = -1

    @property
    def first_ns(self) -> int:
        """The first time that is only of this call."""
        return max(self.since_ns, self.earlier_ns + 1)

    def include(self, changed_ns: int) -> bool:
        """Whether a file with this change time was certainly changed during the call.

        A file from the future was changed before the clock was set back. If that happened during
        the call, all files that changed since its beginning count.
        """
        if self.until_ns < self.since_ns:
            return changed_ns >= self.first_ns
        return self.first_ns <= changed_ns <= self.until_ns


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
        self._latest_ns = -1  # of the calls before that of the mark

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
        fields: dict[str, str | int | None] = {
            "call_id": mark.call_id,
            "tool": mark.tool,
            "parent": mark.parent,
            "started_at": mark.started_at.isoformat(),
        }
        try:
            if self._fd < 0 or not self._put_in_place(fields):
                self.close()
                self._open()
                if not self._put_in_place(fields):
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            if self._durable:
                sync(os.path.dirname(self._path))  # noqa: PTH120 - as above
        except OSError as error:
            raise ledger_failure("the pending mark cannot be written", error) from error
        passed(KillPoint.MARK_IN_PLACE)

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self._unused, flags, 0o600)
        self._n_bytes = os.fstat(self._fd).st_size
        if self._n_bytes:
            latest_ns = _latest_ns(os.pread(self._fd, self._n_bytes, 0))
            self._latest_ns = max(self._latest_ns, latest_ns)

    def _put_in_place(self, fields: dict[str, str | int | None]) -> bool:
        """Overwrite the unused file with *fields* and rename it; false if it is no longer there."""
        if self._n_bytes:  # otherwise its times are not those of a call
            before = os.fstat(self._fd)
            self._latest_ns = max(self._latest_ns, before.st_mtime_ns, before.st_ctime_ns)
        if self._latest_ns > time.time_ns():
            fields["latest_ns"] = self._latest_ns
        text = _encode(fields).encode().ljust(self._n_bytes)
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
            fields.pop("latest_ns", None)
            started_at = datetime.fromisoformat(fields.pop("started_at"))
            return PendingMark(**fields, started_at=started_at)
        except (ValueError, TypeError, KeyError, AttributeError):
            return PendingMark("", "", None, datetime.fromtimestamp(0, UTC))

    def separate(self) -> None:
        """Give the mark of this process a later time than every file that was changed before.

        Most kernels have a clock that ticks every few milliseconds, and this waits for a tick.
        Since Linux 6.13 a file whose times were just read gets the exact time. After the clock was
        set back, no such time exists; see ``CallTimes.earlier_ns``.

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
            latest_ns = max(self._latest_ns, _latest_ns(Path(self._path).read_bytes()))
        except OSError:
            return None
        was_set_back = status.st_mtime_ns < latest_ns
        earlier_ns = latest_ns if was_set_back else -1
        return CallTimes(status.st_mtime_ns, status.st_ctime_ns, earlier_ns)

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


def _latest_ns(text: bytes) -> int:
    """The field ``latest_ns`` of a mark; -1 if it has none, or cannot be read."""
    try:
        return int(json.loads(text)["latest_ns"])
    except (ValueError, TypeError, KeyError):
        return -1
