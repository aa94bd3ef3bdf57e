"""A sandbox that runs commands: it checks, limits, captures and reports each of them.

Rule 1: nothing of a caller runs before every isolation probe has been stopped.
Rule 2: when a command is over, however it ended, every process it started is dead. The runner
inside ensures that. If it misbehaves, everything is ended from outside, and the next command starts
another.
Rule 3: only the workspace outlives a command. Services run beside the commands, each with a runner
of its own.

A backend starts the runners in ``_start`` and ``_start_for_service``.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import threading
from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

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
from wink_workspace.sandbox.transport.stream import Ending, Limits

from . import leftovers
from .capture import Capture
from .command_config import CommandConfig
from .command_runs import CANCELLED, VARIABLES, arguments_of, encoded, payload_of
from .disk_watch import DiskWatch, Usage
from .freezer import freeze, thaw
from .probed_runner import ProbedRunner, link_of

if TYPE_CHECKING:
    from wink_workspace.sandbox.network_proxy.link import NetworkLink
    from wink_workspace.sandbox.services import ServiceConfig, Services

    from .interaction import Interaction
    from .running_services import RunningServices

R = TypeVar("R", bound=ProbedRunner)

_MOST_REQUEST_BYTES: Final = 67_108_864
_MOST_ARGUMENT_BYTES: Final = 131_071
_TERMINAL: Final = {"TERM": "xterm"}


class CommandSandbox(Sandbox, Generic[R]):
    """Runs commands with the files of one directory, one at a time.

    A call from another thread waits. Nothing is started before the first command, or the first use
    of ``report``. It ends with ``close``, with this object, with the interpreter, and with the
    process.

    Args:
        context: The directories and callbacks of its workspace.
        config: Its limits.
        environment: The user's home and variables; by default those of this process.
        clock: Measures time limits.
    """

    def __init__(
        self,
        context: SandboxContext,
        config: CommandConfig,
        environment: Environment | None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.config = config
        self._context = context
        self._of_user = environment
        self._clock = clock
        self._lock = threading.RLock()
        self._process = OwnProcess("the sandbox")
        self._closed = False
        self._commands: R | None = None
        self._services: RunningServices | None = None

    @abstractmethod
    def _start(self, note: Path | None, cancellation: Cancellation) -> R:
        """A probed runner that has the workspace, for commands.

        *note* names it while it may hold the workspace. Checks *cancellation* in waits.
        """

    @abstractmethod
    def _start_for_service(
        self, config: ServiceConfig, note: Path | None, cancellation: Cancellation
    ) -> R:
        """As ``_start``, for a service, which can only change what *config* names.

        The runner of the commands has been started before.
        """

    @property
    def _base_variables(self) -> Mapping[str, str]:
        """The variables of every command, to which configuration and request add."""
        return VARIABLES

    def _fix_of(self, program: str) -> str:  # noqa: ARG002 - a backend may know the program
        """What to do about a program that was not found; empty if that is not known."""
        return ""

    def _directory(self) -> str:
        """The directory in which commands start that name none."""
        return "."

    def _after_command(self) -> None:
        """Called after each command that ended."""

    @property
    def _environment(self) -> Environment:
        return self._of_user or Environment.from_os()

    def _network_link(self) -> NetworkLink | None:
        return link_of(self.config.network, self._of_user)

    def _open(self, cancellation: Cancellation | None = None) -> R:
        """The runner of the commands, which is started and probed unless that has been done.

        Raises:
            CallCancelledError: If *cancellation* is cancelled meanwhile; nothing is left.
            SandboxUnavailableError: If it cannot be started.
            IsolationError: If a probe succeeded; everything has ended.
            SandboxError: If this sandbox is closed.
        """
        self._check_open()
        if self._commands is None:
            cancellation = cancellation or Cancellation()
            cancellation.check()
            notes, remembered = self._context.notes, self._context.services
            note = None if notes is None else notes / leftovers.COMMANDS
            self._commands = self._start(note, cancellation)
            if remembered is not None and remembered.is_file():
                _ = self.services  # starts what a new fork inherits
        if self._services is not None:
            self._services.connect(self._commands.live)
        return self._commands

    def _take_files(self, user_id: int, remove: Callable[[str], None]) -> None:
        """Make the files ready for commands that run as *user_id*.

        *remove* ends a runner by its name if this process is not permitted to kill it: one that
        could not be ended, and may hold the files.
        """
        give_files(self._context.files, user_id)
        if self._context.notes is not None:
            leftovers.end_leftover(self._context.notes, remove, with_services=False)
        self._context.write_git_file()

    def _end(self) -> None:
        """End the runner of the commands with every process in it."""
        commands, self._commands = self._commands, None
        if commands is not None:
            commands.end()

    @property
    def services(self) -> Services:
        """Its services; see ``Services``."""
        from .running_services import RunningServices  # on use: most commands have none

        self._process.check()
        with self._lock:
            if self._services is None:
                self._services = RunningServices(
                    lock=self._lock,
                    start=self._start_for_service,
                    commands=lambda cancellation: self._commands or self._open(cancellation),
                    env=self._variables,
                    context=self._context,
                    config=self.config,
                    clock=self._clock,
                )
            return self._services

    @property
    def report(self) -> IsolationReport:
        """The isolation layers and the probes; starts the runner if necessary."""
        with self._lock:
            return self._open().report

    def start(self, cancellation: Cancellation | None = None) -> None:
        """Start the runner, probe it and keep it; see ``Sandbox.start``."""
        with self._lock:
            self._open(cancellation)

    @property
    def shell(self) -> tuple[str, ...]:
        """``bash`` if the sandbox has it, otherwise ``sh``."""
        with self._lock:
            return (self._open().shell, "-c")

    @contextmanager
    def paused(self) -> Generator[bool]:
        """Freeze the processes of the commands; see ``Sandbox.paused``."""
        first = self._first_pid()
        is_frozen = first is not None and freeze(first, self._clock)
        try:
            yield is_frozen
        finally:
            if first is not None:
                thaw(first)

    def close(self) -> None:
        """End every process of the sandbox. May be called again."""
        if not self._process.is_present:
            return  # a forked child leaves it to its parent
        with self._lock:
            self._closed = True
            try:
                if self._services is not None:
                    self._services.close()
            finally:
                self._end()

    @contextmanager
    def released(self) -> Generator[tuple[str, ...]]:
        """End what runs the commands, unless a service runs; see ``Sandbox.released``."""
        with self._lock:
            held = () if self._services is None else self._services.running()
            if not held:
                self._end()
            yield held

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
    ) -> ExecResult:
        """Run a program with the streams of this process; see ``Sandbox.interact``."""
        from .interaction import Interaction  # on use: most commands are not interactive

        typed = Interaction()
        request = ExecRequest(
            argv=tuple(argv) or self.shell[:1],
            env=env,
            terminal=typed.has_terminal,
            cancellation=cancellation,
            output_bytes=0,
        )
        with typed.terminal():
            result = self._run(request, None, typed)
        if result.stopped:
            raise SandboxError(f"the program was stopped: {result.stopped}")
        return result

    def _check_open(self) -> None:
        """Raise ``SandboxError`` if this sandbox is closed, or in a forked child."""
        self._process.check()
        if self._closed:
            raise SandboxError("the sandbox is closed", hint="Open the workspace again.")

    def _first_pid(self) -> int | None:
        return None if self._commands is None else self._commands.live.pid

    # One command

    def _run(
        self,
        request: ExecRequest | PythonRequest,
        observer: OutputObserver | None,
        typed: Interaction | None = None,
    ) -> ExecResult:
        self._process.check()
        has_terminal = isinstance(request, ExecRequest) and request.terminal
        more = {**_TERMINAL, **request.env} if has_terminal else request.env
        self._check(request, self._variables(more))
        with self._lock:
            commands = self._open(request.cancellation)
            env = self._variables(more)  # the base is known now
            if request.cwd == ".":
                request = replace(request, cwd=self._directory())
            capture = Capture(
                limit_bytes=request.output_bytes,
                file_bytes=self.config.output_file_bytes,
                folder=self._context.notes,
                observer=observer,
            )
            disk = DiskWatch(self._context.files, most=self._most, first_pid=self._first_pid)
            timeout_s = min(request.timeout_s, self.config.longest_timeout_s)
            watch = self._watch(capture, disk, request)
            limits = Limits(timeout_s if typed is None else math.inf, watch)
            with self._end_on_error():
                try:
                    started_s = self._clock.monotonic_s()
                    ending = commands.run(request, env, limits, typed or capture, typed)
                    self._context.write_git_file()
                    duration_s = self._clock.monotonic_s() - started_s
                    result = self._result(ending, capture, duration_s, request)
                finally:
                    capture.discard()
            self._after_command()
            return result

    def _variables(self, more: Mapping[str, str]) -> Mapping[str, str]:
        """The environment of a command or service."""
        env = {**self._base_variables, **self.config.env, **more}
        check_variables(env)
        return env

    def _check(self, request: ExecRequest | PythonRequest, env: Mapping[str, str]) -> None:
        """Refuse an invalid request."""
        if any(b"\0" in argument for argument in arguments_of(request)):
            raise UsageError("a command cannot contain a NUL", hint="Remove the '\\0'.")
        most = self.config.file_bytes  # in the container, the input is a file
        if len(request.stdin) > most:
            raise UsageError(
                f"the input is longer than the {most:,} bytes that are allowed",
                hint="Raise file_bytes of the configuration, or pass the input in parts.",
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
            raise _refused(ending, request, self._fix_of)
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
        """End the runner if the block raises, except for an invalid request."""
        try:
            yield
        except UsageError:
            raise
        except BaseException:
            self._end()
            raise


def check_variables(env: Mapping[str, str]) -> None:
    """Raise ``UsageError`` for a variable that no environment can have."""
    for name, value in env.items():
        if not name or "=" in name or "\0" in name:
            raise UsageError(
                f"{name!r} cannot be the name of a variable",
                hint="Use letters, digits and '_'.",
            )
        if "\0" in value:
            raise UsageError(f"the variable {name!r} contains a NUL", hint="Remove the '\\0'.")
        encoded(f"{name}={value}")


def give_files(files: Path, user_id: int) -> None:
    """Change the owner of the files to the commands' user, so that commands can write.

    Raises:
        SandboxUnavailableError: If that is not permitted.
    """
    owner = host_owner(user_id)
    if owner is not None and files.stat().st_uid != owner:
        _change_owner(files, owner)
    mode = files.stat().st_mode
    if mode & stat.S_IRWXU != stat.S_IRWXU:  # a command has removed its own permission
        files.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)


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


def _refused(
    ending: Ending, request: ExecRequest | PythonRequest, fix_of: Callable[[str], str]
) -> Exception:
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
            fix = fix_of(request.argv[0]) if missing else ""
            return ProgramError(request.argv[0], reason, is_missing=missing, fix=fix)
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
