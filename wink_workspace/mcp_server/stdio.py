"""Serving one client over this process's standard streams.

The client started us, so it is trusted as the user is. While we serve, standard input is empty
and standard output goes to standard error for everybody else, so that nothing which a library
prints is taken for a message. The end of the input, SIGTERM and Ctrl-C end the serving.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, cast

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from .hosting import HostedWorkspace, WorkspaceHome
from .offer import Offer
from .server import Workspaces, make_server

__all__ = ["serve_stdio"]

_CHUNK_BYTES: Final = 65_536


def serve_stdio(home: WorkspaceHome, offer: Offer) -> None:
    """Serve until the client has gone or somebody asks us to stop.

    Raises:
        WinkError: If the workspace cannot be opened; nothing was served then.
    """
    anyio.run(_serve, home, offer)


async def _serve(home: WorkspaceHome, offer: Offer) -> None:
    hosted = HostedWorkspace(home, offer)
    async with _closed_at_the_end(hosted):
        await asyncio.wrap_future(hosted.open())
        # A signal while it is closed must not end us, so it is closed in here already.
        async with _until_told_to_stop(), _closed_at_the_end(hosted):
            await _serve_streams(make_server(offer, _lifespan_of(hosted)))


@asynccontextmanager
async def _closed_at_the_end(hosted: HostedWorkspace) -> AsyncGenerator[None]:
    """Close it after the block, whatever ends that; to close it twice is to close it once."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await asyncio.wrap_future(hosted.close())


async def _serve_streams(server: Server[Workspaces]) -> None:
    with _private_stdin() as descriptor:
        # Any object that yields lines will do; the annotation names the one class they use.
        lines = cast("Any", _Lines(descriptor))
        try:
            async with stdio_server(stdin=lines) as (received, sent):
                await server.run(received, sent, server.create_initialization_options())
        except* BrokenPipeError:  # nobody reads any more: the client has gone
            pass


def _lifespan_of(hosted: HostedWorkspace) -> Any:
    @asynccontextmanager
    async def lifespan(server: Server[Workspaces]) -> AsyncGenerator[Workspaces]:
        del server
        yield _One(hosted)

    return lifespan


class _One:
    """The same workspace for every request."""

    def __init__(self, hosted: HostedWorkspace) -> None:
        self._hosted = hosted

    def of(self, context: object) -> HostedWorkspace:
        del context
        return self._hosted


@asynccontextmanager
async def _until_told_to_stop() -> AsyncGenerator[None]:
    """A block that SIGTERM and SIGINT end."""
    with anyio.CancelScope() as scope:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, scope.cancel)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


class _private_stdin:  # noqa: N801 - used as a function
    """A descriptor of standard input that is ours alone; others find an empty one meanwhile."""

    def __enter__(self) -> int:
        self._own = os.dup(sys.__stdin__.fileno() if sys.__stdin__ else 0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        return self._own

    def __exit__(self, *_: object) -> None:
        os.dup2(self._own, 0)
        os.close(self._own)


class _Lines:
    """The lines of a descriptor.

    The library's own reader blocks a thread in ``read``, and a process that is asked to stop
    would wait for the client to write once more.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def __aiter__(self) -> AsyncIterator[str]:
        pending = b""
        while chunk := await self._read():
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace")
        if pending:
            yield pending.decode("utf-8", "replace")

    async def _read(self) -> bytes:
        with suppress(PermissionError):  # a regular file is always readable, and is not polled
            await anyio.wait_readable(self._descriptor)
        return os.read(self._descriptor, _CHUNK_BYTES)
