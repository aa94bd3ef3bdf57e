"""Modes of a served workspace: with a sandbox, and in place."""

from __future__ import annotations

import jsonschema
import pytest
from mcp import Client
from mcp_harness import Harness, run, text_of

from wink_workspace.cli.screen.command_context import CommandContext

# What a server calls for each session that ends; only a running server would call it otherwise
from wink_workspace.cli.serve.mcp_command import McpOptions, _closer
from wink_workspace.environment import Environment
from wink_workspace.errors import LedgerError
from wink_workspace.project import Confirmations, load_settings
from wink_workspace.workspace import Workspace


def test_python_of_a_client_runs_isolated_and_its_writes_can_be_undone(harness: Harness) -> None:
    async def test() -> None:
        server = harness.over_stdio(
            "--sandbox", "asteval", "--workspace-tools", "--temporary", "--structured"
        )
        async with Client(server) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            arguments = {
                "code": "open('out.txt', 'w').write(str(6 * 7)); 6 * 7",
                "writes": ["out.txt"],
            }
            result = await client.call_tool("evaluate_python", arguments)
            assert not result.is_error, text_of(result)
            jsonschema.validate(result.structured_content, tools["evaluate_python"].output_schema)
            assert result.structured_content["value"] == "42"
            read = await client.call_tool("read_file", {"file_path": "out.txt"})
            assert read.structured_content["lines"] == ["42"]
            assert not (await client.call_tool("workspace_undo", {})).is_error
            assert (await client.call_tool("read_file", {"file_path": "out.txt"})).is_error
            refused = await client.call_tool("evaluate_python", {"code": "open('/etc/passwd')"})
            assert refused.is_error

    run(test)


@pytest.mark.behaviour(98)
def test_server_does_not_use_what_was_not_confirmed_and_asks_nothing(harness: Harness) -> None:
    (harness.source / "wink-workspace.toml").write_text('sandbox = "asteval"\n')

    async def tools() -> set[str]:
        async with Client(harness.over_stdio()) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    async def test() -> None:
        assert "evaluate_python" not in await tools()
        environment = Environment(variables=harness.environment, home=harness.root)
        loaded = load_settings(harness.source, environment)
        assert loaded.file is not None
        texts = [each.text for each in loaded.denied]
        Confirmations(environment.state_dir).confirm(loaded.file, texts)
        assert "evaluate_python" in await tools()

    run(test)


def test_in_place_the_directory_itself_changes_and_apply_is_left_out(harness: Harness) -> None:
    async def test() -> None:
        async with Client(harness.over_stdio("--in-place", "--workspace-tools")) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert "workspace_undo" in names
            assert "workspace_apply" not in names
            assert "the user's directory" in (client.instructions or "")
            await client.call_tool("write_file", {"file_path": "new", "content": "x\n"})
            assert harness.source_files()["new"] == "x\n"
            await client.call_tool("write_file", {"file_path": "second", "content": "y\n"})
            await client.call_tool("workspace_undo", {})
            assert set(harness.source_files()) == {"app.py", "new"}

    async def again() -> None:
        async with Client(harness.over_stdio("--in-place", "--workspace-tools")) as client:
            await client.call_tool("workspace_undo", {})
            assert set(harness.source_files()) == {"app.py"}

    run(test)
    run(again)
    assert len(harness.workspaces()) == 1


def test_workspace_is_closed_and_stays_if_its_changes_cannot_be_read(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Workspace) -> None:
        raise LedgerError("an object is damaged")

    context = CommandContext(Environment(variables=harness.environment, home=harness.root))
    workspace = Workspace.create(harness.source, storage=context.storage)
    monkeypatch.setattr(Workspace, "changeset", fail)
    # Private: the command's server is another process, whose errors a test cannot choose.
    close = _closer(context, McpOptions(repo=harness.source))
    with pytest.raises(LedgerError, match="damaged"):
        close(workspace)
    Workspace.open(workspace.info.id, storage=context.storage).close()
