"""Check HTTP requests before the MCP library sees them, and refuse the bad ones.

The checks, in order, and the status of each refusal::

    path other than /mcp              404
    a single-valued header twice      400
    Host that is not one of ours      421
    Origin that is not allowed        403
    no token, or a wrong one          401
    method other than POST, GET, DELETE 405
    content type other than JSON      415
    a body over the limit             413, before it is read if Content-Length shows it
    a body that does not arrive       408
    a body that ends too early        no answer: the client disconnected
    a message with too many values    413
    a value that the library cannot parse 400, with the id of the request
    an id that is in use              400

Rule 1: the application behind the guard sees a request only after all of its body arrived.
Rule 2: the content of a request is never logged, and tokens are compared in constant time.

Starlette's ``TrustedHostMiddleware`` decides whether a ``Host`` or an ``Origin`` names one of our
hosts; its answer, plain text with status 400, is replaced. docs/design/023 says why the other
middleware of Starlette and of the MCP library is not used; tests show what it does not do.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import anyio
from mcp.server.streamable_http import GET_STREAM_KEY
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, JSONRPCRequest
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .request_handlers import UNREADABLE_VALUE, RequestIds, request_id_of, unparsed_text

PATH: Final = "/mcp"

_METHODS: Final = ("POST", "GET", "DELETE")
_SINGLE_HEADERS: Final = (
    "authorization",
    "content-length",
    "content-type",
    "host",
    "mcp-protocol-version",
    "mcp-session-id",
    "origin",
)
_JSON_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_SEPARATORS: Final = (b",", b"[", b"{")
"""Each comes before at most one value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRules:
    """Which requests are accepted.

    Attributes:
        token: The token that ``Authorization: Bearer`` must have; ``None`` accepts every client.
        hosts: The accepted names in ``Host``, without a port; an IPv6 address in brackets.
        origins: The accepted values of ``Origin``. Names in *hosts* are accepted as well, with
            any port; so is a request without ``Origin``.
        body_bytes: The most bytes that a body may have.
        body_values: The most JSON values that a body may have. The library visits each of them
            before it serves another request.
        body_timeout_s: How long all of a body may take to arrive.
    """

    token: str | None = field(default=None, repr=False)
    hosts: frozenset[str]
    origins: frozenset[str] = frozenset()
    body_bytes: int = 4 * 1_048_576
    body_values: int = 50_000
    body_timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The answer to a request that is refused."""

    status: HTTPStatus
    message: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    code: int = INVALID_REQUEST
    data: object = None


class RequestGuard:
    """An ASGI application that passes accepted requests on to *app*.

    Args:
        app: The application of the MCP library.
        rules: Which requests are accepted.
        ids: The ids of unanswered requests. The handler of a request frees its id.
    """

    def __init__(self, app: ASGIApp, rules: RequestRules, ids: RequestIds) -> None:
        self._app = app
        self._rules = rules
        self._ids = ids
        self._hosts = TrustedHostMiddleware(_accept, tuple(rules.hosts), www_redirect=False)
        self._streams: set[anyio.CancelScope] = set()

    def close_streams(self) -> None:
        """End the GET streams of clients, which would never end by themselves."""
        for scope in tuple(self._streams):
            scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or pass on one request; pass on lifespan messages."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        refusal = await self._refusal(request)
        if refusal is not None:
            await _refuse(refusal, None)(scope, receive, send)
        elif request.method == "POST":
            await self._post(request, scope, receive, send)
        else:
            with anyio.CancelScope() as stream:
                self._streams.add(stream)
                try:
                    await self._app(_without_last_event(scope), receive, send)
                finally:
                    self._streams.discard(stream)

    async def _post(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        body = await self._body(request)
        if body is None:
            return
        if isinstance(body, _Refusal):
            await _refuse(body, None)(scope, receive, send)
            return
        if _n_values(body, self._rules.body_values) > self._rules.body_values:
            limit = f"a message may have at most {self._rules.body_values:,} JSON values"
            refusal = _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, limit)
            await _refuse(refusal, None)(scope, receive, send)
            return
        request_id = request_id_of(body)
        refusal = _unreadable_value(body, request_id)
        if refusal is not None:
            await _refuse(refusal, request_id)(scope, receive, send)
            return
        await self._pass_on(body, request_id, request, send)

    async def _pass_on(
        self, body: bytes, request_id: str | int | None, request: Request, send: Send
    ) -> None:
        """Pass a message on unless its id is in use; one without a session id starts a session."""
        receive = _replaying(body, request.receive)
        session = request.headers.get("mcp-session-id")
        if request_id is None or session is None:
            await self._app(request.scope, receive, send)
            return
        if request_id == GET_STREAM_KEY or not self._ids.take(session, request_id):
            refusal = _Refusal(
                HTTPStatus.BAD_REQUEST,
                f"the id {request_id!r} belongs to a request that is not answered yet; use another",
            )
            # Without the id: the client would take this for the answer to that other request
            await _refuse(refusal, None)(request.scope, receive, send)
            return
        statuses: list[int] = []

        async def note_status(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        try:
            await self._app(request.scope, receive, note_status)
        finally:
            if statuses != [HTTPStatus.OK]:  # no handler got the request, so none frees the id
                self._ids.free(session, request_id)

    async def _refusal(self, request: Request) -> _Refusal | None:
        """Why the headers of a request make it unacceptable, or ``None``."""
        if request.scope["path"] != PATH:
            return _Refusal(HTTPStatus.NOT_FOUND, f"unknown path; this server serves only {PATH}")
        headers = request.headers
        repeated = next((name for name in _SINGLE_HEADERS if len(headers.getlist(name)) > 1), None)
        if repeated is not None:
            return _Refusal(
                HTTPStatus.BAD_REQUEST, f"the header {repeated} is given more than once"
            )
        if not await self._is_own_host(headers.get("host", "")):
            return _Refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                "the Host header names another server; allow that name with --allow-host",
            )
        if not await self._is_allowed_origin(headers.get("origin")):
            return _Refusal(
                HTTPStatus.FORBIDDEN,
                "requests from this Origin are refused; allow it with --allow-origin",
            )
        if not self._is_authorized(headers.get("authorization", "")):
            return _Refusal(
                HTTPStatus.UNAUTHORIZED,
                "the token is missing or wrong; send it as Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )
        if request.method not in _METHODS:
            allowed = {"Allow": ", ".join(_METHODS)}
            return _Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "use POST, GET or DELETE", allowed)
        if request.method == "POST" and not _is_json(headers.get("content-type", "")):
            return _Refusal(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send Content-Type: application/json"
            )
        return None

    async def _is_allowed_origin(self, origin: str | None) -> bool:
        if origin is None or origin in self._rules.origins:
            return True
        scheme, _, host = origin.partition("://")
        return scheme in ("http", "https") and await self._is_own_host(host)

    async def _is_own_host(self, host: str) -> bool:
        """Whether *host*, with or without a port, is one of our names."""
        scope: Scope = {"type": "http", "headers": [(b"host", host.encode("latin-1"))]}
        await self._hosts(scope, _nothing, _discard)
        return "accepted" in scope

    def _is_authorized(self, header: str) -> bool:
        token = self._rules.token
        if token is None:
            return True
        scheme, _, given = header.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode(), token.encode()
        )

    async def _body(self, request: Request) -> bytes | _Refusal | None:
        """All of the body; ``None`` if the client disconnected."""
        too_large = _Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"a request may have at most {self._rules.body_bytes:,} bytes",
            {"Connection": "close"},
        )
        declared = request.headers.get("content-length", "0")
        if not (declared.isascii() and declared.isdigit()):
            return _Refusal(HTTPStatus.BAD_REQUEST, "Content-Length is not a number")
        if len(declared) > 18 or int(declared) > self._rules.body_bytes:
            return too_large
        body = bytearray()
        with anyio.move_on_after(self._rules.body_timeout_s):
            while True:
                message = await request.receive()
                if message["type"] != "http.request":
                    return None
                body += message.get("body", b"")
                if len(body) > self._rules.body_bytes:
                    return too_large
                if not message.get("more_body", False):
                    return bytes(body)
        return _Refusal(
            HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time", {"Connection": "close"}
        )


def _unreadable_value(body: bytes, request_id: object) -> _Refusal | None:
    """Refuse a request that the library cannot parse although it is valid JSON."""
    try:
        if request_id is not None:
            JSONRPCRequest.model_validate_json(body, by_name=False)
    except ValueError as error:
        if unparsed_text(error):
            return _Refusal(HTTPStatus.BAD_REQUEST, UNREADABLE_VALUE, code=INVALID_PARAMS)
    return None


def _refuse(refusal: _Refusal, request_id: object) -> JSONResponse:
    error: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
    if refusal.data is not None:
        error["data"] = refusal.data
    return JSONResponse(
        {"jsonrpc": "2.0", "id": request_id, "error": error},
        status_code=refusal.status,
        headers=refusal.headers,
    )


def _replaying(body: bytes, receive: Receive) -> Receive:
    """A *receive* that gives the body again, and then the messages after it."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


async def _accept(scope: Scope, receive: Receive, send: Send) -> None:
    """Mark *scope*; Starlette's middleware calls this application for an accepted host."""
    del receive, send
    scope["accepted"] = True


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


async def _discard(message: Message) -> None:
    del message


def _without_last_event(scope: Scope) -> Scope:
    """*scope* without ``Last-Event-ID``, so that a new stream begins: the server keeps no events.

    The library does not answer a request for events that it does not have.
    """
    headers = [each for each in scope["headers"] if each[0].lower() != b"last-event-id"]
    return {**scope, "headers": headers}


def _n_values(body: bytes, enough: int) -> int:
    """An upper bound of the JSON values in *body*; it ignores strings only if above *enough*."""
    n_values = sum(map(body.count, _SEPARATORS))
    return (
        n_values if n_values <= enough else sum(map(_JSON_STRING.sub(b"", body).count, _SEPARATORS))
    )


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"
