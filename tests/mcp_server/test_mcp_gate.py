"""Who may come in, as the options say; the gate alone, with nothing behind it but a note."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from wink_workspace.errors import UsageError
from wink_workspace.mcp_server import HttpOptions
from wink_workspace.mcp_server.gate import Gate


def status_of(options: HttpOptions, **headers: str) -> int:
    """The status of a GET with these headers; 299 if it got through."""
    answered: list[int] = []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        answered.append(299)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answered.append(message["status"])

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "query_string": b"",
        "scheme": "http",
        "server": ("127.0.0.1", 1),
        "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
    }
    anyio.run(Gate(inside, options.rules), scope, receive, send)
    (status,) = answered
    return status


PUBLIC = HttpOptions(
    host="192.0.2.7",
    token="t",
    allowed_hosts=("Box.example", "[2001:db8::1]"),
    allowed_origins=("https://pages.example",),
)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("192.0.2.7:80", 299),
        ("box.example", 299),
        ("BOX.example:443", 299),
        ("[2001:db8::1]:80", 299),
        ("localhost", 421),
        ("127.0.0.1", 421),
        ("box.example.evil.example", 421),
    ],
)
def test_server_goes_by_its_own_name_and_those_it_was_given(host: str, status: int) -> None:
    assert status_of(PUBLIC, Host=host, Authorization="Bearer t") == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://pages.example", 299),
        ("https://box.example:8443", 299),
        ("http://pages.example", 403),
        ("https://pages.example:8443", 403),
        ("http://localhost", 403),
    ],
)
def test_pages_of_given_origins_may_call(origin: str, status: int) -> None:
    headers = {"Host": "box.example", "Authorization": "bearer t", "Origin": origin}
    assert status_of(PUBLIC, **headers) == status


def test_without_a_token_everybody_on_loopback_may_come_in() -> None:
    assert status_of(HttpOptions(), Host="localhost:1") == 299


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    assert HttpOptions(host=host).is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "box.example", "localhost.example"])
def test_anything_else_does(host: str) -> None:
    with pytest.raises(UsageError, match="needs a token"):
        HttpOptions(host=host)
    assert "secret" not in repr(HttpOptions(host=host, token="secret"))
    assert "secret" not in repr(HttpOptions(host=host, token="secret").rules)
