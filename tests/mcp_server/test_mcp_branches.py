"""The tools for branches: try something on a fork, compare it, and merge it."""

from __future__ import annotations

import json

import pytest
from mcp import Client
from mcp_harness import Harness, run, text_of

from wink_workspace.mcp_server import Catalog
from wink_workspace.mcp_server.wire import mcp_tool

MAX_TOKENS = 3_500
CHARS_PER_TOKEN = 4


@pytest.mark.behaviour(184)
def test_a_change_is_tried_on_a_branch_compared_and_merged(harness: Harness) -> None:
    async def test() -> None:
        async with Client(harness.over_stdio("--workspace-tools")) as client:

            async def call(name: str, **arguments: object) -> str:
                result = await client.call_tool(name, arguments)
                assert not result.is_error, text_of(result)
                return text_of(result)

            async def refused(name: str, **arguments: object) -> str:
                result = await client.call_tool(name, arguments)
                assert result.is_error
                return text_of(result)

            await call("fork_workspace", branch="try")
            assert "not a valid" in await refused("fork_workspace", branch="../up")
            assert "no fork 'none'" in await refused("switch_branch", branch="none")
            assert "* try" in await call("switch_branch", branch="try")
            await call("write_file", file_path="new.txt", content="tried\n")
            assert "new.txt" in await call("ls")
            await call("switch_branch", branch="main")
            assert "new.txt" not in await call("ls")
            assert "+tried" in await call("compare_branches", branch="try")
            assert "-tried" in await call("compare_branches", branch="main", base="try")
            assert "itself" in await refused("merge_branch", branch="main")
            assert "new.txt" in await call("merge_branch", branch="try")
            assert "new.txt" in await call("ls")
            assert "nothing that is not merged" in await call("merge_branch", branch="try")
            await call("workspace_undo")
            assert "new.txt" not in await call("ls")

    run(test)
    (stays,) = harness.workspaces()
    assert stays


def test_the_list_of_all_tools_stays_short() -> None:
    tools = Catalog(operations=True).tools
    listed = [
        mcp_tool(tool, structured=False).model_dump(mode="json", by_alias=True, exclude_none=True)
        for tool in tools
    ]
    assert {"fork_workspace", "switch_branch", "compare_branches", "merge_branch"} <= {
        tool["name"] for tool in listed
    }
    assert len(json.dumps(listed, separators=(",", ":"))) < MAX_TOKENS * CHARS_PER_TOKEN


def test_in_place_there_are_no_branches() -> None:
    names = {tool.name for tool in Catalog(operations=True, in_place=True).tools}
    assert "workspace_undo" in names
    assert not any("branch" in name or "fork" in name for name in names)
