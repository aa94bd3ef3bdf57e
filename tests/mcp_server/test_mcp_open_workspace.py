"""``serve_stdio`` and ``serve_http`` with a workspace that is open, which they leave open."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters
from mcp_harness import Harness, http_client, run, started, text_of

from wink_workspace.workspace import Workspace

SCRIPT = Path(__file__).parent / "open_workspace_server.py"


def arguments(harness: Harness, how: str) -> list[str]:
    return [str(SCRIPT), str(harness.source), str(harness.root / "state" / "wink-workspace"), how]


def files_of(harness: Harness) -> dict[str, str]:
    [made] = harness.workspaces()
    with Workspace.open(made, storage=harness.storage) as opened:
        names = [str(entry.path) for entry in opened.files.walk() if entry.kind == "file"]
        return {name: opened.files.read_bytes(name).decode() for name in names}


def test_an_open_workspace_is_served_over_stdio_and_stays_open(harness: Harness) -> None:
    async def test() -> None:
        server = StdioServerParameters(
            command=sys.executable, args=arguments(harness, "stdio"), env=harness.environment
        )
        async with Client(server) as client:
            written = {"file_path": "new.txt", "content": "new\n"}
            assert not (await client.call_tool("write_file", written)).is_error
            assert "new.txt" in text_of(await client.call_tool("workspace_diff", {}))

    run(test)
    assert files_of(harness)["new.txt"] == "new\n"
    assert "+new" in files_of(harness)["still_open.txt"]


def test_sessions_over_http_share_an_open_workspace(harness: Harness) -> None:
    n_clients, n_rounds = 4, 5

    async def one(url: str, me: int) -> None:
        async with http_client(url, mode="legacy") as client:
            for n in range(n_rounds):
                written = {"file_path": f"{me}-{n}.txt", "content": f"{me} {n}\n"}
                result = await client.call_tool("write_file", written)
                assert not result.is_error, text_of(result)
                read = await client.call_tool("read_file", {"file_path": f"{me}-{n}.txt"})
                assert f"{me} {n}" in text_of(read)

    command = [sys.executable, *arguments(harness, "http")]
    with started(command, harness.environment) as server:

        async def test() -> None:
            async with anyio.create_task_group() as tasks:
                for me in range(n_clients):
                    tasks.start_soon(one, server.url, me)

        run(test)
    found = files_of(harness)
    for me in range(n_clients):
        for n in range(n_rounds):
            assert found[f"{me}-{n}.txt"] == f"{me} {n}\n"
            assert f"+{me} {n}" in found["still_open.txt"]
