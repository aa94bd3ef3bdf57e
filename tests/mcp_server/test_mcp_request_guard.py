"""Which requests the guard accepts; the application behind it only notes that it was called."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest
from mcp.server import transport_security as sdk
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.middleware import body_limit as starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request

from wink_workspace.errors import UsageError
from wink_workspace.mcp_server import HttpOptions
from wink_workspace.mcp_server.request_guard import RequestGuard
from wink_workspace.mcp_server.request_handlers import RequestIds


def status_of(options: HttpOptions, **headers: str) -> int:
    """The status of a GET with these headers; 299 if the guard accepted it."""
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
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in headers.items()],
    }
    anyio.run(RequestGuard(inside, options.rules, RequestIds()), scope, receive, send)
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
        ("[2001:db8::1].evil.example", 421),
        ("[2001:db8::1]x:80", 421),
        ("[2001:db8::1", 421),
        ("2001:db8::1", 421),
        ("box.example:80:80", 421),
        ("box.example:evil.example", 421),
        ("box.example@evil.example", 421),
        ("box.example/", 421),
        ("box.example ", 421),
        ("[box.example]", 421),
        ("\u00e9", 421),
        ("", 421),
    ],
)
def test_server_accepts_its_own_host_and_the_allowed_ones(host: str, status: int) -> None:
    assert status_of(PUBLIC, Host=host, Authorization="Bearer t") == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://pages.example", 299),
        ("https://box.example:8443", 299),
        ("http://pages.example", 403),
        ("https://pages.example:8443", 403),
        ("http://localhost", 403),
        ("http://[2001:db8::1]:80", 299),
        ("http://[2001:db8::1].evil.example", 403),
        ("http://[2001:db8::1", 403),
        ("http://[", 403),
        ("http://]", 403),
        ("http://[v1.x]", 403),
        ("http://box.example:x", 403),
        ("http://box.example/", 403),
        ("http://box.example#", 403),
        ("ftp://box.example", 403),
        ("http:box.example", 403),
        ("box.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_allowed_origins_are_accepted(origin: str, status: int) -> None:
    headers = {"Host": "box.example", "Authorization": "bearer t", "Origin": origin}
    assert status_of(PUBLIC, **headers) == status


LOCAL = HttpOptions()
SDK = TransportSecuritySettings(
    allowed_hosts=["localhost:*"], allowed_origins=["http://localhost:*"]
)


@pytest.mark.parametrize(
    ("headers", "of_sdk", "ours"),
    [
        ({"Host": "LOCALHOST:1"}, 421, 299),
        ({"Host": "localhost:evil.example"}, 299, 421),
        ({"Host": "localhost:1", "Origin": ""}, 299, 403),
        ({"Host": "localhost:1", "Origin": "http://localhost:evil.example"}, 299, 403),
    ],
)
def test_checks_of_the_library_differ_from_those_of_the_guard(
    headers: dict[str, str], of_sdk: int, ours: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As long as this holds, the guard checks hosts and origins itself."""
    assert status_of(LOCAL, **headers) == ours
    assert caplog.text == ""

    async def library() -> int:
        raw = [(k.lower().encode(), v.encode()) for k, v in headers.items()]
        request = Request({"type": "http", "method": "GET", "headers": raw})
        refusal = await TransportSecurityMiddleware(SDK).validate_request(request)
        return 299 if refusal is None else refusal.status_code

    assert anyio.run(library) == of_sdk
    assert (headers["Host"] in caplog.text) == (of_sdk != 299)


LIMITS = {
    "starlette": lambda inside: starlette.RequestBodyLimitMiddleware(inside, 10),
    "sdk": lambda inside: sdk.RequestBodyLimitMiddleware(inside, 10),
    "ours": lambda inside: RequestGuard(
        inside, HttpOptions(body_bytes=10, body_timeout_s=0).rules, RequestIds()
    ),
}


async def answered_by(app: Any, *, waits: bool, **headers: str) -> list[Any]:
    """The response of *app* to a POST whose body never arrives.

    With *waits* the test ends it once it only waits; otherwise it must end by itself.
    """
    given = {"host": "localhost", "content-type": "application/json", **headers}
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": raw}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app, scope, anyio.sleep_forever, send)
        if waits:
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    return sent


async def reads_it_all(scope: Any, receive: Any, send: Any) -> None:
    await Request(scope, receive).body()


@pytest.mark.parametrize("limit", ["starlette", "sdk"])
def test_body_limits_of_libraries_have_no_timeout_and_the_guard_has_one(
    limit: str,
) -> None:
    """As long as this holds, the guard limits bodies itself."""
    assert anyio.run(partial(answered_by, LIMITS[limit](reads_it_all), waits=True)) == []
    start, *_ = anyio.run(partial(answered_by, LIMITS["ours"](reads_it_all), waits=False))
    assert start["status"] == 408


@pytest.mark.parametrize(
    ("limit", "closes"), [("starlette", False), ("sdk", False), ("ours", True)]
)
def test_only_the_guard_closes_the_connection_of_a_too_large_body(limit: str, closes: bool) -> None:
    """Otherwise the server reads and discards the rest, however long it is."""
    app = LIMITS[limit](reads_it_all)
    start, *_ = anyio.run(partial(answered_by, app, waits=False, content_length="11"))
    assert start["status"] == 413
    assert ((b"connection", b"close") in start["headers"]) == closes


def test_cors_middleware_accepts_a_foreign_origin_and_the_guard_refuses_it() -> None:
    """CORS decides only whether the page may read the answer, after the call was made."""
    headers = {"Host": "box.example", "Authorization": "Bearer t", "Origin": "http://evil.example"}
    inside: list[str] = []

    async def note(scope: Any, receive: Any, send: Any) -> None:
        inside.append("called")

    cors = CORSMiddleware(note, allow_origins=["https://pages.example"])
    anyio.run(partial(answered_by, cors, waits=False, origin=headers["Origin"]))
    assert inside == ["called"]
    assert status_of(PUBLIC, **headers) == 403


@pytest.mark.parametrize("name", ["*", "*.example", "https://box.example", "box:80", "a b", ""])
def test_allowed_host_that_is_not_a_host_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a host name"):
        HttpOptions(allowed_hosts=(name,))


def test_without_a_token_every_client_on_loopback_is_accepted() -> None:
    assert status_of(HttpOptions(), Host="localhost:1") == 299


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_server_on_loopback_needs_no_token(host: str) -> None:
    assert HttpOptions(host=host).is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "box.example", "localhost.example"])
def test_server_on_another_address_needs_a_token(host: str) -> None:
    with pytest.raises(UsageError, match="needs a token"):
        HttpOptions(host=host)
    assert "secret" not in repr(HttpOptions(host=host, token="secret"))
    assert "secret" not in repr(HttpOptions(host=host, token="secret").rules)
