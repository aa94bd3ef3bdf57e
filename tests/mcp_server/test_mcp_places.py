"""Modes of a served workspace: with a sandbox, and in place."""

from __future__ import annotations

import jsonschema
from mcp import Client
from mcp_harness import Harness, run, text_of


def test_python_of_a_client_runs_isolated_and_its_writes_can_be_undone(harness: Harness) -> None:
    async def test() -> None:
        server = harness.over_stdio("--sandbox", "asteval", "--workspace-tools", "--temporary")
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
