"""What a client inside asks for, and whether it may have it. It does no I/O.

h11 parses the heads. Before, this module refuses every head that two parsers could read
differently: folded lines, bare line feeds, NUL, both Content-Length and Transfer-Encoding. Nothing
of the client's bytes is passed on as it is: requests to the outside are written from their parts.

One connection has one request. What a client sends after it is discarded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote_to_bytes

import h11

from wink_workspace.errors import UsageError, WinkError
from wink_workspace.sandbox.network import INTERNAL_DOMAIN, HostPort, normal_host

from .routes import Origin, Route, RouteTable

LIST_HOST: Final = f"list.{INTERNAL_DOMAIN}"
_HEAD_END: Final = b"\r\n\r\n"
_PATH: Final = re.compile(r"/[!-~]*")
_HOST_PORT: Final = re.compile(r"([^:/@\[\]]+)(?::([0-9]{1,5}))?")
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_MOST_TARGET_CHARS: Final = 8_192
_MOST_PATH_SHOWN: Final = 512
_FORWARDED: Final = frozenset(
    (
        *("accept", "cache-control", "if-match", "if-modified-since", "if-none-match"),
        *("if-range", "if-unmodified-since", "range"),
    )
)
"""What a registry gets of the client's headers."""
_NOT_FORWARDED: Final = frozenset(
    (
        *("accept-encoding", "connection", "content-length", "cookie", "expect", "forwarded"),
        *("host", "http2-settings", "if-range", "keep-alive", "proxy-authenticate"),
        *("proxy-authorization", "proxy-connection", "range", "te", "trailer"),
        *("transfer-encoding", "upgrade", "via"),
        "x-forwarded-for",
    )
)
"""What a service with a secret does not get of the client's headers.

With ranges, a client could ask for the secret in pieces that are not recognised.
"""


class RequestRefusedError(WinkError):
    """A request that gets an error instead of being made."""

    code = "network-refused"

    def __init__(self, status: int, reason: str, *, hint: str = "") -> None:
        super().__init__(reason, hint=hint)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """A parsed request: for ``CONNECT`` with a port, otherwise with a path.

    ``host`` is in the normal form, or as it was given if that is not a name. ``headers`` are names,
    in lower case, and values, in the order of the request.
    """

    method: str
    host: str
    port: int
    path: str = ""
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def shown_host(self) -> str:
        """The host for the record, with its port if that is not the usual one."""
        return self.host if self.port == 80 else f"{self.host}:{self.port}"

    @property
    def shown_path(self) -> str:
        """The path for the record."""
        return self.path[:_MOST_PATH_SHOWN]

    @property
    def target(self) -> str:
        """The path with the query."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @classmethod
    def of(cls, parsed: h11.Request) -> Request:
        """Interpret a parsed head.

        Raises:
            RequestRefusedError: If it is ambiguous, or no request that a proxy can answer.
        """
        headers = tuple(
            (name.decode("ascii"), value.decode("latin-1")) for name, value in parsed.headers
        )
        if parsed.http_version not in (b"1.0", b"1.1"):
            raise RequestRefusedError(505, "only HTTP/1.1 is supported")
        _check_framing([name for name, _ in headers], dict(headers))
        method, target = parsed.method.decode("ascii"), parsed.target.decode("latin-1")
        hosts = [value.strip() for name, value in headers if name == "host"]
        if len(target) > _MOST_TARGET_CHARS:
            raise RequestRefusedError(414, "the URL is too long")
        if method == "CONNECT":
            host, port = _authority(target, None)
            if hosts and hosts != [target] and _authority(hosts[0], 80)[0] != host:
                raise RequestRefusedError(400, "the header Host names another host")
            return cls(method, host, port, headers=headers)
        if method not in _METHODS:
            raise RequestRefusedError(405, f"the method {method[:20]} is not supported")
        if target.lower().startswith("http://"):
            authority, slash, rest = target[7:].partition("/")
            host, port = _authority(authority, 80)
            if hosts and _authority(hosts[0], 80) != (host, port):
                raise RequestRefusedError(400, "the header Host names another host")
            target = f"/{rest}" if slash else "/"
        elif target.startswith("/"):
            if len(hosts) != 1:
                raise RequestRefusedError(400, "the request names no host")
            host, port = _authority(hosts[0], 80)
        elif target.lower().startswith("https://"):
            raise RequestRefusedError(
                400, "a URL of https must be requested through CONNECT", hint=""
            )
        else:
            raise RequestRefusedError(400, "the request has no URL of HTTP")
        path, _, query = target.partition("?")
        _check_path(path, query)
        return cls(method, host, port, path, query, headers)


@dataclass(frozen=True, slots=True)
class Fetch:
    """The request leads through a route; ``target`` is the URL's path and query outside.

    ``is_shared`` says whether the answer may be the same for others: it is a whole file or index of
    a registry with TLS.
    """

    route: Route
    target: str
    is_shared: bool = False

    @property
    def url(self) -> str:
        """The URL outside."""
        return f"{self.route.origin.url}{self.target}"


@dataclass(frozen=True, slots=True)
class Tunnel:
    """The request leads to a listed host."""

    origin: Origin


@dataclass(frozen=True, slots=True)
class ShowList:
    """The request asks for the active list."""


def head_length(data: bytes | bytearray, most_bytes: int) -> int:
    """The length of the head at the start of *data*; 0 if it is not complete yet.

    Raises:
        RequestRefusedError: If it is too long, or has bytes that parsers read differently.
    """
    end = data.find(_HEAD_END)
    if (end if end >= 0 else len(data)) > most_bytes:
        raise RequestRefusedError(431, "the head of the request is too long")
    head = bytes(data if end < 0 else data[: end + 2])
    if re.search(rb"[\0]|\r[^\n]|(?<!\r)\n|\n[ \t]|^[ \t\r\n]", head):
        raise RequestRefusedError(400, "the head of the request is malformed")
    return 0 if end < 0 else end + len(_HEAD_END)


def _check_framing(names: list[str], values: dict[str, str]) -> None:
    for name in ("content-length", "transfer-encoding", "host"):
        if names.count(name) > 1:
            raise RequestRefusedError(400, f"the header {name} is repeated")
    if "content-length" in names and "transfer-encoding" in names:
        raise RequestRefusedError(400, "the request has two lengths")
    if values.get("transfer-encoding", "chunked").strip().lower() != "chunked":
        raise RequestRefusedError(501, "the transfer encoding is not supported")


def _authority(text: str, default_port: int | None) -> tuple[str, int]:
    """Host and port; the host is in the normal form, or ends the request."""
    found = _HOST_PORT.fullmatch(text)
    port = default_port if found is None or found[2] is None else int(found[2])
    if found is None or port is None or not 0 < port < 65_536:
        raise RequestRefusedError(403, f"{text[:200]!r} is not a host name with a port")
    try:
        return normal_host(found[1]), port
    except UsageError as error:
        raise RequestRefusedError(403, error.message[:300], hint=error.hint) from error


def _check_path(path: str, query: str) -> None:
    """Refuse paths that could leave a prefix, also after they were decoded once."""
    if not _PATH.fullmatch(path) or "#" in path or not _PATH.fullmatch(f"/{query}"):
        raise RequestRefusedError(400, "the URL has characters that must be encoded")
    decoded = unquote_to_bytes(path)
    segments = decoded.replace(b"\\", b"/").split(b"/")
    if path.startswith("//") or {b".", b".."} & set(segments) or b"\\" in decoded:
        raise RequestRefusedError(400, "the path of the URL is not in its shortest form")
    if any(byte < 0x20 or byte == 0x7F for byte in decoded):
        raise RequestRefusedError(400, "the path of the URL has control characters")


def decide(request: Request, routes: RouteTable) -> Fetch | Tunnel | ShowList:
    """What to do about a request.

    Raises:
        RequestRefusedError: If the list does not permit it.
    """
    if request.method == "CONNECT":
        origin = routes.tunnel(request.host, request.port)
        if origin is None:
            raise _unlisted(HostPort(request.host, request.port), routes)
        return Tunnel(origin)
    if request.host == LIST_HOST and request.method in ("GET", "HEAD"):
        return ShowList()
    route = routes.find(request.host, request.path)
    if route is None:
        if routes.has_host(request.host):
            raise RequestRefusedError(
                403, f"{request.host} has nothing at {request.shown_path[:80]}"
            )
        raise _unlisted(HostPort(request.host, request.port), routes)
    if route.is_read_only:
        if request.method not in ("GET", "HEAD"):
            raise RequestRefusedError(405, f"the registry {route.name} can only be read")
        length = dict(request.headers).get("content-length", "0").strip()
        if length != "0" or any(name == "transfer-encoding" for name, _ in request.headers):
            raise RequestRefusedError(400, f"the registry {route.name} can only be read")
        agent = dict(request.headers).get("user-agent", "")
        if route.unless_agent and agent.startswith(route.unless_agent):
            route = replace(route, replaced=())
    target = route.path_outside(request.path)
    is_whole = request.method == "GET" and all(name != "range" for name, _ in request.headers)
    is_shared = is_whole and route.is_read_only and route.origin.scheme == "https"
    return Fetch(route, f"{target}?{request.query}" if request.query else target, is_shared)


def _unlisted(asked: HostPort, routes: RouteTable) -> RequestRefusedError:
    listed = ", ".join(routes.rules.lines()) or "nothing"
    if asked.port == 80 and routes.tunnel(asked.host, 443) is not None:
        return RequestRefusedError(
            403, f"{asked.host} can be reached over TLS only", hint="Use https."
        )
    return RequestRefusedError(
        403,
        f"{asked} is not on the network list of this sandbox",
        hint=f"Listed: {listed}. Only the user can change the list.",
    )


def request_headers(request: Request, route: Route, user_agent: str) -> list[tuple[str, str]]:
    """The headers of the request outside, without those that frame its body."""
    headers = [
        ("Host", route.origin.url.partition("//")[2]),
        ("Accept-Encoding", "identity"),
        ("Connection", "close"),
    ]
    own = route.header[0].lower() if route.header else ""
    named = {
        token.strip().lower()
        for name, value in request.headers
        if name == "connection"
        for token in value.split(",")
    }
    for name, value in request.headers:
        if route.is_read_only:
            is_kept = name in _FORWARDED
        else:
            is_kept = name not in _NOT_FORWARDED | named | {own}
        if is_kept:
            headers.append((name, value))
    if not any(name == "user-agent" for name, _ in headers):
        headers.append(("User-Agent", user_agent))
    if route.header is not None:
        headers.append(route.header)
    return headers
