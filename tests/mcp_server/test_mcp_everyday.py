"""A usual session over each transport: edit a repository, break it, undo, apply."""

from __future__ import annotations

import json
import signal
from functools import partial

import pytest
from mcp import Client
from mcp_harness import (
    COMMAND,
    WATCHDOG_S,
    Harness,
    call_ok,
    exchange,
    http_client,
    run,
    text_of,
)
from raw_http import INITIALIZE

from wink_workspace.workspace import WorkspaceReader

TOKEN = "s3cr3t-of-the-tests"


async def edit_break_undo_and_apply(client: Client, harness: Harness) -> None:
    call = partial(call_ok, client)
    unread = await client.call_tool(
        "edit_file", {"file_path": "app.py", "old_string": "helo", "new_string": "hello"}
    )
    assert unread.is_error, "an edit of a file that nobody has read is refused"
    await call("read_file", file_path="app.py")
    await call("edit_file", file_path="app.py", old_string="helo", new_string="hello")
    await call("rm", path="app.py")
    assert "app.py" not in await call("ls")
    await call("workspace_undo")
    assert "print('hello')" in await call("read_file", file_path="app.py")
    assert "+print('hello')" in await call("workspace_diff")
    assert harness.source_files() == {"app.py": "print('helo')\n"}
    await call("workspace_apply")
    assert harness.source_files() == {"app.py": "print('hello')\n"}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_client_edits_a_repository_breaks_it_and_undoes_it_over_stdio(
    harness: Harness, mode: str
) -> None:
    async def test() -> None:
        async with Client(harness.over_stdio("--workspace-tools"), mode=mode) as client:
            await edit_break_undo_and_apply(client, harness)

    run(test)


def test_clients_edit_a_repository_break_it_and_undo_it_over_http(harness: Harness) -> None:
    async def test(url: str) -> None:
        for mode in ("auto", "legacy"):
            (harness.source / "app.py").write_text("print('helo')\n")
            async with http_client(url, TOKEN, mode) as client:
                await edit_break_undo_and_apply(client, harness)

    with harness.over_http("--workspace-tools", WINK_WORKSPACE_TOKEN=TOKEN) as server:
        run(lambda: test(server.url))


def test_only_a_changed_workspace_is_kept_and_it_can_be_served_again(harness: Harness) -> None:
    async def call(name: str, which: str = "", **arguments: object) -> str:
        server = harness.over_stdio()
        if which:
            server.args = [*COMMAND[1:], "mcp", "--workspace", which]
        async with Client(server) as client:
            return text_of(await client.call_tool(name, arguments))

    run(lambda: call("ls"))
    assert harness.workspaces() == []
    run(lambda: call("write_file", file_path="new", content="mine\n"))
    (stayed,) = harness.workspaces()
    with WorkspaceReader(harness.storage.folder(stayed)) as reader:
        assert [str(change.path) for change in reader.changes()] == ["new"]
    answers: list[str] = []

    async def again() -> None:
        answers.append(await call("read_file", stayed, file_path="new"))

    run(again)
    assert "mine" in answers[0]
    assert harness.workspaces() == [stayed]


def test_temporary_workspaces_are_deleted(harness: Harness) -> None:
    async def test() -> None:
        async with Client(harness.over_stdio("--temporary")) as client:
            await client.call_tool("write_file", {"file_path": "new", "content": "x"})

    run(test)
    assert harness.workspaces() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "nothing to work on"),
        (["--repo", "no-such-directory"], "is not a directory"),
        (["--repo", ".", "--workspace", "abc"], "no workspace is called"),
        (["--workspace", "abc", "--http", "127.0.0.1:0"], "is called"),
        (["--repo", ".", "--in-place", "--http", "127.0.0.1:0"], "for one client"),
        (["--repo", ".", "--in-place", "--sandbox", "podman"], "only files"),
        (["--repo", ".", "--in-place", "--temporary"], "cannot be temporary"),
        (["--repo", ".", "--sandbox", "docker"], "no sandbox"),
        (["--repo", ".", "--http", "somewhere"], "not HOST:PORT. Write it as"),
        (["--repo", ".", "--http", "127.0.0.1:99999"], "not HOST:PORT"),
        (["--repo", ".", "--http", "0.0.0.0:0"], "needs a token"),
        (["--repo", ".", "--http", "[::]:0"], "needs a token"),
        (["--repo", ".", "--http", "127.0.0.1:0", "--token", "a b"], "contains a space"),
        (
            ["--repo", ".", "--http", "127.0.0.1:0", "--token", "\u00e9"],
            "not allowed in an HTTP header",
        ),
        (["--repo", ".", "--http", "203.0.113.1:1", "--token", "t"], "cannot listen"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    harness: Harness,
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from wink_workspace.cli import main

    monkeypatch.setenv("XDG_STATE_HOME", str(harness.root / "state"))
    monkeypatch.chdir(harness.source)
    assert main(["mcp", *options]) == 2
    assert message in capsys.readouterr().err
    assert harness.workspaces() == []


# Shutdown


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "ending", ["end of input", "SIGTERM", "SIGINT", "client disconnects", "client does not read"]
)
def test_server_ends_cleanly_and_leaves_nothing_behind(harness: Harness, ending: str) -> None:
    with harness.stdio_process("--temporary") as process:
        try:
            assert exchange(process, **INITIALIZE)["result"]["capabilities"]["tools"] is not None
            match ending:
                case "end of input":
                    process.stdin.close()
                case "client disconnects":
                    process.stdout.close()
                    process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
                    process.stdin.close()
                case "client does not read":
                    process.stdout.close()
                    process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
                    process.stdin.flush()
                case _:
                    process.send_signal(getattr(signal, ending))
            assert process.wait(WATCHDOG_S) == 0, process.stderr.read()
        finally:
            process.kill()
        assert b"Traceback" not in process.stderr.read()
    assert not list((harness.root / "state").rglob("about.json"))


def test_an_invalid_line_is_answered_and_the_next_one_served(harness: Harness) -> None:
    with harness.stdio_process("--temporary") as process:
        try:
            exchange(process, **INITIALIZE)
            process.stdin.write(b"no json\n\xff\xfe\n" + b"[" * 100_000 + b"\n")
            process.stdin.flush()
            answers = [exchange(process, id=1, method="tools/list")]
            while answers[-1].get("id") != 1:
                answers.append(json.loads(process.stdout.readline()))
            assert answers[-1]["result"]["tools"]
        finally:
            process.kill()
