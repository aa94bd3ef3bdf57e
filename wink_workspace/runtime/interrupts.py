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
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

__all__ = ["InterruptGate"]


class InterruptGate:
    """Holds SIGINT back; nests, so that a call inside a call gets a gate of its own."""

    def __init__(self) -> None:
        self._n_closed: int = 0
        self._open: bool = True
        self._leaving: bool = False
        self._pending: bool = False
        self._previous: Callable[[int, FrameType | None], Any] | int | None = None
        self._installed: bool = False

    @contextmanager
    def installed(self) -> Generator[None]:
        """Be SIGINT's handler for the whole block; alone it changes nothing of what SIGINT does."""
        was_installed = self._installed
        try:
            self._install()
            yield
        finally:
            self._leaving = True
            self._leave(was_installed=was_installed)

    @contextmanager
    def closed(self) -> Generator[None]:
        """Hold SIGINT back inside the block; what came is delivered at its end."""
        was_installed, was_open, n_closed = self._installed, self._open, self._n_closed
        try:
            self._open = False
            self._install()
            self._n_closed = n_closed + 1
            yield
        finally:
            self._leaving = True
            self._n_closed, self._open = n_closed, was_open
            self._leave(was_installed=was_installed)

    def open(self) -> AbstractContextManager[None]:
        """Let SIGINT strike inside the block, and what was held back at its start."""
        was_open = self._open

        def begin() -> None:
            self._open = True
            if self._pending:
                self._pending = False
                signal.raise_signal(signal.SIGINT)

        def end() -> None:
            self._open = was_open

        return _Block(begin, end)

    def _leave(self, *, was_installed: bool) -> None:
        """Put back what a block found, while ``_leaving`` holds SIGINT back; then deliver it.

        A signal is looked at after a call or at a function's start, never between two
        assignments: so those that belong together stand in a row.
        """
        try:
            if self._installed and not was_installed:
                self._uninstall()
        finally:
            self._leaving = False
            strikes = self._pending and self._open
            self._pending = self._pending and not strikes
        if strikes:
            signal.raise_signal(signal.SIGINT)

    def _install(self) -> None:
        if self._installed or threading.current_thread() is not threading.main_thread():
            return
        previous = signal.getsignal(signal.SIGINT)
        if previous is None or previous is signal.SIG_IGN:
            return
        self._previous, self._installed = previous, True  # first, so that it is always undone
        signal.signal(signal.SIGINT, self._on_signal)

    def _uninstall(self) -> None:
        self._installed = False
        signal.signal(signal.SIGINT, self._previous)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._open or self._leaving:
            self._pending = True
            return
        self._open = self._n_closed == 0  # strikes a call once, anything else as often as it comes
        if not callable(self._previous):  # SIG_DFL would end the process and lose the rollback
            raise KeyboardInterrupt
        self._previous(number, frame)
        self._open = True  # it did not raise, so the handler is still running


class _Block(AbstractContextManager[None]):
    """Two functions around a block.

    ``contextmanager`` will not do: a generator that is struck just before its block begins is
    only finished when the exception is let go of, and would shut the gate as late as that.
    """

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._begin = begin
        self._end = end

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *_: object) -> None:
        self._end()
