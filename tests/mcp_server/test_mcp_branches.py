"""The tools for branches: try something on a fork, compare it, and merge it."""

from __future__ import annotations

from functools import partial

import pytest
from mcp_harness import Harness, call_ok, run, text_of

from wink_workspace.mcp_server import Catalog


@pytest.mark.behaviour(184)
def test_a_change_is_tried_on_a_branch_compared_and_merged(harness: Harness) -> None:
    async def test() -> None:
        async with harness.client() as client:
            call = partial(call_ok, client)

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


@pytest.mark.behaviour(209)
def test_long_diff_of_a_workspace_is_read_in_parts_and_no_undo_reverts_its_file(
    harness: Harness,
) -> None:
    async def test() -> None:
        async with harness.client() as client:
            call = partial(call_ok, client)

            path = ".wink-output/workspace_diff.txt"
            await call("write_file", file_path="new.txt", content="a new line\n" * 50_000)
            shown = await call("workspace_diff")
            assert f"characters left out; the whole is in {path}" in shown
            part = await call("read_file", file_path=path, offset=40_000, limit=1)
            assert part.endswith("\t+a new line\n(more lines follow; continue with offset=40001)")
            assert "new.txt" in await call("workspace_undo")
            assert "(no differences)" in await call("workspace_diff")
            assert "+a new line" in await call("grep", pattern="a new line", path=path)

    run(test)


def test_in_place_there_are_no_branches() -> None:
    names = {tool.name for tool in Catalog(operations=True, in_place=True).tools}
    assert "workspace_undo" in names
    assert not any("branch" in name or "fork" in name for name in names)
