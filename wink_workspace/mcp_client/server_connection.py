"""A connection to a foreign MCP server, used from synchronous code.

Rule 1: the protocol runs in an event loop on a thread of its own, one for each connection. A call
waits for it on the caller's thread, where Ctrl-C and a cancellation interrupt the waiting; the
server is then asked to stop, and its answer is ignored.
Rule 2: the tools are listed when the connection is made. Later announcements of changes are
ignored. After a restart the server must list the same tools, or it is refused.
Rule 3: requests of the server (sampling, elicitation, roots) are refused.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar, cast

import anyio
from mcp import MCPError
from mcp.client import Client
from mcp.client.session import ClientSession
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    JSONRPCNotification,
    JSONRPCRequest,
    ListToolsRequest,
    ListToolsResult,
    PaginatedRequestParams,
)
from mcp_types import Tool as ForeignTool

from wink_workspace.errors import McpServerError, UsageError, WinkError
from wink_workspace.processes import OwnProcess

from .foreign_schemas import printable
from .transports import AnswerBudget

# ---------------------------------------------------------------------------------- server limits


@dataclass(frozen=True, slots=True, kw_only=True)
class McpLimits:
    """Limits of one foreign MCP server.

    Attributes:
        start_timeout_s: Seconds until it must have listed its tools, also after a restart.
        call_timeout_s: Seconds for one call, at most until the deadline of the run.
        n_tools: Most tools that are offered. A server with more is refused, unless the wanted
            ones are named.
        description_chars: Characters of a tool's description that are shown; the rest is cut.
        definition_bytes: Bytes of all definitions of tools, as JSON. A server with more is
            refused.
        received_bytes: Bytes that the server may send between the beginnings of two requests. The
            connection ends above this, and above one value of JSON for 32 of these bytes.

    Raises:
        UsageError: If one is not positive.
    """

    start_timeout_s: float = 30.0
    call_timeout_s: float = 120.0
    n_tools: int = 64
    description_chars: int = 2_000
    definition_bytes: int = 262_144
    received_bytes: int = 8_388_608

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not value > 0:
                raise UsageError(f"{each.name} is {value}", hint="Use a number above 0.")


# ------------------------------------------------------------------------------ server connection


T = TypeVar("T")
OpenTransport = Callable[[AnswerBudget], AbstractAsyncContextManager[tuple[Any, Any]]]

_POLL_S: Final = 0.05
_MOST_PAGES: Final = 100
_PROBLEM_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class _Open:
    """An open session; ``stop`` is set when it ends or has to."""

    session: ClientSession
    stop: asyncio.Event
    ended: asyncio.Task[None]
    budget: AnswerBudget


class ServerConnection:
    """The connection to one server; ``close`` ends it.

    Args:
        name: The name of the server in messages.
        transport: Opens the streams of the server; called again for a restart.
        limits: Its limits.
        secrets: Texts that no message may show.

    Attributes:
        tools: The tools that it listed.

    Raises:
        McpServerError: If it does not start, or does not list its tools.
    """

    def __init__(
        self,
        name: str,
        transport: OpenTransport,
        *,
        limits: McpLimits,
        secrets: frozenset[str] = frozenset(),
    ) -> None:
        self._name = name
        self._transport = transport
        self._limits = limits
        self._secrets = secrets
        self._process = OwnProcess(f"the connection to the MCP server {name}")
        self._open: _Open | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_run_until_stopped, args=(self._loop,), name=f"wink-mcp-{name}", daemon=True
        )
        self._thread.start()
        try:
            self.tools = self._run(self._started())
        except BaseException:
            self.close()
            raise

    def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        timeout_s: float,
        before_sending: Callable[[], object],
        while_waiting: Callable[[], object],
    ) -> CallToolResult:
        """Call a tool of the server; a server that ended is started again.

        Args:
            tool: Its name at the server.
            arguments: Its arguments.
            timeout_s: Seconds until the call fails.
            before_sending: Called when the server is ready, before the request is sent.
            while_waiting: Called now and then; what it raises ends the waiting.

        Raises:
            McpServerError: If the server ends, is late, or answers with something else.
        """
        self._process.check()
        if self._open is None or self._open.stop.is_set():
            tools = self._run(self._started(), while_waiting)
            if _definitions(tools) != _definitions(self.tools):
                self._run(self._stopped())
                raise McpServerError(
                    f"the MCP server {self._name} was started again and lists other tools",
                    hint="Begin a new run to use them.",
                )
        before_sending()
        return self._run(self._called(tool, arguments, timeout_s), while_waiting)

    def close(self) -> None:
        """End the server and the thread; may be repeated. A forked child does nothing.

        Called on that thread, it does not wait: they end soon afterwards.
        """
        if not self._process.is_present or self._loop.is_closed():
            return
        if threading.current_thread() is self._thread:
            # The garbage collector runs finalizers on any thread. Here it would wait for itself
            ending = asyncio.run_coroutine_threadsafe(self._stopped(), self._loop)
            ending.add_done_callback(lambda _: self._loop.stop())
            return
        with suppress(McpServerError):
            self._run(self._stopped())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(
        self, work: Coroutine[Any, Any, T], while_waiting: Callable[[], object] = lambda: None
    ) -> T:
        """The result of *work* in the event loop."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            while not future.done():
                wait([future], _POLL_S)
                while_waiting()
            return future.result()
        finally:
            future.cancel()

    # In the event loop

    async def _started(self) -> tuple[ForeignTool, ...]:
        """Start the server or connect to it, and list its tools."""
        await self._stopped()
        ready: asyncio.Future[tuple[ForeignTool, ...]] = self._loop.create_future()
        budget = AnswerBudget(self._limits.received_bytes)
        task = self._loop.create_task(self._serve(ready, budget))
        try:
            with anyio.fail_after(self._limits.start_timeout_s):
                return await asyncio.shield(ready)
        except TimeoutError:
            budget.problem = f"it did not list its tools within {self._limits.start_timeout_s:g} s"
            raise self._problem("", budget) from None
        finally:
            if self._open is None or self._open.ended is not task:
                task.cancel()
                await asyncio.wait([task])

    async def _serve(
        self, ready: asyncio.Future[tuple[ForeignTool, ...]], budget: AnswerBudget
    ) -> None:
        """Keep a session open until it is stopped or the server ends."""
        try:
            async with self._transport(budget) as streams:
                inbound = _Inbound(streams[0], budget)
                async with Client(
                    _Opened((inbound, streams[1])), mode="legacy", cache=None
                ) as client:
                    tools = await self._listed(client.session)
                    stop, task = asyncio.Event(), asyncio.current_task()
                    assert task is not None  # noqa: S101 - inside of a task
                    self._open = _Open(client.session, stop, task, budget)
                    ready.set_result(tools)
                    inbound.on_end = stop.set
                    await stop.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the caller of _started, or of the next call, gets it
            if not ready.done():
                ready.set_exception(self._problem(_reason(error), budget))
        finally:
            if not ready.done():
                ready.cancel()

    async def _listed(self, session: ClientSession) -> tuple[ForeignTool, ...]:
        tools: list[ForeignTool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            params = None if cursor is None else PaginatedRequestParams(cursor=cursor)
            page = await session.send_request(ListToolsRequest(params=params), ListToolsResult)
            tools += page.tools
            n_bytes = sum(map(len, _definitions(tools)))
            if n_bytes > self._limits.definition_bytes:
                limit = self._limits.definition_bytes
                raise McpServerError(f"its tools take more than {limit:,} bytes to define")
            cursor = page.next_cursor
            if not cursor:
                return tuple(tools)
        raise McpServerError(f"its list of tools has more than {_MOST_PAGES} pages")

    async def _called(
        self, tool: str, arguments: dict[str, Any], timeout_s: float
    ) -> CallToolResult:
        opened = self._open
        assert opened is not None  # noqa: S101 - ``call`` started it
        opened.budget.reset()
        params = CallToolRequestParams(name=tool, arguments=arguments)
        try:
            with anyio.fail_after(timeout_s):
                # Not ``call_tool``, which checks the answer against a schema of the server
                return await opened.session.send_request(
                    CallToolRequest(params=params), CallToolResult
                )
        except TimeoutError:
            opened.budget.problem = f"it did not answer within {timeout_s:g} s"
            await self._stopped()  # it may be stuck, or answer when another call waits
            raise self._problem("", opened.budget) from None
        except Exception as error:
            raise self._problem(_reason(error), opened.budget) from error

    async def _stopped(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.stop.set()
            await asyncio.wait([opened.ended])

    def _problem(self, reason: str, budget: AnswerBudget) -> McpServerError:
        """The error for *reason*, or for a better one that the transport knows."""
        text = budget.problem or reason
        stderr = budget.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        if stderr:
            text += f"; its last line of errors: {stderr}"
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return McpServerError(f"the MCP server {self._name}: {printable(text, _PROBLEM_CHARS)}")


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


class _Opened(AbstractAsyncContextManager[tuple[Any, Any]]):
    """Streams that are open already, as a transport."""

    def __init__(self, streams: tuple[Any, Any]) -> None:
        self._streams = streams

    async def __aenter__(self) -> tuple[Any, Any]:
        return self._streams

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: the owner closes them."""


class _Inbound:
    """The messages of a server, without those that a client need not read.

    Notifications are dropped, and what is not a message: the library would log each of them. The
    requests of a server are counted, because each starts a task.
    """

    def __init__(self, stream: Any, budget: AnswerBudget) -> None:
        self._stream = stream
        self._budget = budget
        self.on_end: Callable[[], object] = lambda: None

    async def receive(self) -> Any:
        while True:
            try:
                item = await self._stream.receive()
            except BaseException:
                self.on_end()
                raise
            message = getattr(item, "message", None)
            if isinstance(message, JSONRPCRequest):
                try:
                    self._budget.count_request()
                except McpServerError:
                    self.on_end()
                    raise anyio.EndOfStream from None
            if message is not None and not isinstance(message, JSONRPCNotification):
                return item

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Any:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *details: Any) -> Any:
        return await self._stream.__aexit__(*details)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _definitions(tools: list[ForeignTool] | tuple[ForeignTool, ...]) -> list[str]:
    """Each tool as JSON with sorted keys."""
    return [
        json.dumps(tool.model_dump(mode="json", exclude_none=True), sort_keys=True)
        for tool in tools
    ]


def _reason(error: BaseException) -> str:
    """Why a request failed, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, WinkError | MCPError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"it cannot be started: {error.filename} does not exist"
    if isinstance(error, OSError):
        return f"it cannot be reached: {error}"
    if isinstance(error, ValueError):
        return "its answer is not valid"
    return f"the connection failed: {error or type(error).__name__}"
