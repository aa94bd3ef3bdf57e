"""Many clients at once: each has its own workspace, and nothing is left afterwards."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_harness import Harness, HttpServer, http_client, run, text_of

from wink_workspace.mcp_server.catalog import Catalog
from wink_workspace.mcp_server.hosting import WorkspaceProvider
from wink_workspace.mcp_server.http import _SessionWorkspaces
from wink_workspace.workspace import Workspace


async def work(client: Client, me: str, n_rounds: int) -> None:
    """Write, read and undo; assert that files of other clients are not visible."""
    mine = f"{me}.txt"
    for n in range(n_rounds):
        written = await client.call_tool(
            "write_file", {"file_path": mine, "content": f"{me} {n}\n"}
        )
        assert not written.is_error, text_of(written)
        listed = await client.call_tool("ls", {})
        names = [line.split()[-1] for line in text_of(listed).splitlines()[-2:]]
        assert names == ["app.py", mine]
        read = await client.call_tool("read_file", {"file_path": mine})
        assert text_of(read).endswith(f"     1\t{me} {n}")
        resource = await client.read_resource(f"workspace://files/{mine}")
        assert resource.contents[0].text == f"{me} {n}\n"
        assert not (await client.call_tool("workspace_undo", {})).is_error
        if n:
            read = await client.call_tool("read_file", {"file_path": mine})
            assert text_of(read).endswith(f"     1\t{me} {n - 1}")
        again = await client.call_tool("write_file", {"file_path": mine, "content": f"{me} {n}\n"})
        assert not again.is_error, text_of(again)


async def sessions(server: HttpServer, n_sessions: int, n_rounds: int) -> None:
    async def one(me: str) -> None:
        async with http_client(server.url, mode="legacy") as client:
            await work(client, me, n_rounds)

    async with anyio.create_task_group() as tasks:
        for n in range(n_sessions):
            tasks.start_soon(one, f"session-{n}")


def memory_bytes(server: HttpServer) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def temporary_folders(harness: Harness) -> list[str]:
    return [path.name for path in (harness.root / "tmp").iterdir()]


def test_concurrent_clients_are_isolated_and_leave_nothing(harness: Harness) -> None:
    (harness.root / "tmp").mkdir()
    environment = {"TMPDIR": str(harness.root / "tmp")}
    with harness.over_http("--workspace-tools", "--temporary", **environment) as server:
        run(lambda: sessions(server, n_sessions=5, n_rounds=2))
        assert server.end() == 0
    assert temporary_folders(harness) == []
    assert harness.workspaces() == []
    assert harness.source_files() == harness.files
    assert "Traceback" not in server.stderr


def test_requests_without_sessions_share_one_workspace_that_no_session_sees(
    harness: Harness,
) -> None:
    """Versions from 2026-07-28 on have no sessions, so each request comes alone."""

    async def test(server: HttpServer) -> None:
        for n, mode in enumerate(("2026-07-28", "auto", "legacy")):
            async with http_client(server.url, mode=mode) as client:
                listed = text_of(await client.call_tool("ls", {}))
                assert ("shared.txt" in listed) is (n == 1)
                given = {"file_path": "shared.txt", "content": mode}
                if n == 1:
                    await client.call_tool("read_file", {"file_path": "shared.txt"})
                written = await client.call_tool("write_file", given)
                assert not written.is_error, text_of(written)

    with harness.over_http("--temporary") as server:
        run(lambda: test(server))
        assert server.end() == 0
    assert harness.workspaces() == []


def test_clients_that_are_connected_when_the_server_ends_leave_nothing(harness: Harness) -> None:
    (harness.root / "tmp").mkdir()

    async def test(server: HttpServer) -> None:
        async with http_client(server.url, mode="legacy") as client:
            await client.call_tool("write_file", {"file_path": "new", "content": "x"})
            assert await anyio.to_thread.run_sync(server.end) == 0

    environment = {"TMPDIR": str(harness.root / "tmp")}
    with harness.over_http("--temporary", **environment) as server:
        run(lambda: test(server))
    assert temporary_folders(harness) == []
    assert "Traceback" not in server.stderr


@pytest.mark.soak
def test_a_hundred_clients_for_a_minute_are_isolated_and_memory_stays_bounded(
    harness: Harness,
) -> None:
    (harness.root / "tmp").mkdir()
    ends_at = time.monotonic() + 60

    async def one(url: str, me: str) -> None:
        while time.monotonic() < ends_at:
            async with http_client(url, mode="legacy") as client:
                await work(client, me, n_rounds=3)

    async def test(url: str) -> None:
        with anyio.fail_after(240):
            async with anyio.create_task_group() as tasks:
                for n in range(100):
                    tasks.start_soon(one, url, f"session-{n}")

    environment = {"TMPDIR": str(harness.root / "tmp")}
    with harness.over_http("--workspace-tools", "--temporary", **environment) as server:
        anyio.run(sessions, server, 100, 1)
        before = memory_bytes(server)
        anyio.run(test, server.url)
        after = memory_bytes(server)
        print(
            f"memory {before / 1e6:.0f} MB after a hundred sessions, {after / 1e6:.0f} MB at the end"
        )
        assert after < before * 1.5 + 50_000_000
        assert server.end() == 0
    assert temporary_folders(harness) == []
    assert "Traceback" not in server.stderr


class Connection:
    """What the library has for each session."""

    def __init__(self) -> None:
        self.exit_stack = AsyncExitStack()


def test_workspace_that_closes_while_the_server_closes_another_is_left_alone() -> None:
    """A session ended during its call, and the library did not wait. Then the server is ended."""
    unused: Any = None
    workspaces = _SessionWorkspaces(WorkspaceProvider(open=unused), unused)
    connections = {each: Connection() for each in ("first", "second")}
    calls = {each: threading.Event() for each in connections}

    async def end() -> None:
        for name, connection in connections.items():
            session = SimpleNamespace(_connection=connection)
            hosted = workspaces.of(
                SimpleNamespace(session=session, request=SimpleNamespace(headers={}))
            )
            hosted._submit(calls[name].wait)
        ending = asyncio.create_task(connections["second"].exit_stack.aclose())
        await asyncio.sleep(0)
        ending.cancel()
        closing = asyncio.create_task(workspaces.close())
        await asyncio.sleep(0)  # it waits for the call of the first one
        calls["second"].set()
        await asyncio.wrap_future(hosted.close())
        calls["first"].set()
        await closing

    try:
        asyncio.run(end())
    finally:
        for call in calls.values():
            call.set()
    assert workspaces._hosted == {}


def test_workspaces_are_closed_although_one_of_them_raises_an_error_of_the_system(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    released: list[str] = []

    def release(workspace: Workspace) -> None:
        workspace.close()
        released.append(workspace.info.id)
        if len(released) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    provider = WorkspaceProvider(
        lambda _: Workspace.create(harness.source, storage=harness.storage), release
    )
    workspaces = _SessionWorkspaces(provider, Catalog())

    async def end() -> None:
        for _ in range(3):
            session = SimpleNamespace(_connection=Connection())
            await asyncio.wrap_future(
                workspaces.of(
                    SimpleNamespace(session=session, request=SimpleNamespace(headers={}))
                ).open()
            )
        await workspaces.close()

    asyncio.run(end())
    assert len(released) == 3
    assert workspaces._hosted == {}
    assert "No space left on device" in caplog.text
