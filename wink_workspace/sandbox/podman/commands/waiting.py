"""Containers that wait for a workspace: started and probed before one needs them.

To start and probe a container takes a fifth of a second, and to attach a workspace milliseconds. So
a process keeps a few containers waiting, by default one, after its second command: a process that
runs one command starts no container that it does not need. A caller that knows that a command will
run prepares its container, and opens the workspace meanwhile.

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
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from wink_workspace.clock import SYSTEM_CLOCK, Cancellation, Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import CallCancelledError, WinkError
from wink_workspace.sandbox.commands.probed_runner import link_of
from wink_workspace.sandbox.podman.engine.containers import Host, sweep_quietly
from wink_workspace.sandbox.podman.engine.podman_config import PodmanConfig
from wink_workspace.sandbox.podman.engine.service import PodmanService, shared_service

from .image_settings import ImageSettings
from .runner_container import ContainerKind, RunnerContainer, with_history

_log = logging.getLogger(__name__)

_STEP_S: Final = 0.02
Start = Callable[[Cancellation], RunnerContainer]
Find = Callable[[Cancellation], tuple[ContainerKind, Start] | None]


def start_container(
    service: PodmanService,
    config: PodmanConfig,
    environment: Environment | None,
    cancellation: Cancellation,
    *,
    clock: Clock,
    meanwhile: Callable[[], object] = lambda: None,
) -> RunnerContainer:
    """Start a container without a workspace; arguments and errors are those of its class."""
    return RunnerContainer(
        service,
        config,
        Host.of(service),
        clock=clock,
        cancellation=cancellation,
        network=link_of(config.network, environment),
        meanwhile=meanwhile,
    )


def prepare_container(
    config: PodmanConfig, environment: Environment, git_history: Path | None
) -> None:
    """Start the container of a first command on another thread; see ``SandboxBackend.prepare``."""
    config = with_history(config, git_history)

    def find(cancellation: Cancellation) -> tuple[ContainerKind, Start] | None:
        service = shared_service(environment, cancellation=cancellation)
        image = ImageSettings.of(service, config.image).id
        kind = ContainerKind.of(service, SYSTEM_CLOCK, config, Host.of(service), image)
        start = partial(
            start_container,
            service,
            config,
            environment,
            clock=SYSTEM_CLOCK,
            meanwhile=partial(sweep_quietly, service),
        )
        return None if kind is None else (kind, start)

    if config.n_waiting:
        WaitingContainers.shared().prepare(find)


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
        self._starting: ContainerKind | None = None  # None while a thread runs: not known yet
        self._refusal: tuple[ContainerKind, Exception] | None = None
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
            WinkError: Why ``prepare`` could not start one; raised once.
        """
        while True:
            is_starting = self._is_starting(kind)  # asked first: it may end at any moment
            container = self._pop(kind)
            if container is not None:
                return container
            if not is_starting:
                self._raise_refusal(kind)
                return None
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
            self._run(self._start, kind, start, surplus)

    def prepare(self, find: Find) -> None:
        """Start one container for a first command; returns at once. Does nothing if one starts.

        Args:
            find: Finds out the kind, and what starts one. It is called on another thread. ``None``
                if the command itself will find out why there is no container.
        """
        with self._lock:
            if self._thread is None:
                self._starting = self._refusal = None
                self._run(self._prepare, find)

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
            return self._thread is not None and self._starting in (kind, None)

    def _raise_refusal(self, kind: ContainerKind) -> None:
        with self._lock:
            refusal = self._refusal
            if refusal is None or refusal[0] != kind:
                return
            self._refusal = None
        raise refusal[1]

    def _run(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, name="wink-waiting-container")
        thread.start()
        self._thread = thread  # not earlier: others join it, and a start may fail

    def _prepare(self, find: Find) -> None:
        kind = container = None
        try:
            found = find(self._cancellation)
            if found is not None:
                kind, start = found
                self._starting = kind
                if not any(each == kind for each, _ in self._waiting):
                    container = start(self._cancellation)
        except CallCancelledError:
            pass
        except (WinkError, OSError) as error:
            if kind is not None:  # otherwise the command meets the same error
                self._refusal = (kind, error)
        finally:
            self._finished(kind, container)

    def _start(self, kind: ContainerKind, start: Start, surplus: list[RunnerContainer]) -> None:
        container: RunnerContainer | None = None
        try:
            for each in surplus:
                each.end()
            container = start(self._cancellation)
        except CallCancelledError:
            pass
        except (WinkError, OSError) as error:
            _log.warning("No container is kept waiting: %s", error)
            self._failed.add(kind)
        finally:
            self._finished(kind, container)

    def _finished(self, kind: ContainerKind | None, container: RunnerContainer | None) -> None:
        with self._lock:
            if kind is not None and container is not None:
                self._waiting.append((kind, container))
            self._thread = self._starting = None
