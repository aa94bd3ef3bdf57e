"""Defer Ctrl-C (SIGINT) during a call, except while the handler runs.

``KeyboardInterrupt`` can be raised between any two instructions, also in the middle of a commit or
of the ``except`` clause that rolls back. So during a call SIGINT is only remembered, except while
the handler runs. The first one that is delivered starts to defer again, so that a second one
cannot interrupt the rollback.

Only the main thread receives signals. On other threads, and where code outside of Python handles
SIGINT, deferring does nothing.

The process has one handler, ``_SharedHandler``. The first block installs it and the last one
restores the previous one. Calls of two workspaces on one event loop may end in any order.
"""

# ruff: noqa: SLF001 - the classes of this module are one unit

from __future__ import annotations

import os
import signal
import threading
from abc import abstractmethod
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import signal as _signal
else:  # The functions of ``signal`` look for enum members, which takes 10 µs per change of handler
    import _signal


_SIGINT = int(signal.SIGINT)


class DeferSigint:
    """Defers SIGINT for one session; its blocks nest, for calls inside calls."""

    def __init__(self) -> None:
        self._n_deferring: int = 0
        self._delivers: bool = True
        self._is_leaving: bool = False
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
        is_user = self._installed
        try:
            # Another thread's block may begin before the main thread installs the handler, and end
            # before it is removed. Only the main thread, whose id is that of the process, may
            # change handlers.
            if is_user and not was_installed and threading.get_native_id() == os.getpid():
                self._installed = False
                _handler.remove(self)
        finally:
            self._is_leaving = False
            # Without the handler it cannot wait for a block of another thread.
            delivers = self._delivers or not self._installed
            is_due = is_user and _handler.is_pending and delivers
            _handler.is_pending = _handler.is_pending and not is_due
        if is_due:
            signal.raise_signal(_SIGINT)

    def _install(self) -> None:
        # As above; also in a forked child
        if not self._installed and threading.get_native_id() == os.getpid():
            _handler.add(self)

    def _deliver(self) -> None:
        self._delivers = True
        if _handler.is_pending and self._installed:
            _handler.is_pending = False
            signal.raise_signal(_SIGINT)


class _SharedHandler:
    """The SIGINT handler of the process, while it has users; only the main thread changes them.

    A signal is pending while one of the users defers it. A user that stops to defer it raises it
    again, and the next user may defer it further.
    """

    def __init__(self) -> None:
        self.is_pending = False
        self._users: tuple[DeferSigint, ...] = ()
        self._previous: Callable[[int, FrameType | None], Any] | int | None = None

    def add(self, user: DeferSigint) -> None:
        if self._users:
            self._users, user._installed = (*self._users, user), True
            return
        previous = _signal.getsignal(_SIGINT)
        if previous is self:  # a program read it inside of a block and restored it afterwards
            previous = self._previous
        if previous is None or previous == _signal.SIG_IGN:
            return
        # First, so that ``_leave`` always undoes it
        self._previous, self._users, user._installed = previous, (user,), True
        _signal.signal(_SIGINT, self)

    def remove(self, user: DeferSigint) -> None:
        self._users = tuple([each for each in self._users if each is not user])
        if not self._users:
            _signal.signal(_SIGINT, self._previous)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        users, is_end = self._users, frame is not None and frame.f_code in _GUARDED_ENDS
        for user in users:
            if is_end or user._is_leaving or not user._delivers:
                self.is_pending = True
                return
        for user in users:
            user._delivers = user._n_deferring == 0  # in a call, defer from now on
        if not callable(self._previous):  # SIG_DFL would end the process without a rollback
            raise KeyboardInterrupt
        self._previous(number, frame)
        for user in users:
            user._delivers = True  # it did not raise, so the body is still running


_handler = _SharedHandler()


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
        self._sigint._deliver()

    def __exit__(self, *_: object) -> None:
        self._sigint._delivers = self._was_delivering


class GuardedBlock(AbstractContextManager[Any]):
    """A block whose end is never interrupted, not even before its first step.

    A signal that arrives as ``__exit__`` begins would otherwise skip all of it, since no ``try`` of
    the block is entered yet. The handler knows these two functions and defers the signal.
    """

    def __init__(self, sigint: DeferSigint) -> None:
        self.__sigint = sigint

    def deliver_sigint(self) -> None:
        """Deliver a deferred SIGINT now, and others until the end of the block."""
        self.__sigint._deliver()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.__sigint._delivers = False
        return self._end(error)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> bool:
        """The same as ``__exit__``; never awaits."""
        return self.__exit__(kind, error, trace)

    def abandon(self) -> None:
        """Let the end of the block no longer defer a signal: the block around it has ended."""
        self.__sigint = DeferSigint()

    @abstractmethod
    def _end(self, error: BaseException | None) -> bool:
        """Finish the block; return whether *error* is handled."""


_GUARDED_ENDS = (GuardedBlock.__exit__.__code__, GuardedBlock.__aexit__.__code__)
