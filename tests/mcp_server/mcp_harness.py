"""Servers and clients for the tests: in this process, over stdio, and over HTTP on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from wink_workspace.mcp_server import Catalog, HostedWorkspace
from wink_workspace.mcp_server.hosting import WorkspaceProvider
from wink_workspace.mcp_server.request_handlers import RequestIds, make_server
from wink_workspace.prompt import Section
from wink_workspace.workspace import Workspace, WorkspaceStorage

WATCHDOG_S = 120.0
COMMAND = [
    sys.executable,
    "-c",
    "import sys; from wink_workspace.cli import main; sys.exit(main())",
]


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run an asynchronous test with a time limit."""

    async def watched() -> None:
        with anyio.fail_after(WATCHDOG_S):
            await test()

    anyio.run(watched)


def text_of(result: Any) -> str:
    return result.content[0].text


async def call_ok(client: Client, name: str, **arguments: object) -> str:
    """Return the text of a call's answer; the call must succeed."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, text_of(result)
    return text_of(result)


@dataclass
class Harness:
    """A source directory, a storage for workspaces, and servers for them."""

    root: Path
    files: dict[str, str] = field(default_factory=lambda: {"app.py": "print('helo')\n"})

    def __post_init__(self) -> None:
        self.source = self.root / "source"
        self.source.mkdir()
        for name, text in self.files.items():
            (self.source / name).parent.mkdir(parents=True, exist_ok=True)
            (self.source / name).write_text(text)
        settings = self.root / ".config" / "wink-workspace" / "config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text('sandbox = "none"\n')  # checking which one works takes seconds
        self.storage = WorkspaceStorage(self.root / "state" / "wink-workspace")
        self.workspace: Workspace | None = None

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k.startswith(("COVERAGE", "PYTHON", "PATH"))}
        return {**kept, "XDG_STATE_HOME": str(self.root / "state"), "HOME": str(self.root)}

    def workspaces(self) -> list[str]:
        return [info.id for info in self.storage.all()]

    def source_files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.source)): path.read_text()
            for path in self.source.rglob("*")
            if path.is_file()
        }

    @asynccontextmanager
    async def client(
        self,
        *,
        sections: Sequence[Section[None]] | None = None,
        mode: str = "legacy",
        progress_interval_s: float = 5.0,
        release: Callable[[Workspace], None] = Workspace.close,
        traces_content: bool = False,
        redact: Callable[[str], str] = str,
        structured: bool = False,
        before_open: Callable[[Callable[[int, int], None]], object] = lambda progress: None,
    ) -> AsyncIterator[Client]:
        """A client of a server in this process."""

        def open_workspace(progress: Callable[[int, int], None]) -> Workspace:
            before_open(progress)
            self.workspace = Workspace.create(self.source, storage=self.storage, progress=progress)
            return self.workspace

        catalog = Catalog(sections, operations=True, structured=structured)
        provider = WorkspaceProvider(open_workspace, release, traces_content, redact)
        hosted = HostedWorkspace(provider, catalog)

        class One:
            def of(self, context: object) -> HostedWorkspace:
                return hosted

        @asynccontextmanager
        async def lifespan(server: object) -> AsyncIterator[One]:
            yield One()

        server = make_server(
            catalog,
            lifespan,
            ids=RequestIds(),
            redact=redact,
            progress_interval_s=progress_interval_s,
        )
        try:
            async with Client(server, mode=mode) as client:
                yield client
        finally:
            hosted.close().result(WATCHDOG_S)

    def over_stdio(self, *options: str) -> StdioServerParameters:
        arguments = [*COMMAND[1:], "mcp", "--repo", str(self.source), *options]
        return StdioServerParameters(command=COMMAND[0], args=arguments, env=self.environment)

    @contextmanager
    def over_http(self, *options: str, **more: str) -> Iterator[HttpServer]:
        """The command, serving HTTP on a free port until the block ends."""
        arguments = ["mcp", "--repo", str(self.source), "--http", "127.0.0.1:0", *options]
        with started([*COMMAND, *arguments], {**self.environment, **more}) as server:
            yield server

    def stdio_process(self, *options: str) -> subprocess.Popen[bytes]:
        """The command, serving over stdio; the test reads and writes the pipes itself."""
        return subprocess.Popen(
            [*COMMAND, "mcp", "--repo", str(self.source), *options],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def exchange(process: subprocess.Popen[bytes], **message: object) -> dict[str, Any]:
    """Send *message*; returns the next line if it is a request, and ``{}`` for a notification."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline()) if "id" in message else {}


@dataclass
class HttpServer:
    process: subprocess.Popen[str]
    url: str
    stderr: str = ""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2].partition("/")[0])

    def end(self) -> int:
        """Send SIGTERM and wait; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        _, stderr = self.process.communicate(timeout=WATCHDOG_S)
        self.stderr += stderr
        return self.process.returncode


@contextmanager
def started(command: list[str], environment: dict[str, str]) -> Iterator[HttpServer]:
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    server = HttpServer(process, first.split()[-1] if first else "", stderr=first)
    try:
        assert server.url.startswith("http://"), first + process.stderr.read()
        yield server
    finally:
        try:
            if process.returncode is None:
                assert server.end() == 0, server.stderr
        finally:
            process.kill()
            process.wait()
            process.stderr.close()


@asynccontextmanager
async def http_client(
    url: str, token: str | None = None, mode: str = "auto"
) -> AsyncIterator[Client]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=WATCHDOG_S) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            yield client
