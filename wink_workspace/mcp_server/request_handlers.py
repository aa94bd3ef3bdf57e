"""Handlers of the MCP requests; each works on the workspace of the client that sent the request.

This module does not depend on a transport; ``stdio`` and ``http`` are the transports.
"""

from __future__ import annotations

import asyncio
import json
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
from .protocol_types import STRATEGIES, call_result, mcp_tool, printable, strategy_prompt
from .resource_reading import TEMPLATES, list_resources, read_resource

_log = logging.getLogger(__name__)

UNREADABLE_VALUE: Final = (
    "the request has a lone surrogate, or a number with too many digits: send valid Unicode and"
    " shorter numbers"
)
_MOST_ID_DIGITS: Final = 18
_RESOURCE_NOT_FOUND: Final = -32002
_PROGRESS_INTERVAL_S: Final = 5.0


class Workspaces(Protocol):
    """Finds the workspace of a client."""

    def of(self, context: _Context) -> HostedWorkspace:
        """The workspace of the client that sent the request."""
        ...


_Context = ServerRequestContext[Workspaces, Any]
Lifespan = Callable[[Server[Workspaces]], AbstractAsyncContextManager[Workspaces]]


class RequestIds:
    """The ids of unanswered requests, for each session.

    The library routes answers by id: if two requests have one id, a client gets the answer to one
    as that to the other. The protocol forbids reusing an id. So the transport takes the id before
    the library sees the request, and the id is free again when its handler has ended. That may be
    long after the connection was closed. ``7`` and ``"7"`` are the same id, as they are for the
    library.
    """

    def __init__(self) -> None:
        self._taken: set[tuple[str | None, RequestId]] = set()

    def take(self, session: str | None, request_id: RequestId) -> bool:
        """Mark *request_id* as in use in *session*; ``False`` if it was already."""
        key = (session, coerce_request_id(request_id))
        is_free = key not in self._taken
        self._taken.add(key)
        return is_free

    def free(self, session: str | None, request_id: RequestId) -> None:
        """Allow *request_id* to be used again."""
        self._taken.discard((session, coerce_request_id(request_id)))


def request_id_of(body: str | bytes) -> RequestId | None:
    """The id of the JSON-RPC request in *body*; ``None`` if it is not a valid request.

    More is valid here than for the library, which does not parse a lone surrogate or a number of
    5,000 digits.
    """
    try:
        message: Any = json.loads(body, parse_int=_short_integer)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or "method" not in message:
        return None
    request_id = cast("dict[str, Any]", message).get("id")
    if isinstance(request_id, str):
        return request_id if request_id == serde.well_formed(request_id) else None
    return request_id if type(request_id) is int else None


def unparsed_text(error: Exception) -> str | bytes:
    """The text that the library could not parse as JSON; ``""`` for any other *error*."""
    errors = cast("list[Any]", getattr(error, "errors", list)())
    is_not_json = bool(errors) and errors[0]["type"] == "json_invalid"
    return errors[0]["input"] if is_not_json else ""


def _short_integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= _MOST_ID_DIGITS else None


def make_server(
    catalog: Catalog,
    lifespan: Lifespan,
    *,
    ids: RequestIds,
    redact: Callable[[str], str] = str,
    progress_interval_s: float = _PROGRESS_INTERVAL_S,
) -> Server[Workspaces]:
    """An MCP server for the tools of *catalog*.

    Args:
        catalog: The tools and instructions.
        lifespan: Yields the workspaces while the server runs.
        ids: The ids of unanswered requests; each is freed when its handler ends.
        redact: Applied to resources and errors; ``WorkspaceProvider.redact`` is applied to calls.
        progress_interval_s: After how many seconds without a heartbeat a client that asked for
            progress gets a progress notification.
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
    # Replaces the library's middleware, whose spans contain whatever a client sends
    server.middleware[:] = [_Boundary(ids, redact)]
    return server


class _Boundary:
    """Middleware: makes each answer encodable, redacts errors, and frees the id of the request.

    Text that cannot be encoded would end the server over stdio, and hang the client over HTTP.
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
    """One handler for each MCP method."""

    def __init__(
        self,
        catalog: Catalog,
        progress_interval_s: float,
        redact: Callable[[str], str],
    ) -> None:
        self._catalog = catalog
        self._redact = redact
        self._progress_interval_s = progress_interval_s
        self._tools = [mcp_tool(tool, structured=catalog.structured) for tool in catalog.tools]

    async def list_tools(
        self, context: _Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        del context, params
        return ListToolsResult(tools=self._tools)

    async def call_tool(self, context: _Context, params: CallToolRequestParams) -> CallToolResult:
        """Run a call; cancel it if the client cancels it or disconnects, or the server stops."""
        hosted = context.lifespan_context.of(context)
        beats = _Heartbeats(asyncio.get_running_loop())
        cancellation = Cancellation()
        future = hosted.call(
            params.name,
            params.arguments or {},
            cancellation=cancellation,
            on_beat=beats.beat,
            client=_client_of(context),
        )
        async with _progress(context, beats, hosted, self._progress_interval_s):
            try:
                answer: Answer = await asyncio.wrap_future(future)
            except asyncio.CancelledError:
                cancellation.cancel()
                raise
        tool = self._catalog.tool(params.name)
        return call_result(tool, answer, structured=self._catalog.structured)

    async def list_resources(
        self, context: _Context, params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        cursor = None if params is None else params.cursor
        future = context.lifespan_context.of(context).read(
            lambda workspace: list_resources(workspace, cursor, self._redact)
        )
        try:
            return await asyncio.wrap_future(future)
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
        future = context.lifespan_context.of(context).read(
            lambda workspace: read_resource(workspace, uri, self._redact)
        )
        try:
            found = await asyncio.wrap_future(future)
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
    """The client's span attributes, by OpenTelemetry's conventions for MCP."""
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
    """The session id of a request; ``None`` over stdio and in the request that begins a session."""
    return None if context.request is None else context.request.headers.get("mcp-session-id")


def _not_found(uri: str, message: str) -> MCPError:
    return MCPError(code=_RESOURCE_NOT_FOUND, message=message, data={"uri": uri})


class _Heartbeats:
    """Passes heartbeats from the workspace's thread to the event loop, and counts them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._changed = asyncio.Event()
        self.n = 0
        self.done = False

    def beat(self) -> None:
        """Count a heartbeat; may be called on any thread."""
        self._loop.call_soon_threadsafe(self._count)

    def end(self) -> None:
        """End the waiting: the call is over."""
        self.done = True
        self._changed.set()

    async def next(self, timeout_s: float) -> None:
        """Wait for the next heartbeat, the end, or *timeout_s*."""
        with anyio.move_on_after(timeout_s):
            await self._changed.wait()
        self._changed.clear()

    def _count(self) -> None:
        self.n += 1
        self._changed.set()


@asynccontextmanager
async def _progress(
    context: _Context, beats: _Heartbeats, hosted: HostedWorkspace, interval_s: float
) -> AsyncGenerator[None]:
    """Report each heartbeat, and each silent interval, to a client that asked for progress."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_report_progress, context, beats, hosted, interval_s)
        yield
        beats.end()


async def _report_progress(
    context: _Context, beats: _Heartbeats, hosted: HostedWorkspace, interval_s: float
) -> None:
    n_silences = n_reported = 0
    while not beats.done:
        n_before = beats.n
        await beats.next(interval_s)
        n_silences += beats.n == n_before and not beats.done
        if beats.n + n_silences > n_reported:
            n_reported = beats.n + n_silences
            await context.session.report_progress(n_reported, message=hosted.activity)
