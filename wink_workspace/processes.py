"""What belongs to one process, and refuses to work in a child that it forks.

A forked child has copies of everything that its parent has open. If it used a workspace, it would
consume the parent's change events, and write without the parent's lock.

The id of this process is read once, and again in a forked child: ``check`` runs many times in each
call, and needs no system call.
"""

from __future__ import annotations

import os

from .errors import ForkedProcessError

__all__ = ["OwnProcess"]

_pid = os.getpid()


def _read_pid() -> None:
    global _pid  # changed by a fork only
    _pid = os.getpid()


os.register_at_fork(after_in_child=_read_pid)


class OwnProcess:
    """The process that created this object.

    Args:
        what: What belongs to it, as the beginning of a message: ``the workspace 3f1``.
    """

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = _pid

    @property
    def is_present(self) -> bool:
        """Whether this is that process."""
        return self._pid == _pid

    def check(self) -> None:
        """Raise ``ForkedProcessError`` in any other process."""
        if self._pid != _pid:
            raise ForkedProcessError(f"{self._what} was opened by process {self._pid}, not by this")
