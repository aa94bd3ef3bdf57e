"""When Ctrl-C may strike.

A ``KeyboardInterrupt`` can appear between any two instructions, also in the middle of a
commit or of the very ``except`` clause that was about to roll back. So for the whole of a
call SIGINT is only remembered, except while the handler itself runs; and the first one that
does strike shuts the gate behind it, so that a second cannot hit the rollback.

Only the main thread receives signals: elsewhere, and where another language owns SIGINT,
the gate does nothing. Asking the system to change a signal's handler costs more than the rest
of a small call, so a run of many calls installs the gate once around all of them.
"""

# ruff: noqa: SLF001 - a gate and its two blocks are one class in three pieces

from __future__ import annotations

import signal
import threading
from abc import abstractmethod
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType, TracebackType
from typing import Any

__all__ = ["DeferSigint", "GuardedBlock"]


class DeferSigint:
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

    def closed(self) -> AbstractContextManager[None]:
        """Hold SIGINT back inside the block; what came is delivered at its end."""
        return _Closed(self)

    def open(self) -> AbstractContextManager[None]:
        """Let SIGINT strike inside the block, and what was held back at its start."""
        return _Opened(self)

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
        if self._installed or threading.get_ident() != threading.main_thread().ident:
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
        if not self._open or self._leaving or (frame and frame.f_code in _GUARDED_ENDS):
            self._pending = True
            return
        self._open = self._n_closed == 0  # strikes a call once, anything else as often as it comes
        if not callable(self._previous):  # SIG_DFL would end the process and lose the rollback
            raise KeyboardInterrupt
        self._previous(number, frame)
        self._open = True  # it did not raise, so the handler is still running


# ``contextmanager`` will not do for these two: a generator that is struck just before its block
# begins is only finished when the exception is let go of, and would shut the gate as late as
# that. It is also slower than all that a gate does.


class _Closed(AbstractContextManager[None]):
    """A block in which the gate is closed."""

    __slots__ = ("_gate", "_n_closed", "_was_installed", "_was_open")

    def __init__(self, sigint: DeferSigint) -> None:
        self._sigint = sigint
        self._was_installed = sigint._installed
        self._was_open = sigint._open
        self._n_closed = sigint._n_closed

    def __enter__(self) -> None:
        sigint = self._sigint
        try:
            sigint._open = False
            if not sigint._installed:
                sigint._install()
            sigint._n_closed = self._n_closed + 1
        except BaseException:
            self._put_back(sigint)
            raise

    def __exit__(self, *_: object) -> None:
        self._put_back(self._sigint)

    def _put_back(self, sigint: DeferSigint) -> None:
        sigint._leaving = True
        sigint._n_closed, sigint._open = self._n_closed, self._was_open
        sigint._leave(was_installed=self._was_installed)


class _Opened(AbstractContextManager[None]):
    """A block in which the gate is open."""

    __slots__ = ("_gate", "_was_open")

    def __init__(self, sigint: DeferSigint) -> None:
        self._sigint = sigint
        self._was_open = sigint._open

    def __enter__(self) -> None:
        sigint = self._sigint
        sigint._open = True
        if sigint._pending:
            sigint._pending = False
            signal.raise_signal(signal.SIGINT)

    def __exit__(self, *_: object) -> None:
        self._sigint._open = self._was_open


class GuardedBlock(AbstractContextManager[Any]):
    """A block whose end is never interrupted, not even between its body and its first step.

    A signal that arrives as ``__exit__`` begins would otherwise skip all of it: no ``try`` of the
    block is entered yet. The gate knows these two functions and defers the signal.
    """

    def __init__(self, sigint: DeferSigint) -> None:
        self.__sigint = sigint

    def open_gate(self) -> None:
        """Deliver SIGINT from now on, and what was deferred at once; the end closes the gate."""
        sigint = self.__sigint
        sigint._open = True
        if sigint._pending:
            sigint._pending = False
            signal.raise_signal(signal.SIGINT)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self.__sigint._open = False
        return self._end(error)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """As ``__exit__``; it never waits."""
        return self.__exit__(kind, error, trace)

    @abstractmethod
    def _end(self, error: BaseException | None) -> bool:
        """Finish the block; whether the error was dealt with."""


_GUARDED_ENDS = (GuardedBlock.__exit__.__code__, GuardedBlock.__aexit__.__code__)
