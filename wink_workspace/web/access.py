"""Who may see the pages: the browser that opened the link, and no other page or program.

Rule 1: ``Host`` is the address and port of the server, so that another name that leads to this
address reaches nothing. An ``Origin``, where a browser sends one, is the server's own.
Rule 2: the link has a token that works once and for one minute. It gives the browser a cookie that
scripts cannot read, and that no request from another site carries.
Rule 3: only GET and HEAD are answered, and a request has no body.
Rule 4: every answer forbids scripts and requests other than the server's own, frames, and storage
in caches.
"""

from __future__ import annotations

import hmac
import secrets
from http import HTTPStatus
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wink_workspace.clock import Clock

__all__ = ["AccessGuard"]

TOKEN_LIFETIME_S: Final = 60.0
_COOKIE: Final = "wink-workspace"
_SINGLE_HEADERS: Final = ("host", "origin", "content-length")
_SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class AccessGuard:
    """An ASGI application that passes accepted requests on to *app*.

    Args:
        app: The pages.
        clock: The time, for the token.

    Attributes:
        address: ``HOST:PORT`` of the server; requests are refused before it is set.
    """

    def __init__(self, app: ASGIApp, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._session = secrets.token_urlsafe(32)
        self._token = secrets.token_urlsafe(32)
        self._token_until_s = 0.0
        self.address = ""

    def link(self) -> str:
        """A link that works once and for one minute; an earlier one no longer works."""
        self._token = secrets.token_urlsafe(32)
        self._token_until_s = self._clock.monotonic_s() + TOKEN_LIFETIME_S
        return f"http://{self.address}/?token={self._token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or pass on one request; pass on lifespan messages."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._answer(Request(scope))
        await (answer or self._app)(scope, receive, send_protected)

    def _answer(self, request: Request) -> Response | None:
        """The answer to a request that is not passed on."""
        headers = request.headers
        if any(len(headers.getlist(name)) > 1 for name in _SINGLE_HEADERS):
            return _refusal(HTTPStatus.BAD_REQUEST, "a header is given more than once")
        if not self.address or headers.get("host", "") != self.address:
            return _refusal(HTTPStatus.MISDIRECTED_REQUEST, "the Host header names another server")
        if headers.get("origin") not in (None, f"http://{self.address}"):
            return _refusal(HTTPStatus.FORBIDDEN, "requests from other pages are refused")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _refusal(HTTPStatus.FORBIDDEN, "requests from other pages are refused")
        if request.method not in ("GET", "HEAD"):
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, "use GET", Allow="GET, HEAD")
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request has no body here")
        if request.url.path == "/" and "token" in request.query_params:
            return self._signed_in(request.query_params["token"])
        if not _equal(request.cookies.get(_COOKIE, ""), self._session):
            return _refusal(
                HTTPStatus.UNAUTHORIZED,
                "Open the link that `wink-workspace ui` printed. It works once and for one minute; "
                "press Enter there for a new one.",
            )
        return None

    def _signed_in(self, token: str) -> Response:
        is_valid = self._clock.monotonic_s() < self._token_until_s
        if not (_equal(token, self._token) and is_valid):
            return _refusal(
                HTTPStatus.UNAUTHORIZED,
                "This link was used before, or is older than one minute. Press Enter where "
                "`wink-workspace ui` runs for a new one.",
            )
        self._token_until_s = 0.0
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        answer.set_cookie(_COOKIE, self._session, path="/", httponly=True, samesite="strict")
        return answer


def _equal(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _refusal(status: HTTPStatus, message: str, **headers: str) -> Response:
    return PlainTextResponse(message + "\n", status, headers=headers)
