"""Defer Ctrl-C (SIGINT) during a call, except while the handler runs.

``KeyboardInterrupt`` can be raised between any two instructions, also in the middle of a commit or
of the ``except`` clause that rolls back. So during a call SIGINT is only remembered, except while
the handler runs. The first one that is delivered starts to defer again, so that a second one
cannot interrupt the rollback.

Only the main thread receives signals. On other threads, and where code outside of Python handles
SIGINT, deferring does nothing. Changing a signal's handler costs more than the rest of a small
call, so a run of many calls uses ``installed`` once around all of them.
"""

# ruff: noqa: SLF001 - the class and its two blocks are one unit

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
    """Defers SIGINT; its blocks nest, for calls inside calls."""

    def __init__(self) -> None:
        self._n_deferring: int = 0
        self._delivers: bool = True
        self._is_leaving: bool = False
        self._pending: bool = False
        self._previous: Callable[[int, FrameType | None], Any] | int | None = None
        self._installed: bool = False

    @contextmanager
    def installed(self) -> Generator[None]:
        """Install the SIGINT handler for the block; by itself this defers nothing."""
        was_installed = self._installed
        try:
            self._install()
            yield
        finally:
            self._is_leaving = True
            self._leave(was_installed=was_installed)

    def deferred(self) -> AbstractContextManager[None]:
        """Defer SIGINT inside the block, and deliver a deferred one at its end."""
        return _Deferred(self)

    def delivered(self) -> AbstractContextManager[None]:
        """Deliver SIGINT inside the block, and a deferred one at its start."""
        return _Delivered(self)

    def _leave(self, *, was_installed: bool) -> None:
        """Restore the handler while ``_is_leaving`` defers SIGINT; then deliver a deferred one.

        Python checks for signals after a call and at the start of a function, never between two
        assignments: so related assignments follow each other.
        """
        try:
            if self._installed and not was_installed:
                self._uninstall()
        finally:
            self._is_leaving = False
            is_due = self._pending and self._delivers
            self._pending = self._pending and not is_due
        if is_due:
            signal.raise_signal(signal.SIGINT)

    def _install(self) -> None:
        if self._installed or threading.get_ident() != threading.main_thread().ident:
            return
        previous = signal.getsignal(signal.SIGINT)
        if previous is None or previous is signal.SIG_IGN:
            return
        self._previous, self._installed = (
            previous,
            True,
        )  # first, so that ``_leave`` always undoes it
        signal.signal(signal.SIGINT, self._on_signal)

    def _uninstall(self) -> None:
        self._installed = False
        signal.signal(signal.SIGINT, self._previous)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._delivers or self._is_leaving or (frame and frame.f_code in _GUARDED_ENDS):
            self._pending = True
            return
        self._delivers = self._n_deferring == 0  # in a call, defer from now on
        if not callable(self._previous):  # SIG_DFL would end the process without a rollback
            raise KeyboardInterrupt
        self._previous(number, frame)
        self._delivers = True  # it did not raise, so the body is still running


# These two cannot use ``contextmanager``: a generator that is interrupted just before its block
# begins ends only when the exception is released, and would restore the state too late. It is also
# slower than the rest of this class.


class _Deferred(AbstractContextManager[None]):
    """A block in which SIGINT is deferred."""

    __slots__ = ("_n_deferring", "_sigint", "_was_delivering", "_was_installed")

    def __init__(self, sigint: DeferSigint) -> None:
        self._sigint = sigint
        self._was_installed = sigint._installed
        self._was_delivering = sigint._delivers
        self._n_deferring = sigint._n_deferring

    def __enter__(self) -> None:
        sigint = self._sigint
        try:
            sigint._delivers = False
            if not sigint._installed:
                sigint._install()
            sigint._n_deferring = self._n_deferring + 1
        except BaseException:
            self._restore(sigint)
            raise

    def __exit__(self, *_: object) -> None:
        self._restore(self._sigint)

    def _restore(self, sigint: DeferSigint) -> None:
        sigint._is_leaving = True
        sigint._n_deferring, sigint._delivers = self._n_deferring, self._was_delivering
        sigint._leave(was_installed=self._was_installed)


class _Delivered(AbstractContextManager[None]):
    """A block in which SIGINT is delivered."""

    __slots__ = ("_sigint", "_was_delivering")

    def __init__(self, sigint: DeferSigint) -> None:
        self._sigint = sigint
        self._was_delivering = sigint._delivers

    def __enter__(self) -> None:
        sigint = self._sigint
        sigint._delivers = True
        if sigint._pending:
            sigint._pending = False
            signal.raise_signal(signal.SIGINT)

    def __exit__(self, *_: object) -> None:
        self._sigint._delivers = self._was_delivering


class GuardedBlock(AbstractContextManager[Any]):
    """A block whose end is never interrupted, not even before its first step.

    A signal that arrives as ``__exit__`` begins would otherwise skip all of it, since no ``try`` of
    the block is entered yet. ``DeferSigint`` knows these two functions and defers the signal.
    """

    def __init__(self, sigint: DeferSigint) -> None:
        self.__sigint = sigint

    def deliver_sigint(self) -> None:
        """Deliver a deferred SIGINT now, and others until the end of the block."""
        sigint = self.__sigint
        sigint._delivers = True
        if sigint._pending:
            sigint._pending = False
            signal.raise_signal(signal.SIGINT)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self.__sigint._delivers = False
        return self._end(error)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """The same as ``__exit__``; never awaits."""
        return self.__exit__(kind, error, trace)

    @abstractmethod
    def _end(self, error: BaseException | None) -> bool:
        """Finish the block; return whether *error* is handled."""


_GUARDED_ENDS = (GuardedBlock.__exit__.__code__, GuardedBlock.__aexit__.__code__)
