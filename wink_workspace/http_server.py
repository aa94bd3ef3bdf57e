"""An HTTP server for one application, with limits that uvicorn does not have."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Generator

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from .errors import UsageError

__all__ = ["WebServer", "listen"]


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound to an address; 0 is any free port.

    Raises:
        UsageError: If it cannot listen there.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
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
            f"cannot listen on {host}:{port}: {error.strerror}",
            hint="Choose another port, or 0 for any that is free.",
        ) from error
    return listening


class WebServer(uvicorn.Server):
    """Uvicorn without its signal handlers, and with a time limit for headers.

    Args:
        app: The application.
        headers_timeout_s: How long the headers of a request may take to arrive.
        closing_s: How long the end waits for requests in progress.
        on_end: Called when the end begins; must end the streams, which would never end.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        headers_timeout_s: float,
        closing_s: int,
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_connection_class(headers_timeout_s),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=closing_s,
            )
        )
        self._on_end = on_end
        self.when_ready: Callable[[], None] = lambda: None

    def end(self) -> None:
        """Accept no more requests, and end when the running ones are answered."""
        self.should_exit = True
        self._on_end()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and call ``when_ready``."""
        await super().startup(sockets)
        if self.started:
            self.when_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install no handlers: the library's would end the process before workspaces are closed."""
        yield


def _connection_class(headers_timeout_s: float) -> type[H11Protocol]:
    """A connection class that closes a connection whose headers do not arrive in time.

    The library has no such limit: a client that sends nothing, or its headers byte by byte, would
    stay connected.
    """

    class Connection(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as in the library
            super().connection_made(transport)
            self._start_timer()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_timer()
            elif self._timer is None:
                self._start_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def _start_timer(self) -> None:
            self._timer = self.loop.call_later(headers_timeout_s, self.transport.close)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Connection
