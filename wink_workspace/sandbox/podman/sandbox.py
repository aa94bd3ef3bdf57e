"""The sandbox of one workspace: a container that is started once, probed, and then kept.

Rule 1: nothing of a caller runs before every isolation probe has been stopped.
Rule 2: when a command is over, however it ended, every process it started is dead. The runner
inside ensures that. If the runner misbehaves, the container is ended from outside, and the next
command starts another.
Rule 3: only the workspace outlives a command.

A container ends with ``close``, with this object, with the interpreter, and with the process.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import threading
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import socket
from typing import Final, Protocol

from wink_workspace.clock import SYSTEM_CLOCK, Cancellation, Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import (
    IsolationError,
    ProgramError,
    SandboxBrokenError,
    SandboxError,
    SandboxUnavailableError,
    UsageError,
)
from wink_workspace.filesystem import parse_path
from wink_workspace.filesystem.disk import DiskTree
from wink_workspace.processes import OwnProcess
from wink_workspace.sandbox.backends import SandboxContext
from wink_workspace.sandbox.isolation import IsolationReport
from wink_workspace.sandbox.ownership import FIRST_HOST_ID, host_owner
from wink_workspace.sandbox.protocol import (
    ExecRequest,
    ExecResult,
    OutputObserver,
    PythonRequest,
    Sandbox,
    StreamName,
)

from . import leftovers
from .capture import Capture
from .config import PodmanConfig
from .containers import (
    Container,
    Host,
    LiveContainer,
    container_spec,
    new_name,
    remove,
    sweep,
)
from .direct import DirectRunner
from .disk_watch import DiskWatch, Usage
from .frames import Kind, request_payload
from .proof import prove
from .service import PodmanService, shared_service
from .stream import Ending, Limits, Ready, RunnerStream

__all__ = ["PodmanSandbox"]

_log = logging.getLogger(__name__)

_BOOT: Final = (
    "python3",
    "-I",
    "-c",
    (
        "import os, sys\n"
        "source, left = b'', int(sys.argv[2])\n"
        "while left > len(source):\n"
        "    source += os.read(0, left - len(source)) or os._exit(0)\n"
        "exec(compile(source, '<runner>', 'exec'))"
    ),
)
"""Reads the runner's source from the stream. Process listings would show it as an argument."""

_CANCELLED: Final = "it was cancelled"
_PROOF_TIMEOUT_S: Final = 60.0
_PROOF_BYTES: Final = 65_536
_MOST_REQUEST_BYTES: Final = 67_108_864
_MOST_ARGUMENT_BYTES: Final = 131_071
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_VARIABLES: Final = {
    "PATH": _PATH,
    "HOME": "/tmp",  # noqa: S108 - inside the container
    "USER": "agent",
    "LOGNAME": "agent",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "TMPDIR": "/tmp",  # noqa: S108 - inside the container
}


class _Commands(Protocol):
    """Runs commands: in one container for all, or in a new one for each."""

    @property
    def shell(self) -> str: ...

    def run(
        self,
        request: ExecRequest | PythonRequest,
        env: Mapping[str, str],
        limits: Limits,
        sink: Callable[[StreamName, bytes], None],
    ) -> Ending: ...

    @property
    def end(self) -> Callable[[], object]: ...


class _RunnerCommands:
    """Runs commands in one container, with the runner inside it."""

    def __init__(self, stream: RunnerStream, ready: Ready, end: Callable[[], object]) -> None:
        self._stream = stream
        self.end = end
        self.shell = ready.shell or "/bin/sh"

    def run(
        self,
        request: ExecRequest | PythonRequest,
        env: Mapping[str, str],
        limits: Limits,
        sink: Callable[[StreamName, bytes], None],
    ) -> Ending:
        kind = Kind.RUN if isinstance(request, ExecRequest) else Kind.PYTHON
        payload = _payload(request, env)
        return self._stream.run(kind, payload, stdin=request.stdin, limits=limits, sink=sink)


class _DirectCommands:
    """Runs each command in a container of its own, for images without Python."""

    shell = "/bin/sh"

    def __init__(self, runner: DirectRunner) -> None:
        self._runner = runner

    def run(
        self,
        request: ExecRequest | PythonRequest,
        env: Mapping[str, str],
        limits: Limits,
        sink: Callable[[StreamName, bytes], None],
    ) -> Ending:
        if isinstance(request, PythonRequest):
            raise SandboxUnavailableError(
                f"the image {self._runner.config.image} has no Python",
                hint="Run a program that it has, or use an image with Python.",
            )
        return self._runner.run(
            request.argv,
            cwd=_path_inside(request.cwd),
            env=env,
            stdin=request.stdin,
            merge_stderr=request.merge_stderr,
            limits=limits,
            sink=sink,
        )

    def end(self) -> None:
        """Do nothing: the container of each command has ended with it."""


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
        self.config = config or PodmanConfig()
        self._context = context
        self._environment = environment
        self._service = service
        self._clock = clock
        self._lock = threading.RLock()
        self._commands: _Commands | None = None
        self._live: LiveContainer | None = None
        self._report = IsolationReport()
        self._closed = False
        self._process = OwnProcess("the sandbox")

    @property
    def report(self) -> IsolationReport:
        """The isolation layers and the probes; starts the container if necessary."""
        with self._lock:
            self._open()
            return self._report

    def start(self, cancellation: Cancellation | None = None) -> None:
        """Start the container, run the probes and keep it; see ``Sandbox.start``."""
        with self._lock:
            self._open(cancellation)

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
        if any(len(argument) > _MOST_ARGUMENT_BYTES for argument in _arguments(request)):
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

    def close(self) -> None:
        """End the container with every process in it. May be called again."""
        if not self._process.is_present:
            return  # a forked child leaves it to its parent
        with self._lock:
            self._closed = True
            self._end()

    # One command

    def _run(
        self, request: ExecRequest | PythonRequest, observer: OutputObserver | None
    ) -> ExecResult:
        self._process.check()
        env = {**_VARIABLES, **self.config.env, **request.env}
        self._check(request, env)
        with self._lock:
            commands = self._open(request.cancellation)
            capture = Capture(
                limit_bytes=request.output_bytes,
                file_bytes=self.config.output_file_bytes,
                folder=self._context.notes,
                observer=observer,
            )
            disk = DiskWatch(self._context.files, most=self._most, first_pid=self._first_pid)
            limits = Limits(
                min(request.timeout_s, self.config.longest_timeout_s),
                self._watch(capture, disk, request.cancellation),
            )
            with self._end_on_error():
                try:
                    started_s = self._clock.monotonic_s()
                    ending = commands.run(request, env, limits, capture)
                    duration_s = self._clock.monotonic_s() - started_s
                    return self._result(ending, capture, duration_s, request)
                finally:
                    capture.discard()

    def _check(self, request: ExecRequest | PythonRequest, env: Mapping[str, str]) -> None:
        """Refuse an invalid request."""
        _check_variables(env)
        if any(b"\0" in argument for argument in _arguments(request)):
            raise UsageError("a command cannot contain a NUL", hint="Remove the '\\0'.")
        most = self.config.file_bytes  # in the container, the input is a file
        if len(request.stdin) > most:
            raise UsageError(
                f"the input is longer than the {most:,} bytes that are allowed",
                hint="Raise PodmanConfig.file_bytes, or pass the input in parts.",
            )
        payload = _payload(request, env)
        if len(payload) > _MOST_REQUEST_BYTES:
            raise UsageError(
                f"the command has {len(payload):,} bytes, {_MOST_REQUEST_BYTES:,} are allowed",
                hint="Write it to a file and run the file.",
            )

    def _first_pid(self) -> int | None:
        return None if self._live is None else self._live.pid

    @property
    def _most(self) -> Usage:
        return Usage(self.config.workspace_bytes, self.config.workspace_entries)

    def _watch(
        self, capture: Capture, disk: DiskWatch, cancellation: Cancellation | None
    ) -> Callable[[], str | None]:
        def watch() -> str | None:
            if cancellation is not None and cancellation.cancelled:
                return _CANCELLED
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

    def _open(self, cancellation: Cancellation | None = None) -> _Commands:
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
        if self._commands is None:
            self._commands = self._start(cancellation or Cancellation())
        return self._commands

    def _start(self, cancellation: Cancellation) -> _Commands:
        """As ``_open``; checks *cancellation* before each request to the engine, and in waits."""
        cancellation.check()
        if self._service is None:
            environment = self._environment or Environment.from_os()
            self._service = shared_service(
                environment, clock=self._clock, cancellation=cancellation
            )
        service = self._service
        self._check_owner(service)
        with suppress(SandboxError):  # leftovers of other processes do not prevent the start
            sweep(service)
        host = Host.of(service)
        try:
            commands: _Commands = self._start_runner(service, host, cancellation)
        except _NoPythonError:
            commands = self._direct_commands(service, host)
        try:
            self._report = self._probe(commands, host, cancellation)
        except BaseException:
            commands.end()
            raise
        return commands

    def _start_runner(
        self, service: PodmanService, host: Host, cancellation: Cancellation
    ) -> _RunnerCommands:
        """Start a container with the runner; raises ``_NoPythonError`` if it has no Python."""
        name = new_name()
        source = _runner_source()
        spec = container_spec(
            self.config,
            host=host,
            name=name,
            workspace=self._context.files,
            command=(*_BOOT, str(self.config.user_id), str(len(source))),
        )
        streams: list[socket] = []
        end = weakref.finalize(
            self, _end_container, service, name, streams, self._context.notes, os.getpid()
        )
        try:
            cancellation.check()
            container = Container(service, spec, timeout_s=self.config.start_timeout_s)
            cancellation.check()
            streams.append(container.attach())
            stream = RunnerStream(streams[0], clock=self._clock)
            self._live = container.start()
            if self._context.notes is not None:
                leftovers.note(self._context.notes, self._live)
            ready = stream.ready(source, self.config.start_timeout_s, cancellation)
        except SandboxUnavailableError as error:
            end()
            if _lacks_python(error):
                raise _NoPythonError from error
            raise
        except BaseException:
            end()
            raise
        return _RunnerCommands(stream, ready, end)

    def _direct_commands(self, service: PodmanService, host: Host) -> _DirectCommands:
        notes = self._context.notes

        def on_container(container: LiveContainer | None) -> None:
            self._live = container
            if notes is not None:
                leftovers.forget(notes) if container is None else leftovers.note(notes, container)

        return _DirectCommands(
            DirectRunner(service, self.config, host, self._context.files, on_container, self._clock)
        )

    def _probe(
        self, commands: _Commands, host: Host, cancellation: Cancellation
    ) -> IsolationReport:
        in_shell = isinstance(commands, _DirectCommands)

        def run(program: str, variables: Mapping[str, str]) -> str:
            printed, errors = bytearray(), bytearray()

            def sink(stream: StreamName, data: bytes) -> None:
                kept = printed if stream == "stdout" else errors
                if len(kept) < _PROOF_BYTES:
                    kept.extend(data)

            request = (
                ExecRequest(argv=("/bin/sh", "-c", program))
                if in_shell
                else PythonRequest(code=program)
            )
            limits = Limits(
                _PROOF_TIMEOUT_S, lambda: _CANCELLED if cancellation.cancelled else None
            )
            ending = commands.run(request, {**_VARIABLES, **variables}, limits, sink)
            cancellation.check()
            if not printed:
                raise _not_probed(ending, bytes(errors))
            return printed.decode("utf-8", "replace")

        report = prove(run, self.config, host, in_shell=in_shell)
        if report.holes:
            found = "; ".join(f"{hole.name}: {hole.detail}" for hole in report.holes)
            raise IsolationError(f"the sandbox is not isolated, nothing was run in it: {found}")
        return report

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


class _NoPythonError(Exception):
    """The image has no Python."""


def _lacks_python(error: SandboxUnavailableError) -> bool:
    """Whether a container did not start because python3 is missing; runtimes differ in wording."""
    text = error.message.casefold()
    return "python3" in text and ("not found" in text or "no such file" in text)


def _check_variables(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name:
            raise UsageError(
                f"{name!r} cannot be the name of a variable",
                hint="Use letters, digits and '_'.",
            )
        if "\0" in value:
            raise UsageError(f"the variable {name!r} contains a NUL", hint="Remove the '\\0'.")
        _encoded(f"{name}={value}")


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{text[:80]!r} is not valid Unicode", hint="Remove lone surrogates."
        ) from error


def _arguments(request: ExecRequest | PythonRequest) -> list[bytes]:
    if isinstance(request, PythonRequest):
        return [request.code.encode("utf-8", "surrogatepass")]
    return [_encoded(argument) for argument in request.argv]


def _payload(request: ExecRequest | PythonRequest, env: Mapping[str, str]) -> bytes:
    return request_payload(
        cwd=_path_inside(request.cwd),
        env=env,
        stdin_bytes=len(request.stdin),
        merge_stderr=isinstance(request, ExecRequest) and request.merge_stderr,
        arguments=_arguments(request),
    )


def _path_inside(cwd: str) -> str:
    """A directory as an absolute path in the container; a relative one is in the workspace."""
    if not cwd.startswith("/"):
        return "/".join(("/workspace", *parse_path(cwd).parts))
    if "\0" in cwd:
        raise UsageError(f"the directory {cwd!r} contains a NUL", hint="Remove the '\\0'.")
    _encoded(cwd)
    return cwd


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


def _end_container(
    service: PodmanService, name: str, streams: list[socket], notes: Path | None, owner: int
) -> None:
    try:
        if os.getpid() != owner:
            return  # a forked child leaves it to its parent
        remove(service, name)
    except SandboxError as error:
        _log.warning("The container %s could not be removed: %s", name, error)
    else:
        if notes is not None:
            leftovers.forget(notes)
    finally:
        for stream in streams:  # not earlier: the engine would remove it by itself, but more slowly
            stream.close()


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
            n_bytes = sum(map(len, _arguments(request)))
            return UsageError(
                f"the command has {n_bytes:,} bytes, more than the kernel accepts",
                hint="Write them to a file, or pass them as input.",
            )
        case "program" if isinstance(request, ExecRequest):
            missing = ending.exit_code == errno.ENOENT
            return ProgramError(request.argv[0], reason, is_missing=missing)
        case "input" if ending.exit_code == errno.EFBIG:  # the user's own limit, or its parent's
            return UsageError(
                f"the input has {len(request.stdin):,} bytes, more than a file may have here",
                hint="Pass it in parts, or raise the user's limit (`ulimit -f`).",
            )
        case _:
            return SandboxBrokenError(f"the sandbox could not start a command: {reason}")


def _not_probed(ending: Ending, errors: bytes) -> IsolationError:
    """The error for a probe program that printed nothing."""
    if ending.refused is not None:
        how = f"was not started ({os.strerror(ending.exit_code or 0)})"
    elif ending.timed_out:
        how = f"printed nothing for {_PROOF_TIMEOUT_S:g} seconds"
    elif ending.signal is not None:
        how = f"was killed by signal {ending.signal}"
    else:
        how = f"ended with exit code {ending.exit_code}"
    output = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return IsolationError(
        f"the isolation could not be probed, nothing was run: the probe program {how}"
        + (f", with the error {output[:300]!r}" if output else ""),
        hint="It needs some memory, processes and open files: raise PodmanConfig.memory_bytes,"
        " n_processes or n_open_files, or the limits of the user (`ulimit -n`, `ulimit -u`).",
    )


def _runner_source() -> bytes:
    return Path(__file__).with_name("runner.py").read_bytes()
