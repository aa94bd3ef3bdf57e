"""The stream to a container's runner, and its protocol.

States: STARTING -> READY <-> RUNNING, and ENDED from each of them. The runner's side is hostile. A
message that is not next in the grammar, or a missing answer, raises ``SandboxBrokenError``; the
caller then ends the container from outside.

The host keeps all time limits. When a command reaches its limit, the host sends KILL. If the runner
does not report the end within ``_GRACE_S``, that violates the protocol, too.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from socket import socket
from typing import Final, NamedTuple, Protocol

from wink_workspace.clock import Cancellation, Clock
from wink_workspace.errors import SandboxBrokenError
from wink_workspace.sandbox.network import NetworkRequest
from wink_workspace.sandbox.sandbox_protocol import StreamName

from .container_frames import (
    MOST_PAYLOAD_BYTES,
    PROTOCOL_VERSION,
    EngineParser,
    Frame,
    FrameError,
    FrameParser,
    Kind,
    fields,
    packed,
)

_GRACE_S: Final = 10.0
_SEND_TIMEOUT_S: Final = 30.0
_SLOWEST_BYTES_PER_S: Final = 4 * 1_048_576
WATCH_S: Final = 0.02
_LONGEST_WAIT_S: Final = 0.05
_RECEIVE_BYTES: Final = 262_144
_MOST_STDERR_BYTES: Final = 8_192
_SIGKILL: Final = 9
_MOST_SIGNAL: Final = 64
_MOST_EXIT_CODE: Final = 255


class Ready(NamedTuple):
    """What the runner reports of the image: its shell (``""`` if none) and its Python version."""

    shell: str
    python: str


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended.

    If it could not be started, ``refused`` is the stage of the failure, and ``exit_code`` is the
    error number. ``network`` are the requests that the command made.
    """

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    stopped: str | None = None
    refused: str | None = None
    network: tuple[NetworkRequest, ...] = ()


class StreamRelay(Protocol):
    """Handles frames of some kinds during a command, and sends others."""

    @property
    def kinds(self) -> Container[Kind]:
        """Those that it handles."""
        ...

    def fileno(self) -> int:
        """A descriptor that can be read while frames wait to be sent; negative for none."""
        ...

    def receive(self, kind: Kind, payload: bytes) -> None:
        """Handle a frame of the container; raises ``FrameError``. It does not block."""
        ...

    def waiting(self) -> list[tuple[Kind, bytes]]:
        """Frames to send now; the caller sends them before it asks again."""
        ...


class Limits(NamedTuple):
    """What ends a command: its time limit, or ``watch``, which is polled and returns the reason.

    ``watch_s`` is the time between two polls.
    """

    timeout_s: float
    watch: Callable[[], str | None] = lambda: None
    watch_s: float = WATCH_S


class RunnerStream:
    """The stream that is attached to a container whose first process is the runner.

    Args:
        connection: The stream. The caller closes it, which ends the runner.
        clock: Measures time limits.
        framing: Parses the framing of an engine; ``None`` if the stream has the runner's output
            alone.
        errors: What the runner wrote to a standard error that is not in the stream.
    """

    def __init__(
        self,
        connection: socket,
        *,
        clock: Clock,
        framing: EngineParser | None = None,
        errors: Callable[[], str] = lambda: "",
    ) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._clock = clock
        self._framing = framing
        self._errors = errors
        self._frames = FrameParser()
        self._pending: deque[Frame] = deque()
        self._unsent = bytearray()
        self._relays: Sequence[StreamRelay] = ()
        self._number = 0
        self._stderr = bytearray()

    @property
    def stderr(self) -> str:
        """The last output of the runner on its standard error, such as why it died."""
        return self._stderr.decode("utf-8", "replace").strip() or self._errors()

    @property
    def is_silent(self) -> bool:
        """Whether the runner has sent nothing that was not read, and has not ended."""
        return not self._pending and not self._wait(select.POLLIN, 0.0)

    def ready(
        self, source: bytes, timeout_s: float, cancellation: Cancellation | None = None
    ) -> Ready:
        """Send the runner's source and wait until it is ready.

        Raises:
            SandboxBrokenError: If it is not ready in time, or has another version.
            CallCancelledError: If *cancellation* is cancelled meanwhile.
        """
        self._send(source, self._clock.monotonic_s() + _SEND_TIMEOUT_S)
        until_s = self._clock.monotonic_s() + timeout_s
        frame: Frame | None = None
        while frame is None and (now_s := self._clock.monotonic_s()) < until_s:
            if cancellation is not None:
                cancellation.check()
            frame = self._next(min(until_s, now_s + WATCH_S))
        if frame is None or frame.kind is not Kind.READY:
            raise self._broken("did not report that it is ready")
        version, shell, python = self._fields(frame, 3)
        if version != str(PROTOCOL_VERSION):
            raise self._broken(f"speaks version {version[:20]!r} of the protocol")
        if shell not in ("", "/bin/bash", "/usr/bin/bash", "/bin/sh"):
            raise self._broken(f"names the shell {shell[:80]!r}")
        return Ready(shell, python[:20])

    def run(
        self,
        kind: Kind,
        payload: bytes,
        *,
        stdin: bytes,
        limits: Limits,
        sink: Callable[[StreamName, bytes], None],
        relays: Sequence[StreamRelay] = (),
    ) -> Ending:
        """Run a command and wait until it and every process that it started have ended.

        Args:
            kind: ``RUN`` or ``PYTHON``.
            payload: From ``request_payload``.
            stdin: The input, whose length the payload contains.
            limits: What ends the command.
            sink: Is called with each piece of output.
            relays: Handle its connections, and its input while it runs.

        Raises:
            SandboxBrokenError: If the runner violated the protocol; end the container then.
        """
        self._number = number = (self._number + 1) & 0xFFFF_FFFF
        n_seconds = _SEND_TIMEOUT_S + (len(payload) + len(stdin)) / _SLOWEST_BYTES_PER_S
        sent_by_s = self._clock.monotonic_s() + n_seconds
        self._send(packed(kind, number, payload), sent_by_s)
        for at in range(0, len(stdin), MOST_PAYLOAD_BYTES):
            piece = stdin[at : at + MOST_PAYLOAD_BYTES]
            self._send(packed(Kind.INPUT, number, piece), sent_by_s)
        started_s = self._clock.monotonic_s()
        until_s = started_s + limits.timeout_s
        killed: Ending | None = None
        self._relays = relays
        while True:
            now_s = self._clock.monotonic_s()
            frame = self._next(until_s if killed else min(until_s, now_s + limits.watch_s))
            if frame is not None:
                ending = self._handle(frame, number, sink, relays)
                if ending is not None:
                    return killed or ending
            if killed is not None:
                if self._clock.monotonic_s() >= until_s:
                    raise self._broken("did not end a command after KILL")
                continue
            killed = self._check_limits(until_s, limits)
            if killed is not None:
                until_s = self._clock.monotonic_s() + _GRACE_S
                self._relays = ()  # nothing more is sent to it
                self._unsent += packed(Kind.KILL, number)

    def _check_limits(self, until_s: float, limits: Limits) -> Ending | None:
        if self._clock.monotonic_s() >= until_s:
            return Ending(signal=_SIGKILL, timed_out=True)
        stopped = limits.watch()
        return None if stopped is None else Ending(signal=_SIGKILL, stopped=stopped)

    def _handle(
        self,
        frame: Frame,
        number: int,
        sink: Callable[[StreamName, bytes], None],
        relays: Sequence[StreamRelay],
    ) -> Ending | None:
        """Process a frame; returns how the command ended if the frame reports that."""
        if frame.number != number:
            raise self._broken(f"sent a frame of command {frame.number} during command {number}")
        match frame.kind:
            case Kind.OUTPUT:
                sink("stdout", frame.payload)
            case Kind.ERRORS:
                sink("stderr", frame.payload)
            case Kind.ENDED:
                return self._ending(frame)
            case Kind.REFUSED:
                stage, code = self._fields(frame, 2)
                return Ending(refused=stage[:20], exit_code=self._integer(code, 0, 4_095))
            case _:
                relay = next((each for each in relays if frame.kind in each.kinds), None)
                if relay is None:
                    raise self._broken(f"sent {frame.kind.name} during a command")
                try:
                    relay.receive(frame.kind, frame.payload)
                except FrameError as error:
                    raise self._broken(f"violated the protocol: {error.message}") from error
        return None

    def _ending(self, frame: Frame) -> Ending:
        how, code = self._fields(frame, 2)
        if self._pending:
            raise self._broken("sent frames after a command had ended")
        if how == "exit":
            return Ending(exit_code=self._integer(code, 0, _MOST_EXIT_CODE))
        if how == "signal":
            return Ending(signal=self._integer(code, 1, _MOST_SIGNAL))
        raise self._broken(f"reported that a command ended by {how[:20]!r}")

    def _fields(self, frame: Frame, count: int) -> list[str]:
        try:
            found = [part.decode("utf-8") for part in fields(frame.payload)]
        except (FrameError, UnicodeDecodeError) as error:
            raise self._broken(f"sent an invalid {frame.kind.name}") from error
        if len(found) != count:
            raise self._broken(f"sent a {frame.kind.name} of {len(found)} fields")
        return found

    def _integer(self, text: str, least: int, most: int) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 6):
            raise self._broken(f"sent {text[:20]!r}, which is not a number")
        if not least <= int(text) <= most:
            raise self._broken(f"sent {text}, which is not from {least} to {most}")
        return int(text)

    # Bytes

    def _next(self, until_s: float) -> Frame | None:
        """The next frame; ``None`` if none arrives in time."""
        while not self._pending:
            remaining_s = until_s - self._clock.monotonic_s()
            self._exchange(remaining_s)
            if remaining_s <= 0 and not self._pending:  # also if part of a frame has arrived
                return None
        return self._pending.popleft()

    def _exchange(self, seconds: float) -> None:
        """Wait for bytes of the runner and receive them; meanwhile send what waits for it.

        The runner may not read while it writes, so during a command this never waits for one of
        the two alone.
        """
        for relay in () if self._unsent else self._relays:
            for kind, payload in relay.waiting():
                self._unsent += packed(kind, self._number, payload)
        poll = select.poll()
        poll.register(self._connection, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        for relay in () if self._unsent else self._relays:
            if relay.fileno() >= 0:
                poll.register(relay, select.POLLIN)
        ready = dict(poll.poll(1_000 * min(max(0.0, seconds), _LONGEST_WAIT_S)))
        events = ready.get(self._connection.fileno(), 0)
        if events & select.POLLOUT:
            self._send_some()
        if events & ~select.POLLOUT:
            self._receive()

    def _send_some(self) -> None:
        """Send what waits, as far as that is possible now."""
        try:
            del self._unsent[: self._connection.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._receive()  # raises unless its last output can still be read
            raise self._broken("ended") from None

    def _receive(self) -> None:
        try:
            data = self._connection.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise self._broken(f"was cut off: {error}") from error
        if not data:
            raise self._broken("ended")
        try:
            self._pending.extend(self._parsed(data))
        except FrameError as error:
            raise self._broken(f"violated the protocol: {error.message}") from error

    def _parsed(self, data: bytes) -> Iterator[Frame]:
        if self._framing is None:
            yield from self._frames.feed(data)
            return
        for stream, piece in self._framing.feed(data):
            if stream == 1:
                yield from self._frames.feed(piece)
            else:
                self._stderr += piece
                del self._stderr[:-_MOST_STDERR_BYTES]

    def _send(self, data: bytes, until_s: float) -> None:
        left = memoryview(bytes(self._unsent) + data if self._unsent else data)
        self._unsent.clear()
        while left:
            try:
                left = left[self._connection.send(left) :]
            except BlockingIOError:
                remaining_s = until_s - self._clock.monotonic_s()
                if remaining_s <= 0:
                    raise self._broken("does not read its input") from None
                self._wait(select.POLLOUT, remaining_s)
            except OSError:
                self._receive()  # raises unless its last output can still be read
                raise self._broken("ended") from None

    def _wait(self, event: int, seconds: float) -> bool:
        """Wait for *event*, but only briefly, because the clock may not be the system's."""
        poll = select.poll()
        poll.register(self._connection, event)
        return bool(poll.poll(1_000 * min(max(0.0, seconds), _LONGEST_WAIT_S)))

    def _broken(self, how: str) -> SandboxBrokenError:
        output = f" ({self.stderr})" if self.stderr else ""
        return SandboxBrokenError(f"the runner in the sandbox {how}{output}")
