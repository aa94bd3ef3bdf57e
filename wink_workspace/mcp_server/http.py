"""Serve many clients over HTTP; each session has its own workspace.

Versions of the protocol from 2026-07-28 on have no sessions. All their requests work in one more
workspace, which is opened when it is first needed and closed when the server stops.

Rule 1: the server needs a token unless it listens on loopback only.
Rule 2: a session's workspace is opened when it is first needed. It is closed when the client ends
the session, when the session was idle for too long, or when the server stops. The server ends
after it closed all of them.
Rule 3: headers, bodies and idle sessions have time limits, so no connection can block the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import anyio
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from wink_workspace.errors import UsageError
from wink_workspace.http_server import WebServer, listen

from .catalog import Catalog
from .hosting import HostedWorkspace, WorkspaceProvider
from .request_guard import PATH, RequestGuard, RequestRules
from .request_handlers import RequestIds, Workspaces, make_server

if TYPE_CHECKING:
    from wink_workspace.workspace import Workspace


_log = logging.getLogger(__name__)

_FINAL_ANSWERS_TIMEOUT_S: Final = 5
"""How long clients may take to read the answers of calls that the shutdown cancelled."""
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
_HOST_NAME: Final = re.compile(r"[^\s/:*@\[\]]+")
_HOW_TO_MAKE_ONE: Final = (
    "Make one with: python3 -c 'import secrets; print(secrets.token_urlsafe())'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """The address of the server, and what it accepts.

    Attributes:
        host: The address to listen on.
        port: The port; 0 for any free port.
        token: The bearer token that clients must send; may be left out on loopback only.
        allowed_hosts: More values of ``Host`` that the server accepts.
        allowed_origins: Origins of web pages that may call it, besides those of this machine.
        body_bytes: The most bytes that the body of a request may have.
        body_timeout_s: How long the headers, and then the body, of a request may take to arrive.
        max_sessions: The most sessions at once.
        session_idle_s: After how many idle seconds a session ends.
        closing_s: How long a shutdown waits for running calls before it cancels them.
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
                "the token has characters that are not allowed in an HTTP header",
                hint=_HOW_TO_MAKE_ONE,
            )
        if self.token is not None and (not self.token or " " in self.token):
            raise UsageError(
                "the token is empty or contains a space",
                hint=_HOW_TO_MAKE_ONE,
            )
        if self.token is None and not self.is_loopback:
            raise UsageError(
                f"a server on {self.host} is reachable from other machines and needs a token",
                hint="Give a token, or listen on 127.0.0.1.",
            )
        for name in self.allowed_hosts:
            _host_for_header(name)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def rules(self) -> RequestRules:
        """The rules of the request guard."""
        own = _LOOPBACK_NAMES if self.is_loopback else ()
        return RequestRules(
            token=self.token,
            hosts=frozenset(map(_host_for_header, (self.host, *own, *self.allowed_hosts))),
            origins=frozenset(self.allowed_origins),
            body_bytes=self.body_bytes,
            body_timeout_s=self.body_timeout_s,
        )


def _host_for_header(host: str) -> str:
    """*host* in the form of a ``Host`` header: lower case, an IPv6 address in brackets.

    Raises:
        UsageError: If it is neither a host name nor an address.
    """
    try:
        return f"[{ipaddress.IPv6Address(host.strip('[]'))}]"
    except ValueError:
        if _HOST_NAME.fullmatch(host):
            return host.lower()
        raise UsageError(
            f"{host!r} is not a host name",
            hint="Write it without scheme, port, path and wildcard, such as box.example",
        ) from None


def serve_http(
    served: Workspace | WorkspaceProvider,
    catalog: Catalog | None = None,
    options: HttpOptions | None = None,
    *,
    on_ready: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or Ctrl-C arrives.

    Args:
        served: The workspace of all sessions, which stays open, or what opens one for each.
        catalog: The tools that clients may call; as for ``serve_stdio``.
        options: The address and the limits; by default any free port of loopback.
        on_ready: Called with the URL once the server accepts requests.

    Raises:
        UsageError: If the server cannot listen on the address.
    """
    provider, catalog = WorkspaceProvider.of(served), catalog or Catalog(operations=True)
    anyio.run(_serve, provider, catalog, options or HttpOptions(), on_ready)


async def _serve(
    provider: WorkspaceProvider,
    catalog: Catalog,
    options: HttpOptions,
    on_ready: Callable[[str], None],
) -> None:
    listening = listen(options.host, options.port)
    with contextlib.closing(listening):
        workspaces = _SessionWorkspaces(provider, catalog)
        web = _make_web_server(workspaces, catalog, options, provider.redact)
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_on_signal, web, workspaces, options.closing_s)
            web.when_ready = lambda: on_ready(f"http://{shown}:{port}{PATH}")
            await web.serve(sockets=[listening])
            tasks.cancel_scope.cancel()


async def _end_on_signal(web: WebServer, workspaces: _SessionWorkspaces, closing_s: int) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        await anext(signals)
        web.end()
        with anyio.move_on_after(closing_s):
            await anext(signals)  # a second signal cancels the running calls at once
        workspaces.cancel_calls()
        async for _ in signals:
            """Ignore further signals, so that all workspaces are closed."""


def _make_web_server(
    workspaces: _SessionWorkspaces,
    catalog: Catalog,
    options: HttpOptions,
    redact: Callable[[str], str],
) -> WebServer:
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
        # RequestGuard checks hosts and origins; docs/design/023 says why
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    guard = RequestGuard(protocol, options.rules, ids)
    return WebServer(
        guard,
        headers_timeout_s=options.body_timeout_s,
        closing_s=options.closing_s + _FINAL_ANSWERS_TIMEOUT_S,
        on_end=guard.close_streams,
    )


class _SessionWorkspaces:
    """One workspace for each session, closed when the session ends, and one without a session."""

    def __init__(self, provider: WorkspaceProvider, catalog: Catalog) -> None:
        self._provider = provider
        self._catalog = catalog
        self._hosted: dict[object, HostedWorkspace] = {}

    def of(self, context: Any) -> HostedWorkspace:
        """The workspace of the session of *context*; created when a new session first needs it."""
        if context.request.headers.get("mcp-protocol-version") in MODERN_PROTOCOL_VERSIONS:
            if None not in self._hosted:
                self._hosted[None] = HostedWorkspace(self._provider, self._catalog)
            return self._hosted[None]
        # The library gives handlers no public object that lives as long as the session.
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
        """Close all workspaces; log each one that cannot be closed, and leave it to recovery."""
        for connection in tuple(self._hosted):
            await self._end(connection)

    async def _end(self, connection: object) -> None:
        hosted = self._hosted.get(connection)
        if hosted is None:
            return  # closed meanwhile: its thread removed it
        closing = hosted.close()
        closing.add_done_callback(lambda _: self._hosted.pop(connection, None))
        try:
            # Shielded: the library stops waiting after a timeout, and a call may take longer.
            await asyncio.shield(asyncio.wrap_future(closing))
        except Exception:  # noqa: BLE001 - the border of one session: the others are closed, too
            _log.exception("A workspace could not be closed; opening it again will recover it")
