"""The configurations that the documentation shows can be read, and name options that there are."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from wink_workspace.cli.serving import mcp

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "mcp.md"]
BLOCK = re.compile(r"^```(json|toml|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def options() -> set[str]:
    application = typer.Typer()
    application.command()(mcp)
    return {name for param in typer.main.get_command(application).params for name in param.opts}


def blocks(kind: str) -> Iterator[str]:
    for page in PAGES:
        found = BLOCK.findall(page.read_text(encoding="utf-8"))
        yield from (text for language, text in found if language == kind)


def servers() -> Iterator[dict[str, Any]]:
    for text in blocks("json"):
        read = json.loads(text)
        yield from (read.get("mcpServers") or read["servers"]).values()
    for text in blocks("toml"):
        yield from tomllib.loads(text)["mcp_servers"].values()


def test_configurations_start_the_command_with_options_that_there_are() -> None:
    started = [server for server in servers() if "command" in server]
    assert len(started) >= 4
    for server in started:
        assert server["command"] == "wink-workspace"
        assert server["args"][:2] == ["mcp", "--repo"]
        assert {arg for arg in server["args"] if arg.startswith("--")} <= options()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_shell_use_options_that_there_are(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if "wink-workspace mcp" in line]
    assert lines
    for line in lines:
        used = set(re.findall(r"(?<!\S)--[a-z-]+", line.partition("wink-workspace mcp")[2]))
        assert used <= options(), line
