"""The places that a client can be given: with a sandbox, in place, or one that is there already."""

from __future__ import annotations

import jsonschema
from mcp import Client
from mcp_rig import Rig, run, text_of


def test_python_of_a_client_runs_behind_the_wall_and_what_it_wrote_can_be_undone(rig: Rig) -> None:
    async def test() -> None:
        server = rig.over_stdio("--sandbox", "asteval", "--workspace-tools", "--temporary")
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


def test_in_place_the_directory_itself_changes_and_there_is_nothing_to_apply(rig: Rig) -> None:
    async def test() -> None:
        async with Client(rig.over_stdio("--in-place", "--workspace-tools")) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert "workspace_undo" in names
            assert "workspace_apply" not in names
            assert "the user's directory" in (client.instructions or "")
            await client.call_tool("write_file", {"file_path": "new", "content": "x\n"})
            assert rig.source_files()["new"] == "x\n"
            await client.call_tool("write_file", {"file_path": "second", "content": "y\n"})
            await client.call_tool("workspace_undo", {})
            assert set(rig.source_files()) == {"app.py", "new"}

    async def again() -> None:
        async with Client(rig.over_stdio("--in-place", "--workspace-tools")) as client:
            await client.call_tool("workspace_undo", {})
            assert set(rig.source_files()) == {"app.py"}

    run(test)
    run(again)
    assert len(rig.workspaces()) == 1
