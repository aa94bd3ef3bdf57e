"""Who may see the pages: the browser that opened the link, and no other page or program.

Rule 1: ``Host`` is the address and port of the server, so that another name that leads to this
address reaches nothing. An ``Origin``, where a browser sends one, is the server's own.
Rule 2: the link has a token that works once and for one minute. It gives the browser a cookie that
scripts cannot read, and that no request from another site carries. The cookie works only for
processes of the user who opened the link.
Rule 3: GET and HEAD are answered, without a body. POST is answered only by a server that may write:
with its exact ``Origin``, from this machine, with a short form that has the token of its pages.
Rule 4: every answer forbids scripts and requests other than the server's own, frames, and storage
in caches.
"""

from __future__ import annotations

import hmac
import html
import ipaddress
import secrets
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

import anyio
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wink_workspace.clock import Clock

TOKEN_LIFETIME_S: Final = 60.0
_COOKIE: Final = "wink-workspace"
_SINGLE_HEADERS: Final = ("host", "origin", "content-length", "content-type")
_FORM_TYPE: Final = "application/x-www-form-urlencoded"
_MAX_FORM_BYTES: Final = 1_048_576
_MAX_FORM_FIELDS: Final = 50_000
_FORM_TIMEOUT_S: Final = 10.0
_SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # without a referrer, browsers send forms with no origin
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class AccessGuard:
    """An ASGI application that passes accepted requests on to *app*.

    Args:
        app: The pages.
        clock: The time, for the token.
        form_token: The token that each form has; ``""`` if the server only reads. The fields of an
            accepted form are in ``scope["form"]``.
        start: The page that the link opens.

    Attributes:
        address: ``HOST:PORT`` of the server; requests are refused before it is set.
    """

    def __init__(
        self, app: ASGIApp, clock: Clock, *, form_token: str = "", start: str = "/"
    ) -> None:
        self._app = app
        self._clock = clock
        self._form_token = form_token
        self._start = start
        self._sessions: dict[str, int | None] = {}  # the user of each cookie
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
        if answer is None and scope["method"] == "POST":
            answer = await self._read_form(Request(scope, receive))
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
        opens_link = (
            request.method == "GET" and request.url.path == "/" and "token" in request.query_params
        )
        is_own = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        if not is_own and not (opens_link and headers.get("sec-fetch-mode") == "navigate"):
            return _refusal(HTTPStatus.FORBIDDEN, "requests from other pages are refused")
        if request.method == "POST" and self._form_token:
            refused = self._refused_form(request)
            if refused is not None:
                return refused
        elif request.method not in ("GET", "HEAD"):
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, "use GET", Allow="GET, HEAD")
        elif headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request has no body here")
        if opens_link:
            return self._signed_in(request, is_own=is_own)
        cookie = request.cookies.get(_COOKIE, "")
        users = [user for each, user in self._sessions.items() if _equal(cookie, each)]
        if not users or _user_of(request) not in users:
            return _refusal(
                HTTPStatus.UNAUTHORIZED,
                "Open the link that `wink-workspace ui` printed. It works once and for one minute; "
                "press Enter there for a new one.",
            )
        return None

    def _refused_form(self, request: Request) -> Response | None:
        """The answer to a form that is refused before it is read."""
        headers = request.headers
        if headers.get("origin") != f"http://{self.address}":
            return _refusal(HTTPStatus.FORBIDDEN, "requests from other pages are refused")
        if request.client is None or not _is_loopback(request.client.host):
            return _refusal(HTTPStatus.FORBIDDEN, "changes are possible from this machine only")
        if headers.get("content-type") != _FORM_TYPE:
            return _refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "only forms are accepted")
        length = headers.get("content-length", "")
        if not length.isdecimal() or len(length) > len(str(_MAX_FORM_BYTES)):
            return _refusal(HTTPStatus.LENGTH_REQUIRED, "the length of the form is not given")
        if int(length) > _MAX_FORM_BYTES or "transfer-encoding" in headers:
            return _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the form is too large")
        return None

    async def _read_form(self, request: Request) -> Response | None:
        """Read the form of *request* into its scope; the answer, if it is refused."""
        body = b""
        try:
            with anyio.fail_after(_FORM_TIMEOUT_S):
                async for piece in request.stream():
                    body += piece
                    if len(body) > _MAX_FORM_BYTES:
                        return _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too large")
            form = parse_qs(
                body.decode("ascii"),
                keep_blank_values=True,
                errors="surrogateescape",
                max_num_fields=_MAX_FORM_FIELDS,
            )
        except TimeoutError:
            return _refusal(HTTPStatus.REQUEST_TIMEOUT, "the form did not arrive in time")
        except (ValueError, ClientDisconnect):
            return _refusal(HTTPStatus.BAD_REQUEST, "the form cannot be read")
        if not _equal(form.get("token", [""])[0], self._form_token):
            return _refusal(
                HTTPStatus.FORBIDDEN, "This form is of another server. Open its page again."
            )
        request.scope["form"] = form
        return None

    def _signed_in(self, request: Request, *, is_own: bool) -> Response:
        is_valid = self._clock.monotonic_s() < self._token_until_s
        if not (_equal(request.query_params["token"], self._token) and is_valid):
            return _refusal(
                HTTPStatus.UNAUTHORIZED,
                "This link was used before, or is older than one minute. Press Enter where "
                "`wink-workspace ui` runs for a new one.",
            )
        self._token_until_s = 0.0
        session = secrets.token_urlsafe(32)
        self._sessions[session] = _user_of(request)
        answer: Response = RedirectResponse(self._start, HTTPStatus.SEE_OTHER)
        if not is_own:  # a redirect would be a request from another site, without the cookie
            page = f'<meta http-equiv="refresh" content="0; url={html.escape(self._start)}">'
            answer = HTMLResponse(page)
        answer.set_cookie(_COOKIE, session, path="/", httponly=True, samesite="strict")
        return answer


def _equal(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode())


def _user_of(request: Request) -> int | None:
    """The user of the process at the other end of a connection of this machine.

    ``None`` if the system does not list it [proc(5), ``/proc/net/tcp``].
    """
    server: tuple[str, int] | None = request.scope.get("server")
    if request.client is None or server is None:
        return None
    ends = [_as_listed(*request.client), _as_listed(*server)]
    try:
        with Path("/proc/net/tcp").open(encoding="ascii") as connections:
            for line in connections:
                fields = line.split()
                if fields[1:3] == ends:
                    return int(fields[7])
    except (OSError, ValueError, IndexError):
        pass
    return None


def _as_listed(host: str, port: int) -> str:
    try:
        number = int.from_bytes(ipaddress.IPv4Address(host).packed, sys.byteorder)
    except ValueError:
        return ""
    return f"{number:08X}:{port:04X}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _refusal(status: HTTPStatus, message: str, **headers: str) -> Response:
    return PlainTextResponse(message + "\n", status, headers=headers)
