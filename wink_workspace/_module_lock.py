"""Locks of modules, which a forked child may use.

A child that is forked while another thread holds a lock gets a copy that is locked, and no thread
that would ever release it.
"""

from __future__ import annotations

import os
import threading

__all__ = ["ModuleLock"]


class ModuleLock:
    """A lock that is kept until the process ends; a forked child gets a new one.

    Use it as ``with lock.now:``. The thread that forked inside of the block then releases the lock
    that it took, and not the new one.

    Attributes:
        now: The lock of this process.
    """

    __slots__ = ("now",)

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.now = threading.Lock()
