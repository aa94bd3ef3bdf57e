"""The framing between host and container: bounded, and strict about every byte."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from wink_workspace.sandbox.commands import command_sandbox as sandbox
from wink_workspace.sandbox.inside import runner
from wink_workspace.sandbox.transport import container_frames as frames
from wink_workspace.sandbox.transport.container_frames import (
    MOST_PAYLOAD_BYTES,
    EngineParser,
    Frame,
    FrameError,
    FrameParser,
    Kind,
    fields,
    joined_fields,
    packed,
)

FROM_CONTAINER = [kind for kind in Kind if kind >= Kind.READY]
FRAMES = st.builds(
    Frame, st.sampled_from(FROM_CONTAINER), st.integers(0, 2**32 - 1), st.binary(max_size=300)
)


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    """Split *data* into pieces of the given sizes, like a stream."""
    found, at = [], 0
    while at < len(data):
        size = sizes[len(found) % len(sizes)]
        found.append(data[at : at + size])
        at += size
    return found


@given(st.lists(FRAMES, max_size=10), st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_frames_are_parsed_from_any_split_of_the_stream(
    sent: list[Frame], sizes: list[int]
) -> None:
    data = b"".join(packed(frame.kind, frame.number, frame.payload) for frame in sent)
    parser = FrameParser()
    assert [frame for piece in pieces(data, sizes) for frame in parser.feed(piece)] == sent


HEADERS = st.builds(
    lambda kind, number, n_bytes: struct.pack("!BII", kind, number, n_bytes),
    st.sampled_from([*Kind, 0, 255]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 5, MOST_PAYLOAD_BYTES, MOST_PAYLOAD_BYTES + 1]),
)


@given(
    st.lists(FRAMES, max_size=5),
    st.lists(HEADERS | st.binary(max_size=30), max_size=5).map(b"".join),
    st.lists(st.integers(1, 50), min_size=1, max_size=8),
)
def test_any_bytes_after_valid_frames_are_frames_or_a_frame_error(
    sent: list[Frame], more: bytes, sizes: list[int]
) -> None:
    data = b"".join(packed(frame.kind, frame.number, frame.payload) for frame in sent)
    parser, found = FrameParser(), list[Frame]()
    with suppress(FrameError):
        for piece in pieces(data + more, sizes):
            for frame in parser.feed(piece):
                found.append(frame)
    assert found[: len(sent)] == sent
    assert {frame.kind for frame in found} <= set(FROM_CONTAINER)


@pytest.mark.parametrize("kind", [0, *[k for k in Kind if k < Kind.READY], 75, 255])
def test_an_unexpected_frame_kind_is_refused(kind: int) -> None:
    with pytest.raises(FrameError, match="kind"):
        list(FrameParser().feed(struct.pack("!BII", kind, 1, 0)))


def test_a_frame_with_a_too_large_length_is_refused_before_its_payload() -> None:
    with pytest.raises(FrameError, match="bytes"):
        list(FrameParser().feed(struct.pack("!BII", Kind.OUTPUT, 1, MOST_PAYLOAD_BYTES + 1)))


def test_the_parser_keeps_no_parsed_frames() -> None:
    parser = FrameParser()
    for _ in range(100):
        assert len(list(parser.feed(packed(Kind.OUTPUT, 1, b"x" * 1_000)))) == 1
    assert not parser._rest


@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(min_size=1, max_size=200)), max_size=10),
    st.lists(st.integers(1, 50), min_size=1, max_size=8),
)
def test_the_two_streams_of_an_engine_are_separated(
    sent: list[tuple[int, bytes]], sizes: list[int]
) -> None:
    data = b"".join(struct.pack("!BxxxI", stream, len(piece)) + piece for stream, piece in sent)
    parser = EngineParser()
    found: dict[int, bytes] = {1: b"", 2: b""}
    for piece in pieces(data, sizes):
        for stream, part in parser.feed(piece):
            found[stream] += part
    for stream in (1, 2):
        assert found[stream] == b"".join(piece for which, piece in sent if which == stream)


@pytest.mark.parametrize(("stream", "length"), [(0, 1), (3, 1), (1, 2**30)])
def test_invalid_engine_headers_are_refused(stream: int, length: int) -> None:
    with pytest.raises(FrameError):
        list(EngineParser().feed(struct.pack("!BxxxI", stream, length)))


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_fields_round_trip_on_both_sides(parts: list[bytes]) -> None:
    assert fields(joined_fields(parts)) == parts
    assert fields(runner.joined_fields(parts)) == parts
    assert runner.fields(joined_fields(parts)) == parts


PARTS = st.lists(st.binary(max_size=20), min_size=1, max_size=5)
SPLICES = st.tuples(st.integers(0, 30), st.integers(0, 9), st.binary(max_size=9))


@given(PARTS, SPLICES)
def test_any_bytes_are_refused_or_decode_to_fields(
    parts: list[bytes], splice: tuple[int, int, bytes]
) -> None:
    at, n_bytes, instead = splice
    data = joined_fields(parts)
    data = data[:at] + instead + data[at + n_bytes :]
    try:
        found = fields(data)
    except FrameError:
        reject()
    assert joined_fields(found) == data


def test_host_and_runner_have_the_same_constants() -> None:
    assert runner.PROTOCOL_VERSION == frames.PROTOCOL_VERSION
    assert runner.COMPILED == frames.COMPILED
    assert runner.MOST_PAYLOAD_BYTES == MOST_PAYLOAD_BYTES
    assert runner.MOST_REQUEST_BYTES == sandbox._MOST_REQUEST_BYTES
    for kind in Kind:
        assert getattr(runner, kind.name) == kind
    assert runner.READ_BYTES <= MOST_PAYLOAD_BYTES
