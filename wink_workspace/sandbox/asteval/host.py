"""Walled evaluation of Python: the host's side.

An evaluation is one child of the server. The host holds its pipe and a *watch*, a socket on
which the server says which process it is and how it ended. Each thread that evaluates has its
own, so any number may do so at once.

Rule 1: the host enforces. It keeps the time, counts what comes, answers file calls, and kills
the child with a signal that nothing can refuse. When ``evaluate`` returns or raises, the child
is gone.
Rule 2: the host believes nothing. A frame that is malformed, too large or out of turn ends the
child, and raises ``SandboxBrokenError``, since our own code sends none.
Rule 3: no code is sent before the child has told that its wall is up. What it tells then is
true, for it has heard nothing yet that could make it lie.
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
from wink_workspace.sandbox.isolation import IsolationReport, Layer, Probe
from wink_workspace.serde import JsonValue

from .access import WRITE_MODES, FileAccess, python_error
from .config import AstevalConfig
from .evaluation import (
    CodeError,
    Evaluation,
    EvaluationRequest,
    EvaluationUsage,
    Outcome,
    ShownValue,
)
from .frames import SIZES, Frame, FrameError, encode_frame, frame_sizes
from .launching import ServerProcess
from .layers import LAYERS

__all__ = ["AstevalSandbox", "probe_isolation"]

_WATCH_S: Final = 0.02
_READ_BYTES: Final = 262_144
_TOLD_BYTES_MAX: Final = 65_536
_NAMES_MAX: Final = 200
_LEVELS_MAX: Final = 50
_TEXT_CHARS_MAX: Final = 100_000


class AstevalSandbox:
    """A place where Python is evaluated over a workspace's files, behind a wall.

    Its server starts with the first evaluation, and again if it should have died. Threads may
    evaluate at the same time.

    Args:
        config: Limits, and the layers of the wall without which nothing is evaluated.
        clock: Keeps the time of evaluations.
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
        """The layers of the wall, and what was tried against them; starts the server if need be.

        Raises:
            SandboxUnavailableError: If it cannot be started.
            IsolationError: If a required layer is missing, or an attempt has found a hole.
        """
        self._running()
        return self._report

    def survey(self) -> IsolationReport:
        """As ``report``, but a wall with holes or without required layers is not refused."""
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
        """Evaluate code to its end, or to the end of what it may take.

        Args:
            request: The code, and which files it may use.
            files: Where those are. What the code writes is written at once; to undo it after a
                failure is the caller's part, for whom a call is a transaction.
            deadline: Ends it earlier than the configured time would.
            cancellation: Ends it as soon as it is not wanted any more.

        Raises:
            LimitExceededError: If the code or the names are too long.
            UsageError: If a name cannot be one, or a value is nothing that JSON can hold.
            SandboxUnavailableError: If the server cannot be started.
            IsolationError: If the wall lacks a required layer; nothing was evaluated.
            SandboxBrokenError: If the child or the server broke the protocol.
        """
        message = self._message(request)
        with self._child() as child:
            layers = child.ready_layers()
            self._check(layers)
            timeout_s = self.config.timeout_s
            if deadline is not None:  # asked now, as the start of a server may take seconds
                timeout_s = min(timeout_s, deadline.remaining_s())
            child.begin(timeout_s, cancellation)
            return _Conversation(
                child,
                FileAccess(files, request, self.config),
                self.config,
                IsolationReport(layers, self._report.probes),
            ).evaluate(message)

    def close(self) -> None:
        """End the server, and with it whatever is being evaluated. Once is enough."""
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
                hint="Split it over several calls; read data from a file.",
            )
        fields = {
            "code": request.code,
            "globals": dict(request.names),
            "interpreter": request.interpreter,
            "value_chars": self.config.value_chars,
            "write_bytes": self.config.transfer_bytes,
        }
        for name in request.names:
            if not name.isidentifier() or name.startswith("_"):
                raise UsageError(f"{name!r} cannot be a name", hint="Use letters, digits and '_'.")
        try:
            request.code.encode()
            return encode_frame("evaluate", fields)
        except FrameError as error:
            raise LimitExceededError(
                f"the globals hold too much: {error}", hint="Read large data from a file."
            ) from error
        except (ValueError, TypeError, RecursionError) as error:
            raise UsageError(
                f"the code or the names cannot be sent: {error}", hint="Use what JSON can hold."
            ) from error

    def _child(self) -> _Child:
        """A child, of a second server if the first has died since it was last looked at."""
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
        """The server, started and proved if there is none."""
        with self._lock:
            if self._is_closed:
                raise SandboxBrokenError("the sandbox is closed", hint="Open another.")
            if self._server is not None and not _is_over(self._server.control):
                return self._server
            if self._server is not None:
                self._server.end()
                self._server = None
            server = ServerProcess(self.config)
            try:
                server.hello(timeout_s=self.config.start_timeout_s)
                self._report = self._proved(server)
                self._check(self._report.layers)
                _check_holes(self._report)
            except BaseException:
                server.end()
                raise
            self._server = server
            return server

    def _proved(self, server: ServerProcess) -> IsolationReport:
        """What the wall is made of, and what came of all attempts to get through."""
        with _Child(server, self.config, self._clock) as child:
            layers = child.ready_layers()
            child.begin(self.config.start_timeout_s)
            child.send(encode_frame("probe"))
            frame = child.receive(0)
            if frame is None or frame.kind != "probed":
                child.kill()
                raise SandboxBrokenError(
                    f"the attempts on the wall were not reported ({child.ending_in_words()})"
                )
            return IsolationReport(layers, _probes(frame.fields.get("probes")))

    def _check(self, layers: tuple[Layer, ...]) -> None:
        up = {layer.name for layer in layers if layer.is_up}
        missing = [name for name in LAYERS if name in self.config.required_layers - up]
        if not missing:
            return
        reasons = {layer.name: layer.detail for layer in layers}
        told = "; ".join(f"{name} ({reasons.get(name) or 'not tried'})" for name in missing)
        stopped = "; ".join(f"{name}: {LAYERS[name]}" for name in missing)
        raise IsolationError(
            f"the wall around Python lacks {told}. What would not be stopped: {stopped}",
            hint="Nothing was run. File tools and plans stay safe to use, and so does Python in a"
            " container. `wink-workspace doctor` shows what this machine can put up.",
        )


def probe_isolation(config: AstevalConfig | None = None) -> IsolationReport:
    """What wall this machine can put up, and what was tried against it; nothing stays running.

    Raises:
        SandboxUnavailableError: If no server can be started at all.
    """
    with closing(AstevalSandbox(config)) as sandbox:
        return sandbox.survey()


def _check_holes(report: IsolationReport) -> None:
    if report.holes:
        told = "; ".join(f"{hole.name} ({hole.detail})" for hole in report.holes)
        raise IsolationError(f"the wall around Python has holes, code could: {told}")


class _Child:
    """A child of the server, from its fork to its end; leaving the block kills what is left."""

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
            self._watch, servers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            opened.enter_context(self._watch)
            with servers:
                _order(server.control, servers)
            self._watch.settimeout(config.start_timeout_s)
            self._process, pipe = _handed_out(self._watch)
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
        """Wait for the child to report its wall.

        Raises:
            SandboxBrokenError: If it does not, in time.
        """
        try:
            frame = self.receive(0)
        except TimeoutError:
            raise SandboxBrokenError(
                f"the wall was not up after {self._config.start_timeout_s:g} s"
            ) from None
        if frame is None or frame.kind != "ready":
            self.kill()
            raise SandboxBrokenError(f"the wall was not put up ({self.ending_in_words()})")
        return _layers(frame.fields.get("layers"))

    def begin(self, timeout_s: float, cancellation: Cancellation | None = None) -> None:
        """From now on the time of the evaluation runs, and *cancellation* ends it."""
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
            CallCancelledError: Once it was cancelled.
            ConnectionError: If the child died.
        """
        view = memoryview(data)
        while view:
            try:
                view = view[self._pipe.send(view) :]
            except BlockingIOError:
                self._wait(select.POLLOUT)

    def receive(self, body_bytes_max: int) -> Frame | None:
        """The next frame, ``None`` if the child has ended.

        Raises:
            TimeoutError: At the deadline.
            CallCancelledError: Once it was cancelled.
            SandboxBrokenError: If what comes is no frame.
        """
        self._left_s()  # also when there is always something to read
        try:
            prefix = self._taken(SIZES.size)
            if prefix is None:
                return None
            sizes = frame_sizes(prefix, body_bytes_max=body_bytes_max)
            header, body = self._taken(sizes[0]), self._taken(sizes[1])
            return None if header is None or body is None else Frame.parse(header, body)
        except FrameError as error:
            raise SandboxBrokenError(f"the child sent what is no message: {error}") from error

    def kill(self) -> None:
        """Kill it, whatever it is doing."""
        if self._ended is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def ending(self) -> Mapping[str, Any]:
        """How it ended, as the server tells when it has.

        Raises:
            SandboxBrokenError: If the server does not tell.
        """
        if self._ended is None:
            try:
                data = self._watch.recv(_TOLD_BYTES_MAX)
            except OSError as error:
                raise SandboxBrokenError(f"a child could not be ended ({error})") from error
            self._ended = _object(data) if data else {"failed": "the asteval server has died"}
        return self._ended

    def ending_in_words(self) -> str:
        """What ``ending`` says, for a message."""
        ending = self.ending()
        if ending.get("failed"):
            return str(ending["failed"])
        number = ending.get("signal")
        if isinstance(number, int):
            return f"killed by {_signal_name(number)}"
        return f"it ended with code {ending.get('exit_code')}"

    def _taken(self, n_bytes: int) -> bytes | None:
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
        taken = bytes(memoryview(self._buffer)[:n_bytes])
        del self._buffer[:n_bytes]
        return taken

    def _wait(self, event: int) -> None:
        self._poll.modify(self._pipe, event)
        while not self._poll.poll(1_000 * min(self._left_s(), _WATCH_S)):
            pass

    def _left_s(self) -> float:
        if self._cancellation is not None:
            self._cancellation.check()
        left_s = self._ends_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise TimeoutError
        return left_s


class _Conversation:
    """What is said between the code being sent and its end."""

    def __init__(
        self, child: _Child, access: FileAccess, config: AstevalConfig, isolation: IsolationReport
    ) -> None:
        self._child = child
        self._access = access
        self._config = config
        self._isolation = isolation
        self._output: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._kinds: dict[str, Callable[[Frame], None]] = {
            "stdout": self._keep,
            "stderr": self._keep,
            "read": self._read,
            "write": self._write,
        }
        self._body_bytes_max = max(config.transfer_bytes, 65_536)  # output comes in less

    def evaluate(self, message: bytes) -> Evaluation:
        """Send the code to the child, whose time has begun, and answer until it has ended."""
        try:
            self._child.send(message)
            done = self._until_done()
        except TimeoutError:
            allowed = f"{self._child.timeout_s:.3g} s"
            return self._failed(Outcome.DEADLINE, f"it was killed when its {allowed} were over")
        except CallCancelledError:
            return self._failed(Outcome.CANCELLED, "nobody wanted it any more")
        except ConnectionError:
            done = None
        except _TooMuchOutput:
            most = self._config.output_bytes
            return self._failed(Outcome.OUTPUT, f"it printed more than {most:,} bytes")
        duration_s = self._child.duration_s
        if done is None:
            return self._died(duration_s)
        return self._ended(done.fields, duration_s)

    def _until_done(self) -> Frame | None:
        while True:
            frame = self._child.receive(self._body_bytes_max)
            if frame is None or frame.kind == "done":
                return frame
            act = self._kinds.get(frame.kind)
            if act is None:
                raise SandboxBrokenError(f"the child sent {frame.kind[:40]!r}, which means nothing")
            act(frame)

    def _keep(self, frame: Frame) -> None:
        room = self._config.output_bytes - sum(map(len, self._output.values()))
        self._output[frame.kind] += frame.body[:room]
        if len(frame.body) > room:
            raise _TooMuchOutput

    def _read(self, frame: Frame) -> None:
        path = _text(frame.fields, "path")
        self._answer(lambda: self._access.read(path))

    def _write(self, frame: Frame) -> None:
        path, mode = _text(frame.fields, "path"), WRITE_MODES.get(_text(frame.fields, "mode"))
        if mode is None:
            raise SandboxBrokenError("the child sent a write of no known mode")

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
        self._child.kill()  # it may only have closed its pipe; one that is dead stays as it died
        ending = self._child.ending()
        if ending.get("failed"):
            raise SandboxBrokenError(f"the evaluation was lost: {ending['failed']}")
        if ending.get("signal") == signal.SIGXCPU:
            return self._failed(Outcome.DEADLINE, "it used up its processor time", duration_s)
        words = self._child.ending_in_words()
        return self._failed(Outcome.KILLED, f"the interpreter died: {words}", duration_s)

    def _ended(self, fields: Mapping[str, Any], duration_s: float) -> Evaluation:
        match fields.get("outcome"):
            case "value":
                value = fields.get("value")
                return self._evaluation(
                    Outcome.VALUE,
                    duration_s,
                    value=None if value is None else _value(value),
                    names=_names(fields.get("globals")),
                )
            case "error":
                return self._evaluation(
                    Outcome.ERROR, duration_s, error=_error(fields.get("error"))
                )
            case "memory":
                most = f"{self._config.memory_bytes:,} bytes"
                return self._failed(Outcome.MEMORY, f"it wanted more than {most}", duration_s)
            case _:
                raise SandboxBrokenError("the child told of no known outcome")

    def _failed(self, outcome: Outcome, detail: str, duration_s: float | None = None) -> Evaluation:
        return self._evaluation(
            outcome, self._child.duration_s if duration_s is None else duration_s, detail=detail
        )

    def _evaluation(self, outcome: Outcome, duration_s: float, **told: Any) -> Evaluation:
        """The whole answer; the child is dead when it is given."""
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
            **told,
        )


class _ServerGoneError(SandboxBrokenError):
    """The server died before it had handed out a child: no code was sent."""


class _TooMuchOutput(Exception):  # noqa: N818 - an outcome, not a fault
    """The code printed more than it may."""


def _order(control: socket.socket, watch: socket.socket) -> None:
    try:
        socket.send_fds(control, [b"o"], [watch.fileno()])
    except OSError as error:
        raise _ServerGoneError(f"the asteval server has gone ({error})") from error


def _handed_out(watch: socket.socket) -> tuple[int, int]:
    """Descriptors of a child's process and of our end of its pipe."""
    try:
        data, descriptors, _, _ = socket.recv_fds(
            watch, _TOLD_BYTES_MAX, 2, socket.MSG_CMSG_CLOEXEC
        )
    except OSError as error:
        raise SandboxBrokenError(f"the asteval server fell silent ({error})") from error
    if len(descriptors) == 2:
        return descriptors[0], descriptors[1]
    for descriptor in descriptors:  # there was no room for both
        os.close(descriptor)
    if not data:
        raise _ServerGoneError("the asteval server has died, or has no room for descriptors")
    reason = _object(data).get("failed", "descriptors have run out")
    raise SandboxBrokenError(f"the asteval server could not start a child: {reason}")


# Reading what a child says, field by field


def _is_over(control: socket.socket) -> bool:
    """Whether the server has ended; it says nothing on this socket after its hello."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    return bool(poll.poll(0))


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        found: object = json.loads(data)
    except ValueError as error:
        raise SandboxBrokenError(f"the asteval server sent no JSON ({error})") from error
    if not isinstance(found, dict):
        raise SandboxBrokenError("the asteval server sent no object")
    return cast("dict[str, Any]", found)


def _text(fields: Mapping[str, Any], name: str) -> str:
    return _as_text(fields.get(name), name)


def _as_text(value: object, what: str) -> str:
    """*value*, if it is a text of bearable length that can be written down."""
    if not isinstance(value, str) or len(value) > _TEXT_CHARS_MAX:
        raise SandboxBrokenError(f"the child sent {what} that is no text, or far too long")
    if not value.isascii():
        return value.encode("utf-8", "replace").decode()
    return value


def _number(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise SandboxBrokenError(f"the child sent {what} that is no number")
    return value


def _value(told: object) -> ShownValue:
    if not isinstance(told, dict):
        raise SandboxBrokenError("the child sent a value that is none")
    fields = cast("dict[str, Any]", told)
    is_json = "json" in fields
    return ShownValue(
        _text(fields, "repr"),
        _number(fields.get("n_missing"), "a length"),
        _json(fields["json"]) if is_json else None,
        is_json,
    )


def _json(value: object, level: int = 0) -> JsonValue:
    """JSON is JSON, whoever sent it; but it must be such that it can be stored."""
    if level > _LEVELS_MAX:
        raise SandboxBrokenError("the child sent a value that is nested far too deeply")
    match value:
        case str():
            return _as_text(value, "a value")
        case list():
            return [_json(item, level + 1) for item in cast("list[object]", value)]
        case dict():
            items = cast("dict[str, object]", value).items()
            return {_as_text(key, "a key"): _json(item, level + 1) for key, item in items}
        case _:
            return cast("JsonValue", value)


def _names(told: object) -> Mapping[str, ShownValue]:
    if not isinstance(told, dict):
        raise SandboxBrokenError("the child sent names that are none")
    names = cast("dict[str, object]", told)
    if len(names) > _NAMES_MAX:
        raise SandboxBrokenError(f"the child sent {len(names)} names")
    return MappingProxyType(
        {_as_text(name, "a name"): _value(value) for name, value in names.items()}
    )


def _error(told: object) -> CodeError:
    if not isinstance(told, dict):
        raise SandboxBrokenError("the child sent an error that is none")
    fields = cast("dict[str, Any]", told)
    return CodeError(
        _text(fields, "type"),
        _text(fields, "message"),
        _number(fields.get("line"), "a line"),
        _number(fields.get("column"), "a column"),
        _text(fields, "text"),
    )


def _triples(told: object, what: str) -> list[tuple[str, bool, str]]:
    """A list of [name, yes or no, detail]."""
    found: list[tuple[str, bool, str]] = []
    for row in cast("list[object]", told) if isinstance(told, list) else [None]:
        match row:
            case [str(name), bool(flag), str(detail)]:
                found.append((name, flag, detail))
            case _:
                raise SandboxBrokenError(f"the child sent {what} that are none")
    return found


def _layers(told: object) -> tuple[Layer, ...]:
    order = list(LAYERS)
    rows = [row for row in _triples(told, "layers") if row[0] in LAYERS]
    return tuple(Layer(*row) for row in sorted(rows, key=lambda row: order.index(row[0])))


def _probes(told: object) -> tuple[Probe, ...]:
    return tuple(Probe(*row) for row in _triples(told, "probes"))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
