"""Isolated evaluation of Python: the host's side.

An evaluation is one child of the server. The host has one end of its pipe, and a *watch*: a socket
on which the server hands the child over and reports how it ended. Each evaluation has its own
child, so threads may evaluate at the same time.

Rule 1: the host enforces the limits. It measures time, counts output, answers file calls, and
kills the child with SIGKILL. When ``evaluate`` returns or raises, the child is dead.
Rule 2: the host trusts nothing that a child sends. A frame that is malformed, too large or out of
order ends the child and raises ``SandboxBrokenError``; our own code never sends one.
Rule 3: the host sends no code before the child has reported its isolation layers. That report can
be trusted, because the child has not run any code yet.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from types import MappingProxyType
from typing import Any, Final, cast

from wink_workspace.clock import SYSTEM_CLOCK, Cancellation, Clock, Deadline
from wink_workspace.errors import (
    CallCancelledError,
    IsolationError,
    LimitExceededError,
    SandboxBrokenError,
    UsageError,
    WinkError,
)
from wink_workspace.filesystem import Filesystem
from wink_workspace.sandbox.isolation_report import IsolationReport, Layer, Probe
from wink_workspace.serde import JsonValue

from .evaluation import (
    CodeError,
    EndReason,
    Evaluation,
    EvaluationRequest,
    EvaluationUsage,
    ShownValue,
)
from .evaluation_limits import AstevalConfig
from .file_calls import WRITE_MODES, FileAccess, python_error
from .launching import ServerProcess
from .layers import LAYERS
from .pipe_frames import SIZES, PipeFrame, PipeFrameError, encode_frame, frame_sizes

_WATCH_S: Final = 0.02
_READ_BYTES: Final = 262_144
_REPORT_BYTES_MAX: Final = 65_536
_NAMES_MAX: Final = 200
_LEVELS_MAX: Final = 50
_TEXT_CHARS_MAX: Final = 100_000


class AstevalSandbox:
    """Evaluates Python in isolation, with access to a workspace's files.

    The server starts with the first evaluation, and again if it has died. Threads may evaluate at
    the same time.

    Args:
        config: Limits and required isolation layers.
        clock: Measures the time of evaluations.
    """

    def __init__(self, config: AstevalConfig | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.config: Final = config or AstevalConfig()
        self._clock = clock
        self._lock = threading.Lock()
        self._server: ServerProcess | None = None
        self._report = IsolationReport()
        self._is_closed = False

    @property
    def report(self) -> IsolationReport:
        """The isolation layers and the probes; starts the server if necessary.

        Raises:
            SandboxUnavailableError: If it cannot be started.
            IsolationError: If a required layer is missing, or a probe succeeded.
        """
        self._running()
        return self._report

    def survey(self) -> IsolationReport:
        """As ``report``, also if a required layer is missing or a probe succeeded."""
        with suppress(IsolationError):
            self._running()
        return self._report

    def evaluate(
        self,
        request: EvaluationRequest,
        files: Filesystem | None = None,
        *,
        deadline: Deadline | None = None,
        cancellation: Cancellation | None = None,
    ) -> Evaluation:
        """Evaluate code until it ends or reaches a limit.

        Args:
            request: The code, and which files it may use.
            files: The filesystem with those files. Writes take effect immediately; after a failure
                the caller's transaction must roll them back.
            deadline: Ends the evaluation before the configured time limit.
            cancellation: Kills the evaluation when it is cancelled.

        Raises:
            LimitExceededError: If the code or the names are too long.
            UsageError: If a name is not valid, or a value cannot be represented in JSON.
            SandboxUnavailableError: If the server cannot be started.
            IsolationError: If a required isolation layer is missing; nothing was evaluated.
            SandboxBrokenError: If the child or the server violated the protocol.
        """
        message = self._message(request)
        with self._child() as child:
            layers = child.ready_layers()
            self._check(layers)
            timeout_s = self.config.timeout_s
            if deadline is not None:  # read now, because starting a server may take seconds
                timeout_s = min(timeout_s, deadline.remaining_s())
            child.begin(timeout_s, cancellation)
            return _Exchange(
                child,
                FileAccess(files, request, self.config),
                self.config,
                IsolationReport(layers, self._report.probes),
            ).evaluate(message)

    def close(self) -> None:
        """End the server and all evaluations. May be called again."""
        with self._lock:
            self._is_closed = True
            server, self._server = self._server, None
        if server is not None:
            server.end()

    def _message(self, request: EvaluationRequest) -> bytes:
        if len(request.code) > self.config.code_chars:
            raise LimitExceededError(
                f"the code has {len(request.code):,} characters,"
                f" at most {self.config.code_chars:,} are allowed",
                hint="Split it into several calls, or read data from a file.",
            )
        fields = {
            "code": request.code,
            "globals": dict(request.names),
            "value_chars": self.config.value_chars,
            "write_bytes": self.config.transfer_bytes,
        }
        for name in request.names:
            if not name.isidentifier() or name.startswith("_"):
                raise UsageError(
                    f"{name!r} cannot be a name", hint="Use an identifier without a leading '_'."
                )
        try:
            request.code.encode()
            return encode_frame("evaluate", fields)
        except PipeFrameError as error:
            raise LimitExceededError(
                f"the globals are too large: {error}", hint="Read large data from a file."
            ) from error
        except (ValueError, TypeError, RecursionError) as error:
            raise UsageError(
                f"the code or the names cannot be sent: {error}",
                hint="Use values that JSON can represent.",
            ) from error

    def _child(self) -> _Child:
        """A child; starts another server if the present one has died meanwhile."""
        server = self._running()
        try:
            return _Child(server, self.config, self._clock)
        except _ServerGoneError:
            with self._lock:
                if self._server is server:
                    server.end()
                    self._server = None
        return _Child(self._running(), self.config, self._clock)

    def _running(self) -> ServerProcess:
        """The server, started and probed first if it is not running."""
        with self._lock:
            if self._is_closed:
                raise SandboxBrokenError("the sandbox is closed", hint="Open another sandbox.")
            if self._server is not None and not _is_over(self._server.control):
                return self._server
            if self._server is not None:
                self._server.end()
                self._server = None
            server = ServerProcess(self.config)
            try:
                server.hello(timeout_s=self.config.start_timeout_s)
                self._report = self._probe(server)
                self._check(self._report.layers)
                _check_holes(self._report)
            except BaseException:
                server.end()
                raise
            self._server = server
            return server

    def _probe(self, server: ServerProcess) -> IsolationReport:
        """The isolation layers of a first child, and the results of its probes."""
        with _Child(server, self.config, self._clock) as child:
            layers = child.ready_layers()
            child.begin(self.config.start_timeout_s)
            child.send(encode_frame("probe"))
            frame = child.receive(0)
            if frame is None or frame.kind != "probed":
                child.kill()
                raise SandboxBrokenError(
                    f"the child did not report its isolation probes ({child.describe_ending()})"
                )
            return IsolationReport(layers, _probes(frame.fields.get("probes")))

    def _check(self, layers: tuple[Layer, ...]) -> None:
        up = {layer.name for layer in layers if layer.is_active}
        missing = [name for name in LAYERS if name in self.config.required_layers - up]
        if not missing:
            return
        reasons = {layer.name: layer.detail for layer in layers}
        listed = "; ".join(f"{name} ({reasons.get(name) or 'not attempted'})" for name in missing)
        purposes = "; ".join(f"{name}: {LAYERS[name]}" for name in missing)
        raise IsolationError(
            f"the isolation of Python lacks {listed}. These layers provide {purposes}",
            hint="Nothing was run. File tools, plans and Python in a container are not affected."
            " `wink-workspace doctor` shows which layers this machine supports.",
        )


def probe_isolation(config: AstevalConfig | None = None) -> IsolationReport:
    """The isolation layers that this machine supports, and the probes; nothing stays running.

    Raises:
        SandboxUnavailableError: If the server cannot be started.
    """
    with closing(AstevalSandbox(config)) as sandbox:
        return sandbox.survey()


def _check_holes(report: IsolationReport) -> None:
    if report.holes:
        listed = "; ".join(f"{hole.name} ({hole.detail})" for hole in report.holes)
        raise IsolationError(f"the isolation of Python has holes, code could: {listed}")


class _Child:
    """A child of the server. Leaving the ``with`` block kills it if it still runs."""

    def __init__(self, server: ServerProcess, config: AstevalConfig, clock: Clock) -> None:
        self._clock = clock
        self._config = config
        self.timeout_s = config.start_timeout_s
        self._began_s = clock.monotonic_s()
        self._ends_s = self._began_s + self.timeout_s
        self._ended: Mapping[str, Any] | None = None
        self._cancellation: Cancellation | None = None
        self._buffer = bytearray()
        with ExitStack() as opened:
            self._watch, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            opened.enter_context(self._watch)
            with server_end:
                _request_child(server.control, server_end)
            self._watch.settimeout(config.start_timeout_s)
            self._process, pipe = _receive_child(self._watch)
            opened.callback(os.close, self._process)
            self._pipe = opened.enter_context(socket.socket(fileno=pipe))
            self._pipe.setblocking(False)
            self._opened = opened.pop_all()
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        with self._opened:
            self.kill()
            self.ending()

    def ready_layers(self) -> tuple[Layer, ...]:
        """Wait until the child has reported its isolation layers.

        Raises:
            SandboxBrokenError: If it does not report them in time.
        """
        try:
            frame = self.receive(0)
        except TimeoutError:
            raise SandboxBrokenError(
                f"the child was not isolated after {self._config.start_timeout_s:g} s"
            ) from None
        if frame is None or frame.kind != "ready":
            self.kill()
            raise SandboxBrokenError(f"the child was not isolated ({self.describe_ending()})")
        return _layers(frame.fields.get("layers"))

    def begin(self, timeout_s: float, cancellation: Cancellation | None = None) -> None:
        """Start the time limit of the evaluation; *cancellation* ends it from now on."""
        self.timeout_s = timeout_s
        self._cancellation = cancellation
        self._began_s = self._clock.monotonic_s()
        self._ends_s = self._began_s + self.timeout_s

    @property
    def duration_s(self) -> float:
        """Seconds since ``begin``."""
        return self._clock.monotonic_s() - self._began_s

    def send(self, data: bytes) -> None:
        """Send a frame.

        Raises:
            TimeoutError: At the deadline.
            CallCancelledError: If it is cancelled.
            ConnectionError: If the child died.
        """
        view = memoryview(data)
        while view:
            try:
                view = view[self._pipe.send(view) :]
            except BlockingIOError:
                self._wait(select.POLLOUT)

    def receive(self, body_bytes_max: int) -> PipeFrame | None:
        """The next frame, or ``None`` if the child has ended.

        Raises:
            TimeoutError: At the deadline.
            CallCancelledError: If it is cancelled.
            SandboxBrokenError: If the child sends an invalid frame.
        """
        self._remaining_s()  # also if data is always available
        try:
            prefix = self._read(SIZES.size)
            if prefix is None:
                return None
            sizes = frame_sizes(prefix, body_bytes_max=body_bytes_max)
            header, body = self._read(sizes[0]), self._read(sizes[1])
            return None if header is None or body is None else PipeFrame.parse(header, body)
        except PipeFrameError as error:
            raise SandboxBrokenError(f"the child sent an invalid frame: {error}") from error

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        if self._ended is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def ending(self) -> Mapping[str, Any]:
        """Wait for the server's report of how the child ended.

        Raises:
            SandboxBrokenError: If the server does not send the report.
        """
        if self._ended is None:
            try:
                data = self._watch.recv(_REPORT_BYTES_MAX)
            except OSError as error:
                raise SandboxBrokenError(
                    f"the asteval server did not report the end of a child ({error})"
                ) from error
            self._ended = _object(data) if data else {"failed": "the asteval server has died"}
        return self._ended

    def describe_ending(self) -> str:
        """How the child ended, in words for an error message."""
        ending = self.ending()
        if ending.get("failed"):
            return str(ending["failed"])
        number = ending.get("signal")
        if isinstance(number, int):
            return f"killed by {_signal_name(number)}"
        return f"exit code {ending.get('exit_code')}"

    def _read(self, n_bytes: int) -> bytes | None:
        while len(self._buffer) < n_bytes:
            try:
                piece = self._pipe.recv(_READ_BYTES)
            except BlockingIOError:
                self._wait(select.POLLIN)
                continue
            except ConnectionError:
                return None
            if not piece:
                return None
            self._buffer += piece
        data = bytes(memoryview(self._buffer)[:n_bytes])
        del self._buffer[:n_bytes]
        return data

    def _wait(self, event: int) -> None:
        self._poll.modify(self._pipe, event)
        while not self._poll.poll(1_000 * min(self._remaining_s(), _WATCH_S)):
            pass

    def _remaining_s(self) -> float:
        if self._cancellation is not None:
            self._cancellation.check()
        remaining_s = self._ends_s - self._clock.monotonic_s()
        if remaining_s <= 0:
            raise TimeoutError
        return remaining_s


class _Exchange:
    """The messages of one evaluation, from the code to the result."""

    def __init__(
        self, child: _Child, access: FileAccess, config: AstevalConfig, isolation: IsolationReport
    ) -> None:
        self._child = child
        self._access = access
        self._config = config
        self._isolation = isolation
        self._output: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._handlers: dict[str, Callable[[PipeFrame], None]] = {
            "stdout": self._keep_output,
            "stderr": self._keep_output,
            "read": self._on_path(access.read),
            "write": self._write,
            "stat": self._on_path(access.stat),
            "list": self._on_path(access.list),
            "mkdir": self._on_path(access.mkdir),
        }
        self._body_bytes_max = max(config.transfer_bytes, 65_536)  # a frame of output is smaller

    def evaluate(self, message: bytes) -> Evaluation:
        """Send the code to the child, and answer its requests until it ends."""
        try:
            self._child.send(message)
            done = self._until_done()
        except TimeoutError:
            allowed = f"{self._child.timeout_s:.3g} s"
            return self._failed(EndReason.DEADLINE, f"it was killed at its time limit of {allowed}")
        except CallCancelledError:
            return self._failed(EndReason.CANCELLED, "the caller cancelled it")
        except ConnectionError:
            done = None
        except _TooMuchOutput:
            most = self._config.output_bytes
            return self._failed(EndReason.OUTPUT, f"it printed more than {most:,} bytes")
        duration_s = self._child.duration_s
        if done is None:
            return self._died(duration_s)
        return self._ended(done.fields, duration_s)

    def _until_done(self) -> PipeFrame | None:
        while True:
            frame = self._child.receive(self._body_bytes_max)
            if frame is None or frame.kind == "done":
                return frame
            handler = self._handlers.get(frame.kind)
            if handler is None:
                raise SandboxBrokenError(f"the child sent an unknown message {frame.kind[:40]!r}")
            handler(frame)

    def _keep_output(self, frame: PipeFrame) -> None:
        room = self._config.output_bytes - sum(map(len, self._output.values()))
        self._output[frame.kind] += frame.body[:room]
        if len(frame.body) > room:
            raise _TooMuchOutput

    def _on_path(self, work: Callable[[str], bytes]) -> Callable[[PipeFrame], None]:
        def handle(frame: PipeFrame) -> None:
            path = _checked(frame.fields.get("path"), str, "a path")
            self._answer(lambda: work(path))

        return handle

    def _write(self, frame: PipeFrame) -> None:
        path = _checked(frame.fields.get("path"), str, "a path")
        mode = frame.fields.get("mode")
        if mode not in WRITE_MODES:
            raise SandboxBrokenError("the child sent a write with an unknown mode")

        def write() -> bytes:
            self._access.write(path, frame.body, mode)
            return b""

        self._answer(write)

    def _answer(self, work: Callable[[], bytes]) -> None:
        try:
            answer = encode_frame("answer", body=work())
        except WinkError as error:
            answer = encode_frame(
                "refused", {"error": python_error(error), "message": str(error)[:4_000]}
            )
        self._child.send(answer)

    def _died(self, duration_s: float) -> Evaluation:
        self._child.kill()  # it may only have closed its pipe; a dead child keeps its exit status
        ending = self._child.ending()
        if ending.get("failed"):
            raise SandboxBrokenError(f"the evaluation was lost: {ending['failed']}")
        if ending.get("signal") == signal.SIGXCPU:
            return self._failed(EndReason.DEADLINE, "it used up its processor time", duration_s)
        ended = self._child.describe_ending()
        return self._failed(EndReason.KILLED, f"the interpreter died: {ended}", duration_s)

    def _ended(self, fields: Mapping[str, Any], duration_s: float) -> Evaluation:
        found: dict[str, Any] = {}
        match fields.get("outcome"):
            case "value":
                value = fields.get("value")
                found["value"] = None if value is None else _value(value)
                found["names"] = _names(fields.get("globals"))
            case "error":
                found["error"] = CodeError(*_all_checked(fields.get("error"), _ERROR, "an error"))
            case "memory":
                found["detail"] = f"it needed more than {self._config.memory_bytes:,} bytes"
            case _:
                raise SandboxBrokenError("the child sent an unknown outcome")
        return self._evaluation(EndReason(fields["outcome"]), duration_s, **found)

    def _failed(
        self, outcome: EndReason, detail: str, duration_s: float | None = None
    ) -> Evaluation:
        return self._evaluation(
            outcome, self._child.duration_s if duration_s is None else duration_s, detail=detail
        )

    def _evaluation(self, outcome: EndReason, duration_s: float, **fields: Any) -> Evaluation:
        """Kill the child and make the result."""
        self._child.kill()
        ending = self._child.ending()
        cpu_s, rss = ending.get("cpu_s"), ending.get("max_rss_bytes")
        usage = EvaluationUsage(
            duration_s,
            cpu_s if isinstance(cpu_s, float) else 0.0,
            rss if isinstance(rss, int) else 0,
        )
        return Evaluation(
            outcome=outcome,
            stdout=self._output["stdout"].decode("utf-8", "replace"),
            stderr=self._output["stderr"].decode("utf-8", "replace"),
            reads=tuple(self._access.reads),
            writes=tuple(self._access.writes),
            usage=usage,
            isolation=self._isolation,
            **fields,
        )


class _ServerGoneError(SandboxBrokenError):
    """The server died before it handed over a child, so no code was sent."""


class _TooMuchOutput(Exception):  # noqa: N818 - an outcome, not a fault
    """The code printed more than its limit."""


def _request_child(control: socket.socket, watch: socket.socket) -> None:
    try:
        socket.send_fds(control, [b"o"], [watch.fileno()])
    except OSError as error:
        raise _ServerGoneError(f"the asteval server has ended ({error})") from error


def _receive_child(watch: socket.socket) -> tuple[int, int]:
    """Receive the descriptors of a child's process and of the host's end of its pipe."""
    try:
        data, descriptors, _, _ = socket.recv_fds(
            watch, _REPORT_BYTES_MAX, 2, socket.MSG_CMSG_CLOEXEC
        )
    except OSError as error:
        raise SandboxBrokenError(f"the asteval server did not answer ({error})") from error
    if len(descriptors) == 2:
        return descriptors[0], descriptors[1]
    for descriptor in descriptors:  # this process had no free descriptor for both
        os.close(descriptor)
    if not data:
        raise _ServerGoneError("the asteval server has died, or has no free descriptors")
    reason = _object(data).get("failed", "descriptors have run out")
    raise SandboxBrokenError(f"the asteval server could not start a child: {reason}")


# Checks of each field that a child sends


def _is_over(control: socket.socket) -> bool:
    """Whether the server has ended; it sends nothing on this socket after its hello."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    return bool(poll.poll(0))


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        found: object = json.loads(data)
    except ValueError as error:
        raise SandboxBrokenError(
            f"the asteval server sent a message that is not JSON ({error})"
        ) from error
    if not isinstance(found, dict):
        raise SandboxBrokenError("the asteval server sent a message that is not an object")
    return cast("dict[str, Any]", found)


_VALUE: Final = {"repr": str, "n_missing": int}
_ERROR: Final = {"type": str, "message": str, "line": int, "column": int, "text": str}


def _checked(value: Any, kind: type, what: str) -> Any:
    """*value* if it is of the type *kind* and within the limits; text is made encodable."""
    if type(value) is not kind:
        raise SandboxBrokenError(f"the child sent {what} of a wrong type")
    if len(value) > _TEXT_CHARS_MAX if kind is str else not 0 <= value < 2**63:
        raise SandboxBrokenError(f"the child sent {what} that is too long")
    return value.encode("utf-8", "replace").decode() if kind is str else value


def _fields(data: object, what: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise SandboxBrokenError(f"the child sent {what} that is not an object")
    return cast("dict[str, Any]", data)


def _all_checked(data: object, kinds: Mapping[str, type], what: str) -> list[Any]:
    fields = _fields(data, what)
    return [_checked(fields.get(name), kind, f"{what}'s {name}") for name, kind in kinds.items()]


def _value(data: Any) -> ShownValue:
    text, n_missing = _all_checked(data, _VALUE, "a value")
    return ShownValue(text, n_missing, _json(data.get("json")), "json" in data)


def _json(value: object, level: int = 0) -> JsonValue:
    """*value* with encodable text, checked against the limits of length and depth."""
    if level > _LEVELS_MAX:
        raise SandboxBrokenError("the child sent a value that is nested too deeply")
    match value:
        case str():
            return _checked(value, str, "a value")
        case list():
            return [_json(item, level + 1) for item in cast("list[object]", value)]
        case dict():
            items = cast("dict[str, object]", value).items()
            return {_checked(key, str, "a key"): _json(item, level + 1) for key, item in items}
        case _:
            return cast("JsonValue", value)


def _names(data: object) -> Mapping[str, ShownValue]:
    names = _fields(data, "names")
    if len(names) > _NAMES_MAX:
        raise SandboxBrokenError(f"the child sent {len(names)} names")
    return MappingProxyType(
        {_checked(name, str, "a name"): _value(value) for name, value in names.items()}
    )


def _triples(data: object, what: str) -> list[tuple[str, bool, str]]:
    """A list of [name, flag, detail]."""
    found: list[tuple[str, bool, str]] = []
    for row in cast("list[object]", data) if isinstance(data, list) else [None]:
        match row:
            case [str(name), bool(flag), str(detail)]:
                found.append((name, flag, detail))
            case _:
                raise SandboxBrokenError(f"the child sent invalid {what}")
    return found


def _layers(data: object) -> tuple[Layer, ...]:
    order = list(LAYERS)
    rows = [row for row in _triples(data, "layers") if row[0] in LAYERS]
    return tuple(Layer(*row) for row in sorted(rows, key=lambda row: order.index(row[0])))


def _probes(data: object) -> tuple[Probe, ...]:
    return tuple(Probe(*row) for row in _triples(data, "probes"))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
