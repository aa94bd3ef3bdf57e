"""What belongs to one process, and refuses to work in a child that it forks.

A forked child has copies of everything its parent has open. If it went on with a workspace, it
would take the parent's events of changes away, and write without the parent's lock.
"""

from __future__ import annotations

import os

from wink_workspace.errors import ForkedProcessError

__all__ = ["OwnProcess"]


class OwnProcess:
    """The process that made this object.

    Args:
        what: What belongs to it, as a message begins: ``the workspace 3f1``.
    """

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()

    @property
    def is_present(self) -> bool:
        """Whether the present process is the one."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise ``ForkedProcessError`` in any other process."""
        if os.getpid() != self._pid:
            raise ForkedProcessError(f"{self._what} was opened by process {self._pid}, not by this")
