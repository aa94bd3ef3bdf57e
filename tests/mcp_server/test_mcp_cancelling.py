"""Code that runs when nobody waits for it any more: it ends, and what it did is undone."""

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
from mcp_rig import WATCHDOG_S, HttpServer, Rig, run, said, started, text_of
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
    """Files, and Python that only its watchdog would end."""
    return VfsToolsSection(), AstevalSection(config=AstevalConfig(timeout_s=WATCHDOG_S * 10))


def assert_taken_back(rig: Rig) -> None:
    """The call of the one workspace was cancelled, its record says so, and its file is gone."""
    (which,) = rig.workspaces()
    with Workspace.open(which, storage=rig.storage) as workspace:
        entry = next(entry for entry in workspace.log() if entry.tool == "evaluate_python")
        call = workspace.record(entry).event
        assert isinstance(call, ToolInvoked)
        assert call.outcome is Outcome.ROLLED_BACK
        assert call.message.startswith("cancelled: "), call.message
        assert not workspace.files.exists("new")


def test_code_that_a_client_takes_back_ends_and_the_next_call_is_served(rig: Rig) -> None:
    async def test() -> None:
        runs = anyio.Event()

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            if progress >= N_BEATS:
                runs.set()

        async with rig.client(sections=sections()) as client:
            async with anyio.create_task_group() as tasks:
                call = partial(client.call_tool, progress_callback=hear)
                tasks.start_soon(call, "evaluate_python", ENDLESS)
                await runs.wait()
                tasks.cancel_scope.cancel()
            listed = await client.call_tool("ls", {})
            assert [entry["name"] for entry in listed.structured_content["entries"]] == ["app.py"]
            again = await client.call_tool("write_file", {"file_path": "kept", "content": "x"})
            assert not again.is_error, text_of(again)
        assert_taken_back(rig)

    run(test)


@contextmanager
def http_server(rig: Rig, *, closing_s: int) -> Iterator[HttpServer]:
    """A server that cancels what still runs so long after it was told to end."""
    script = Path(__file__).parent / "http_server.py"
    state = rig.root / "state" / "wink-workspace"
    options = json.dumps({"closing_s": closing_s})
    command = [sys.executable, str(script), str(rig.source), str(state), options]
    with started(command, rig.environment) as server:
        yield server
        assert server.end() == 0
    assert "Traceback" not in server.said


@pytest.mark.parametrize("what_ends", ["session", "server", "server that is told twice"])
def test_code_of_a_client_over_http_ends_with_its_session_and_with_the_server(
    rig: Rig, what_ends: str
) -> None:
    patience_s = 600 if what_ends.endswith("twice") else 0
    with http_server(rig, closing_s=patience_s) as server:
        client = RawClient(server.port)
        session = client.send(INITIALIZE).headers["mcp-session-id"]
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        client.send(told, Mcp_Session_Id=session)
        with begun(client, session):
            if what_ends == "session":
                client.send(method="DELETE", Mcp_Session_Id=session)
            else:
                if patience_s:
                    server.process.send_signal(signal.SIGTERM)
                    await_no_more_listening(server)
                assert server.end() == 0
    assert_taken_back(rig)


def await_no_more_listening(server: HttpServer) -> None:
    """Until it has begun to end."""
    with pytest.raises(ConnectionError):
        while True:
            socket.create_connection(("127.0.0.1", server.port), WATCHDOG_S).close()


@contextmanager
def begun(client: RawClient, session: str) -> Iterator[None]:
    """Endless code runs while the block does; then its stream has to end."""
    params = {"name": "evaluate_python", "arguments": ENDLESS, "_meta": {"progressToken": 1}}
    call: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    content = json.dumps(call).encode()
    headers = client.headers(Mcp_Session_Id=session, Content_Length=str(len(content)))
    lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    with socket.create_connection(("127.0.0.1", client.port), WATCHDOG_S) as connection:
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
        heard = b""
        while f'"progress":{N_BEATS}'.encode() not in heard:
            heard += connection.recv(65_536)
        yield
        while connection.recv(65_536):
            pass


@pytest.mark.parametrize("ending", ["end of input", "SIGTERM"])
def test_code_of_a_server_on_streams_ends_with_it(rig: Rig, ending: str) -> None:
    write = {"name": "write_file", "arguments": {"file_path": "kept", "content": "x"}}
    endless = {"name": "evaluate_python", "arguments": ENDLESS, "_meta": {"progressToken": 1}}
    with rig.stdio_process("--sandbox", "asteval") as process:
        try:
            said(process, **INITIALIZE)
            said(process, method="notifications/initialized")
            said(process, id=1, method="tools/call", params=write)
            heard = said(process, id=2, method="tools/call", params=endless)
            while heard["params"]["progress"] < N_BEATS:
                heard = json.loads(process.stdout.readline())
            if ending == "end of input":
                process.stdin.close()
            else:
                process.send_signal(signal.SIGTERM)
            assert process.wait(WATCHDOG_S) == 0
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()
    assert_taken_back(rig)
