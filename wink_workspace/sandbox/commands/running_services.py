"""The services of a sandbox: each has a runner of its own, with the workspace read-only.

Rule 1: a service's runner has the isolation and the probes of a command's, and is noted before
it gets the workspace. It ends with the stream to it, so it does not survive this process.
Rule 2: a service has a network namespace of its own. Commands and other services reach it on their
own 127.0.0.1, because a relay carries the connection. They share no socket, so none can pass an
open file of the workspace to a service.
Rule 3: a thread for each service reads its output, and keeps the newest part. It ends with the
service, and the interpreter does not wait for a service at its end.
Rule 4: the runner of the commands may be replaced at any time; ``connect`` then links the services
to the new one.

States of a service: STARTING -> RUNNING -> ENDED. One that ends while it is STARTING is an error of
``start``; an ENDED one stays listed with its output until it is stopped or started again.
"""

from __future__ import annotations

import logging
import math
import threading
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wink_workspace.clock import Cancellation, Clock
from wink_workspace.errors import SandboxError, ServiceError, UsageError, WinkError
from wink_workspace.filesystem.search import Expression, SearchTimer, compile_expression
from wink_workspace.sandbox.backends import SandboxContext
from wink_workspace.sandbox.network import own_loopback_address
from wink_workspace.sandbox.remembered_services import RememberedServices
from wink_workspace.sandbox.sandbox_protocol import ExecRequest, StreamName
from wink_workspace.sandbox.services import (
    ServiceAddress,
    ServiceConfig,
    ServiceLog,
    Services,
    ServiceState,
    ServiceStatus,
)
from wink_workspace.sandbox.transport.stream import Ending, Limits

from . import leftovers
from .command_config import CommandConfig
from .disk_watch import DiskWatch, Usage
from .freezer import freeze, thaw
from .live_container import LiveContainer
from .probed_runner import ProbedRunner
from .relay import Relay

_log = logging.getLogger(__name__)

_WATCH_S: Final = 0.05
_READY_STEP_S: Final = 0.02
_OBSERVED_S: Final = 0.2
"""How long a service without ``ready`` is observed: a wrong command ends at once."""
_END_TIMEOUT_S: Final = 15.0
_LONGEST_LINE_BYTES: Final = 65_536
_ERROR_BYTES: Final = 2_000
_LOOPBACKS: Final = ("127.0.0.1", "::1")
_VARIABLES: Final = {"PYTHONUNBUFFERED": "1"}
"""So that the output of a Python program can be read while it runs."""
_LISTENING: Final = "0A"  # TCP_LISTEN in /proc/net/tcp [proc(5)]
_N_ADDRESSES: Final = 16

_CLOSED: Final = "its sandbox was closed"

Start = Callable[[ServiceConfig, Path | None, Cancellation], ProbedRunner]
"""Starts a runner for a service; the file names it while it may hold the workspace."""


class _Output:
    """The newest output of a service."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._kept = bytearray()
        self._lock = threading.Lock()
        self.n_bytes = 0

    def add(self, stream: StreamName, data: bytes) -> None:
        del stream
        with self._lock:
            self.n_bytes += len(data)
            self._kept += data
            if len(self._kept) > 2 * self._limit:
                del self._kept[: -self._limit]

    def newest(self, limit_bytes: int) -> tuple[bytes, int]:
        """The last bytes, and how many came before them."""
        with self._lock:
            kept = bytes(self._kept[-min(limit_bytes, self._limit) :])
            return kept, self.n_bytes - len(kept)

    def since(self, offset: int) -> tuple[bytes, int]:
        """What is kept of the bytes from *offset* on, and the offset of its first byte."""
        with self._lock:
            n_wanted = max(0, self.n_bytes - offset)
            kept = bytes(self._kept[max(0, len(self._kept) - n_wanted) :])
            return kept, self.n_bytes - len(kept)


class _Service:
    """One started service, and the thread that reads its output."""

    def __init__(
        self,
        config: ServiceConfig,
        runner: ProbedRunner,
        watch: Callable[[], str | None],
        log_bytes: int,
    ) -> None:
        self.config = config
        self.runner = runner
        self.output = _Output(log_bytes)
        self.is_ready = False
        self.ending: Ending | None = None
        self._watch_limits = watch
        self._stop = ""
        self._has_ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def live(self) -> LiveContainer:
        return self.runner.live

    @property
    def status(self) -> ServiceStatus:
        ending = self.ending
        if ending is None:
            state: ServiceState = "running" if self.is_ready else "starting"
            return ServiceStatus(config=self.config, state=state)
        return ServiceStatus(
            config=self.config,
            state="ended",
            exit_code=ending.exit_code,
            signal=ending.signal,
            reason=ending.stopped
            or (ending.refused and f"its command cannot be started: {ending.refused}"),
        )

    def run(self, env: Mapping[str, str]) -> None:
        """Begin its command; returns at once."""
        thread = threading.Thread(
            target=self._run, args=(env,), name=f"wink-service-{self.config.name}"
        )
        thread.start()
        self._thread = thread

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, or ends within *seconds*."""
        return self._has_ended.wait(seconds)

    def ask_to_stop(self, reason: str) -> None:
        """Let its thread end it."""
        self._stop = reason

    def end(self, reason: str) -> None:
        """End it, and wait until its runner has ended."""
        self.ask_to_stop(reason)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_END_TIMEOUT_S)
        self.runner.end()  # unless its thread did

    def _run(self, env: Mapping[str, str]) -> None:
        request = ExecRequest(
            argv=(self.runner.shell, "-c", self.config.command),
            cwd=self.config.cwd,
            merge_stderr=True,
        )
        limits = Limits(math.inf, self._watch, watch_s=_WATCH_S)
        ending = Ending(stopped="the sandbox failed")
        try:
            ending = self.runner.run(request, env, limits, self.output.add)
        except (WinkError, OSError) as error:
            ending = Ending(stopped=str(error))
        finally:
            self.ending = ending
            self._has_ended.set()
            self.runner.end()

    def _watch(self) -> str | None:
        if self._stop:
            return self._stop
        if not threading.main_thread().is_alive():
            return "the program has ended"
        return self._watch_limits()


class RunningServices(Services):
    """The services of one sandbox.

    Args:
        lock: The lock of the sandbox: services and commands start one another's runners.
        start: Starts the runner of a service.
        commands: The runner of the commands, which is started if necessary.
        env: The variables of commands.
        context: The directories and callbacks of the workspace.
        config: The limits.
        clock: Measures time limits.
    """

    def __init__(
        self,
        *,
        lock: threading.RLock,
        start: Start,
        commands: Callable[[Cancellation], ProbedRunner],
        env: Callable[[Mapping[str, str]], Mapping[str, str]],
        context: SandboxContext,
        config: CommandConfig,
        clock: Clock,
    ) -> None:
        self._start_runner = start
        self._commands = commands
        self._env = env
        self._context = context
        self._config = config
        self._clock = clock
        self._lock = lock
        self._services: dict[str, _Service] = {}
        self._links: dict[_Link, int] = {}
        self._linked_by: int | None = None
        self._addresses: dict[str, tuple[ServiceAddress, int]] = {}
        self._relay = Relay()
        self._remembered = RememberedServices(context.services)
        self._has_inherited = False
        self._is_frozen = False
        weakref.finalize(self, _stop_all, self._services, self._relay)

    # The protocol

    def start(
        self, config: ServiceConfig, *, cancellation: Cancellation | None = None
    ) -> ServiceStatus:
        """See ``Services.start``."""
        cancellation = cancellation or Cancellation()
        expression = self._expression(config)
        with self._lock:
            cancellation.check()
            self._check(config)
            commands = self._commands(cancellation).live
            service = self._started(config, commands, cancellation)
            try:
                self._wait_until_ready(service, expression, cancellation)
                self._remembered.started(config)
            except BaseException:
                self._forget(service, "it was not ready")
                raise
            service.is_ready = True
            return service.status

    def stop(self, name: str) -> ServiceStatus:
        """See ``Services.stop``."""
        with self._lock:
            service = self._get(name)
            status = self._forget(service, "it was stopped")
            self._remembered.stopped(name)
            return status

    def log(self, name: str, *, limit_bytes: int = 16_384) -> ServiceLog:
        """See ``Services.log``."""
        service = self._get(name)
        output, n_missing = service.output.newest(limit_bytes)
        return ServiceLog(status=service.status, output=output, n_missing=n_missing)

    def listed(self) -> tuple[ServiceStatus, ...]:
        """See ``Services.listed``."""
        return tuple(service.status for service in list(self._services.values()))

    def known(self, name: str) -> ServiceConfig | None:
        """See ``Services.known``."""
        declared = {each.name: each for each in self._config.services}
        return declared.get(name) or self._remembered.get(name)

    def expose(self, name: str, *, port: int | None = None) -> ServiceAddress:
        """See ``Services.expose``."""
        with self._lock:
            service = self._get(name)
            target = service.config.reachable_port
            if target is None:
                raise UsageError(
                    f"the service {name} has no port",
                    hint="Start it with port=N, or with ready='port N'.",
                )
            if service.ending is not None:
                raise UsageError(
                    f"the service {name} has ended", hint="Start it again; see its output."
                )
            self._forget_lost_links()
            known = self._addresses.get(name)
            if known is not None and port in (None, known[0].port):
                return known[0]
            self._unexpose(name)
            address, listener = self._exposed(service, port or target, target)
            self._addresses[name] = (address, listener)
            self._linked_by = self._relay.pid
            return address

    @contextmanager
    def frozen(self) -> Generator[None]:
        """See ``Services.frozen``; a service that cannot be frozen is stopped and started again."""
        with self._lock:
            if self._is_frozen:
                yield
                return
            self._is_frozen = True
            running = [each for each in self._services.values() if each.live.is_running]
            stopped: list[_Service] = []
            try:
                for service in running:
                    if not freeze(service.live.pid, self._clock):
                        thaw(service.live.pid)
                        service.end("it cannot be frozen during a rollback")
                        stopped.append(service)
                yield
            finally:
                self._is_frozen = False
                for service in running:
                    if service not in stopped:
                        thaw(service.live.pid)
                for service in stopped:
                    self._restart(service)

    # For the sandbox

    def connect(self, commands: LiveContainer) -> None:
        """Let the commands reach the services; start those of a new fork."""
        with self._lock:
            if not self._has_inherited:
                self._has_inherited = True
                self._start_inherited()
            if self._services:
                self._link(commands)

    def running(self) -> tuple[str, ...]:
        """The names of those that have the files open; waits for those that are ending."""
        with self._lock:
            for service in self._services.values():
                if service.ending is not None:
                    service.end("it has ended")
            return tuple(name for name, each in self._services.items() if each.ending is None)

    def _start_inherited(self) -> None:
        """Start what ran in the parent when this branch was forked."""
        for config in self._remembered.take_inherited():
            try:
                self.start(config)
            except WinkError as error:
                _log.warning("The service %s of this fork: %s", config.name, error)

    def close(self) -> None:
        """End all services, also if one of them raises. May be called again."""
        with self._lock, ExitStack() as ends:
            for name, service in self._services.items():
                ends.callback(self._remembered.stopped, name)
                ends.callback(service.end, _CLOSED)
            _stop_all(self._services, self._relay)

    # Starting

    def _check(self, config: ServiceConfig) -> None:
        active = {name: each for name, each in self._services.items() if each.ending is None}
        if config.name in active:
            raise UsageError(
                f"a service {config.name} is running", hint="Stop it first, or use another name."
            )
        if len(active) >= self._config.n_services:
            raise UsageError(
                f"{len(active)} services are running, which is the most",
                hint=f"Stop one of them: {', '.join(active)}.",
            )
        port = config.reachable_port
        for name, other in active.items():
            if port is not None and other.config.reachable_port == port:
                raise UsageError(
                    f"port {port} belongs to the service {name}",
                    hint="Use another port, or stop that service.",
                )

    def _expression(self, config: ServiceConfig) -> Expression | None:
        if not config.ready or config.ready_port is not None:
            return None
        return compile_expression(config.ready)

    def _started(
        self, config: ServiceConfig, commands: LiveContainer, cancellation: Cancellation
    ) -> _Service:
        """A service whose command has begun."""
        for path in config.writes:
            self._context.make_derived(path)
        env = self._env({**_VARIABLES, **config.env})
        earlier = self._services.get(config.name)
        if earlier is not None:
            self._forget(earlier, "it is started again")
        runner = self._start_runner(config, self._note(config.name), cancellation)
        try:
            watch = self._watch(config, runner)
            service = _Service(config, runner, watch, self._config.service_log_bytes)
            self._services[config.name] = service
            self._link(commands)
            service.run(env)
        except BaseException:
            self._services.pop(config.name, None)
            runner.end()
            raise
        return service

    def _note(self, name: str) -> Path | None:
        notes = self._context.notes
        return None if notes is None else notes / leftovers.note_of_service(name)

    def _watch(self, config: ServiceConfig, runner: ProbedRunner) -> Callable[[], str | None]:
        if not config.writes:
            return lambda: None
        most = Usage(self._config.workspace_bytes, self._config.workspace_entries)
        return DiskWatch(self._context.files, most=most, first_pid=lambda: runner.live.pid)

    def _wait_until_ready(
        self, service: _Service, expression: Expression | None, cancellation: Cancellation
    ) -> None:
        config, searched = service.config, 0
        timeout_s = self._config.service_start_timeout_s
        timer = SearchTimer(self._clock, timeout_s)
        observed_s = self._clock.monotonic_s() + _OBSERVED_S
        until_s = self._clock.monotonic_s() + timeout_s
        while True:
            has_ended = service.wait(_READY_STEP_S)
            cancellation.check()
            if expression is not None:
                searched, found = _search(service.output, expression, searched, timer)
            elif config.ready_port is not None:
                found = config.ready_port in _listening_ports(service.live.pid)
            else:
                found = self._clock.monotonic_s() >= observed_s
            if has_ended:
                raise ServiceError(
                    f"the service {config.name} {_how(service.status)} before it was ready"
                    f"{_last_output(service)}",
                    hint="Correct its command. It must stay in the foreground.",
                )
            if found:
                return
            if self._clock.monotonic_s() >= until_s:
                raise ServiceError(
                    f"the service {config.name} was not ready after {timeout_s:g} seconds"
                    f" ({config.ready!r}){_last_output(service)}",
                    hint="Correct 'ready' or its command; it was stopped.",
                )

    def _restart(self, stopped: _Service) -> None:
        """Start a service again after a rollback, with the address that it had on the host."""
        config, address = stopped.config, self._addresses.get(stopped.config.name)
        try:
            service = self._started(config, self._commands(Cancellation()).live, Cancellation())
            self._wait_until_ready(service, self._expression(config), Cancellation())
            service.is_ready = True
            if address is not None:
                self.expose(config.name, port=address[0].port)
        except (WinkError, OSError) as error:
            _log.warning("The service %s was not restarted: %s", config.name, error)
            self._services.setdefault(config.name, stopped)

    def _forget(self, service: _Service, reason: str) -> ServiceStatus:
        """End a service and its links; how it was before."""
        name = service.config.name
        self._services.pop(name, None)
        self._unexpose(name)
        status = service.status
        service.end(reason)
        self._unlink(lambda link: service.live in (link.start, link.target))
        return status

    def _get(self, name: str) -> _Service:
        service = self._services.get(name)
        if service is None:
            names = ", ".join(self._services) or "none"
            raise UsageError(f"there is no service {name!r}", hint=f"The services are: {names}.")
        return service

    # Connections

    def _link(self, commands: LiveContainer) -> None:
        """Let commands and services reach every service on 127.0.0.1 and ::1."""
        self._forget_lost_links()
        running = [each for each in self._services.values() if each.ending is None]
        wanted = {
            _Link(start, host, port, service.live)
            for service in running
            if (port := service.config.reachable_port) is not None
            for start in (commands, *(other.live for other in running if other is not service))
            for host in _LOOPBACKS
        }
        self._unlink(lambda link: link not in wanted)
        for link in sorted(wanted - self._links.keys(), key=lambda link: link.host):
            try:
                self._links[link], _ = self._relay.listen(
                    link.start, link.host, link.port, link.target, link.port
                )
            except (SandboxError, UsageError):
                if link.host == _LOOPBACKS[0] and link.start is commands:
                    raise  # without IPv6, or if a service uses that port itself, there is no link
        self._linked_by = self._relay.pid

    def _forget_lost_links(self) -> None:
        """Forget the listeners of a program that has ended."""
        if self._relay.pid is None or self._relay.pid != self._linked_by:
            self._links.clear()
            self._addresses.clear()

    def _unlink(self, which: Callable[[_Link], bool]) -> None:
        for link in [link for link in self._links if which(link)]:
            number = self._links.pop(link)
            with suppress(SandboxError):
                self._relay.close(number)

    def _exposed(self, service: _Service, port: int, target: int) -> tuple[ServiceAddress, int]:
        """A listener on the first free address of this service; the same ones each time."""
        seed = f"{self._context.notes or self._context.files}/{service.config.name}"
        for attempt in range(_N_ADDRESSES):
            host = own_loopback_address(f"{seed}/{attempt}")
            try:
                listener, found = self._relay.listen(None, host, port, service.live, target)
            except UsageError:
                if attempt == _N_ADDRESSES - 1:
                    raise
            else:
                return ServiceAddress(host, found), listener
        raise AssertionError("unreachable")

    def _unexpose(self, name: str) -> None:
        known = self._addresses.pop(name, None)
        if known is not None:
            with suppress(SandboxError):
                self._relay.close(known[1])


@dataclass(frozen=True, slots=True)
class _Link:
    """A port of *target* that is reached in the sandbox *start*."""

    start: LiveContainer
    host: str
    port: int
    target: LiveContainer


def _stop_all(services: dict[str, _Service], relay: Relay) -> None:
    """Let the threads end all services, without waiting for them.

    The garbage collector may call this during a request to the engine, for which they would wait.
    """
    for service in services.values():
        service.ask_to_stop(_CLOSED)
    services.clear()
    relay.end()


def _search(
    output: _Output, expression: Expression, searched: int, timer: SearchTimer
) -> tuple[int, bool]:
    """Search the lines after offset *searched*; from where to go on, and whether one matches."""
    data, offset = output.since(searched)
    complete = data.rfind(b"\n") + 1  # the last line may go on
    text = (data[:complete] + data[complete:][-_LONGEST_LINE_BYTES:]).decode("utf-8", "replace")
    if any(True for _ in expression.matching_lines(text, timer)):
        return searched, True
    return offset + complete, False


def _listening_ports(pid: int) -> set[int]:
    """The TCP ports with a listening socket in the network namespace of a process."""
    found: set[int] = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError, ValueError, IndexError):
            lines = Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()
            for line in lines[1:]:
                fields = line.split()
                if fields[3] == _LISTENING:
                    found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def _how(status: ServiceStatus) -> str:
    if status.reason is not None:
        return f"was ended ({status.reason})"
    if status.signal is not None:
        return f"was ended by signal {status.signal}"
    return f"ended with exit code {status.exit_code}"


def _last_output(service: _Service) -> str:
    output, _ = service.output.newest(_ERROR_BYTES)
    text = output.decode("utf-8", "backslashreplace").strip()
    return f"; its last output:\n{text}\n" if text else ", without output"
