"""How messages of a foreign server arrive: from its standard output, or over HTTP, in bounds.

The client side of the ``mcp`` package reads lines of any length, decompresses answers, and starts a
server with a part of the environment of this process. ``AnswerBudget`` counts what a server sends,
and ``ServerProcess`` starts it with exactly the environment that it is given.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import httpx2
from anyio.abc import ByteReceiveStream, ByteSendStream, ObjectSendStream, Process
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from wink_workspace.errors import McpServerError

_Received = SessionMessage | Exception
_STDERR_BYTES: Final = 4_096
_END_TIMEOUT_S: Final = 1.0
_MOST_REQUESTS: Final = 100
_BYTES_A_VALUE: Final = 32  # a limit of 8 MiB permits 262,144 values
_MOST_DIGITS: Final = 4_300  # as many as Python converts
_LONG_NUMBER: Final = re.compile(rb"[0-9]{%d}" % (_MOST_DIGITS + 1))
_LINE_END: Final = re.compile(rb"[\r\n]")
_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)


@dataclass(slots=True)
class AnswerBudget:
    """Counts the bytes that a server sends, and the values of its JSON, until ``reset``.

    Some megabytes of JSON can become gigabytes of small objects, or a number whose time grows with
    the square of its digits. Nothing interrupts a parser, so neither may reach it.

    Attributes:
        limit_bytes: Most bytes.
        problem: Why the connection ended, if the server is the reason.
    """

    limit_bytes: int
    problem: str = ""
    stderr: bytearray = field(default_factory=bytearray)
    _n_bytes: int = 0
    _n_requests: int = 0
    _n_values: int = 0
    _is_text: bool = False
    _end: bytes = b""

    def reset(self) -> None:
        """Begin again, for another request."""
        self._n_bytes = self._n_requests = self._n_values = 0

    def count_request(self) -> None:
        """Count a request of the server; raises ``McpServerError`` above 100."""
        self._n_requests += 1
        if self._n_requests > _MOST_REQUESTS:
            self.problem = f"it sent more than {_MOST_REQUESTS} requests of its own"
            raise McpServerError(self.problem)

    def spend(self, chunk: bytes) -> None:
        """Count what arrived; raises ``McpServerError`` above a limit."""
        self._n_bytes += len(chunk)
        if self._n_bytes > self.limit_bytes:
            self.problem = f"it sent more than {self.limit_bytes:,} bytes for one request"
        for n, line in enumerate(_LINE_END.split(chunk)):
            if n:
                self._is_text, self._end = False, b""  # no text of JSON has a line end
            self._count_values(line)
        most_values = self.limit_bytes // _BYTES_A_VALUE
        if self._n_values > most_values:
            self.problem = f"it sent more than {most_values:,} values for one request"
        if self.problem:
            raise McpServerError(self.problem)

    def _count_values(self, line: bytes) -> None:
        """Count the values in a part of a line; ``_end`` is what the next part continues."""
        for n, part in enumerate(line.split(b'"')):
            if n:
                is_escaped = self._is_text and len(self._end) % 2
                self._is_text ^= not is_escaped
                self._n_values += not is_escaped
                self._end = b""
            whole = self._end + part
            if self._is_text:
                self._end = whole[len(whole.rstrip(b"\\")) :]
                continue
            self._n_values += sum(map(part.count, (b",", b"[", b"{")))
            self._end = whole[len(whole.rstrip(b"0123456789")) :]
            if _LONG_NUMBER.search(whole):
                self.problem = f"it sent a number with more than {_MOST_DIGITS:,} digits"
                return


@asynccontextmanager
async def process_transport(
    budget: AnswerBudget, *, command: Sequence[str], env: Mapping[str, str], cwd: str
) -> AsyncGenerator[tuple[Any, Any]]:
    """Start a server, and exchange lines of JSON with it; its processes end with the block.

    Raises:
        OSError: If it cannot be started.
    """
    process = await anyio.open_process(
        list(command), env=dict(env), cwd=cwd, start_new_session=True
    )
    assert process.stdin is not None  # noqa: S101 - pipes are the default of open_process
    assert process.stdout is not None  # noqa: S101
    assert process.stderr is not None  # noqa: S101
    try:
        to_client, received = anyio.create_memory_object_stream[_Received](0)
        sent, from_client = anyio.create_memory_object_stream[SessionMessage](0)
        async with received, sent, from_client, anyio.create_task_group() as tasks:
            tasks.start_soon(_read_lines, process.stdout, to_client, budget)
            tasks.start_soon(_read_stderr, process.stderr, budget)
            tasks.start_soon(_write_lines, from_client, process.stdin)
            yield received, sent
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process, grace_s=0 if budget.problem else _END_TIMEOUT_S)


async def _read_lines(
    stdout: ByteReceiveStream, to_client: ObjectSendStream[_Received], budget: AnswerBudget
) -> None:
    pending = bytearray()
    async with to_client:
        try:
            async for chunk in stdout:
                budget.spend(chunk)
                pending += chunk
                if b"\n" in chunk:
                    *lines, rest = bytes(pending).split(b"\n")
                    pending = bytearray(rest)
                    for line in lines:
                        if line.strip():
                            await to_client.send(_message(line))
        except (McpServerError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the client finds the stream closed, and the budget has the reason


def _message(line: bytes) -> _Received:
    try:
        found = jsonrpc_message_adapter.validate_json(_well_formed(line), by_name=False)
    except ValueError as error:
        return error
    return SessionMessage(found)


def _well_formed(json: bytes) -> bytes:
    """Text of JSON with U+FFFD for escaped lone surrogates and for what is not UTF-8."""
    if b"\\u" not in json and json.isascii():
        return json
    text = json.decode("utf-8", "replace")
    return _ESCAPE.sub(lambda at: "\\ufffd" if at["lone"] else at[0], text).encode()


async def _read_stderr(stderr: ByteReceiveStream, budget: AnswerBudget) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for chunk in stderr:
            budget.stderr += chunk
            del budget.stderr[:-_STDERR_BYTES]


async def _write_lines(from_client: AsyncIterator[SessionMessage], stdin: ByteSendStream) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        async for message in from_client:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await stdin.send(text.encode() + b"\n")


async def _end(process: Process, *, grace_s: float) -> None:
    """Let the server end by itself for *grace_s*, then kill everything in its process group."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        if process.stdin is not None:
            await process.stdin.aclose()
    with anyio.move_on_after(grace_s):
        while process.returncode is None:
            await anyio.sleep(0.005)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.aclose()


@asynccontextmanager
async def http_transport(
    budget: AnswerBudget, *, url: str, headers: Mapping[str, str]
) -> AsyncGenerator[tuple[Any, Any]]:
    """Connect to a server by HTTP. Environment, proxies and redirects are not used."""
    bounded = _BoundedTransport(httpx2.AsyncHTTPTransport(trust_env=False), budget)
    async with (
        httpx2.AsyncClient(
            transport=bounded,
            headers={"Accept-Encoding": "identity", **headers},
            timeout=httpx2.Timeout(30.0, read=None),  # the client bounds each request
            trust_env=False,
        ) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """Counts the bytes of answers, and refuses those that are compressed."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, budget: AnswerBudget) -> None:
        self._inner = inner
        self._budget = budget

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        coding = response.headers.get("content-encoding", "identity")
        if coding != "identity":
            await response.aclose()
            self._budget.problem = f"its answer has the encoding {coding[:32]!r}"
            raise McpServerError(self._budget.problem)
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)  # noqa: S101 - an asynchronous transport
        response.stream = _Counted(stream, self._budget)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Counted(httpx2.AsyncByteStream):
    """The lines of a stream, counted, without lone surrogates; an event has whole lines, too."""

    def __init__(self, stream: httpx2.AsyncByteStream, budget: AnswerBudget) -> None:
        self._stream = stream
        self._budget = budget

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pending = bytearray()
        async for chunk in self._stream:
            self._budget.spend(chunk)
            pending += chunk
            if _LINE_END.search(chunk):
                end = max(pending.rfind(b"\n"), pending.rfind(b"\r")) + 1
                yield _well_formed(bytes(pending[:end]))
                del pending[:end]
        yield _well_formed(bytes(pending))

    async def aclose(self) -> None:
        await self._stream.aclose()
