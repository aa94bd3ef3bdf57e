"""The lock of a session: one call holds it, also for the threads that work for this call."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["SessionLock"]


class SessionLock:
    """Two re-entrant locks: one keeps code out during a call, one is for the code inside.

    Attributes:
        outside: Held for the whole length of a call.
        inside: Held during each change by the code of that call, which may have several threads.
        is_inside: Whether the code that asks is part of the call; the owner of the calls sets it.
    """

    def __init__(self) -> None:
        self.outside = threading.RLock()
        self.inside = threading.RLock()
        self.is_inside: Callable[[], bool] = lambda: False

    def now(self) -> threading.RLock:
        """The lock for a change by the code that asks."""
        return self.inside if self.is_inside() else self.outside
