"""Containers that wait for a workspace: started and probed before one needs them.

To start and probe a container takes most of a second, and to attach a workspace takes milliseconds.
So a process keeps a few containers waiting, by default one, after its second command: a process
that runs one command starts no container that it does not need.

Rule 1: a container is taken from here once, and never comes back.
Rule 2: a container takes the place only of one of the same ``ContainerKind``.
Rule 3: containers are started on a thread of their own, at most one at a time. The thread ends with
its container, and the interpreter does not wait for a container at its end.

Waiting containers end with the process. After ``kill -9`` they end because the stream to them is
closed; ``sweep`` removes what remains, by the label of the owner.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import ClassVar, Final

from wink_workspace.clock import Cancellation
from wink_workspace.errors import CallCancelledError, WinkError

from .runner_container import ContainerKind, NoPythonError, RunnerContainer

__all__ = ["WaitingContainers"]

_log = logging.getLogger(__name__)

_STEP_S: Final = 0.02
Start = Callable[[Cancellation], RunnerContainer]


class _UntilExit(Cancellation):
    """Is cancelled when the main thread ends, since the interpreter then waits for the others."""

    def __init__(self) -> None:
        self._cancelled = False

    @property
    def cancelled(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] - read only
        return self._cancelled or not threading.main_thread().is_alive()

    def cancel(self) -> None:
        self._cancelled = True


class WaitingContainers:
    """The waiting containers of one process. Safe to use from several threads."""

    _of_process: ClassVar[dict[int, WaitingContainers]] = {}

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[ContainerKind, RunnerContainer]] = []
        self._used: set[ContainerKind] = set()
        self._failed: set[ContainerKind] = set()
        self._thread: threading.Thread | None = None
        self._starting: ContainerKind | None = None
        self._cancellation = _UntilExit()

    @classmethod
    def shared(cls) -> WaitingContainers:
        """Those of this process; a forked child has none of its parent's."""
        return cls._of_process.setdefault(os.getpid(), cls())

    @property
    def n_waiting(self) -> int:
        """How many containers wait."""
        return len(self._waiting)

    def take(self, kind: ContainerKind, cancellation: Cancellation) -> RunnerContainer | None:
        """A waiting container of this kind; ``None`` if there is none.

        If one is being started, it waits for that: this is faster than to start another one.

        Raises:
            CallCancelledError: If *cancellation* is cancelled meanwhile.
        """
        while True:
            container = self._pop(kind)
            if container is not None or not self._is_starting(kind):
                return container
            cancellation.check()
            self.wait(_STEP_S)

    def keep(self, kind: ContainerKind, number: int, start: Start) -> None:
        """Start containers until *number* wait; returns at once.

        The first use of a kind only records it. Containers of other kinds are ended if there are
        too many.

        Args:
            kind: What *start* returns.
            number: The most containers that wait, of all kinds together.
            start: Starts one; it is called on another thread.
        """
        surplus: list[RunnerContainer] = []
        with self._lock:
            if kind not in self._used:
                self._used.add(kind)
                return
            if self._thread is not None or kind in self._failed:
                return
            same = sum(each == kind for each, _ in self._waiting)
            if same >= number:
                return
            others = [entry for entry in self._waiting if entry[0] != kind]
            while others and len(self._waiting) >= number:
                self._waiting.remove(oldest := others.pop(0))
                surplus.append(oldest[1])
            self._starting = kind
            self._thread = threading.Thread(
                target=self._start, args=(kind, start, surplus), name="wink-waiting-container"
            )
            self._thread.start()

    def fill(self, kind: ContainerKind, number: int, start: Start) -> None:
        """As ``keep``, also for a first use; waits until *number* containers wait."""
        while sum(each == kind for each, _ in self._waiting) < number:
            if kind in self._failed:
                return
            self._used.add(kind)
            self.keep(kind, number, start)
            self.wait()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until no container is being started, or for *timeout_s*."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def close(self) -> None:
        """End all of them. May be called again; later uses start others."""
        self._cancellation.cancel()
        self.wait()
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._used.clear()
            self._failed.clear()
            self._cancellation = _UntilExit()
        for _, container in waiting:
            container.end()

    def _pop(self, kind: ContainerKind) -> RunnerContainer | None:
        while True:
            with self._lock:
                found = next((entry for entry in self._waiting if entry[0] == kind), None)
                if found is None:
                    return None
                self._waiting.remove(found)
            if found[1].is_usable:
                return found[1]
            found[1].end()  # it died, or its runner sent something unasked

    def _is_starting(self, kind: ContainerKind) -> bool:
        with self._lock:
            return self._starting == kind

    def _start(self, kind: ContainerKind, start: Start, surplus: list[RunnerContainer]) -> None:
        container: RunnerContainer | None = None
        try:
            for each in surplus:
                each.end()
            container = start(self._cancellation)
        except CallCancelledError:
            pass
        except (WinkError, NoPythonError, OSError) as error:
            _log.warning("No container is kept waiting: %s", error)
            self._failed.add(kind)
        finally:
            with self._lock:
                if container is not None:
                    self._waiting.append((kind, container))
                self._thread = self._starting = None
