"""How the host handles a container that violates the protocol."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from wink_workspace.clock import ManualClock
from wink_workspace.errors import SandboxBrokenError
from wink_workspace.sandbox.transport import stream
from wink_workspace.sandbox.transport.container_frames import (
    PROTOCOL_VERSION,
    EngineParser,
    FrameError,
    Kind,
    joined_fields,
    packed,
)
from wink_workspace.sandbox.transport.stream import Ending, Limits, RunnerStream

VERSION = str(PROTOCOL_VERSION).encode()
READY = packed(Kind.READY, 0, joined_fields([VERSION, b"/bin/sh", b"3.11.2"]))


class FastClock(ManualClock):
    """Advances by one second at each reading."""

    def monotonic_s(self) -> float:
        self.advance(1)
        return super().monotonic_s()


@dataclass
class ContainerEnd:
    """The container's end of a stream to the host."""

    connection: socket.socket
    stream: RunnerStream

    def send(self, data: bytes, *, on: int = 1) -> None:
        """Send *data* in a frame of the engine."""
        self.connection.sendall(struct.pack("!BxxxI", on, len(data)) + data)

    def run(
        self,
        *,
        timeout_s: float = 1_000.0,
        limits: Limits | None = None,
        relay: FakeRelay | None = None,
    ) -> Ending:
        """Run a command on the host's end; the data sent before is its answer."""
        return self.stream.run(
            Kind.RUN,
            b"",
            stdin=b"",
            limits=limits or Limits(timeout_s),
            sink=lambda stream, data: self.received.append((stream, data)),
            relays=() if relay is None else (relay,),
        )

    def __post_init__(self) -> None:
        self.received: list[tuple[str, bytes]] = []


@pytest.fixture
def container() -> Iterator[ContainerEnd]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ContainerEnd(theirs, RunnerStream(ours, clock=FastClock(), framing=EngineParser()))


@pytest.fixture
def ready(container: ContainerEnd) -> ContainerEnd:
    container.send(READY)
    assert container.stream.ready(b"", 100).shell == "/bin/sh"
    return container


def ended(how: bytes = b"exit", code: bytes = b"0", number: int = 1) -> bytes:
    return packed(Kind.ENDED, number, joined_fields([how, code]))


def test_a_valid_answer_ends_the_command_with_its_result(ready: ContainerEnd) -> None:
    ready.send(packed(Kind.OUTPUT, 1, b"out") + packed(Kind.ERRORS, 1, b"err") + ended(code=b"3"))
    assert ready.run() == Ending(exit_code=3)
    assert ready.received == [("stdout", b"out"), ("stderr", b"err")]


@pytest.mark.parametrize(
    "data",
    [
        packed(Kind.READY, 0, joined_fields([b"0", b"/bin/sh", b"3"])),
        packed(Kind.READY, 0, joined_fields([VERSION, b"/tmp/evil", b"3"])),
        packed(Kind.READY, 0, joined_fields([VERSION, b"/bin/sh"])),
        packed(Kind.READY, 0, joined_fields([VERSION, b"\xff", b"3"])),
        packed(Kind.READY, 0, b"\0\0\0\x09short"),
        ended(number=0),
        b"Traceback (most recent call last)",
    ],
    ids=["version", "shell", "fields", "text", "truncated", "kind", "traceback"],
)
def test_a_runner_with_an_invalid_greeting_is_refused(container: ContainerEnd, data: bytes) -> None:
    container.send(data)
    with pytest.raises(SandboxBrokenError):
        container.stream.ready(b"", 100)


@pytest.mark.parametrize(
    "data",
    [
        ended(number=2),
        packed(Kind.OUTPUT, 0, b"of another command"),
        packed(Kind.READY, 1, b""),
        packed(Kind.RUN, 1, b""),
        ended(how=b"maybe"),
        ended(code=b"256"),
        ended(code=b"-1"),
        ended(code=b"\xd9\xa1"),  # a Unicode digit, but not ASCII
        ended(code=b"99999999999999999999"),
        ended(how=b"signal", code=b"0"),
        ended(how=b"signal", code=b"65"),
        packed(Kind.ENDED, 1, b""),
        packed(Kind.ENDED, 1, joined_fields([b"exit", b"0", b"0"])),
        packed(Kind.REFUSED, 1, joined_fields([b"cwd", b"none"])),
        struct.pack("!BII", Kind.OUTPUT, 1, 2**32 - 1),
        ended() + packed(Kind.OUTPUT, 1, b"after the end"),
        ended() + ended(),
        b"\x00" * 100,
        b"\xff" * 100,
    ],
)
def test_an_invalid_answer_breaks_the_sandbox(ready: ContainerEnd, data: bytes) -> None:
    ready.send(data)
    with pytest.raises(SandboxBrokenError):
        ready.run()


class FakeRelay:
    """Records the frames about connections, and has one to send."""

    kinds = range(Kind.CONNECTION, Kind.CONNECTION_CLOSED + 1)

    def __init__(self) -> None:
        self.received: list[tuple[Kind, bytes]] = []
        self.readable, self.writable = os.pipe()
        self.to_send = [(Kind.ACK_CONNECTION, b"\0\0\0\x01\0\0\0\x01")]
        os.write(self.writable, b"x")

    def fileno(self) -> int:
        return self.readable

    def receive(self, kind: Kind, payload: bytes) -> None:
        if payload == b"bad":
            raise FrameError("invalid")
        self.received.append((kind, payload))

    def waiting(self) -> list[tuple[Kind, bytes]]:
        sent, self.to_send = self.to_send, []
        return sent


@pytest.fixture
def relay() -> Iterator[FakeRelay]:
    relay = FakeRelay()
    yield relay
    os.close(relay.readable)
    os.close(relay.writable)


def test_frames_about_connections_go_to_the_relay_and_back(
    ready: ContainerEnd, relay: FakeRelay
) -> None:
    ready.send(packed(Kind.CONNECTION, 1, b"\0\0\0\1") + ended())
    assert ready.run(relay=relay) == Ending(exit_code=0)
    assert relay.received == [(Kind.CONNECTION, b"\0\0\0\1")]
    sent = packed(Kind.RUN, 1) + packed(Kind.ACK_CONNECTION, 1, b"\0\0\0\1\0\0\0\1")
    assert ready.connection.recv(1_000) == sent


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind >= Kind.CONNECTION])
def test_connections_without_a_list_break_the_sandbox(ready: ContainerEnd, kind: Kind) -> None:
    ready.send(packed(kind, 1, b"\0\0\0\1"))
    with pytest.raises(SandboxBrokenError, match=kind.name):
        ready.run()


def test_an_invalid_frame_about_a_connection_breaks_the_sandbox(
    ready: ContainerEnd, relay: FakeRelay
) -> None:
    ready.send(packed(Kind.FROM_CONNECTION, 1, b"bad"))
    with pytest.raises(SandboxBrokenError, match="violated the protocol"):
        ready.run(relay=relay)


def test_a_connection_of_another_command_breaks_the_sandbox(
    ready: ContainerEnd, relay: FakeRelay
) -> None:
    ready.send(packed(Kind.CONNECTION, 0, b"\0\0\0\1"))
    with pytest.raises(SandboxBrokenError, match="command 0 during command 1"):
        ready.run(relay=relay)


def test_output_forged_before_a_command_began_breaks_the_sandbox(ready: ContainerEnd) -> None:
    ready.send(packed(Kind.OUTPUT, 0, b"early"))
    with pytest.raises(SandboxBrokenError, match="command 0 during command 1"):
        ready.run()


def test_a_stream_that_ends_breaks_the_sandbox_with_the_last_error_output(
    ready: ContainerEnd,
) -> None:
    ready.send(b"MemoryError\n", on=2)
    ready.connection.close()
    with pytest.raises(SandboxBrokenError, match="MemoryError"):
        ready.run()


def test_endless_error_output_is_not_kept(ready: ContainerEnd) -> None:
    def send_errors() -> None:
        for _ in range(200):
            ready.send(b"x" * 10_000, on=2)
        ready.send(ended())

    talking = threading.Thread(target=send_errors)
    talking.start()
    assert ready.run(timeout_s=1e9).exit_code == 0
    talking.join()
    assert len(ready.stream.stderr) < 10_000


def test_a_command_that_times_out_is_killed_by_the_runner(ready: ContainerEnd) -> None:
    answered = threading.Thread(target=lambda: answer_kill(ready))
    answered.start()
    ending = ready.run(timeout_s=3)
    answered.join()
    assert ending == Ending(signal=9, timed_out=True)


def answer_kill(container: ContainerEnd) -> None:
    data = b""
    while packed(Kind.KILL, 1) not in data:
        data += container.connection.recv(1_000)
    container.send(packed(Kind.OUTPUT, 1, b"last output") + ended(b"signal", b"9"))


def test_a_runner_that_does_not_obey_a_kill_breaks_the_sandbox(ready: ContainerEnd) -> None:
    with pytest.raises(SandboxBrokenError, match="after KILL"):
        ready.run(timeout_s=3)


def test_a_runner_that_keeps_sending_after_the_timeout_breaks_the_sandbox(
    ready: ContainerEnd,
) -> None:
    for _ in range(50):
        ready.send(packed(Kind.OUTPUT, 1, b"still here"))
    with pytest.raises(SandboxBrokenError, match="after KILL"):
        ready.run(timeout_s=3)


@pytest.mark.parametrize("on", [1, 2], ids=["half a frame", "the error stream"])
def test_a_runner_that_sends_slowly_does_not_extend_the_timeout(
    ready: ContainerEnd, on: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its data arrives one byte at a time, so each single read succeeds in time."""
    # One byte at a time, so that every boundary between two reads is tested.
    monkeypatch.setattr(stream, "_RECEIVE_BYTES", 1)
    ready.send(packed(Kind.OUTPUT, 1, b"x" * 1_000), on=on)
    ready.send(ended())
    with pytest.raises(SandboxBrokenError, match="after KILL"):
        ready.run(timeout_s=3)


def test_a_runner_that_does_not_read_breaks_the_sandbox(ready: ContainerEnd) -> None:
    with pytest.raises(SandboxBrokenError, match="does not read"):
        ready.stream.run(
            Kind.RUN, b"", stdin=b"x" * 50_000_000, limits=Limits(1), sink=lambda *_: None
        )


class SlowConnection:
    """A connection that accepts each piece only at the second attempt."""

    def __init__(self, writable: socket.socket) -> None:
        self.fileno = writable.fileno
        self.n_attempts = 0

    def setblocking(self, _: bool) -> None: ...

    def send(self, data: memoryview) -> int:
        self.n_attempts += 1
        if self.n_attempts % 2:
            raise BlockingIOError
        return len(data)


def test_a_runner_that_reads_slowly_does_not_extend_the_timeout(
    ready: ContainerEnd,
) -> None:
    slow_connection = SlowConnection(ready.connection)
    slow = RunnerStream(slow_connection, clock=FastClock(), framing=EngineParser())
    with pytest.raises(SandboxBrokenError, match="does not read"):
        slow.run(Kind.RUN, b"", stdin=b"x" * 16_000_000, limits=Limits(1), sink=lambda *_: None)
    assert slow_connection.n_attempts < 100


def test_a_finding_of_the_watch_ends_a_command(ready: ContainerEnd) -> None:
    answered = threading.Thread(target=lambda: answer_kill(ready))
    answered.start()
    ending = ready.run(limits=Limits(1_000, watch=lambda: "the disk is full"))
    answered.join()
    assert ending == Ending(signal=9, stopped="the disk is full")
