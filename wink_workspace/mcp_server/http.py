"""Serving many clients over HTTP, each session with a workspace of its own.

Rule 1: on anything but loopback the server does not start without a token.
Rule 2: a session's workspace is opened when it is first needed, and closed when the session
ends: by the client, by silence, or with the server. The server ends after the last of them.
Rule 3: no connection can hold the server up: headers, bodies and silence have their limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import h11
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from uvicorn.protocols.http.h11_impl import H11Protocol

from wink_workspace.errors import UsageError, WinkError

from .catalog import Catalog
from .hosting import HostedWorkspace, WorkspaceProvider
from .request_guard import PATH, RequestGuard, RequestRules
from .server import RequestIds, Workspaces, make_server

__all__ = ["HttpOptions", "serve_http"]

_log = logging.getLogger(__name__)

_LAST_ANSWERS_S: Final = 5
"""How long clients may take to read the answers of calls that the server's end has cancelled."""
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
_HOST_NAME: Final = re.compile(r"[^\s/:*@\[\]]+")
_HOW_TO_MAKE_ONE: Final = (
    "Make one with: python3 -c 'import secrets; print(secrets.token_urlsafe())'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Where to serve, and for whom.

    Attributes:
        host: The address to listen on.
        port: The port; 0 for any that is free.
        token: What clients have to know; may be left out on loopback only.
        allowed_hosts: More names by which clients may call the server.
        allowed_origins: Origins of web pages that may call it, besides those of this machine.
        body_bytes: The most that a request may have.
        body_timeout_s: How long a body, or the headers, of a request may take to come.
        max_sessions: How many sessions there may be at once.
        session_idle_s: After how much silence a session ends.
        closing_s: After how long calls that still run are cancelled when the server ends.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    body_bytes: int = 4 * 1_048_576
    body_timeout_s: float = 10.0
    max_sessions: int = 200
    session_idle_s: float = 1_800.0
    closing_s: int = 5

    def __post_init__(self) -> None:
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise UsageError(
                "the token has characters that a header cannot hold",
                hint=_HOW_TO_MAKE_ONE,
            )
        if self.token is not None and (not self.token or " " in self.token):
            raise UsageError(
                "the token is empty or has a space in it",
                hint=_HOW_TO_MAKE_ONE,
            )
        if self.token is None and not self.is_loopback:
            raise UsageError(
                f"a server on {self.host} can be reached by others and needs a token",
                hint="Give one, or listen on 127.0.0.1.",
            )
        for name in self.allowed_hosts:
            _as_in_a_header(name)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def rules(self) -> RequestRules:
        """What the gate goes by."""
        own = _LOOPBACK_NAMES if self.is_loopback else ()
        return RequestRules(
            token=self.token,
            hosts=frozenset(map(_as_in_a_header, (self.host, *own, *self.allowed_hosts))),
            origins=frozenset(self.allowed_origins),
            body_bytes=self.body_bytes,
            body_timeout_s=self.body_timeout_s,
        )


def _as_in_a_header(host: str) -> str:
    """A name or an address as ``Host`` holds it.

    Raises:
        UsageError: If no header can hold it.
    """
    try:
        return f"[{ipaddress.IPv6Address(host.strip('[]'))}]"
    except ValueError:
        if _HOST_NAME.fullmatch(host):
            return host.lower()
        raise UsageError(
            f"{host!r} is not the name of a host",
            hint="Write it without scheme, port, path and wildcard: box.example",
        ) from None


def serve_http(
    provider: WorkspaceProvider,
    catalog: Catalog,
    options: HttpOptions,
    *,
    on_ready: Callable[[str], None],
) -> None:
    """Serve until somebody asks us to stop.

    Args:
        provider: Where each session's workspace comes from.
        catalog: What can be done in them.
        options: Where and for whom.
        on_ready: Told the URL once clients can come.

    Raises:
        UsageError: If the address cannot be listened on.
    """
    anyio.run(_serve, provider, catalog, options, on_ready)


async def _serve(
    provider: WorkspaceProvider,
    catalog: Catalog,
    options: HttpOptions,
    on_ready: Callable[[str], None],
) -> None:
    listening = _listening(options)
    with contextlib.closing(listening):
        workspaces = _OnePerSession(provider, catalog)
        web = _web_server(workspaces, catalog, options, provider.redact)
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_when_told, web, workspaces, options.closing_s)
            web.when_ready = lambda: on_ready(f"http://{shown}:{port}{PATH}")
            await web.serve(sockets=[listening])
            tasks.cancel_scope.cancel()


async def _end_when_told(web: _Web, workspaces: _OnePerSession, closing_s: int) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        await anext(signals)
        web.end()
        with anyio.move_on_after(closing_s):
            await anext(signals)  # who asks twice does not want to wait
        workspaces.cancel_calls()
        async for _ in signals:
            """All is being done, and to die of one now would leave it undone."""


def _listening(options: HttpOptions) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        raise UsageError(
            f"cannot listen on {options.host}:{options.port}: {error.strerror}",
            hint="Choose another port, or 0 for any that is free.",
        ) from error
    return listening


def _web_server(
    workspaces: _OnePerSession, catalog: Catalog, options: HttpOptions, redact: Callable[[str], str]
) -> _Web:
    @asynccontextmanager
    async def lifespan(server: Server[Workspaces]) -> AsyncGenerator[Workspaces]:
        del server
        try:
            yield workspaces
        finally:
            with anyio.CancelScope(shield=True):
                await workspaces.close()

    ids = RequestIds()
    protocol = make_server(catalog, lifespan, ids=ids, redact=redact).streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=options.body_bytes,
        session_idle_timeout=options.session_idle_s,
        max_sessions=options.max_sessions,
        # the gate has checked hosts and origins; see there for the difference
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    guard = RequestGuard(protocol, options.rules, ids)
    return _Web(
        uvicorn.Config(
            guard,
            http=_connection_class(options.body_timeout_s),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=options.closing_s + _LAST_ANSWERS_S,
        ),
        guard,
    )


class _Web(uvicorn.Server):
    """The web server, which leaves signals to us."""

    def __init__(self, config: uvicorn.Config, guard: RequestGuard) -> None:
        super().__init__(config)
        self._guard = guard
        self.when_ready: Callable[[], None] = lambda: None

    def end(self) -> None:
        """Take no more requests, and end when those under way are answered."""
        self.should_exit = True
        self._guard.close_streams()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.started:
            self.when_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Not here: the library's own would end the process before we have closed."""
        yield


def _connection_class(headers_timeout_s: float) -> type[H11Protocol]:
    """Connections whose requests have to be begun and their headers sent in time.

    The library limits neither: one that sends nothing, or its headers byte by byte, would stay.
    """

    class Connection(H11Protocol):
        _waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as in the library
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_waiting()
            elif self._waiting is None:
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _wait(self) -> None:
            self._waiting = self.loop.call_later(headers_timeout_s, self.transport.close)

        def _stop_waiting(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

    return Connection


class _OnePerSession:
    """A workspace for each session, for as long as it lasts."""

    def __init__(self, provider: WorkspaceProvider, catalog: Catalog) -> None:
        self._provider = provider
        self._catalog = catalog
        self._hosted: dict[object, HostedWorkspace] = {}

    def of(self, context: Any) -> HostedWorkspace:
        """The workspace of the session that *context* is of; a new one for a new session."""
        # The library gives handlers no other way to what lasts as long as the session.
        connection = context.session._connection  # noqa: SLF001 - see above
        hosted = self._hosted.get(connection)
        if hosted is None:
            hosted = self._hosted[connection] = HostedWorkspace(self._provider, self._catalog)
            connection.exit_stack.push_async_callback(self._end, connection)
        return hosted

    def cancel_calls(self) -> None:
        """Cancel every call that runs or waits, of all sessions."""
        for hosted in tuple(self._hosted.values()):
            hosted.cancel_calls()

    async def close(self) -> None:
        """Close all that are left; one that cannot be closed is logged and left to recovery."""
        for connection in tuple(self._hosted):
            await self._end(connection)

    async def _end(self, connection: object) -> None:
        closing = self._hosted[connection].close()
        closing.add_done_callback(lambda _: self._hosted.pop(connection, None))
        try:
            # Shielded, for the library stops waiting after a while, and a call may take longer.
            await asyncio.shield(asyncio.wrap_future(closing))
        except WinkError:
            _log.exception("A workspace could not be closed; who opens it next puts it in order")
