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
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, cast

import anyio
from anyio.abc import ObjectSendStream
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCRequest

from .catalog import Catalog
from .hosting import HostedWorkspace, WorkspaceProvider
from .server import RequestIds, Workspaces, make_server

__all__ = ["serve_stdio"]

_Received = SessionMessage | Exception
_CHUNK_BYTES: Final = 65_536


def serve_stdio(provider: WorkspaceProvider, catalog: Catalog) -> None:
    """Serve until the client has gone or somebody asks us to stop.

    Raises:
        WinkError: If the workspace cannot be opened; nothing was served then.
    """
    anyio.run(_serve, provider, catalog)


async def _serve(provider: WorkspaceProvider, catalog: Catalog) -> None:
    hosted = HostedWorkspace(provider, catalog)
    async with _closed_at_the_end(hosted):
        await asyncio.wrap_future(hosted.open())
        ids = RequestIds()
        server = make_server(catalog, _lifespan_of(hosted), ids=ids, redact=provider.redact)
        # A signal while it is closed must not end us, so it is closed in here already.
        async with _until_told_to_stop(), _closed_at_the_end(hosted):
            await _serve_streams(server, ids)


@asynccontextmanager
async def _closed_at_the_end(hosted: HostedWorkspace) -> AsyncGenerator[None]:
    """Close it after the block, whatever ends that; to close it twice is to close it once."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await asyncio.wrap_future(hosted.close())


async def _serve_streams(server: Server[Workspaces], ids: RequestIds) -> None:
    with _private_stdin() as descriptor:
        # Any object that yields lines will do; the annotation names the one class they use.
        lines = cast("Any", _Lines(descriptor))
        try:
            async with stdio_server(stdin=lines) as (received, sent):
                admitting, admitted = anyio.create_memory_object_stream[_Received](0)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_admit, received, admitting, sent.send, ids)
                    await server.run(admitted, sent, server.create_initialization_options())
                    tasks.cancel_scope.cancel()
        except* BrokenPipeError:  # nobody reads any more: the client has gone
            pass


async def _admit(
    received: AsyncIterable[_Received],
    admitting: ObjectSendStream[_Received],
    answer: Callable[[SessionMessage], Awaitable[None]],
    ids: RequestIds,
) -> None:
    """Pass messages on; answer what is no message, and a request whose id is in use."""
    async with admitting:
        async for item in received:
            refusal = _refusal(item, ids)
            if refusal is None:
                await admitting.send(item)
            else:
                await answer(SessionMessage(refusal))


def _refusal(item: _Received, ids: RequestIds) -> JSONRPCError | None:
    """The answer to what the server is not to see; without an id, which names another request."""
    if isinstance(item, Exception):
        error = ErrorData(code=PARSE_ERROR, message="that line is not a message of the protocol")
        return JSONRPCError(jsonrpc="2.0", id=None, error=error)
    message = item.message
    if not isinstance(message, JSONRPCRequest) or ids.take(None, message.id):
        return None
    said = f"the id {message.id!r} belongs to a request that is not answered yet; use another"
    error = ErrorData(code=INVALID_REQUEST, message=said)
    return JSONRPCError(jsonrpc="2.0", id=None, error=error)


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
                if line.strip():
                    yield line.decode("utf-8", "replace")
        if pending.strip():
            yield pending.decode("utf-8", "replace")

    async def _read(self) -> bytes:
        with suppress(PermissionError):  # a regular file is always readable, and is not polled
            await anyio.wait_readable(self._descriptor)
        return os.read(self._descriptor, _CHUNK_BYTES)
