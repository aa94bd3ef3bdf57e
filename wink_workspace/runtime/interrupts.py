"""When Ctrl-C may strike.

A ``KeyboardInterrupt`` can appear between any two instructions, also in the middle of a
commit or of the very ``except`` clause that was about to roll back. So for the whole of a
call SIGINT is only remembered, except while the handler itself runs; and the first one that
does strike shuts the gate behind it, so that a second cannot hit the rollback.

Only the main thread receives signals: elsewhere, and where another language owns SIGINT,
the gate does nothing. Asking the system to change a signal's handler costs more than the rest
of a small call, so a run of many calls installs the gate once around all of them.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["InterruptGate"]


class InterruptGate:
    """Holds SIGINT back; nests, so that a call inside a call gets a gate of its own."""

    def __init__(self) -> None:
        self._n_closed = 0
        self._open = True
        self._pending = False
        self._previous: Callable[[int, FrameType | None], Any] | int | None = None
        self._installed = False

    @contextmanager
    def installed(self) -> Generator[None]:
        """Be SIGINT's handler for the whole block; alone it changes nothing of what SIGINT does."""
        owner = self._install()
        try:
            yield
        finally:
            if owner:
                self._uninstall()

    @contextmanager
    def closed(self) -> Generator[None]:
        """Hold SIGINT back inside the block; what came is delivered at its end."""
        was_open, self._open = self._open, False
        owner = self._install()
        self._n_closed += 1
        try:
            yield
        finally:
            self._n_closed -= 1
            self._open = was_open
            if owner:
                self._uninstall()
            if self._pending and was_open:
                self._pending = False
                signal.raise_signal(signal.SIGINT)

    @contextmanager
    def open(self) -> Generator[None]:
        """Let SIGINT strike inside the block, and what was held back at its start."""
        was_open, self._open = self._open, True
        try:
            if self._pending:
                self._pending = False
                signal.raise_signal(signal.SIGINT)
            yield
        finally:
            self._open = was_open

    def _install(self) -> bool:
        if self._installed or threading.current_thread() is not threading.main_thread():
            return False
        previous = signal.getsignal(signal.SIGINT)
        if previous is None or previous is signal.SIG_IGN:
            return False
        self._previous = previous
        signal.signal(signal.SIGINT, self._on_signal)
        self._installed = True
        return True

    def _uninstall(self) -> None:
        self._installed = False
        signal.signal(signal.SIGINT, self._previous)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._open:
            self._pending = True
            return
        self._open = self._n_closed == 0  # strikes a call once, anything else as often as it comes
        if not callable(self._previous):  # SIG_DFL would end the process and lose the rollback
            raise KeyboardInterrupt
        self._previous(number, frame)
        self._open = True  # it did not raise, so the handler is still running
