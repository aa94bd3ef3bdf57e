"""The mark that a call is under way: written before its first effect, removed after its last.

Whoever opens a workspace and finds one knows that the process died in between. If the head is
the commit of that very call, made on the parent that the mark names, the call was committed
and only the mark is left to remove. Otherwise whatever it did to the files is to be undone.
Every step may be repeated, so dying in the middle of the recovery changes nothing.

The file is made once and then changes its name for each call, there and back: a system that
makes and deletes files all the time has to look for free ones longer and longer.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wink_workspace._kill_points import KillPoint, passed

from .disk import ledger_failure, ledger_failures, sync

__all__ = ["PendingMark", "PendingMarks"]

_encode = json.JSONEncoder().encode


@dataclass(frozen=True, slots=True)
class PendingMark:
    """A call that was begun: its id and tool, the head it began on, and when.

    A mark that cannot be read still says that there was a call: its texts are empty.
    """

    call_id: str
    tool: str
    parent: str | None
    started_at: datetime


class PendingMarks:
    """The one place where the pending mark of a line is.

    Args:
        path: The mark's file.
        durable: Whether a mark survives a loss of power.
    """

    def __init__(self, path: Path, *, durable: bool = False) -> None:
        self._path = str(path)
        self._unused = f"{path}.new"
        self._durable = durable

    def write(self, mark: PendingMark) -> None:
        """Put *mark* in place; it is there when this returns, or not at all when it raises.

        Raises:
            LedgerError: If it cannot be written.
        """
        fields = {
            "call_id": mark.call_id,
            "tool": mark.tool,
            "parent": mark.parent,
            "started_at": mark.started_at.isoformat(),
        }
        try:
            self._overwrite(_encode(fields).encode())
            passed(KillPoint.MARK_WRITTEN)
            os.rename(self._unused, self._path)  # noqa: PTH104 - hot, and a Path costs more
            if self._durable:
                sync(os.path.dirname(self._path))  # noqa: PTH120 - as above
        except OSError as error:
            raise ledger_failure("the pending mark cannot be written", error) from error
        passed(KillPoint.MARK_IN_PLACE)

    def _overwrite(self, text: bytes) -> None:
        """Give the file that is no mark now this content, in the room that it has already."""
        file = os.open(self._unused, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            n_bytes = os.write(file, text)
            if n_bytes != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.ftruncate(file, n_bytes)
            if self._durable:
                os.fsync(file)
        finally:
            os.close(file)

    def read(self) -> PendingMark | None:
        """The mark, ``None`` if no call is under way.

        Raises:
            LedgerError: If that cannot be told.
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

    def remove(self) -> None:
        """Take the mark away; that there is none is no error.

        Raises:
            LedgerError: If it cannot be removed.
        """
        try:
            # Not synced: one that comes back is settled.
            os.rename(self._path, self._unused)  # noqa: PTH104 - as above
        except FileNotFoundError:
            pass
        except OSError as error:
            raise ledger_failure("the pending mark cannot be removed", error) from error
        passed(KillPoint.MARK_REMOVED)
