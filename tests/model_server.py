"""A server on loopback that speaks the wire formats of OpenAI and Anthropic, from a list of steps.

It answers the n-th request with the n-th step, whatever the request says. Answers are streamed in
small pieces: ``/v1/messages`` as Anthropic, ``/v1/responses`` and ``/v1/chat/completions`` as
OpenAI. The decoded requests are kept in order. It needs only the standard library, so that it also
runs where wink_workspace is not installed.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wink_workspace.environment import Environment

KEY = "test-key-0123456789abcdef"

Event = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Call:
    """A tool call; *arguments* as a mapping, or as text, which may be malformed."""

    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict)
    id: str = ""
    namespace: str = ""
    """In OpenAI's Responses API, the group of tools that *name* belongs to."""

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Turn:
    """A turn of the model."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    input_tokens: int = 10
    output_tokens: int = 5
    ending: str = ""
    """``"refusal"`` or ``"length"``; empty for a complete turn."""
    thinking: str = ""
    """Sent first and signed, in the format of Anthropic only."""


@dataclass(frozen=True)
class HttpFailure:
    """An HTTP error with the provider's *kind* and *message*."""

    status: int
    kind: str = "error"
    message: str = "no"
    headers: dict[str, str] = field(default_factory=dict)
    code: str | None = None


@dataclass(frozen=True)
class DroppedTurn:
    """A turn whose connection closes after *n_events*.

    With *ends*, the stream of HTTP ends properly, as if a proxy had closed the connection. The
    last event that the API defines is missing then. A negative *n_events* counts from the end.
    """

    turn: Turn
    n_events: int = 3
    ends: bool = False


@dataclass(frozen=True)
class HangingTurn:
    """A turn that stops after *n_events*; the connection stays open until the server ends.

    *then* is called after the last event.
    """

    turn: Turn
    n_events: int = 3
    then: Callable[[], None] = lambda: None


Step = Turn | HttpFailure | DroppedTurn | HangingTurn


class ModelServer:
    """The server; a context manager.

    Args:
        steps: The answers.
        aside: The answer to requests that offer no tools, if these are not to take a step. Agent
            programs ask in such requests for the title of a conversation, for example.
        tls: Makes it a server of HTTPS, as ``localhost``.
    """

    def __init__(
        self, *steps: Step, aside: Turn | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.steps = list(steps)
        self.aside = aside
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._n_taken = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(0.02))

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that direct both SDKs to this server."""
        return {
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": self.url,
        }

    @property
    def environment(self) -> Environment:
        from wink_workspace.environment import Environment

        return Environment(variables=self.variables)

    def take(self, asked: dict[str, Any], headers: dict[str, str]) -> tuple[int, Step]:
        with self._lock:
            self.requests.append(asked)
            self.headers.append(headers)
            number = len(self.requests)
            if self.aside is not None and not asked.get("tools"):
                return number, self.aside
            if self._n_taken == len(self.steps):
                return number, HttpFailure(400, "invalid_request_error", "no step is left")
            self._n_taken += 1
            return number, self.steps[self._n_taken - 1]


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Log nothing; the tests check the requests."""

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            wire = _WIRES.get(self.path.partition("?")[0])
            if wire is None:
                self.send_error(404)
                return
            number, step = server.take(asked, {k.lower(): v for k, v in self.headers.items()})
            if isinstance(step, HttpFailure):
                self._fail(wire, step)
                return
            turn = step if isinstance(step, Turn) else step.turn
            events = list(wire.events(turn, number))
            n_sent = len(events) if isinstance(step, Turn) else step.n_events
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for name, data in events[:n_sent]:
                self._chunk(wire.framed(name, data))
            if isinstance(step, Turn):
                self._chunk(wire.end)
            if isinstance(step, Turn) or (isinstance(step, DroppedTurn) and step.ends):
                self.wfile.write(b"0\r\n\r\n")
                return
            if isinstance(step, HangingTurn):
                step.then()
                server.ended.wait(60)
            self.close_connection = True

        def _chunk(self, data: bytes) -> None:
            if data:
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.flush()

        def _fail(self, wire: type[_Wire], step: HttpFailure) -> None:
            body = json.dumps(wire.error(step)).encode()
            self.send_response(step.status)
            for name, value in {"content-type": "application/json", **step.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _pieces(text: str) -> list[str]:
    """Split text into three pieces, like streamed tokens."""
    third = max(1, -(-len(text) // 3))
    return [text[at : at + third] for at in range(0, len(text), third)]


class _Wire:
    end = b""

    @staticmethod
    def framed(name: str, data: dict[str, Any]) -> bytes:
        return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()

    @staticmethod
    def error(step: HttpFailure) -> dict[str, Any]:
        return {"error": {"type": step.kind, "message": step.message, "code": step.code}}

    @staticmethod
    def events(turn: Turn, number: int) -> Iterator[Event]:
        raise NotImplementedError


class _Anthropic(_Wire):
    @staticmethod
    def error(step: HttpFailure) -> dict[str, Any]:
        return {"type": "error", "error": {"type": step.kind, "message": step.message}}

    @staticmethod
    def events(turn: Turn, number: int) -> Iterator[Event]:
        message = {
            "id": f"msg_{number}", "type": "message", "role": "assistant", "model": "mock",
            "content": [], "stop_reason": None, "stop_sequence": None,
            "usage": {"input_tokens": turn.input_tokens, "output_tokens": 1},
        }  # fmt: skip
        yield _typed("message_start", message=message)
        index = 0
        if turn.thinking:
            block = {"type": "thinking", "thinking": "", "signature": ""}
            yield _typed("content_block_start", index=index, content_block=block)
            thought = {"type": "thinking_delta", "thinking": turn.thinking}
            yield _typed("content_block_delta", index=index, delta=thought)
            signed = {"type": "signature_delta", "signature": f"signed-{number}"}
            yield _typed("content_block_delta", index=index, delta=signed)
            yield _typed("content_block_stop", index=index)
            index += 1
        if turn.text:
            yield _typed(
                "content_block_start", index=index, content_block={"type": "text", "text": ""}
            )
            for piece in _pieces(turn.text):
                delta = {"type": "text_delta", "text": piece}
                yield _typed("content_block_delta", index=index, delta=delta)
            yield _typed("content_block_stop", index=index)
            index += 1
        for n, call in enumerate(turn.calls):
            block = {
                "type": "tool_use", "id": call.id or f"toolu_{number}_{n}", "name": call.name,
                "input": {},
            }  # fmt: skip
            yield _typed("content_block_start", index=index, content_block=block)
            for piece in _pieces(call.text):
                delta = {"type": "input_json_delta", "partial_json": piece}
                yield _typed("content_block_delta", index=index, delta=delta)
            yield _typed("content_block_stop", index=index)
            index += 1
        reason = {"refusal": "refusal", "length": "max_tokens"}.get(
            turn.ending, "tool_use" if turn.calls else "end_turn"
        )
        yield _typed(
            "message_delta",
            delta={"stop_reason": reason, "stop_sequence": None},
            usage={"output_tokens": turn.output_tokens},
        )
        yield _typed("message_stop")


class _Chat(_Wire):
    end = b"data: [DONE]\n\n"

    @staticmethod
    def framed(name: str, data: dict[str, Any]) -> bytes:
        return f"data: {json.dumps(data)}\n\n".encode()

    @staticmethod
    def events(turn: Turn, number: int) -> Iterator[Event]:
        def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> Event:
            choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
            return "", {
                "id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1,
                "model": "mock", "choices": [choice], **more,
            }  # fmt: skip

        yield chunk({"role": "assistant", "content": ""})
        for piece in _pieces(turn.text):
            key = "refusal" if turn.ending == "refusal" else "content"
            yield chunk({key: piece})
        for n, call in enumerate(turn.calls):
            function = {"name": call.name, "arguments": ""}
            head = {"index": n, "id": call.id or f"call_{number}_{n}", "type": "function"}
            yield chunk({"tool_calls": [{**head, "function": function}]})
            for piece in _pieces(call.text):
                yield chunk({"tool_calls": [{"index": n, "function": {"arguments": piece}}]})
        reason = {"length": "length"}.get(turn.ending, "tool_calls" if turn.calls else "stop")
        yield chunk({}, reason)
        usage = {
            "prompt_tokens": turn.input_tokens,
            "completion_tokens": turn.output_tokens,
            "total_tokens": turn.input_tokens + turn.output_tokens,
        }
        yield (
            "",
            {
                "id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1,
                "model": "mock", "choices": [], "usage": usage,
            },
        )  # fmt: skip


class _Responses(_Wire):
    @staticmethod
    def framed(name: str, data: dict[str, Any]) -> bytes:
        return _Wire.framed(name, data)

    @staticmethod
    def events(turn: Turn, number: int) -> Iterator[Event]:
        output: list[dict[str, Any]] = []

        def response(status: str, **more: Any) -> dict[str, Any]:
            return {
                "id": f"resp_{number}", "object": "response", "created_at": 1, "status": status,
                "model": "mock", "output": list(output), "parallel_tool_calls": True,
                "tool_choice": "auto", "tools": [], "error": None, "incomplete_details": None,
                "instructions": None, "metadata": {}, "temperature": 1.0, "top_p": 1.0, **more,
            }  # fmt: skip

        def numbered() -> Iterator[Event]:
            yield _typed("response.created", response=response("in_progress"))
            if turn.text:
                yield from _message(turn, number, output)
            for n, call in enumerate(turn.calls):
                yield from _function_call(call, n, number, output)
            usage = {
                "input_tokens": turn.input_tokens, "output_tokens": turn.output_tokens,
                "total_tokens": turn.input_tokens + turn.output_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            }  # fmt: skip
            if turn.ending == "length":
                cut = {"reason": "max_output_tokens"}
                yield _typed(
                    "response.incomplete",
                    response=response("incomplete", usage=usage, incomplete_details=cut),
                )
            else:
                yield _typed("response.completed", response=response("completed", usage=usage))

        for sequence, (name, data) in enumerate(numbered()):
            yield name, {**data, "sequence_number": sequence}


def _message(turn: Turn, number: int, output: list[dict[str, Any]]) -> Iterator[Event]:
    item_id, at = f"msg_{number}", len(output)
    item = {
        "id": item_id, "type": "message", "role": "assistant", "status": "in_progress",
        "content": [],
    }  # fmt: skip
    where = {"item_id": item_id, "output_index": at, "content_index": 0}
    yield _typed("response.output_item.added", output_index=at, item=item)
    if turn.ending == "refusal":
        part: dict[str, Any] = {"type": "refusal", "refusal": turn.text}
        yield _typed(
            "response.content_part.added", **where, part={"type": "refusal", "refusal": ""}
        )
        for piece in _pieces(turn.text):
            yield _typed("response.refusal.delta", **where, delta=piece)
        yield _typed("response.refusal.done", **where, refusal=turn.text)
    else:
        part = {"type": "output_text", "text": turn.text, "annotations": []}
        yield _typed("response.content_part.added", **where, part={**part, "text": ""})
        for piece in _pieces(turn.text):
            yield _typed("response.output_text.delta", **where, delta=piece, logprobs=[])
        yield _typed("response.output_text.done", **where, text=turn.text, logprobs=[])
    yield _typed("response.content_part.done", **where, part=part)
    output.append({**item, "status": "completed", "content": [part]})
    yield _typed("response.output_item.done", output_index=at, item=output[-1])


def _function_call(
    call: Call, n: int, number: int, output: list[dict[str, Any]]
) -> Iterator[Event]:
    at = len(output)
    item = {
        "id": f"fc_{number}_{n}", "type": "function_call", "status": "in_progress",
        "call_id": call.id or f"call_{number}_{n}", "name": call.name, "arguments": "",
    }  # fmt: skip
    if call.namespace:
        item["namespace"] = call.namespace
    yield _typed("response.output_item.added", output_index=at, item=item)
    for piece in _pieces(call.text):
        yield _typed(
            "response.function_call_arguments.delta",
            item_id=item["id"],
            output_index=at,
            delta=piece,
        )
    yield _typed(
        "response.function_call_arguments.done",
        item_id=item["id"],
        output_index=at,
        arguments=call.text,
        name=call.name,
    )
    output.append({**item, "status": "completed", "arguments": call.text})
    yield _typed("response.output_item.done", output_index=at, item=output[-1])


def _typed(kind: str, **data: Any) -> Event:
    return kind, {"type": kind, **data}


_WIRES: dict[str, type[_Wire]] = {
    "/v1/messages": _Anthropic,
    "/v1/chat/completions": _Chat,
    "/v1/responses": _Responses,
}
