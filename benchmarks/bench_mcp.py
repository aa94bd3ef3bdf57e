"""The time of a request for an MCP client, beside a server of the SDK alone.

Run by ``make bench``. The reference is a server with one tool, which reads the same files. Both
servers are processes of their own, and both are asked in turns, so that both have the same noise.
A benchmark is the difference. ``ours_…`` and ``bare_…`` are the times of the two.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

import anyio
import pytest
from differences import report
from mcp import Client, StdioServerParameters

ROUNDS = 300
N_CLIENTS = 10
N_WARM = 30
N_STARTS = 7
N_FILES = 50_000

OURS = "import sys; from wink_workspace.cli import main; sys.exit(main())"
BARE = """
import sys
from pathlib import Path
from mcp.server.mcpserver import MCPServer

server = MCPServer("bare", log_level="WARNING")

@server.tool()
def read_file(file_path: str) -> str:
    return Path(sys.argv[1], file_path).read_text()

if sys.argv[2:]:
    import socket
    import uvicorn
    listening = socket.create_server(("127.0.0.1", 0))
    print("http://127.0.0.1:%d/mcp" % listening.getsockname()[1], file=sys.stderr, flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning")
    uvicorn.Server(config).run([listening])
else:
    server.run("stdio")
"""
Connect = Callable[[], Client]


def source_of(folder: Path, n_files: int) -> Path:
    """A directory with *n_files* files to read."""
    for n in range(n_files):
        path = folder / f"d{n // 100}" / f"f{n}.txt"
        if n % 100 == 0:
            path.parent.mkdir(parents=True)
        path.write_text("a line of text\n" * 20)
    return folder


def commands_of(source: Path, *, http: bool) -> dict[str, list[str]]:
    """The commands of the two servers."""
    ours = ["mcp", "--repo", str(source), "--temporary", "--sandbox", "none"]
    return {
        "ours": [sys.executable, "-c", OURS, *ours, *(["--http", "127.0.0.1:0"] if http else [])],
        "bare": [sys.executable, "-c", BARE, str(source), *(["http"] if http else [])],
    }


def environment_of(source: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(source.parent),
        "XDG_STATE_HOME": str(source.parent / "state"),
    }


def over_stdio(source: Path) -> dict[str, Connect]:
    """Clients that start their servers."""
    servers = {
        name: StdioServerParameters(
            command=command[0], args=command[1:], env=environment_of(source)
        )
        for name, command in commands_of(source, http=False).items()
    }
    return {name: lambda server=server: Client(server) for name, server in servers.items()}


@contextmanager
def running(command: list[str], source: Path) -> Iterator[str]:
    """A server over HTTP; its URL ends the first line that it prints."""
    process = subprocess.Popen(
        command, env=environment_of(source), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        yield process.stderr.readline().split()[-1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


@contextmanager
def over_http(source: Path) -> Iterator[dict[str, Connect]]:
    """Clients of two running servers, with the version of the protocol that has sessions."""
    with ExitStack() as stack:
        urls = {
            name: stack.enter_context(running(command, source))
            for name, command in commands_of(source, http=True).items()
        }
        yield {name: lambda url=url: Client(url, mode="legacy") for name, url in urls.items()}


async def read(client: Client, n: int) -> None:
    result = await client.call_tool("read_file", {"file_path": f"d0/f{n % 100}.txt"})
    assert not result.is_error


async def timed_reads(connects: dict[str, Connect], n_clients: int) -> dict[str, list[float]]:
    """The seconds of each read; all clients read from one server, then from the other."""
    seconds: dict[str, list[float]] = {name: [] for name in connects}
    async with AsyncExitStack() as stack:
        clients = {
            name: [await stack.enter_async_context(connect()) for _ in range(n_clients)]
            for name, connect in connects.items()
        }

        async def read_once(name: str, client: Client, n: int) -> None:
            began = anyio.current_time()
            await read(client, n)
            if n >= 0:
                seconds[name].append(anyio.current_time() - began)

        for n in range(-N_WARM, ROUNDS // n_clients):
            for name, group in clients.items():
                async with anyio.create_task_group() as tasks:
                    for client in group:
                        tasks.start_soon(read_once, name, client, n)
    return seconds


async def timed_lists(connects: dict[str, Connect]) -> dict[str, list[float]]:
    """The seconds from the start of a server until its client has the list of its tools."""
    seconds: dict[str, list[float]] = {name: [] for name in connects}
    for n in range(-1, N_STARTS):
        for name, connect in connects.items():
            began = anyio.current_time()
            async with connect() as client:
                await client.list_tools()
                if n >= 0:
                    seconds[name].append(anyio.current_time() - began)
    return seconds


def bench_mcp_read_over_stdio(benchmark: object, tmp_path: Path) -> None:
    """One client of each server."""
    connects = over_stdio(source_of(tmp_path / "source", 100))
    report(benchmark, anyio.run(timed_reads, connects, 1), less="bare")


@pytest.mark.parametrize("n_clients", [1, N_CLIENTS])
def bench_mcp_read_over_http(benchmark: object, tmp_path: Path, n_clients: int) -> None:
    """Clients of one server at once, each with a workspace of its own."""
    with over_http(source_of(tmp_path / "source", 100)) as connects:
        report(benchmark, anyio.run(timed_reads, connects, n_clients), less="bare")


def bench_mcp_tool_list_of_a_new_server(benchmark: object, tmp_path: Path) -> None:
    """From the start of a server for 50,000 files until its client has the tool list."""
    connects = over_stdio(source_of(tmp_path / "source", N_FILES))
    report(benchmark, anyio.run(timed_lists, connects), less="bare")
