"""The inspector of tunnels: what it passes on, byte by byte."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tls_greetings import (
    LISTED,
    OTHER,
    REFUSED,
    RETRY,
    answer,
    extension,
    hello,
    real_hello,
    records,
    server_name,
)

from wink_workspace.sandbox.network_proxy.tls import TlsInspector, TlsRefusedError

GOOD = records(hello(server_name(LISTED)))


def passed(data: bytes, size: int) -> bytes:
    """What an inspector passes on of *data* in pieces of *size* bytes."""
    inspector = TlsInspector(LISTED)
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    return b"".join(map(inspector.from_client, pieces))


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize(
    "greeting",
    [
        real_hello(LISTED),
        GOOD,
        records(hello(server_name(LISTED.upper()))),
        records(hello(extension(21, bytes(9_000)), server_name(LISTED)), size=100),
    ],
    ids=["real", "small", "upper case", "in many records"],
)
def test_a_greeting_of_the_host_is_passed_on_whole(greeting: bytes, size: int) -> None:
    assert passed(greeting, size) == greeting


@pytest.mark.parametrize("size", [1, 100_000])
@pytest.mark.parametrize("attempt", REFUSED)
def test_nothing_else_is_passed_on(attempt: str, size: int) -> None:
    data = REFUSED[attempt]
    inspector = TlsInspector(LISTED)
    with pytest.raises(TlsRefusedError):
        for at in range(0, len(data), size):
            assert inspector.from_client(data[at : at + size]) == b""
    assert not inspector.is_checked


def test_a_real_greeting_without_a_name_or_of_another_host_is_refused() -> None:
    for name in (None, OTHER):
        with pytest.raises(TlsRefusedError):
            passed(real_hello(name), 100_000)


def test_what_follows_the_greeting_waits_for_the_server() -> None:
    inspector = TlsInspector(LISTED)
    assert inspector.from_client(GOOD + b"early") == GOOD
    assert inspector.from_client(b" data") == b""
    assert inspector.from_server(answer()[:20]) == b""
    assert inspector.from_server(answer()[20:]) == b"early data"
    assert inspector.is_open
    assert inspector.from_client(b"anything") == b"anything"


def test_a_client_that_does_not_wait_is_refused_in_the_end() -> None:
    inspector = TlsInspector(LISTED)
    inspector.from_client(GOOD)
    with pytest.raises(TlsRefusedError, match="wait"):
        for _ in range(100):
            inspector.from_client(bytes(10_000))


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_second_greeting_that_the_server_asked_for_must_name_the_host_too(size: int) -> None:
    ccs = records(b"\x01", kind=20)
    for second, is_good in ((GOOD, True), (records(hello(server_name(OTHER))), False)):
        inspector = TlsInspector(LISTED)
        assert inspector.from_client(GOOD) == GOOD
        assert inspector.from_server(answer(RETRY)) == b""
        data, got = ccs + second, b""
        try:
            for at in range(0, len(data), size):
                got += inspector.from_client(data[at : at + size])
        except TlsRefusedError:
            assert not is_good
            assert got == b""
        else:
            assert is_good
            assert got == data


def test_a_second_greeting_that_was_sent_too_early_is_checked_too() -> None:
    inspector = TlsInspector(LISTED)
    inspector.from_client(GOOD + records(hello(server_name(OTHER))))
    with pytest.raises(TlsRefusedError, match=OTHER):
        inspector.from_server(answer(RETRY))


@pytest.mark.parametrize("second", ["ECH", "plain HTTP", "no server name", "another message first"])
def test_a_second_greeting_is_as_strict_as_the_first(second: str) -> None:
    inspector = TlsInspector(LISTED)
    inspector.from_client(GOOD)
    inspector.from_server(answer(RETRY))
    with pytest.raises(TlsRefusedError):
        inspector.from_client(REFUSED[second])


@given(st.binary(max_size=300), st.integers(1, 50))
def test_random_bytes_are_never_passed_on(data: bytes, size: int) -> None:
    with suppress(TlsRefusedError):
        assert passed(data, size) == b""


@given(st.data())
def test_a_changed_greeting_is_refused_waits_or_still_names_the_host(data: st.DataObject) -> None:
    changed = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(GOOD) - 1))] = data.draw(st.integers(0, 255))
    with suppress(TlsRefusedError):
        got = passed(bytes(changed), 13)
        assert got == b"" or LISTED.encode() in got.lower()
