"""The connections in the stream of a container: the host's end, against a hostile runner."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wink_workspace.sandbox.network_proxy.channels import (
    MOST_CONNECTIONS,
    WINDOW_BYTES,
    Channels,
    Event,
)
from wink_workspace.sandbox.transport.container_frames import FrameError, Kind


def number(connection: int) -> bytes:
    return struct.pack("!I", connection)


def opened() -> Channels:
    channels = Channels()
    channels.receive(Kind.CONNECTION, number(1))
    return channels


def test_data_goes_both_ways_within_the_windows() -> None:
    channels = opened()
    assert channels.receive(Kind.FROM_CONNECTION, number(1) + b"ask") == Event(
        Kind.FROM_CONNECTION, 1, b"ask"
    )
    assert channels.acknowledge(1, 3) == (Kind.ACK_CONNECTION, struct.pack("!II", 1, 3))
    assert channels.send(1, b"answer") == (Kind.TO_CONNECTION, number(1) + b"answer")
    assert channels.receive(Kind.CONNECTION_ACKED, struct.pack("!II", 1, 6))
    assert channels.end(1) == (Kind.END_CONNECTION, number(1))
    assert channels.end(1) is None
    assert not channels.is_open(1)
    assert channels.receive(Kind.CONNECTION_CLOSED, number(1)) == Event(Kind.CONNECTION_CLOSED, 1)


def test_nothing_is_sent_beyond_the_window() -> None:
    channels = opened()
    while channels.credit(1):
        channels.send(1, bytes(channels.credit(1)))
    with pytest.raises(ValueError, match="cannot be sent"):
        channels.send(1, b"x")


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (Kind.CONNECTION, number(1)),
        (Kind.CONNECTION, number(3)),
        (Kind.CONNECTION, number(2) + b"x"),
        (Kind.CONNECTION, b"\0"),
        (Kind.FROM_CONNECTION, number(1)),
        (Kind.FROM_CONNECTION, number(2) + b"x"),
        (Kind.FROM_CONNECTION, number(0) + b"x"),
        (Kind.FROM_CONNECTION, number(1) + bytes(WINDOW_BYTES + 1)),
        (Kind.CONNECTION_ENDED, number(1) + b"x"),
        (Kind.CONNECTION_ENDED, number(2)),
        (Kind.CONNECTION_CLOSED, number(2)),
        (Kind.CONNECTION_ACKED, struct.pack("!II", 1, 1)),
        (Kind.CONNECTION_ACKED, struct.pack("!II", 1, 0)),
        (Kind.CONNECTION_ACKED, struct.pack("!II", 1, 2**32 - 1)),
        (Kind.CONNECTION_ACKED, number(1)),
    ],
)
def test_a_frame_that_is_not_next_in_the_grammar_is_refused(kind: Kind, payload: bytes) -> None:
    with pytest.raises(FrameError):
        opened().receive(kind, payload)


def test_a_connection_sends_nothing_after_its_end() -> None:
    channels = opened()
    channels.receive(Kind.CONNECTION_ENDED, number(1))
    for kind, payload in (
        (Kind.FROM_CONNECTION, number(1) + b"x"),
        (Kind.CONNECTION_ENDED, number(1)),
    ):
        with pytest.raises(FrameError):
            channels.receive(kind, payload)
    channels.receive(Kind.CONNECTION_CLOSED, number(1))
    with pytest.raises(FrameError):
        channels.receive(Kind.CONNECTION_CLOSED, number(1))


def test_a_dropped_connection_reports_only_that_it_is_closed() -> None:
    channels = opened()
    assert channels.drop(1) == (Kind.DROP_CONNECTION, number(1))
    assert channels.drop(1) is None
    assert channels.receive(Kind.FROM_CONNECTION, number(1) + b"late") is None
    assert channels.acknowledge(1, 4) is None
    assert channels.receive(Kind.CONNECTION_CLOSED, number(1)) == Event(Kind.CONNECTION_CLOSED, 1)


def test_the_number_of_open_connections_is_bounded() -> None:
    channels = Channels()
    for each in range(1, MOST_CONNECTIONS + 1):
        channels.receive(Kind.CONNECTION, number(each))
    with pytest.raises(FrameError, match="more than"):
        channels.receive(Kind.CONNECTION, number(MOST_CONNECTIONS + 1))


_CONTAINER = [kind for kind in Kind if kind >= Kind.CONNECTION]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(_CONTAINER),
            st.integers(0, 3),
            st.binary(max_size=6),
        ),
        max_size=40,
    )
)
def test_any_frames_are_events_in_order_or_refused(
    frames: list[tuple[Kind, int, bytes]],
) -> None:
    channels = Channels()
    is_open: dict[int, bool] = {}
    for kind, connection, data in frames:
        try:
            event = channels.receive(kind, number(connection) + data)
        except FrameError:
            break
        assert event is not None
        if kind is Kind.CONNECTION:
            assert connection not in is_open
        else:
            assert is_open[connection]
        is_open[connection] = kind is not Kind.CONNECTION_CLOSED
        assert 0 <= channels.credit(connection) <= WINDOW_BYTES
