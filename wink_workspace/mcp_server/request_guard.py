"""Who and what gets through to the protocol over HTTP; everything else is refused here.

The checks, in order, and what each answers::

    path other than /mcp              404
    a header twice that may come once 400
    Host that is none of ours         421
    Origin that is not allowed        403
    no token, or a wrong one          401
    method other than POST, GET, DELETE 405
    content that is not JSON          415
    a body over the limit             413, before it is read if it says so
    a body that does not come         408
    a body that ends too early        nothing: who sent it has gone
    a message of too many values      413
    a version without sessions        400, with the versions that have them
    an id that is in use              400

Rule 1: nothing behind the gate sees a request before all of its body is here.
Rule 2: what a request holds is never logged, and a token is compared in constant time.

Starlette's ``TrustedHostMiddleware`` decides whether a ``Host`` or an ``Origin`` names one of our
hosts; its answer, plain text with status 400, is replaced. docs/design/045 says for each other
check what the middleware of Starlette and of the MCP library does not do; tests hold it.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, cast

import anyio
from mcp.server.streamable_http import GET_STREAM_KEY
from mcp_types import INVALID_REQUEST, UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .server import RequestIds

__all__ = ["PATH", "RequestGuard", "RequestRules"]

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
"""Each begins at most one value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRules:
    """Who may come in, and with how much.

    Attributes:
        token: What ``Authorization: Bearer`` has to carry; ``None`` lets everybody in.
        hosts: The names that ``Host`` may hold, without a port; an IPv6 address in brackets.
        origins: What ``Origin`` may hold, where there is one; of a name in *hosts* any port may
            be the origin, as a page of the same machine is.
        body_bytes: The most that a body may have.
        body_values: The most JSON values that a body may have. The library looks at each of them
            before it looks at another request.
        body_timeout_s: How long all of a body may take to come.
    """

    token: str | None = field(default=None, repr=False)
    hosts: frozenset[str]
    origins: frozenset[str] = frozenset()
    body_bytes: int = 4 * 1_048_576
    body_values: int = 50_000
    body_timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An answer that lets nobody through."""

    status: HTTPStatus
    message: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    code: int = INVALID_REQUEST
    data: object = None


class RequestGuard:
    """An ASGI application in front of *inside*.

    Args:
        inside: The protocol.
        rules: Who may come in.
        ids: The ids of requests that are not answered yet. What handles a request frees its id.
    """

    def __init__(self, inside: ASGIApp, rules: RequestRules, ids: RequestIds) -> None:
        self._inside = inside
        self._rules = rules
        self._ids = ids
        self._hosts = TrustedHostMiddleware(_accept, tuple(rules.hosts), www_redirect=False)
        self._streams: set[anyio.CancelScope] = set()

    def close_streams(self) -> None:
        """End the streams that clients keep open to hear of us; they would go on for ever."""
        for scope in tuple(self._streams):
            scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass on what is none."""
        if scope["type"] == "lifespan":
            await self._inside(scope, receive, send)
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
                    await self._inside(_without_last_event(scope), receive, send)
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
            limit = f"a message may have {self._rules.body_values:,} values"
            refusal = _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, limit)
            await _refuse(refusal, None)(scope, receive, send)
            return
        number = _id_of(body)
        refusal = _unserved_version(request)
        if refusal is not None:
            await _refuse(refusal, number)(scope, receive, send)
            return
        await self._pass_on(body, number, request, send)

    async def _pass_on(
        self, body: bytes, number: str | int | None, request: Request, send: Send
    ) -> None:
        """Hand a message on, unless its id is in use; one outside of a session begins one."""
        receive = _replaying(body, request.receive)
        session = request.headers.get("mcp-session-id")
        if number is None or session is None:
            await self._inside(request.scope, receive, send)
            return
        if number == GET_STREAM_KEY or not self._ids.take(session, number):
            refusal = _Refusal(
                HTTPStatus.BAD_REQUEST,
                f"the id {number!r} belongs to a request that is not answered yet; use another",
            )
            # Without the id, or it would be the answer of that other request
            await _refuse(refusal, None)(request.scope, receive, send)
            return
        statuses: list[int] = []

        async def note_status(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        try:
            await self._inside(request.scope, receive, note_status)
        finally:
            if statuses != [HTTPStatus.OK]:  # no handler has it, and so none will free it
                self._ids.free(session, number)

    async def _refusal(self, request: Request) -> _Refusal | None:
        """What is wrong with a request as its headers show it."""
        if request.scope["path"] != PATH:
            return _Refusal(HTTPStatus.NOT_FOUND, f"there is only {PATH}")
        headers = request.headers
        twice = next((name for name in _SINGLE_HEADERS if len(headers.getlist(name)) > 1), None)
        if twice is not None:
            return _Refusal(HTTPStatus.BAD_REQUEST, f"{twice} comes more than once")
        if not await self._is_ours(headers.get("host", "")):
            return _Refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this server does not go by that name; allow it with --allow-host",
            )
        if not await self._is_allowed_origin(headers.get("origin")):
            return _Refusal(
                HTTPStatus.FORBIDDEN, "pages of that origin may not call; see --allow-origin"
            )
        if not self._is_authorized(headers.get("authorization", "")):
            return _Refusal(
                HTTPStatus.UNAUTHORIZED,
                "send the token as Authorization: Bearer",
                {"WWW-Authenticate": "Bearer"},
            )
        if request.method not in _METHODS:
            allowed = {"Allow": ", ".join(_METHODS)}
            return _Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "no such method here", allowed)
        if request.method == "POST" and not _is_json(headers.get("content-type", "")):
            return _Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send application/json")
        return None

    async def _is_allowed_origin(self, origin: str | None) -> bool:
        if origin is None or origin in self._rules.origins:
            return True
        scheme, _, host = origin.partition("://")
        return scheme in ("http", "https") and await self._is_ours(host)

    async def _is_ours(self, host: str) -> bool:
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
        """All of the body; ``None`` if who sent it has gone."""
        too_large = _Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"a request may have {self._rules.body_bytes:,} bytes",
            {"Connection": "close"},
        )
        declared = request.headers.get("content-length", "0")
        if not (declared.isascii() and declared.isdigit()):
            return _Refusal(HTTPStatus.BAD_REQUEST, "the content length is not a number")
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
            HTTPStatus.REQUEST_TIMEOUT, "the request took too long", {"Connection": "close"}
        )


def _unserved_version(request: Request) -> _Refusal | None:
    """Refuse versions in which requests stand alone: a workspace belongs to a session."""
    version = request.headers.get("mcp-protocol-version")
    if version is None or version in HANDSHAKE_PROTOCOL_VERSIONS:
        return None
    return _Refusal(
        HTTPStatus.BAD_REQUEST,
        "this server needs sessions; begin one with initialize",
        code=UNSUPPORTED_PROTOCOL_VERSION,
        data={"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": version},
    )


def _refuse(refusal: _Refusal, number: object) -> JSONResponse:
    error: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
    if refusal.data is not None:
        error["data"] = refusal.data
    return JSONResponse(
        {"jsonrpc": "2.0", "id": number, "error": error},
        status_code=refusal.status,
        headers=refusal.headers,
    )


def _replaying(body: bytes, receive: Receive) -> Receive:
    """*receive* as it would have been: first the body, then whatever comes after it."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


async def _accept(scope: Scope, receive: Receive, send: Send) -> None:
    """What stands behind Starlette's check, which calls it for a host that is ours."""
    del receive, send
    scope["accepted"] = True


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


async def _discard(message: Message) -> None:
    del message


def _without_last_event(scope: Scope) -> Scope:
    """*scope* without the wish to resume a stream: we keep no events, and a new one begins.

    The library leaves a request unanswered that asks for what it does not keep.
    """
    headers = [each for each in scope["headers"] if each[0].lower() != b"last-event-id"]
    return {**scope, "headers": headers}


def _n_values(body: bytes, enough: int) -> int:
    """At least how many JSON values are in *body*; exact only above *enough*."""
    n_values = sum(map(body.count, _SEPARATORS))
    return (
        n_values if n_values <= enough else sum(map(_JSON_STRING.sub(b"", body).count, _SEPARATORS))
    )


def _id_of(body: bytes) -> str | int | None:
    """The id of the request in *body*, if it is one that can be read."""
    try:
        message: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or "method" not in message:
        return None
    number = cast("dict[str, Any]", message).get("id")
    return number if isinstance(number, str | int) and not isinstance(number, bool) else None


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"
