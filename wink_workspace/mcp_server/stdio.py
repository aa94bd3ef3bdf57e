"""Serve one client over this process's standard streams.

The client started this process, so it is trusted as the user is. While the server runs, other code
in the process reads an empty standard input, and its standard output goes to standard error. So
the client never takes what a library prints for a message. The end of the input, SIGTERM and
Ctrl-C end the server.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from anyio.abc import ObjectSendStream
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
)

from .catalog import Catalog
from .hosting import HostedWorkspace, WorkspaceProvider
from .request_handlers import (
    UNREADABLE_VALUE,
    RequestIds,
    Workspaces,
    make_server,
    request_id_of,
    unparsed_text,
)

if TYPE_CHECKING:
    from wink_workspace.workspace import Workspace


_Received = SessionMessage | Exception
_CHUNK_BYTES: Final = 65_536
_MAX_LINE_BYTES: Final = 2**25
_TOO_LONG: Final = "a line of more than 32 MiB"


def serve_stdio(served: Workspace | WorkspaceProvider, catalog: Catalog | None = None) -> None:
    """Serve a workspace until the client disconnects, or SIGTERM or Ctrl-C arrives.

    Args:
        served: The workspace, which stays open, or what opens one.
        catalog: The tools that the client may call; by default those for files, a plan and the
            history.

    The workspace is opened meanwhile, because an import may take longer than the client waits for a
    server to start. A call waits for it, and gets the error if it fails.
    """
    provider, catalog = WorkspaceProvider.of(served), catalog or Catalog(operations=True)
    serve_hosted(HostedWorkspace(provider, catalog), provider, catalog)


def serve_hosted(hosted: HostedWorkspace, provider: WorkspaceProvider, catalog: Catalog) -> None:
    """As ``serve_stdio``, of a workspace that may be opened already; it is closed at the end."""
    anyio.run(_serve, hosted, provider, catalog)


async def _serve(hosted: HostedWorkspace, provider: WorkspaceProvider, catalog: Catalog) -> None:
    async with _closing(hosted):
        hosted.open()
        ids = RequestIds()
        server = make_server(
            catalog,
            _lifespan_of(hosted),
            ids=ids,
            redact=provider.redact,
        )
        # Closed inside the block that handles signals, so that no signal interrupts the closing.
        async with _until_signal(), _closing(hosted):
            await _serve_streams(server, ids)


@asynccontextmanager
async def _closing(hosted: HostedWorkspace) -> AsyncGenerator[None]:
    """Close *hosted* after the block, also after an error; it may be closed twice."""
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await asyncio.wrap_future(hosted.close())


async def _serve_streams(server: Server[Workspaces], ids: RequestIds) -> None:
    with _private_stdin() as descriptor:
        # The library only iterates over the lines, but its annotation names a class.
        lines = cast("Any", _Lines(descriptor))
        try:
            async with stdio_server(stdin=lines) as (received, sent):
                admitting, admitted = anyio.create_memory_object_stream[_Received](0)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_admit, received, admitting, sent.send, ids)
                    await server.run(admitted, sent, server.create_initialization_options())
                    tasks.cancel_scope.cancel()
        except* BrokenPipeError:  # the client closed its end
            pass


async def _admit(
    received: AsyncIterable[_Received],
    admitting: ObjectSendStream[_Received],
    answer: Callable[[SessionMessage], Awaitable[None]],
    ids: RequestIds,
) -> None:
    """Pass messages on; answer an invalid message, and a request whose id is in use."""
    async with admitting:
        async for item in received:
            refusal = _refusal(item, ids)
            if refusal is None:
                await admitting.send(item)
            else:
                await answer(SessionMessage(refusal))


def _refusal(item: _Received, ids: RequestIds) -> JSONRPCError | None:
    """The error for an invalid message or an id in use; without that id, as it is another's."""
    if isinstance(item, Exception):
        line = unparsed_text(item)
        request_id = request_id_of(line)
        if request_id is not None and ids.take(None, request_id):
            ids.free(None, request_id)  # the answer follows at once
            error = ErrorData(code=INVALID_PARAMS, message=UNREADABLE_VALUE)
            return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)
        what = line if line == _TOO_LONG else "the line"
        error = ErrorData(code=PARSE_ERROR, message=f"{what} is not a valid MCP message")
        return JSONRPCError(jsonrpc="2.0", id=None, error=error)
    message = item.message
    if not isinstance(message, JSONRPCRequest) or ids.take(None, message.id):
        return None
    reason = f"the id {message.id!r} belongs to a request that is not answered yet; use another"
    error = ErrorData(code=INVALID_REQUEST, message=reason)
    return JSONRPCError(jsonrpc="2.0", id=None, error=error)


def _lifespan_of(hosted: HostedWorkspace) -> Any:
    @asynccontextmanager
    async def lifespan(server: Server[Workspaces]) -> AsyncGenerator[Workspaces]:
        del server
        yield _SingleWorkspace(hosted)

    return lifespan


class _SingleWorkspace:
    """The same workspace for every request."""

    def __init__(self, hosted: HostedWorkspace) -> None:
        self._hosted = hosted

    def of(self, context: object) -> HostedWorkspace:
        del context
        return self._hosted


@asynccontextmanager
async def _until_signal() -> AsyncGenerator[None]:
    """Cancel the block when SIGTERM or SIGINT arrives."""
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
    """A private descriptor of standard input; inside the block other code reads an empty one."""

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

    The library's own reader blocks a thread in ``read``, so a process that should end would wait
    until the client writes again. Of a line of more than 32 MiB, the rest is read and dropped.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def __aiter__(self) -> AsyncIterator[str]:
        pending = bytearray()
        while chunk := await self._read():
            for n, part in enumerate(chunk.split(b"\n")):
                if n:
                    if pending.strip():
                        yield _text(pending)
                    pending.clear()
                pending += part
            del pending[_MAX_LINE_BYTES + 1 :]
        if pending.strip():
            yield _text(pending)

    async def _read(self) -> bytes:
        with suppress(PermissionError):  # a regular file cannot be polled; it is always readable
            await anyio.wait_readable(self._descriptor)
        return os.read(self._descriptor, _CHUNK_BYTES)


def _text(line: bytearray) -> str:
    return _TOO_LONG if len(line) > _MAX_LINE_BYTES else line.decode("utf-8", "replace")
