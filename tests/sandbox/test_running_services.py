"""How services start and end, with runners that need no sandbox."""

from __future__ import annotations

import errno
import gc
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wink_workspace.clock import SYSTEM_CLOCK, ManualClock
from wink_workspace.errors import SandboxError
from wink_workspace.filesystem.search import SearchTimer, compile_expression
from wink_workspace.sandbox import ServiceConfig
from wink_workspace.sandbox.backends import SandboxContext
from wink_workspace.sandbox.commands import running_services
from wink_workspace.sandbox.commands.command_config import CommandConfig
from wink_workspace.sandbox.commands.running_services import RunningServices
from wink_workspace.sandbox.podman import PodmanSandbox
from wink_workspace.sandbox.transport.stream import Ending, Limits


def test_a_line_that_arrives_during_a_search_is_searched_next() -> None:
    output = running_services._Output(1_000)

    class WhileSearching(ManualClock):
        """The service prints a line each time that the search asks how long it may take."""

        def monotonic_s(self) -> float:
            output.add("stdout", b"end\n" if output.n_bytes else b"begin\n")
            return super().monotonic_s()

    timer = SearchTimer(WhileSearching(), 60.0)
    assert output.newest(1_000)[0] == b"begin\n"
    expression = compile_expression("^...$")  # a word in it would be looked for without the clock
    searched, found = running_services._search(output, expression, 0, timer)
    assert not found
    assert running_services._search(output, expression, searched, timer)[1]


class FakeRunner:
    """A runner whose engine handles one request at a time. It prints a line and goes on."""

    shell, live = "/bin/sh", None

    def __init__(self, engine: threading.RLock) -> None:
        self._engine = engine
        self.is_removed = threading.Event()

    def started(self) -> FakeRunner:
        return self

    def run(
        self, request: object, env: object, limits: Limits, sink: Callable[..., None]
    ) -> Ending:
        sink("stdout", b"up\n")
        while (reason := limits.watch()) is None:
            self.is_removed.wait(limits.watch_s)
        return Ending(stopped=reason)

    def end(self) -> None:
        with self._engine:
            self.is_removed.set()


def services_with(folder: Path, *runners: Any) -> RunningServices:
    """Services that start these runners in turn, and the last one again and again."""
    left = list(runners)
    return RunningServices(
        lock=threading.RLock(),
        start=lambda *_: left.pop(0) if len(left) > 1 else left[0].started(),
        commands=lambda _: runners[0],
        env=lambda given: given,
        context=SandboxContext(files=folder, services=folder / "services.json"),
        config=CommandConfig(),
        clock=SYSTEM_CLOCK,
    )


def test_services_dropped_during_a_request_to_the_engine_end_after_it(tmp_path: Path) -> None:
    """The engine is not needed. A garbage collection in a request may call the finalizer."""
    engine = threading.RLock()
    container: Any = FakeRunner(engine)
    services = services_with(tmp_path, container)
    services.start(ServiceConfig(name="web", command="serve", ready="up"))
    dropped = weakref.ref(services)
    with engine:
        del services
        gc.collect()
        assert dropped() is None
        assert not container.is_removed.is_set()
    assert container.is_removed.wait(30)


def test_services_end_although_their_end_cannot_be_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    container = FakeRunner(threading.RLock())
    services = services_with(tmp_path, container)
    services.start(ServiceConfig(name="web", command="serve", ready="up"))
    (tmp_path / "services.json.new").mkdir()  # the file cannot be written
    services.close()
    assert container.is_removed.is_set()
    assert not services.listed()
    assert "cannot be recorded" in caplog.text


def test_a_service_that_cannot_be_recorded_is_not_started(tmp_path: Path) -> None:
    container = FakeRunner(threading.RLock())
    services = services_with(tmp_path, container)
    (tmp_path / "services.json.new").mkdir()  # the file cannot be written
    with pytest.raises(SandboxError, match="web cannot be recorded"):
        services.start(ServiceConfig(name="web", command="serve", ready="up"))
    assert container.is_removed.is_set()
    assert not services.listed()


class StubbornRunner(FakeRunner):
    """One that the engine removes for its own thread only."""

    def end(self) -> None:
        super().end()
        if threading.current_thread() is threading.main_thread():
            raise SandboxError("the engine does not answer")


def test_services_and_commands_end_although_one_service_raises(tmp_path: Path) -> None:
    first, second = (StubbornRunner(threading.RLock()) for _ in range(2))
    services = services_with(tmp_path, first, second)
    for name in ("one", "two"):
        services.start(ServiceConfig(name=name, command="serve", ready="up"))
    sandbox = PodmanSandbox(SandboxContext(files=tmp_path))
    commands: Any = FakeRunner(threading.RLock())
    # Private: without an engine neither commands nor services can be started through it.
    sandbox._services, sandbox._commands = services, commands
    with pytest.raises(SandboxError, match="does not answer"):
        sandbox.close()
    # Joined by ``close``: only that waits for the threads of both.
    assert not [each for each in threading.enumerate() if each.name.startswith("wink-service")]
    assert commands.is_removed.is_set()


class RunnerOnFullDisk(FakeRunner):
    """A running one that cannot be noted a second time."""

    live: Any = SimpleNamespace(pid=os.getpid(), is_running=True)
    n_started = 0

    def started(self) -> FakeRunner:
        self.n_started += 1
        if self.n_started > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self


def test_a_rollback_succeeds_although_a_service_cannot_be_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    services = services_with(tmp_path, RunnerOnFullDisk(threading.RLock()))
    services.start(ServiceConfig(name="web", command="serve", ready="up"))
    monkeypatch.setattr(running_services, "freeze", lambda pid, clock: False)
    with services.frozen():
        pass
    assert "web was not restarted: [Errno 28]" in caplog.text
    assert [each.state for each in services.listed()] == ["ended"]
    services.close()
