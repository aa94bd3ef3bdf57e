"""A client that can send malformed HTTP."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any

WATCHDOG_S = 30.0

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "0"},
    },
}


@dataclass(frozen=True)
class Response:
    """A response; status 0 if the connection was closed without one."""

    status: int
    headers: dict[str, str]
    body: bytes

    def message(self) -> dict[str, Any]:
        """The JSON-RPC message in the body, or the last one of a stream."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            lines = [line for line in self.body.splitlines() if line.startswith(b"data: {")]
            return json.loads(lines[-1].removeprefix(b"data: "))
        return json.loads(self.body)


@dataclass(frozen=True)
class RawClient:
    port: int
    token: str | None = None

    def headers(self, **changes: str | None) -> dict[str, str]:
        usual = {
            "Host": f"127.0.0.1:{self.port}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Connection": "close",
        }
        if self.token is not None:
            usual["Authorization"] = f"Bearer {self.token}"
        for name, value in changes.items():
            usual.pop(name.replace("_", "-"), None)
            if value is not None:
                usual[name.replace("_", "-")] = value
        return usual

    def send(
        self,
        body: bytes | dict[str, Any] = b"",
        *,
        method: str = "POST",
        path: str = "/mcp",
        more_headers: tuple[tuple[str, str], ...] = (),
        **changes: str | None,
    ) -> Response:
        """Send one request on a new connection; ``Name=None`` leaves out a header."""
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        headers = {"Content-Length": str(len(content)), **self.headers(**changes)}
        lines = [f"{method} {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in (*headers.items(), *more_headers)]
        return self.send_bytes("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + content)

    def send_bytes(self, request: bytes, *, then_end: bool = False) -> Response:
        """Send any bytes; with *then_end* the sending side is closed after them."""
        with socket.create_connection(("127.0.0.1", self.port), WATCHDOG_S) as connection:
            try:
                connection.sendall(request)
                if then_end:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the server may answer and close before it has read everything
            return received(connection)


def received(connection: socket.socket, data: bytes = b"") -> Response:
    """*data* and all further bytes until the connection is closed, as a response."""
    try:
        while chunk := connection.recv(65_536):
            data += chunk
    except ConnectionResetError:
        pass
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    status = int(lines[0].split()[1]) if data else 0
    named = (line.split(": ", 1) for line in lines[1:])
    headers = {name.lower(): value for name, value in named}
    if headers.get("transfer-encoding") == "chunked":
        body = _unchunked(body)
    return Response(status, headers, body)


def _unchunked(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        n = int(size or b"0", 16)
        if n == 0:
            break
        whole, body = whole + rest[:n], rest[n + 2 :]
    return whole
