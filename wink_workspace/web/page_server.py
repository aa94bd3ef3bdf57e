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
from wink_workspace.workspace import Workspace, WorkspaceStorage

from .actions import Actions
from .application import make_app
from .browser_sessions import AccessGuard
from .continuing import ContinueRun
from .pages import Pages

__all__ = ["serve_web"]

_HEADERS_TIMEOUT_S: Final = 10.0
_CLOSING_S: Final = 2


def serve_web(
    storage: WorkspaceStorage,
    *,
    redact: Callable[[str], str],
    on_ready: Callable[[Callable[[], str]], None],
    open_workspace: Callable[[str], Workspace] | None = None,
    continue_run: ContinueRun | None = None,
    workspace: str = "",
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
        open_workspace: Opens the branch ``WORKSPACE/BRANCH``, so that the pages can change it; by
            default they only read.
        continue_run: Continues the last run of a workspace or fork in a process of its own, with a
            message of the user unless that is ``""``; by default no page does. It needs
            *open_workspace*.
        workspace: The workspace whose page the link opens; the list of all, if left out.
        port: The port; 0 for any free port.
        clock: The time.

    Raises:
        UsageError: If it cannot listen on the port, or there is no such workspace.
    """
    start = f"/w/{storage.folder(workspace).info().id}" if workspace else "/"
    pages = Pages(storage, redact)
    actions = None if open_workspace is None else Actions(pages, open_workspace, continue_run)
    anyio.run(_serve, pages, actions, on_ready, start, port, clock)


async def _serve(
    pages: Pages,
    actions: Actions | None,
    on_ready: Callable[[Callable[[], str]], None],
    start: str,
    port: int,
    clock: Clock,
) -> None:
    form_token = "" if actions is None else secrets.token_urlsafe(32)
    app, stop = make_app(pages, actions=actions, form_token=form_token)
    guard = AccessGuard(app, clock, form_token=form_token, start=start)
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
