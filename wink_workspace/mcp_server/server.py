"""The protocol's requests, each answered from the workspace of the client that asks.

Nothing here knows how messages come and go; ``stdio`` and ``http`` bring them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from typing import Any, Final, Protocol, cast

import anyio
from mcp.server import ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ErrorData,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestId,
)

from wink_workspace import serde
from wink_workspace.clock import Cancellation
from wink_workspace.errors import WinkError
from wink_workspace.runtime import Redaction, RemoteClient

from .catalog import Catalog
from .hosting import Answer, HostedWorkspace
from .reading import TEMPLATES, list_resources, read_resource
from .wire import STRATEGIES, call_result, offered_tool, printable, strategy_prompt

__all__ = ["RequestIds", "Workspaces", "make_server"]

_log = logging.getLogger(__name__)

_RESOURCE_NOT_FOUND: Final = -32002
_PROGRESS_INTERVAL_S: Final = 5.0


class Workspaces(Protocol):
    """Which workspace a client has."""

    def of(self, context: _Context) -> HostedWorkspace:
        """That of the client whose request this is."""
        ...


_Context = ServerRequestContext[Workspaces, Any]
Lifespan = Callable[[Server[Workspaces]], AbstractAsyncContextManager[Workspaces]]


class RequestIds:
    """The ids of the requests that are not answered yet, for each session.

    The library routes answers by id: with two requests of one id, a client gets the answer of one
    as that of the other. The protocol forbids it, and whoever brings a request asks here first. So
    an id is taken before the library sees the request, and is free again when its handler has
    ended, which may be long after its connection was closed. ``7`` and ``"7"`` are one id, as they
    are for the library.
    """

    def __init__(self) -> None:
        self._taken: set[tuple[str | None, RequestId]] = set()

    def take(self, session: str | None, number: RequestId) -> bool:
        """Whether *number* was free in *session*; it is in use now."""
        key = (session, coerce_request_id(number))
        is_free = key not in self._taken
        self._taken.add(key)
        return is_free

    def free(self, session: str | None, number: RequestId) -> None:
        """Let *number* be used again."""
        self._taken.discard((session, coerce_request_id(number)))


def make_server(
    catalog: Catalog,
    lifespan: Lifespan,
    *,
    ids: RequestIds,
    redact: Callable[[str], str] = str,
    progress_interval_s: float = _PROGRESS_INTERVAL_S,
) -> Server[Workspaces]:
    """A server of *offer*.

    Args:
        catalog: What can be done.
        lifespan: Gives the workspaces while the server runs.
        ids: The ids of requests that are not answered yet; each is freed when its handler ends.
        redact: Applied to resources and errors; a workspace's home has that of calls.
        progress_interval_s: How often a client that asked for progress hears of a call whose
            handler is silent.
    """
    redact = Redaction(redact).text
    requests = _Requests(catalog, progress_interval_s, redact)
    server = Server(
        "wink",
        version=version("wink-workspace"),
        title="wink workspace",
        instructions=catalog.instructions,
        lifespan=lifespan,
        on_list_tools=requests.list_tools,
        on_call_tool=requests.call_tool,
        on_list_resources=requests.list_resources,
        on_list_resource_templates=requests.list_resource_templates,
        on_read_resource=requests.read_resource,
        on_list_prompts=requests.list_prompts,
        on_get_prompt=requests.get_prompt,
    )
    # Not the library's own, whose spans hold whatever a client sends
    server.middleware[:] = [_Boundary(ids, redact)]
    return server


class _Boundary:
    """Around every request: its answer can be written, its errors are redacted, its id is freed.

    What cannot be encoded would end the server over stdio, and hang the client over HTTP.
    """

    def __init__(self, ids: RequestIds, redact: Callable[[str], str]) -> None:
        self._ids = ids
        self._redact = redact

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        try:
            return printable(await call_next(ctx))
        except Exception as error:
            raise MCPError.from_error_data(self._answer_to(error, ctx.method)) from error
        finally:
            if ctx.request_id is not None:
                self._ids.free(_session_of(ctx), ctx.request_id)

    def _answer_to(self, error: Exception, method: str) -> ErrorData:
        known = handler_exception_to_error_data(error)
        if known is None:
            if not isinstance(error, WinkError):
                _log.error("The handler of %r failed", method, exc_info=error)
            known = ErrorData(code=INTERNAL_ERROR, message=str(error))
        data = serde.map_strings(known.data, self._redact)
        return ErrorData(
            code=known.code, message=printable(self._redact(known.message)), data=printable(data)
        )


class _Requests:
    """One method for each request."""

    def __init__(
        self, catalog: Catalog, progress_interval_s: float, redact: Callable[[str], str]
    ) -> None:
        self._catalog = catalog
        self._redact = redact
        self._progress_interval_s = progress_interval_s
        self._tools = [offered_tool(tool) for tool in catalog.tools]

    async def list_tools(
        self, context: _Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        del context, params
        return ListToolsResult(tools=self._tools)

    async def call_tool(self, context: _Context, params: CallToolRequestParams) -> CallToolResult:
        """Run a call, until its client takes it back or has gone, or the server has to go."""
        hosted = context.lifespan_context.of(context)
        beats = _Beats(asyncio.get_running_loop())
        cancellation = Cancellation()
        asked = hosted.call(
            params.name,
            params.arguments or {},
            cancellation=cancellation,
            on_beat=beats.beat,
            client=_client_of(context),
        )
        async with _progress(context, beats, self._progress_interval_s):
            try:
                answer: Answer = await asyncio.wrap_future(asked)
            except asyncio.CancelledError:
                cancellation.cancel()
                raise
        return call_result(self._catalog.tool(params.name), answer)

    async def list_resources(
        self, context: _Context, params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        cursor = None if params is None else params.cursor
        asked = context.lifespan_context.of(context).ask(
            lambda w: list_resources(w, cursor, self._redact)
        )
        try:
            return await asyncio.wrap_future(asked)
        except WinkError as error:
            raise MCPError(code=INVALID_PARAMS, message=str(error)) from error

    async def list_resource_templates(
        self, context: _Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        del context, params
        return ListResourceTemplatesResult(resource_templates=list(TEMPLATES))

    async def read_resource(
        self, context: _Context, params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        uri = params.uri
        asked = context.lifespan_context.of(context).ask(
            lambda w: read_resource(w, uri, self._redact)
        )
        try:
            found = await asyncio.wrap_future(asked)
        except WinkError as error:
            raise _not_found(uri, str(error)) from error
        if found is None:
            raise _not_found(uri, f"there is no resource {uri}")
        return found

    async def list_prompts(
        self, context: _Context, params: PaginatedRequestParams | None
    ) -> ListPromptsResult:
        del context, params
        return ListPromptsResult(prompts=list(STRATEGIES))

    async def get_prompt(
        self, context: _Context, params: GetPromptRequestParams
    ) -> GetPromptResult:
        del context
        found = strategy_prompt(params.name, (params.arguments or {}).get("task", ""))
        if found is None:
            raise MCPError(code=INVALID_PARAMS, message=f"there is no prompt {params.name!r}")
        return found


def _client_of(context: _Context) -> RemoteClient:
    """What telemetry is told of who asks, by its conventions for the protocol."""
    attributes: dict[str, str] = {
        "mcp.method.name": context.method,
        "mcp.protocol.version": context.protocol_version,
        "jsonrpc.request.id": str(context.request_id),
        "network.transport": "pipe" if context.request is None else "tcp",
    }
    session = _session_of(context)
    if session is not None:
        attributes["mcp.session.id"] = session
    return RemoteClient(
        context.method, attributes, cast("Mapping[str, object]", context.meta or {})
    )


def _session_of(context: _Context) -> str | None:
    """The session that a request names; none over stdio, and none in the one that begins it."""
    return None if context.request is None else context.request.headers.get("mcp-session-id")


def _not_found(uri: str, message: str) -> MCPError:
    return MCPError(code=_RESOURCE_NOT_FOUND, message=message, data={"uri": uri})


class _Beats:
    """Signs of life, from the workspace's thread to the loop; those not yet told of are one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._changed = asyncio.Event()
        self.n = 0
        self.done = False

    def beat(self) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self._count)

    def end(self) -> None:
        """There will be no more of them."""
        self.done = True
        self._changed.set()

    async def next(self, timeout_s: float) -> None:
        """Wait for the next one, the end, or *timeout_s*."""
        with anyio.move_on_after(timeout_s):
            await self._changed.wait()
        self._changed.clear()

    def _count(self) -> None:
        self.n += 1
        self._changed.set()


@asynccontextmanager
async def _progress(context: _Context, beats: _Beats, interval_s: float) -> AsyncGenerator[None]:
    """Tell the client of each sign of life, and of silence; nobody hears who did not ask."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tell, context, beats, interval_s)
        yield
        beats.end()


async def _tell(context: _Context, beats: _Beats, interval_s: float) -> None:
    n_silences = n_told = 0
    while not beats.done:
        n_before = beats.n
        await beats.next(interval_s)
        n_silences += beats.n == n_before and not beats.done
        if beats.n + n_silences > n_told:
            n_told = beats.n + n_silences
            await context.session.report_progress(n_told, message="at work")
