"""The proxy: input and output of a connection, around ``proxy_requests`` and ``tls``.

A connection gets one answer, then it is closed. Each is recorded, also a refused one.

Before a tunnel is connected, three things were checked: its host and port are on the list, every
address of the host is permitted, and the client's TLS greeting names the host.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol

import h11

from wink_workspace.errors import WinkError
from wink_workspace.sandbox.network import NetworkLimits, NetworkRequest, NetworkRules

from .dialer import Dialer, DialError
from .package_cache import NO_CACHE, PackageCache
from .proxy_requests import (
    Fetch,
    Request,
    RequestRefusedError,
    Tunnel,
    decide,
    head_length,
    request_headers,
)
from .routes import Origin, Route, RouteTable
from .tls import TlsInspector, TlsRefusedError

# -------------------------------------------------------------------------------------- responses

# What a client inside gets of an answer from outside. It does no I/O.
#
# Texts in an answer are replaced: links of an index to its own host, so that clients stay on the
# proxy, and the value of a secret that a service sends back.


_DROPPED: Final = frozenset(
    (
        *("alt-svc", "connection", "keep-alive", "proxy-authenticate", "proxy-connection"),
        *("public-key-pins", "set-cookie", "set-cookie2", "strict-transport-security", "te"),
        *("trailer", "transfer-encoding", "upgrade", "www-authenticate", "clear-site-data"),
    )
)
_INDEX_TYPES: Final = ("text/html", "application/json", "application/vnd.", "application/xhtml+xml")

Headers = Sequence[tuple[str, str]]


class AnswerRefusedError(WinkError):
    """An answer that cannot be passed on."""

    code = "network-answer"


def replaces_body(route: Route, headers: Headers) -> bool:
    """Whether texts are replaced in the body of this answer.

    Raises:
        AnswerRefusedError: If they should be, but the body is compressed.
    """
    values = dict(headers)
    kind = values.get("content-type", "").lower()
    replaces = bool(route.replaced) and (route.replaces_all or kind.startswith(_INDEX_TYPES))
    if replaces and values.get("content-encoding", "identity").lower() != "identity":
        raise AnswerRefusedError("the answer is compressed, though this was not asked for")
    return replaces


def answer_headers(route: Route, headers: Headers, *, replaces: bool) -> list[tuple[str, str]]:
    """The headers for the client: without those of the connection, cookies and challenges.

    A header whose name contains a secret is left out; names are in lower case.
    """
    dropped = _DROPPED | {"content-length", "accept-ranges"} if replaces else _DROPPED
    kept: list[tuple[str, str]] = []
    for name, value in headers:
        is_secret = route.replaces_all and any(
            old.lower() in name.encode("ascii") for old, _ in route.replaced
        )
        if name not in dropped and not is_secret:
            data = value.encode("latin-1")
            for old, new in route.replaced:
                data = data.replace(old, new)
            kept.append((name, data.decode("latin-1")))
    return [*kept, ("Connection", "close")]


class Replacer:
    """Replaces texts in a stream; holds back only what may be the start of one.

    Args:
        replaced: Each text and its replacement. Where several match, the first counts.
    """

    def __init__(self, replaced: Sequence[tuple[bytes, bytes]]) -> None:
        self._new = dict(reversed(replaced))
        self._pattern = re.compile(b"|".join(re.escape(old) for old, _ in replaced))
        self._longest = max(len(old) for old, _ in replaced)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on now."""
        data = self._held + data
        done = bytearray()
        at, end = 0, self._partial(data, 0)
        for match in self._pattern.finditer(data):
            if match.start() >= end:
                break
            done += data[at : match.start()] + self._new[match[0]]
            at = match.end()
            if at > end:
                end = self._partial(data, at)
        self._held = data[end:]
        return bytes(done + data[at:end])

    def finish(self) -> bytes:
        """The rest."""
        return self._pattern.sub(lambda match: self._new[match[0]], self._held)

    def _partial(self, data: bytes, at: int) -> int:
        """Where a text may begin that ends in what follows; the end of *data* if none does."""
        for start in range(max(at, len(data) - self._longest + 1), len(data)):
            rest = data[start:]
            if any(len(rest) < len(old) and old.startswith(rest) for old in self._new):
                return start
        return len(data)


# ------------------------------------------------------------------------------------------ proxy


_USER_AGENT: Final = "wink-workspace"
_READ_BYTES: Final = 65_536
_MOST_RECORDED: Final = 200
_MOST_DISCARDED_BYTES: Final = 1_048_576
_LINGER_S: Final = 5.0
_CONNECTED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_TLS_ALERT: Final = bytes((21, 3, 3, 0, 2, 2, 112))
"""A fatal alert "unrecognized name", RFC 6066."""


_Head = tuple[h11.Connection, bytes, Request]


class Client(Protocol):
    """The connection of a program in the sandbox."""

    async def read(self) -> bytes:
        """What it sent, or ``b""`` at its end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send it *data*, as fast as it reads; raises ``ConnectionError`` if it is gone."""
        ...

    def end(self) -> None:
        """Send it no more."""
        ...

    def drop(self) -> None:
        """Close it."""
        ...


class _LimitError(WinkError):
    """A limit of the network was reached."""

    code = "network-limit"


@dataclass(slots=True)
class _Use:
    """What the present command has used."""

    n_requests: int = 0
    n_sent: int = 0
    n_received: int = 0


@dataclass(slots=True)
class _Exchange:
    """One connection with its record, and the timeout that each piece of data moves."""

    client: Client
    limits: NetworkLimits
    use: _Use
    idle: asyncio.Timeout
    request: Request | None = None
    status: int = 0
    n_sent: int = 0
    n_received: int = 0
    problem: str = ""

    async def read(self) -> bytes:
        data = await self.client.read()
        self.touch()
        return data

    async def write(self, data: bytes) -> None:
        if data:
            await self.client.write(data)
            self.touch()

    def touch(self) -> None:
        """Restart the time limit for silence."""
        if not self.idle.expired():
            self.idle.reschedule(asyncio.get_running_loop().time() + self.limits.idle_s)

    def count_sent(self, n_bytes: int) -> None:
        self.n_sent += n_bytes
        self.use.n_sent += n_bytes
        if self.use.n_sent > self.limits.sent_bytes:
            most = self.limits.sent_bytes
            raise _LimitError(f"the command has sent more than {most:,} bytes")

    def count_received(self, n_bytes: int) -> None:
        self.n_received += n_bytes
        self.use.n_received += n_bytes
        if self.use.n_received > self.limits.received_bytes:
            most = self.limits.received_bytes
            raise _LimitError(f"the command has received more than {most:,} bytes")

    def record(self) -> NetworkRequest:
        request = self.request
        return NetworkRequest(
            method="" if request is None else request.method,
            host="" if request is None else request.shown_host,
            path="" if request is None else request.shown_path,
            status=self.status,
            n_sent=self.n_sent,
            n_received=self.n_received,
            problem=self.problem,
        )


class Proxy:
    """Serves the connections of one container.

    Args:
        routes: The list that it applies.
        dialer: Opens the connections to the outside. The isolation probes replace it.
        cache: The directory for files of registries.
    """

    def __init__(self, routes: RouteTable, dialer: Dialer, cache: Path = NO_CACHE) -> None:
        self.dialer = dialer
        self._routes = routes
        self._cache = PackageCache(cache)
        self._limits = routes.rules.limits
        self._slots = asyncio.Semaphore(self._limits.connections)
        self._use = _Use()
        self._records: list[NetworkRequest] = []
        self._n_more = 0

    @property
    def rules(self) -> NetworkRules:
        """The list that it applies."""
        return self._routes.rules

    def take_records(self) -> tuple[NetworkRequest, ...]:
        """The requests since the last call of this, in the order in which they ended."""
        records, self._records = self._records, []
        if self._n_more:
            more = f"{self._n_more:,} more requests are not listed"
            records.append(NetworkRequest(method="", host="", problem=more))
        self._n_more, self._use = 0, _Use()
        return tuple(records)

    async def serve(self, client: Client) -> None:
        """Answer the one request of *client* and close it. Raises nothing but cancellation."""
        exchange = _Exchange(client, self._limits, self._use, asyncio.timeout(None))
        try:
            async with self._slots, asyncio.timeout(self._limits.longest_s):
                await self._serve(exchange)
        except ConnectionError:
            exchange.problem = exchange.problem or "the client closed the connection"
        except TimeoutError:
            exchange.problem = exchange.problem or "the connection lasted too long"
        except asyncio.CancelledError:
            exchange.problem = exchange.problem or "the command ended"
            raise
        finally:
            client.drop()
            self._append(exchange.record())

    def _append(self, record: NetworkRequest) -> None:
        if len(self._records) < _MOST_RECORDED:
            self._records.append(record)
        else:
            self._n_more += 1

    async def _serve(self, exchange: _Exchange) -> None:
        try:
            exchange.idle = asyncio.timeout(self._limits.idle_s)
            async with exchange.idle:
                await self._answer(exchange)
        except TimeoutError:
            if not exchange.idle.expired():
                raise
            exchange.problem = "the connection was silent for too long"
            await _refuse(exchange, 504, exchange.problem)
        except (RequestRefusedError, DialError) as error:
            exchange.problem = error.message
            await _refuse(exchange, error.status, error.message, error.hint)
        except _LimitError as error:
            exchange.problem = error.message
            await _refuse(exchange, 429, error.message)
        except AnswerRefusedError as error:
            exchange.problem = error.message
            await _refuse(exchange, 502, error.message)
        except h11.ProtocolError:  # its text quotes the answer, which may repeat a secret
            exchange.problem = "the request or its answer is malformed"
            await _refuse(exchange, 502, exchange.problem)
        except TlsRefusedError as error:
            exchange.problem = error.message
            await exchange.client.write(_TLS_ALERT)
        exchange.client.end()
        await _discard(exchange.client)

    async def _answer(self, exchange: _Exchange) -> None:
        """Read the request, decide, and do it."""
        self._use.n_requests += 1
        if self._use.n_requests > self._limits.requests:
            most = self._limits.requests
            raise _LimitError(f"the command has made more than {most:,} requests")
        exchange.count_sent(0)
        exchange.count_received(0)
        inside, rest, request = await self._read_head(exchange)
        outer = (request.host, request.port)
        if request.method == "CONNECT" and request.port == 80 and self._routes.has_host(outer[0]):
            await exchange.write(_CONNECTED)  # to this proxy itself; Yarn does so for plain HTTP
            inside, rest, request = await self._read_head(exchange, rest)
            if request.method == "CONNECT" or (request.host, request.port) != outer:
                raise RequestRefusedError(400, f"the tunnel leads to {outer[0]} only")
        match decide(request, self._routes):
            case Tunnel(origin):
                await self._tunnel(exchange, origin, rest)
            case Fetch() as fetch if (data := self._cache.find(fetch)) is not None:
                exchange.status = 200
                await exchange.write(_simple_answer(200, "OK", data))
            case Fetch() as fetch:
                if rest and not fetch.route.is_read_only:
                    inside.receive_data(rest)  # no bytes at all would mean the end of the stream
                await self._fetch(exchange, inside, request, fetch)
            case _:
                text = json.dumps(list(self._routes.rules.lines()))
                exchange.status = 200
                await exchange.write(_simple_answer(200, "OK", text))

    async def _read_head(self, exchange: _Exchange, first: bytes = b"") -> _Head:
        """Parse the head of a request; returns the parser, and what followed the head.

        Args:
            exchange: Its connection.
            first: What has been read of it.
        """
        data = bytearray(first)
        most = self._limits.header_bytes
        try:
            async with asyncio.timeout(self._limits.head_s):
                while not (length := head_length(data, most)):
                    piece = await exchange.read()
                    if not piece:
                        raise RequestRefusedError(400, "the client sent no whole request")
                    data += piece
        except TimeoutError:
            raise RequestRefusedError(408, "the client sent no request in time") from None
        inside = h11.Connection(h11.SERVER, max_incomplete_event_size=most)
        inside.receive_data(bytes(data[:length]))
        try:
            parsed = inside.next_event()
        except h11.RemoteProtocolError as error:
            raise RequestRefusedError(400, "the head of the request is malformed") from error
        if not isinstance(parsed, h11.Request):
            raise RequestRefusedError(400, "the head of the request is malformed")
        exchange.request = request = Request.of(parsed)
        return inside, bytes(data[length:]), request

    # Tunnels

    async def _tunnel(self, exchange: _Exchange, origin: Origin, rest: bytes) -> None:
        destination = await self.dialer.resolve(origin)
        exchange.status = 200
        await exchange.write(_CONNECTED)
        inspector = TlsInspector(origin.host)
        try:
            async with asyncio.timeout(self._limits.head_s):
                passed = inspector.from_client(rest)
                while not inspector.is_checked:
                    data = await exchange.read()
                    if not data:
                        raise TlsRefusedError("the client sent no TLS greeting")
                    passed = inspector.from_client(data)
        except TimeoutError:
            raise TlsRefusedError("the client sent no TLS greeting in time") from None
        try:
            reader, writer = await self.dialer.connect(destination, tls=False)
        except DialError as error:
            raise TlsRefusedError(error.message, hint="") from error

        async def send(data: bytes) -> None:
            if data:
                exchange.count_sent(len(data))
                writer.write(data)
                await writer.drain()

        async def up() -> None:
            await send(passed)
            while data := await exchange.read():
                await send(inspector.from_client(data))
            writer.write_eof()

        async def down() -> None:
            while data := await _read_outside(exchange, reader):
                await send(inspector.from_server(data))
                await exchange.write(data)

        try:
            await _until_answered(up(), down())
        finally:
            writer.transport.abort()  # at once: the answer is complete, or is not wanted

    # Routes

    async def _fetch(
        self, exchange: _Exchange, inside: h11.Connection, request: Request, fetch: Fetch
    ) -> None:
        origin = fetch.route.origin
        destination = await self.dialer.resolve(origin)
        reader, writer = await self.dialer.connect(destination, tls=origin.scheme == "https")
        outside = h11.Connection(h11.CLIENT, max_incomplete_event_size=self._limits.header_bytes)
        framing = [
            (name, value)
            for name, value in request.headers
            if name in ("content-length", "transfer-encoding")
        ]

        async def send(event: h11.Request | h11.Data | h11.EndOfMessage) -> None:
            data = outside.send(event)
            if data:
                exchange.count_sent(len(data))
                writer.write(data)
                await writer.drain()

        async def up() -> None:
            headers = [*request_headers(request, fetch.route, _USER_AGENT), *framing]
            await send(h11.Request(method=request.method, target=fetch.target, headers=headers))
            if inside.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                await exchange.write(inside.send(go_on) or b"")
            while True:
                event = inside.next_event()
                if event is h11.NEED_DATA:
                    inside.receive_data(await exchange.read())
                elif isinstance(event, h11.Data):
                    await send(h11.Data(data=bytes(event.data)))
                else:
                    await send(h11.EndOfMessage())
                    return

        async def down() -> None:
            while True:
                event = outside.next_event()
                if event is h11.NEED_DATA:
                    outside.receive_data(await _read_outside(exchange, reader))
                elif isinstance(event, h11.Response):
                    await self._pass_on(exchange, inside, outside, (reader, event), fetch)
                    return
                elif not isinstance(event, h11.InformationalResponse):
                    raise DialError(502, f"{origin.host} closed the connection without an answer")

        try:
            await _until_answered(up(), down())
        finally:
            writer.transport.abort()  # at once: the answer is complete, or is not wanted

    async def _pass_on(
        self,
        exchange: _Exchange,
        inside: h11.Connection,
        outside: h11.Connection,
        answer: tuple[asyncio.StreamReader, h11.Response],
        fetch: Fetch,
    ) -> None:
        """Pass an answer on to the client, with its texts replaced."""
        reader, response = answer
        headers = [
            (name.decode("ascii"), value.decode("latin-1")) for name, value in response.headers
        ]
        replaces = replaces_body(fetch.route, headers)
        kept = answer_headers(fetch.route, headers, replaces=replaces)
        head = h11.Response(
            status_code=response.status_code, headers=kept, reason=_phrase(response.status_code)
        )
        data = inside.send(head) or b""
        exchange.status = response.status_code
        await exchange.write(data)
        replacer = Replacer(fetch.route.replaced) if replaces else None

        async def write(data: bytes) -> None:
            if data:
                await exchange.write(inside.send(h11.Data(data=data)) or b"")

        with self._cache.taking(fetch, response.status_code, dict(headers)) as take:
            while True:
                event = outside.next_event()
                if event is h11.NEED_DATA:
                    outside.receive_data(await _read_outside(exchange, reader))
                elif isinstance(event, h11.Data):
                    data = bytes(event.data)
                    take(data)
                    await write(data if replacer is None else replacer.feed(data))
                else:
                    break
        if replacer is not None:
            await write(replacer.finish())
        await exchange.write(inside.send(h11.EndOfMessage()) or b"")


async def _read_outside(exchange: _Exchange, reader: asyncio.StreamReader) -> bytes:
    try:
        data = await reader.read(_READ_BYTES)
    except OSError as error:  # also errors of TLS
        raise AnswerRefusedError(f"the host broke the connection: {error}"[:200]) from error
    exchange.count_received(len(data))
    return data


async def _until_answered(up: Coroutine[Any, Any, None], down: Coroutine[Any, Any, None]) -> None:
    """Run both directions until the answer is complete.

    The end of the request is not the end; an error in either direction is, except that a server
    may stop reading before it answers.
    """
    sender, receiver = asyncio.ensure_future(up), asyncio.ensure_future(down)
    try:
        await asyncio.wait((sender, receiver), return_when=asyncio.FIRST_COMPLETED)
        if sender.done() and not isinstance(sender.exception(), ConnectionError):
            sender.result()
        await receiver
    finally:
        for task in (sender, receiver):
            task.cancel()
        await asyncio.gather(sender, receiver, return_exceptions=True)


async def _discard(client: Client) -> None:
    """Read what the client still sends, for a short time, so that it can read the answer."""
    n_bytes = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            while n_bytes < _MOST_DISCARDED_BYTES and (data := await client.read()):
                n_bytes += len(data)


async def _refuse(exchange: _Exchange, status: int, reason: str, hint: str = "") -> None:
    """Answer with an error, unless the answer has begun; then the connection is cut off."""
    if exchange.status:
        raise ConnectionResetError
    exchange.status = status
    text = f"{reason}. {hint}" if hint else reason
    await exchange.client.write(_simple_answer(status, reason, f"{text}\n"))


def _phrase(status: int) -> str:
    """The usual words for a status; those of the host could contain a secret."""
    with suppress(ValueError):
        return HTTPStatus(status).phrase
    return ""


def _simple_answer(status: int, reason: str, text: str | bytes) -> bytes:
    """A whole answer; *reason* is in its first line, which clients such as pip show."""
    line = "".join(each if " " <= each <= "~" else "?" for each in reason[:200])
    line = line or _phrase(status)
    kind = "text/plain; charset=utf-8" if isinstance(text, str) else "application/octet-stream"
    body = text.encode() if isinstance(text, str) else text
    head = (
        f"HTTP/1.1 {status} {line}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body
