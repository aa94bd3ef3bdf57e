"""Configurations in the documentation are valid and use existing options."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from mcp_harness import Harness, run

from wink_workspace.cli.app import application

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "guide.md", ROOT / "docs" / "mcp.md"]
BLOCK = re.compile(r"^```(json|toml|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def options() -> set[str]:
    commands = typer.main.get_command(application()).commands
    return {name for param in commands["mcp"].params for name in param.opts}


def blocks(kind: str) -> Iterator[str]:
    for page in PAGES:
        found = BLOCK.findall(page.read_text(encoding="utf-8"))
        yield from (text for language, text in found if language == kind)


def named_servers() -> Iterator[tuple[str, dict[str, Any]]]:
    for text in blocks("json"):
        read = json.loads(text)
        for name, server in (read.get("mcpServers") or read.get("servers") or read["mcp"]).items():
            if isinstance(server.get("command"), list):  # opencode: the program with its arguments
                program, *args = server["command"]
                server = {**server, "command": program, "args": args}
            yield name, server
    for text in blocks("toml"):
        yield from tomllib.loads(text)["mcp_servers"].items()


def servers() -> Iterator[dict[str, Any]]:
    yield from (server for _, server in named_servers())


def test_server_is_called_wink_everywhere_as_a_client_reserves_workspace(harness: Harness) -> None:
    assert {name for name, _ in named_servers()} == {"wink"}
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert set(re.findall(r"claude mcp add (\S+)", text)) == {"wink"}

    async def test() -> None:
        async with harness.client() as client:
            assert client.server_info is not None
            assert client.server_info.name == "wink"

    run(test)


def test_configurations_start_the_command_with_existing_options() -> None:
    started = [server for server in servers() if "command" in server]
    assert len(started) >= 4
    for server in started:
        assert server["command"] == "wink-workspace"
        assert server["args"][:2] == ["mcp", "--repo"]
        assert {arg for arg in server["args"] if arg.startswith("--")} <= options()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shell_lines_use_existing_options(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if "wink-workspace mcp" in line]
    assert lines
    for line in lines:
        used = set(re.findall(r"(?<!\S)--[a-z-]+", line.partition("wink-workspace mcp")[2]))
        assert used <= options(), line
