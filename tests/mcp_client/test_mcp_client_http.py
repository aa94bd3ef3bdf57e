"""Foreign MCP servers over HTTP, also those that send too much or something else."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from support import executor_of

from wink_workspace import Prompt, Session, ToolCall
from wink_workspace.errors import McpServerError
from wink_workspace.mcp_client import McpLimits, McpSection
from wink_workspace.runtime import CallOutcome
from wink_workspace.session import Outcome

TOOL = {
    "name": "echo",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}

HALVES = rb"\\ud83d\ud83d \ud83d\ude00 \udc80" + b"\xed\xa0\xbd"


class Server(ThreadingHTTPServer):
    """A server whose kind is its path: ``/plain``, ``/gzip``, ``/endless``, ``/moved``,
    ``/halves`` and ``/events``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, str | None]] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def url(self, kind: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{kind}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(405)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_DELETE = do_GET  # noqa: N815 - the name that the class wants

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((request["method"], self.headers.get("Authorization")))
        if self.path == "/moved":
            self.send_response(307)
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        match request["method"]:
            case "initialize":
                result: dict[str, Any] = {
                    "protocolVersion": request["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "foreign", "version": "1"},
                }
            case "tools/list":
                result = {"tools": [TOOL]}
            case "tools/call":
                text = json.dumps(request["params"]["arguments"])
                result = {"content": [{"type": "text", "text": text}]}
            case _:
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
        self._answer(request, result)

    def _answer(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        kind = self.path if request["method"] == "tools/call" else "/plain"
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        self.send_response(200)
        events = kind.startswith("/events") and request["method"] == "tools/call"
        media_type = "text/event-stream" if events else "application/json"
        self.send_header("Content-Type", media_type)
        match kind:
            case "/halves":
                body = body.replace(b"hi", HALVES)
            case "/events":
                body = b"event: message\r\ndata: " + body.replace(b"hi", HALVES) + b"\r\n\r\n"
            case "/events-endless":
                self.send_header("Connection", "close")
                self.end_headers()
                with suppress(OSError):
                    while True:
                        self.wfile.write(b"event: message\ndata: " + b" " * 4_096)
                return
            case "/gzip":
                body = gzip.compress(body + b" " * 1_000_000)
                self.send_header("Content-Encoding", "gzip")
            case "/endless":
                self.send_header("Connection", "close")
                self.end_headers()
                with suppress(OSError):
                    while True:
                        self.wfile.write(b" " * 65_536)
                return
            case _:
                pass
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server
        server.shutdown()


def call(section: McpSection) -> CallOutcome:
    prompt = Prompt[None](ns="a", key="b", sections=[section])
    with section, prompt.resources:
        return executor_of(prompt, Session()).execute(ToolCall("it__echo", text="hi"))


def test_tool_of_a_server_over_http_is_called_with_the_headers_of_the_user(server: Server) -> None:
    section = McpSection("it", url=server.url("plain"), headers={"Authorization": "Bearer x"})
    outcome = call(section)
    assert outcome.text == '{"text": "hi"}'
    assert ("tools/call", "Bearer x") in server.seen


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("gzip", "has the encoding 'gzip'"),
        ("endless", "more than 100,000 bytes"),
        ("events-endless", "more than 100,000 bytes"),
    ],
)
def test_answer_that_is_compressed_or_endless_is_refused(
    server: Server, kind: str, reason: str
) -> None:
    limits = McpLimits(received_bytes=100_000)
    outcome = call(McpSection("it", url=server.url(kind), limits=limits))
    assert reason in outcome.text
    assert outcome.event.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("kind", ["halves", "events"])
def test_half_of_a_character_in_an_answer_is_replaced_and_the_rest_is_kept(
    server: Server, kind: str
) -> None:
    outcome = call(McpSection("it", url=server.url(kind)))
    assert outcome.event.outcome is Outcome.COMMITTED
    assert "\\ud83d\ufffd \U0001f600 \ufffd\ufffd" in outcome.text


def test_redirect_to_another_server_is_not_followed(server: Server) -> None:
    with pytest.raises(McpServerError, match="the MCP server it"):
        McpSection("it", url=server.url("moved"), headers={"Authorization": "Bearer x"})


def test_server_that_cannot_be_reached_is_named(server: Server) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(McpServerError, match="the MCP server it"):
        McpSection("it", url=server.url("plain"))
