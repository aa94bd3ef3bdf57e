"""Serve the pages on a loopback address of their own until Ctrl-C."""

from __future__ import annotations

import contextlib
import secrets
import signal
from collections.abc import Callable
from typing import Final

import anyio

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.http_server import WebServer, listen
from wink_workspace.sandbox.network import own_loopback_address
from wink_workspace.workspace import WorkspaceStorage

from .access import AccessGuard
from .app import make_app
from .pages import Pages

__all__ = ["serve_web"]

_HEADERS_TIMEOUT_S: Final = 10.0
_CLOSING_S: Final = 2


def serve_web(
    storage: WorkspaceStorage,
    *,
    redact: Callable[[str], str],
    on_ready: Callable[[Callable[[], str]], None],
    port: int = 0,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Serve until SIGTERM or Ctrl-C arrives.

    The address is one of 127.0.0.0/8 that no other server has: browsers send cookies to every
    port of an address.

    Args:
        storage: The workspaces.
        redact: Applied to every text that is shown.
        on_ready: Called when requests are accepted, with a function that makes a new link.
        port: The port; 0 for any free port.
        clock: The time.

    Raises:
        UsageError: If it cannot listen on the port.
    """
    anyio.run(_serve, storage, redact, on_ready, port, clock)


async def _serve(
    storage: WorkspaceStorage,
    redact: Callable[[str], str],
    on_ready: Callable[[Callable[[], str]], None],
    port: int,
    clock: Clock,
) -> None:
    app, stop = make_app(Pages(storage, redact))
    guard = AccessGuard(app, clock)
    with contextlib.closing(listen(own_loopback_address(secrets.token_hex()), port)) as listening:
        guard.address = ":".join(map(str, listening.getsockname()[:2]))
        server = WebServer(
            guard, headers_timeout_s=_HEADERS_TIMEOUT_S, closing_s=_CLOSING_S, on_end=stop
        )
        server.when_ready = lambda: on_ready(guard.link)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_on_signal, server)
            await server.serve(sockets=[listening])
            tasks.cancel_scope.cancel()


async def _end_on_signal(server: WebServer) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            server.end()
