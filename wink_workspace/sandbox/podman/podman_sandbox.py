"""The sandbox of one workspace: a container that is probed, gets the workspace, and is then kept.

Rule 1: nothing of a caller runs before every isolation probe has been stopped.
Rule 2: when a command is over, however it ended, every process it started is dead. The runner
inside ensures that. If the runner misbehaves, the container is ended from outside, and the next
command starts another.
Rule 3: only the workspace outlives a command.

A container ends with ``close``, with this object, with the interpreter, and with the process.

A branch that is an overlay is mounted in a running container, if possible in one that has waited
for it. A plain copy is bound when its container is created.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from wink_workspace.clock import SYSTEM_CLOCK, Cancellation, Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import (
    ProgramError,
    SandboxBrokenError,
    SandboxError,
    SandboxUnavailableError,
    UsageError,
)
from wink_workspace.filesystem.disk import DiskTree
from wink_workspace.processes import OwnProcess
from wink_workspace.sandbox.backends import SandboxContext
from wink_workspace.sandbox.git_directory import FIRST_HOST_ID, host_owner
from wink_workspace.sandbox.isolation_report import IsolationReport
from wink_workspace.sandbox.sandbox_protocol import (
    ExecRequest,
    ExecResult,
    OutputObserver,
    PythonRequest,
    Sandbox,
)
from wink_workspace.sandbox.services import Services

from .commands import leftovers
from .commands.capture import Capture
from .commands.command_runs import CANCELLED, arguments_of, encoded, payload_of
from .commands.disk_watch import DiskWatch, Usage
from .commands.image_settings import ImageSettings
from .commands.runner_container import ContainerKind, RunnerContainer, link_of, with_history
from .commands.service_containers import PodmanServices
from .commands.waiting import WaitingContainers, start_container
from .engine.containers import WORKSPACE_PATH, Host, LiveContainer, remove, sweep_quietly
from .engine.freezer import freeze, thaw
from .engine.podman_config import PodmanConfig
from .engine.service import PodmanService, shared_service
from .transport.stream import Ending, Limits

if TYPE_CHECKING:
    from .network.link import NetworkLink

__all__ = ["PodmanSandbox"]

_log = logging.getLogger(__name__)

_MOST_REQUEST_BYTES: Final = 67_108_864
_MOST_ARGUMENT_BYTES: Final = 131_071
_TERMINAL: Final = {"TERM": "xterm"}


class PodmanSandbox(Sandbox):
    """Runs commands with the files of one directory, in a container of its own.

    It runs one command at a time; a call from another thread waits.

    Args:
        context: The directories and callbacks of its workspace.
        config: Its limits.
        environment: The variables that name the engine; by default those of this process.
        service: The engine, if the caller has one.
        clock: Measures time limits.

    Nothing is started before the first command, or the first use of ``report``.
    """

    def __init__(
        self,
        context: SandboxContext,
        *,
        config: PodmanConfig | None = None,
        environment: Environment | None = None,
        service: PodmanService | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.config = with_history(config or PodmanConfig(), context.git_history)
        self._context = context
        self._environment = environment
        self._service = service
        self._clock = clock
        self._lock = threading.RLock()
        self._commands: RunnerContainer | None = None
        self._kind: ContainerKind | None = None
        self._image = ImageSettings()
        self._closed = False
        self._process = OwnProcess("the sandbox")
        self._services: PodmanServices | None = None

    @property
    def report(self) -> IsolationReport:
        """The isolation layers and the probes; starts the container if necessary."""
        with self._lock:
            return self._open().report

    def start(self, cancellation: Cancellation | None = None) -> None:
        """Start the container, run the probes and keep it; see ``Sandbox.start``."""
        with self._lock:
            self._open(cancellation)

    @property
    def services(self) -> Services:
        """Its services; see ``Services``."""
        self._process.check()
        with self._lock:
            if self._services is None:
                self._services = PodmanServices(
                    lock=self._lock,
                    start=self._container_of_service,
                    commands=self._container_of_commands,
                    env=self._variables,
                    context=self._context,
                    config=self.config,
                    clock=self._clock,
                )
            return self._services

    @property
    def shell(self) -> tuple[str, ...]:
        """``bash`` if the image has it, otherwise ``sh``."""
        with self._lock:
            return (self._open().shell, "-c")

    def run(self, request: ExecRequest, *, observer: OutputObserver | None = None) -> ExecResult:
        """Run a command and wait until it ends; see ``Sandbox.run``."""
        if not request.argv or not request.argv[0]:
            raise UsageError(
                "there is no program to run", hint="Pass the program's name as first argument."
            )
        if any(len(argument) > _MOST_ARGUMENT_BYTES for argument in arguments_of(request)):
            raise UsageError(
                f"an argument is longer than {_MOST_ARGUMENT_BYTES:,} bytes",
                hint="Write it to a file and let the command read that.",
            )
        return self._run(request, observer)

    def evaluate(
        self, request: PythonRequest, *, observer: OutputObserver | None = None
    ) -> ExecResult:
        """Run Python code in a process forked from a loaded interpreter; see ``Sandbox``."""
        return self._run(request, observer)

    def interact(
        self,
        argv: Sequence[str] = (),
        *,
        env: Mapping[str, str] = MappingProxyType({}),
        cancellation: Cancellation | None = None,
    ) -> int:
        """Run a program with the streams of this process; see ``Sandbox.interact``."""
        self._process.check()
        _check_variables(env)
        with self._lock:
            commands = self._open(cancellation)
            disk = DiskWatch(self._context.files, most=self._most, first_pid=self._first_pid)

            def watch() -> str | None:
                cancelled = cancellation is not None and cancellation.cancelled
                return CANCELLED if cancelled else disk()

            with self._end_on_error():
                code = commands.interact(
                    argv or (commands.shell,),
                    self._image.variables(self.config.env, env),
                    self._image.directory_in(self._context.files),
                    self.config.user_id,
                    watch,
                )
                self._context.write_git_file()
                excess = self._excess()
                if excess is not None:
                    raise SandboxError(f"the program was stopped: {excess}")
                return code

    @contextmanager
    def paused(self) -> Generator[bool]:
        """Freeze the container of the commands; see ``Sandbox.paused``."""
        live = None if self._commands is None else self._commands.live
        is_frozen = live is not None and freeze(live.pid, self._clock)
        try:
            yield is_frozen
        finally:
            if live is not None:
                thaw(live.pid)

    def let_go(self) -> bool:
        """End the container of the commands; see ``Sandbox.let_go``."""
        with self._lock:
            services = () if self._services is None else self._services.listed()
            if any(service.state != "ended" for service in services):
                return False
            self._end()
            return True

    def close(self) -> None:
        """End the container with every process in it. May be called again."""
        if not self._process.is_present:
            return  # a forked child leaves it to its parent
        with self._lock:
            self._closed = True
            try:
                if self._services is not None:
                    self._services.close()
            finally:
                self._end()

    # One command

    def _run(
        self, request: ExecRequest | PythonRequest, observer: OutputObserver | None
    ) -> ExecResult:
        self._process.check()
        has_terminal = isinstance(request, ExecRequest) and request.terminal
        more = {**_TERMINAL, **request.env} if has_terminal else request.env
        self._check(request, self._variables(more))
        with self._lock:
            commands = self._open(request.cancellation)
            env = self._variables(more)  # the image is known now
            if request.cwd == ".":
                directory = self._image.directory_in(self._context.files)
                request = replace(request, cwd=directory)
            capture = Capture(
                limit_bytes=request.output_bytes,
                file_bytes=self.config.output_file_bytes,
                folder=self._context.notes,
                observer=observer,
            )
            disk = DiskWatch(self._context.files, most=self._most, first_pid=self._first_pid)
            limits = Limits(
                min(request.timeout_s, self.config.longest_timeout_s),
                self._watch(capture, disk, request),
            )
            with self._end_on_error():
                try:
                    started_s = self._clock.monotonic_s()
                    ending = commands.run(request, env, limits, capture)
                    self._context.write_git_file()
                    duration_s = self._clock.monotonic_s() - started_s
                    result = self._result(ending, capture, duration_s, request)
                finally:
                    capture.discard()
            self._keep_waiting()
            return result

    def _variables(self, more: Mapping[str, str]) -> Mapping[str, str]:
        """The environment of a command or service."""
        env = self._image.variables(self.config.env, more)
        _check_variables(env)
        return env

    def _check(self, request: ExecRequest | PythonRequest, env: Mapping[str, str]) -> None:
        """Refuse an invalid request."""
        if any(b"\0" in argument for argument in arguments_of(request)):
            raise UsageError("a command cannot contain a NUL", hint="Remove the '\\0'.")
        most = self.config.file_bytes  # in the container, the input is a file
        if len(request.stdin) > most:
            raise UsageError(
                f"the input is longer than the {most:,} bytes that are allowed",
                hint="Raise PodmanConfig.file_bytes, or pass the input in parts.",
            )
        if request.stdin and isinstance(request, ExecRequest) and request.terminal:
            raise UsageError(
                "a command with a terminal has no input",
                hint="Leave out the terminal, or redirect the input in the command.",
            )
        payload = payload_of(request, env)
        if len(payload) > _MOST_REQUEST_BYTES:
            raise UsageError(
                f"the command has {len(payload):,} bytes, {_MOST_REQUEST_BYTES:,} are allowed",
                hint="Write it to a file and run the file.",
            )

    def _first_pid(self) -> int | None:
        return None if self._commands is None else self._commands.live.pid

    @property
    def _most(self) -> Usage:
        return Usage(self.config.workspace_bytes, self.config.workspace_entries)

    def _watch(
        self, capture: Capture, disk: DiskWatch, request: ExecRequest | PythonRequest
    ) -> Callable[[], str | None]:
        cancellation = request.cancellation
        callers = request.watch if isinstance(request, ExecRequest) else None

        def watch() -> str | None:
            if cancellation is not None and cancellation.cancelled:
                return CANCELLED
            if callers is not None and (reason := callers()) is not None:
                return reason
            if capture.n_bytes > self.config.most_output_bytes:
                return f"it wrote more than {self.config.most_output_bytes:,} bytes of output"
            return disk()

        return watch

    def _result(
        self,
        ending: Ending,
        capture: Capture,
        duration_s: float,
        request: ExecRequest | PythonRequest,
    ) -> ExecResult:
        if ending.refused is not None:
            raise _refused(ending, request)
        stopped = ending.stopped or self._excess()
        stdout, stderr = capture.finished(
            None if stopped or ending.timed_out else self._context.publish
        )
        return ExecResult(
            exit_code=ending.exit_code,
            signal=ending.signal,
            stdout=stdout,
            stderr=stderr,
            duration_s=duration_s,
            timed_out=ending.timed_out,
            stopped=stopped,
            network=ending.network,
            network_list=self.config.network.lines(),
        )

    def _excess(self) -> str | None:
        """Why the changed files are too large to be kept: sparse files do not fill the disk."""
        if self._context.changed is None:
            return None
        (n_bytes, n_entries), most = self._context.changed(), self._most
        if n_bytes > most.n_bytes or n_entries > most.n_entries:
            return (
                f"it left {n_bytes:,} bytes in {n_entries:,} files;"
                f" {most.n_bytes:,} and {most.n_entries:,} are allowed"
            )
        return None

    @contextmanager
    def _end_on_error(self) -> Generator[None]:
        """End the container if the block raises, except for an invalid request."""
        try:
            yield
        except UsageError:
            raise
        except BaseException:
            self._end()
            raise

    # The container

    def _open(self, cancellation: Cancellation | None = None) -> RunnerContainer:
        """Start the container and run the probes, unless that has been done.

        Raises:
            CallCancelledError: If *cancellation* is cancelled meanwhile; the container has ended.
            SandboxUnavailableError: If it cannot be started.
            IsolationError: If a probe succeeded; the container has ended.
            SandboxError: If this sandbox is closed.
        """
        self._process.check()
        if self._closed:
            raise SandboxError("the sandbox is closed", hint="Open the workspace again.")
        is_new = self._commands is None
        if self._commands is None:
            self._commands = self._start(cancellation or Cancellation())
        if is_new and self._remembers_services:
            _ = self.services  # starts what a new fork inherits
        if self._services is not None:
            self._services.connect(self._commands.live)
        return self._commands

    @property
    def _remembers_services(self) -> bool:
        return self._context.services is not None and self._context.services.is_file()

    def _container_of_commands(self, cancellation: Cancellation) -> LiveContainer:
        """The container of the commands; raises as ``_open``."""
        return (self._commands or self._open(cancellation)).live

    def _container_of_service(self, cancellation: Cancellation) -> RunnerContainer:
        """A container without a workspace; the one of the commands has been started before."""
        service = self._service
        assert service is not None  # noqa: S101 - the commands use it
        host = Host.of(service)
        if self._context.mount is not None:
            return self._waiting_or_new(service, host, cancellation)
        return RunnerContainer(
            service, self.config, host, clock=self._clock, cancellation=cancellation
        )

    def _start(self, cancellation: Cancellation) -> RunnerContainer:
        """As ``_open``; checks *cancellation* before each request to the engine, and in waits."""
        cancellation.check()
        if self._service is None:
            environment = self._environment or Environment.from_os()
            self._service = shared_service(
                environment, clock=self._clock, cancellation=cancellation
            )
        service = self._service
        self._check_owner(service)
        notes = self._context.notes
        if notes is not None:  # of a container that could not be ended, and may hold the files
            leftovers.end_leftover(notes, lambda name: remove(service, name), with_services=False)
        self._context.write_git_file()
        host = Host.of(service)
        self._image = ImageSettings.of(service, self.config.image)
        context, mount = self._context, self._context.mount
        if mount is None:
            container = RunnerContainer(
                service,
                self.config,
                host,
                workspace=context.files,
                note=self._note,
                clock=self._clock,
                cancellation=cancellation,
                network=self._network_link(),
                meanwhile=partial(sweep_quietly, service),
            )
        else:
            container = self._waiting_or_new(service, host, cancellation)
            container.attach(partial(mount.attach, target=WORKSPACE_PATH), self._note)
        container.probe_workspace(cancellation, attached=mount is not None)
        return container

    def _waiting_or_new(
        self, service: PodmanService, host: Host, cancellation: Cancellation
    ) -> RunnerContainer:
        self._kind = ContainerKind.of(service, self._clock, self.config, host, self._image.id)
        if self._kind is not None and self.config.n_waiting:
            container = WaitingContainers.shared().take(self._kind, cancellation)
            if container is not None:
                return container
        return RunnerContainer(
            service,
            self.config,
            host,
            clock=self._clock,
            cancellation=cancellation,
            network=self._network_link(),
            meanwhile=partial(sweep_quietly, service),
        )

    def _network_link(self) -> NetworkLink | None:
        return link_of(self.config, self._environment)

    def _keep_waiting(self) -> None:
        """Start a container for the next branch, unless this is the first use."""
        service, kind = self._service, self._kind
        if kind is None or service is None or not self.config.n_waiting:
            return
        start = partial(start_container, service, self.config, self._environment, clock=self._clock)
        WaitingContainers.shared().keep(kind, self.config.n_waiting, start)

    @property
    def _note(self) -> Path | None:
        notes = self._context.notes
        return None if notes is None else notes / leftovers.COMMANDS

    def _check_owner(self, service: PodmanService) -> None:
        """Change the owner of the files to the commands' user, so that commands can write."""
        if service.is_root != (os.geteuid() == 0):
            user = "root" if service.is_root else "an ordinary user"
            raise SandboxUnavailableError(
                f"the engine at {service.socket_path} runs as {user}, and this process does not",
                hint="Unset CONTAINER_HOST, so that another engine is started.",
            )
        owner, files = host_owner(self.config.user_id), self._context.files
        if owner is not None and files.stat().st_uid != owner:
            _change_owner(files, owner)
        mode = files.stat().st_mode
        if mode & stat.S_IRWXU != stat.S_IRWXU:  # a command has removed its own permission
            files.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)

    def _end(self) -> None:
        commands, self._commands = self._commands, None
        if commands is not None:
            commands.end()


def _check_variables(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name:
            raise UsageError(
                f"{name!r} cannot be the name of a variable",
                hint="Use letters, digits and '_'.",
            )
        if "\0" in value:
            raise UsageError(f"the variable {name!r} contains a NUL", hint="Remove the '\\0'.")
        encoded(f"{name}={value}")


def _change_owner(directory: Path, owner: int) -> None:
    """Change the owner of an existing copy and everything in it to the commands' user."""
    try:
        with DiskTree(directory) as tree:
            for listing in tree.listings():
                for name, _ in listing.entries:
                    os.chown(name, owner, owner, dir_fd=listing.fd, follow_symlinks=False)
        os.chown(directory, owner, owner)
    except OSError as error:
        raise SandboxUnavailableError(
            f"the owner of {directory} cannot be changed to the sandbox's user: {error}",
            hint="Run as an ordinary user, or on a system where root may use the ids from"
            f" {FIRST_HOST_ID} on.",
        ) from error


def _refused(ending: Ending, request: ExecRequest | PythonRequest) -> Exception:
    """The error for a command that could not be started."""
    reason = os.strerror(ending.exit_code or 0)
    match ending.refused:
        case "cwd":
            return UsageError(
                f"the directory {request.cwd!r} cannot be entered: {reason}",
                hint="Use a directory of the workspace, or an absolute path in the container.",
            )
        case "program" if ending.exit_code == errno.E2BIG:
            n_bytes = sum(map(len, arguments_of(request)))
            return UsageError(
                f"the command has {n_bytes:,} bytes, more than the kernel accepts",
                hint="Write them to a file, or pass them as input.",
            )
        case "program" if isinstance(request, ExecRequest):
            missing = ending.exit_code == errno.ENOENT
            return ProgramError(request.argv[0], reason, is_missing=missing)
        case "terminal":
            return SandboxUnavailableError(
                f"the sandbox has no terminals: {reason}", hint="Run it without a terminal."
            )
        case "input" if ending.exit_code == errno.EFBIG:  # the user's own limit, or its parent's
            return UsageError(
                f"the input has {len(request.stdin):,} bytes, more than a file may have here",
                hint="Pass it in parts, or raise the user's limit (`ulimit -f`).",
            )
        case _:
            return SandboxBrokenError(f"the sandbox could not start a command: {reason}")
