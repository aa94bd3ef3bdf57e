"""The runner's end of a connection: its buffer, and what it reports to the host."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wink_workspace.sandbox.inside import runner
from wink_workspace.sandbox.network_proxy.channels import MOST_CONNECTIONS, WINDOW_BYTES
from wink_workspace.sandbox.transport.container_frames import Frame, FrameParser, Kind

NAME = struct.pack("!I", 7)


class OneConnection:
    """A connection of the runner, its client, and the frames that the host gets."""

    def __init__(self) -> None:
        unused, self.host_end = os.pipe()
        os.close(self.host_end)
        self.frames_end, write_end = os.pipe()
        os.set_blocking(self.frames_end, False)
        self.host = runner.HostChannel(unused, write_end)
        self.client, accepted = socket.socketpair()
        self.client.setblocking(False)
        self.connection = runner.Connection(self.host, accepted, 1, 7)
        self._parser = FrameParser()

    def frames(self) -> list[Frame]:
        try:
            return list(self._parser.feed(os.read(self.frames_end, 1_048_576)))
        except BlockingIOError:
            return []

    def close(self) -> None:
        self.client.close()
        self.connection.socket.close()
        for fd in (self.frames_end, self.host.read_fd, self.host.write_fd):
            os.close(fd)


@pytest.fixture
def one() -> Iterator[OneConnection]:
    one = OneConnection()
    assert one.frames() == [Frame(Kind.CONNECTION, 1, NAME)]
    yield one
    one.close()


def test_both_ends_have_the_same_constants() -> None:
    assert (runner.WINDOW_BYTES, runner.MOST_CONNECTIONS) == (WINDOW_BYTES, MOST_CONNECTIONS)
    for kind in Kind:
        assert getattr(runner, kind.name) == kind


def test_the_end_of_a_client_is_reported_once(one: OneConnection) -> None:
    one.client.sendall(b"ask")
    one.client.shutdown(socket.SHUT_WR)
    one.connection.read()
    one.connection.read()
    assert one.frames() == [
        Frame(Kind.FROM_CONNECTION, 1, NAME + b"ask"),
        Frame(Kind.CONNECTION_ENDED, 1, NAME),
    ]
    assert not one.connection.is_over
    one.connection.read()  # the poll reports only that it is gone
    assert one.frames() == []
    assert one.connection.is_over


def test_no_more_is_read_than_the_host_accepts(one: OneConnection) -> None:
    one.connection.credit = 2
    one.client.sendall(b"ask")
    one.connection.read()
    assert one.frames() == [Frame(Kind.FROM_CONNECTION, 1, NAME + b"as")]
    assert one.connection.events == 0


def test_nothing_is_reported_if_nothing_waits_to_be_written(one: OneConnection) -> None:
    one.connection.write()
    assert one.frames() == []


def test_a_client_that_is_gone_ends_the_connection(one: OneConnection) -> None:
    one.client.close()
    one.connection.take(memoryview(b"answer"))
    assert one.connection.is_over


def test_a_host_that_exceeds_the_window_is_refused(one: OneConnection) -> None:
    with pytest.raises(runner.HostGoneError):
        one.connection.take(memoryview(bytes(WINDOW_BYTES + 1)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 120_000)), max_size=25))
def test_what_the_host_sends_arrives_in_order_and_is_acknowledged(
    steps: list[tuple[int, int]],
) -> None:
    one = OneConnection()
    sent = got = b""
    n_acknowledged = 0
    for number, (n_sent, n_read) in enumerate(steps):
        piece = bytes([number]) * min(n_sent, WINDOW_BYTES - one.connection.n_waiting)
        sent += piece
        one.connection.take(memoryview(piece))
        if n_read and len(got) + one.connection.n_waiting < len(sent):
            got += one.client.recv(n_read)
        one.connection.write()
    while len(got) < len(sent):
        got += one.client.recv(1_000_000)
        one.connection.write()
    for frame in one.frames():
        if frame.kind is Kind.CONNECTION_ACKED:
            n_acknowledged += struct.unpack("!II", frame.payload)[1]
    one.close()
    assert got == sent
    assert n_acknowledged == len(sent)
