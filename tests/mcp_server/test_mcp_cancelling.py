"""Cancelled calls: their code ends and their changes are rolled back."""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_harness import WATCHDOG_S, Harness, HttpServer, exchange, run, started, text_of
from raw_http import INITIALIZE, RawClient

from wink_workspace.prompt import Section
from wink_workspace.sandbox.asteval import AstevalConfig
from wink_workspace.sections import AstevalSection, VfsToolsSection
from wink_workspace.session import Outcome, ToolInvoked
from wink_workspace.workspace import Workspace

ENDLESS = {"code": "print('begun')\nwrite_text('new', 'x')\nwhile True: pass", "writes": ["new"]}
N_BEATS = 2
"""Signs of life before code runs: the call's beginning, and the handler's."""


def sections() -> Sequence[Section[None]]:
    """Files, and a Python sandbox without a short time limit."""
    return VfsToolsSection(), AstevalSection(config=AstevalConfig(timeout_s=WATCHDOG_S * 10))


def assert_rolled_back(harness: Harness) -> None:
    """The call of the only workspace was cancelled: its record says so and its file is gone."""
    (which,) = harness.workspaces()
    with Workspace.open(which, storage=harness.storage) as workspace:
        entry = next(entry for entry in workspace.log() if entry.tool == "evaluate_python")
        call = workspace.record(entry).event
        assert isinstance(call, ToolInvoked)
        assert call.outcome is Outcome.ROLLED_BACK
        assert call.message.startswith("cancelled: "), call.message
        assert not workspace.files.exists("new")


def test_code_of_a_cancelled_call_ends_and_the_next_call_is_served(harness: Harness) -> None:
    async def test() -> None:
        runs = anyio.Event()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if progress >= N_BEATS:
                runs.set()

        async with harness.client(sections=sections()) as client:
            async with anyio.create_task_group() as tasks:
                call = partial(client.call_tool, progress_callback=on_progress)
                tasks.start_soon(call, "evaluate_python", ENDLESS)
                await runs.wait()
                tasks.cancel_scope.cancel()
            listed = await client.call_tool("ls", {})
            assert [line.split()[-1] for line in text_of(listed).splitlines()[2:]] == ["app.py"]
            again = await client.call_tool("write_file", {"file_path": "kept", "content": "x"})
            assert not again.is_error, text_of(again)
        assert_rolled_back(harness)

    run(test)


@contextmanager
def http_server(harness: Harness, *, closing_s: int) -> Iterator[HttpServer]:
    """A server that cancels running calls *closing_s* seconds after SIGTERM."""
    script = Path(__file__).parent / "http_server.py"
    state = harness.root / "state" / "wink-workspace"
    options = json.dumps({"closing_s": closing_s})
    command = [sys.executable, str(script), str(harness.source), str(state), options]
    with started(command, harness.environment) as server:
        yield server
        assert server.end() == 0
    assert "Traceback" not in server.stderr


@pytest.mark.parametrize("what_ends", ["session", "server", "server with two signals"])
def test_code_over_http_ends_with_its_session_and_with_the_server(
    harness: Harness, what_ends: str
) -> None:
    patience_s = 600 if what_ends == "server with two signals" else 0
    with http_server(harness, closing_s=patience_s) as server:
        client = RawClient(server.port)
        session = client.send(INITIALIZE).headers["mcp-session-id"]
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        client.send(initialized, Mcp_Session_Id=session)
        with begun(client, session):
            if what_ends == "session":
                client.send(method="DELETE", Mcp_Session_Id=session)
            else:
                if patience_s:
                    server.process.send_signal(signal.SIGTERM)
                    await_no_more_listening(server)
                assert server.end() == 0
    assert_rolled_back(harness)


def await_no_more_listening(server: HttpServer) -> None:
    """Wait until the server stops listening."""
    with pytest.raises(ConnectionError):
        while True:
            socket.create_connection(("127.0.0.1", server.port), WATCHDOG_S).close()


@contextmanager
def begun(client: RawClient, session: str) -> Iterator[None]:
    """Endless code runs during the block; afterwards its stream must end."""
    params = {"name": "evaluate_python", "arguments": ENDLESS, "_meta": {"progressToken": 1}}
    call: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    content = json.dumps(call).encode()
    headers = client.headers(Mcp_Session_Id=session, Content_Length=str(len(content)))
    lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    with socket.create_connection(("127.0.0.1", client.port), WATCHDOG_S) as connection:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
        stream = b""
        while f'"progress":{N_BEATS}'.encode() not in stream:
            stream += connection.recv(65_536)
        yield
        while connection.recv(65_536):
            pass


@pytest.mark.parametrize("ending", ["end of input", "SIGTERM"])
def test_code_over_stdio_ends_with_the_server(harness: Harness, ending: str) -> None:
    write = {"name": "write_file", "arguments": {"file_path": "kept", "content": "x"}}
    endless = {"name": "evaluate_python", "arguments": ENDLESS, "_meta": {"progressToken": 1}}
    with harness.stdio_process("--sandbox", "asteval") as process:
        try:
            exchange(process, **INITIALIZE)
            exchange(process, method="notifications/initialized")
            exchange(process, id=1, method="tools/call", params=write)
            notification = exchange(process, id=2, method="tools/call", params=endless)
            while notification["params"]["progress"] < N_BEATS:
                notification = json.loads(process.stdout.readline())
            if ending == "end of input":
                process.stdin.close()
            else:
                process.send_signal(signal.SIGTERM)
            assert process.wait(WATCHDOG_S) == 0
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()
    assert_rolled_back(harness)
