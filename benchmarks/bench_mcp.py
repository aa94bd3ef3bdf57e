"""The time of a call for an MCP client: a read over each transport.

Run by ``make bench``; ``p95_us`` is beside the median. The server is a separate process, as in
real use; its clients are in this process. The reference is a server of the SDK alone, with one tool
that reads the same files: both are asked in turns, so that both have the same noise.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters

COMMAND = [
    sys.executable,
    "-c",
    "import sys; from wink_workspace.cli import main; sys.exit(main())",
]
ROUNDS = 200
N_CLIENTS = 10
N_WARM = 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A hundred files to read."""
    source = tmp_path / "source"
    source.mkdir()
    for n in range(100):
        (source / f"f{n}.txt").write_text("a line of text\n" * 20)
    return source


def environment_of(source: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(source.parent),
        "XDG_STATE_HOME": str(source.parent / "state"),
    }


BARE = """
import sys
from pathlib import Path
from mcp.server.mcpserver import MCPServer

server = MCPServer("bare")

@server.tool()
def read_file(file_path: str) -> str:
    return Path(sys.argv[1], file_path).read_text()

server.run("stdio")
"""


@pytest.fixture
def url(source: Path) -> Iterator[str]:
    arguments = ["mcp", "--repo", str(source), "--http", "127.0.0.1:0", "--temporary"]
    process = subprocess.Popen(
        [*COMMAND, *arguments], env=environment_of(source), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        yield process.stderr.readline().split()[-1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


async def read(client: Client, n: int) -> None:
    result = await client.call_tool("read_file", {"file_path": f"f{n % 100}.txt"})
    assert not result.is_error


def measured(benchmark: object, connect: Callable[[], Client], *, n_clients: int = 1) -> None:
    """Read repeatedly; each client's reads are one after the other."""
    seconds: list[float] = []

    async def one() -> None:
        async with connect() as client:
            await read(client, 0)  # opens the workspace
            for n in range(ROUNDS // n_clients):
                began = anyio.current_time()
                await read(client, n)
                seconds.append(anyio.current_time() - began)

    async def all_of_them() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(n_clients):
                tasks.start_soon(one)

    run: Callable[[Callable[[], Awaitable[None]]], None] = anyio.run
    run(all_of_them)
    times = iter(seconds)
    # pytest-benchmark cannot await a coroutine, so the measured times are passed to it.
    benchmark._timer = lambda: 0.0
    benchmark.pedantic(lambda: None, rounds=1)
    benchmark.stats.stats.data[:] = list(times)
    benchmark.extra_info["p95_us"] = statistics.quantiles(seconds, n=20)[-1] * 1e6
    benchmark.extra_info["n_clients"] = n_clients


def bench_mcp_read_over_stdio(benchmark: object, source: Path) -> None:
    """One client, whose server is a process of its own."""
    arguments = [*COMMAND[1:], "mcp", "--repo", str(source), "--temporary"]
    server = StdioServerParameters(command=COMMAND[0], args=arguments, env=environment_of(source))
    measured(benchmark, lambda: Client(server))


def bench_mcp_read_over_http(benchmark: object, url: str) -> None:
    """One client of a server."""
    measured(benchmark, lambda: Client(url, mode="legacy"))


def bench_mcp_read_over_http_by_ten_clients(benchmark: object, url: str) -> None:
    """Ten clients of a server at once, each with a workspace of its own."""
    measured(benchmark, lambda: Client(url, mode="legacy"), n_clients=N_CLIENTS)


def bench_mcp_read_over_stdio_beside_a_bare_server(benchmark: object, source: Path) -> None:
    """Each read by both servers in turn; the benchmark is the difference."""
    environment = environment_of(source)
    arguments = [*COMMAND[1:], "mcp", "--repo", str(source), "--temporary", "--sandbox", "none"]
    ours = StdioServerParameters(command=COMMAND[0], args=arguments, env=environment)
    bare = StdioServerParameters(
        command=sys.executable, args=["-c", BARE, str(source)], env=environment
    )
    seconds: dict[str, list[float]] = {"ours": [], "bare": []}

    async def in_turns() -> None:
        async with Client(ours) as one, Client(bare) as other:
            for n in range(-N_WARM, ROUNDS):
                for name, client in (("ours", one), ("bare", other)):
                    began = anyio.current_time()
                    await read(client, n)
                    if n >= 0:
                        seconds[name].append(anyio.current_time() - began)

    anyio.run(in_turns)
    benchmark._timer = lambda: 0.0
    benchmark.pedantic(lambda: None, rounds=1)
    pairs = zip(seconds["ours"], seconds["bare"], strict=True)
    benchmark.stats.stats.data[:] = [ours - bare for ours, bare in pairs]
    for name, times in seconds.items():
        benchmark.extra_info[f"{name}_p50_us"] = statistics.median(times) * 1e6
        benchmark.extra_info[f"{name}_p95_us"] = statistics.quantiles(times, n=20)[-1] * 1e6
