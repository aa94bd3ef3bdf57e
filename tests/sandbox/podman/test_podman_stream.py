"""What the host makes of a container that does not keep to the protocol."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from wink_workspace.clock import ManualClock
from wink_workspace.errors import SandboxBrokenError
from wink_workspace.sandbox.podman import stream
from wink_workspace.sandbox.podman.frames import PROTOCOL_VERSION, Kind, joined_fields, packed
from wink_workspace.sandbox.podman.stream import Ending, Limits, RunnerStream

VERSION = str(PROTOCOL_VERSION).encode()
READY = packed(Kind.READY, 0, joined_fields([VERSION, b"/bin/sh", b"3.11.2"]))


class FastClock(ManualClock):
    """A second passes whenever somebody looks."""

    def monotonic_s(self) -> float:
        self.advance(1)
        return super().monotonic_s()


@dataclass
class Far:
    """The container's end of a stream."""

    connection: socket.socket
    stream: RunnerStream

    def says(self, data: bytes, *, on: int = 1) -> None:
        """Send *data* as the engine would pass it on."""
        self.connection.sendall(struct.pack("!BxxxI", on, len(data)) + data)

    def run(self, *, timeout_s: float = 1_000.0, limits: Limits | None = None) -> Ending:
        """What a command gives that is answered by what was said."""
        return self.stream.run(
            Kind.RUN,
            b"",
            stdin=b"",
            limits=limits or Limits(timeout_s),
            sink=lambda stream, data: self.heard.append((stream, data)),
        )

    def __post_init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []


@pytest.fixture
def far() -> Iterator[Far]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Far(theirs, RunnerStream(ours, clock=FastClock()))


@pytest.fixture
def ready(far: Far) -> Far:
    far.says(READY)
    assert far.stream.ready(b"", 100).shell == "/bin/sh"
    return far


def ended(how: bytes = b"exit", code: bytes = b"0", number: int = 1) -> bytes:
    return packed(Kind.ENDED, number, joined_fields([how, code]))


def test_a_command_that_is_answered_by_the_rules_ends_as_the_answer_says(ready: Far) -> None:
    ready.says(packed(Kind.OUTPUT, 1, b"out") + packed(Kind.ERRORS, 1, b"err") + ended(code=b"3"))
    assert ready.run() == Ending(exit_code=3)
    assert ready.heard == [("stdout", b"out"), ("stderr", b"err")]


@pytest.mark.parametrize(
    "said",
    [
        packed(Kind.READY, 0, joined_fields([b"0", b"/bin/sh", b"3"])),
        packed(Kind.READY, 0, joined_fields([VERSION, b"/tmp/evil", b"3"])),
        packed(Kind.READY, 0, joined_fields([VERSION, b"/bin/sh"])),
        packed(Kind.READY, 0, joined_fields([VERSION, b"\xff", b"3"])),
        packed(Kind.READY, 0, b"\0\0\0\x09short"),
        ended(number=0),
        b"Traceback (most recent call last)",
    ],
    ids=["version", "shell", "fields", "text", "cut", "kind", "words"],
)
def test_a_runner_that_does_not_introduce_itself_is_none(far: Far, said: bytes) -> None:
    far.says(said)
    with pytest.raises(SandboxBrokenError):
        far.stream.ready(b"", 100)


@pytest.mark.parametrize(
    "said",
    [
        ended(number=2),
        packed(Kind.OUTPUT, 0, b"of another command"),
        packed(Kind.READY, 1, b""),
        packed(Kind.RUN, 1, b""),
        ended(how=b"maybe"),
        ended(code=b"256"),
        ended(code=b"-1"),
        ended(code=b"\xd9\xa1"),  # a digit, but not one of ours
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
def test_an_answer_that_breaks_the_rules_breaks_the_sandbox(ready: Far, said: bytes) -> None:
    ready.says(said)
    with pytest.raises(SandboxBrokenError):
        ready.run()


def test_output_forged_before_a_command_began_breaks_the_sandbox(ready: Far) -> None:
    ready.says(packed(Kind.OUTPUT, 0, b"early"))
    with pytest.raises(SandboxBrokenError, match="command 0 during command 1"):
        ready.run()


def test_a_stream_that_ends_breaks_the_sandbox_and_says_what_was_said_last(ready: Far) -> None:
    ready.says(b"MemoryError\n", on=2)
    ready.connection.close()
    with pytest.raises(SandboxBrokenError, match="MemoryError"):
        ready.run()


def test_words_without_end_on_the_error_stream_are_not_kept(ready: Far) -> None:
    def talk() -> None:
        for _ in range(200):
            ready.says(b"x" * 10_000, on=2)
        ready.says(ended())

    talking = threading.Thread(target=talk)
    talking.start()
    assert ready.run(timeout_s=1e9).exit_code == 0
    talking.join()
    assert len(ready.stream.stderr) < 10_000


def test_a_command_that_is_still_there_at_its_time_is_told_to_be_killed(ready: Far) -> None:
    answered = threading.Thread(target=lambda: answer_kill(ready))
    answered.start()
    ending = ready.run(timeout_s=3)
    answered.join()
    assert ending == Ending(signal=9, timed_out=True)


def answer_kill(far: Far) -> None:
    data = b""
    while packed(Kind.KILL, 1) not in data:
        data += far.connection.recv(1_000)
    far.says(packed(Kind.OUTPUT, 1, b"last words") + ended(b"signal", b"9"))


def test_a_runner_that_does_not_end_what_it_is_told_to_end_breaks_the_sandbox(ready: Far) -> None:
    with pytest.raises(SandboxBrokenError, match="after KILL"):
        ready.run(timeout_s=3)


def test_a_runner_that_goes_on_talking_after_its_time_breaks_the_sandbox(ready: Far) -> None:
    for _ in range(50):
        ready.says(packed(Kind.OUTPUT, 1, b"still here"))
    with pytest.raises(SandboxBrokenError, match="after KILL"):
        ready.run(timeout_s=3)


@pytest.mark.parametrize("on", [1, 2], ids=["half a frame", "the error stream"])
def test_a_runner_whose_words_are_no_answer_does_not_make_the_host_wait(
    ready: Far, on: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come a byte at a time, and one always comes in time."""
    # One byte at a time, so that every boundary between two reads is met.
    monkeypatch.setattr(stream, "_RECEIVE_BYTES", 1)
    ready.says(packed(Kind.OUTPUT, 1, b"x" * 1_000), on=on)
    ready.says(ended())
    with pytest.raises(SandboxBrokenError, match="after KILL"):
        ready.run(timeout_s=3)


def test_a_runner_that_does_not_listen_breaks_the_sandbox(ready: Far) -> None:
    with pytest.raises(SandboxBrokenError, match="does not read"):
        ready.stream.run(
            Kind.RUN, b"", stdin=b"x" * 50_000_000, limits=Limits(1), sink=lambda *_: None
        )


class Reluctant:
    """A connection that takes each piece only when it is asked twice."""

    def __init__(self, writable: socket.socket) -> None:
        self.fileno = writable.fileno
        self.n_asked = 0

    def setblocking(self, _: bool) -> None: ...

    def send(self, data: memoryview) -> int:
        self.n_asked += 1
        if self.n_asked % 2:
            raise BlockingIOError
        return len(data)


def test_a_runner_that_listens_a_little_does_not_make_the_host_wait_for_each_piece(
    ready: Far,
) -> None:
    reluctant = Reluctant(ready.connection)
    slow = RunnerStream(reluctant, clock=FastClock())
    with pytest.raises(SandboxBrokenError, match="does not read"):
        slow.run(Kind.RUN, b"", stdin=b"x" * 16_000_000, limits=Limits(1), sink=lambda *_: None)
    assert reluctant.n_asked < 100


def test_what_the_watch_says_ends_a_command(ready: Far) -> None:
    answered = threading.Thread(target=lambda: answer_kill(ready))
    answered.start()
    ending = ready.run(limits=Limits(1_000, watch=lambda: "the disk is full"))
    answered.join()
    assert ending == Ending(signal=9, stopped="the disk is full")
