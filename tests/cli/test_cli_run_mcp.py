"""``run`` with foreign MCP servers, which only the user's own configuration can name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cli_user import CliUser

SERVER = Path(__file__).parents[1] / "mcp_client" / "foreign_server.py"


@pytest.fixture
def configured(user: CliUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes the user's configuration with a server, and a script that calls its tool."""

    def write(kind: str = "plain", more: str = "", **arguments: str) -> Path:
        command = [sys.executable, str(SERVER), kind, str(tmp_path / "journal")]
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        own = tmp_path / "config/wink-workspace/config.toml"
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(f"[mcp_servers.docs]\ncommand = {json.dumps(command)}\n{more}")
        call = {"name": "docs__echo", "arguments": arguments}
        turns = [{"tool_calls": [call]}, {"text": "Done."}]
        script = tmp_path / "turns.jsonl"
        script.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
        return script

    return write


@pytest.mark.behaviour(204)
def test_run_offers_the_tools_of_a_server_in_the_users_configuration(
    user: CliUser, tmp_path: Path, configured
) -> None:
    script = configured(text="hello")
    user("run", "--repo", user.source, "--script", script, "--sandbox", "none")
    assert (tmp_path / "journal").read_text().splitlines()[-1].startswith("call")
    [workspace] = json.loads(user("list", "--json"))
    shown = user("show", workspace["id"], 2)
    assert "docs__echo" in shown
    assert "called echo of the MCP server docs" in shown
    user("run", "--source", user.source, "--script", script)  # in a temporary workspace, too


@pytest.mark.behaviour(204)
def test_a_server_gets_only_the_variables_that_the_user_names_and_their_values_are_redacted(
    user: CliUser, tmp_path: Path, configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKER", "hunter22-hunter22")
    monkeypatch.setenv("OTHER", "not for servers")
    script = configured("env", "variables = ['TRACKER']\nenv = {MODE = 'test'}\n", text="env")
    user("run", "--repo", user.source, "--script", script, "--sandbox", "none")
    [workspace] = json.loads(user("list", "--json"))
    shown = user("show", workspace["id"], 2)
    assert "TRACKER" in shown
    assert "MODE" in shown
    assert "OTHER" not in shown
    assert "hunter22" not in shown
    monkeypatch.delenv("TRACKER")
    user("run", "--repo", user.source, "--script", script, "--sandbox", "none", fails=2)
    assert "the variable TRACKER of the MCP server docs is not set" in user.err


@pytest.mark.behaviour(204)
def test_a_server_that_does_not_start_leaves_no_workspace(user: CliUser, configured) -> None:
    script = configured("many", text="hello")
    user("run", "--repo", user.source, "--script", script, "--sandbox", "none", fails=1)
    assert "the MCP server docs has 65 tools" in user.err
    assert json.loads(user("list", "--json")) == []


@pytest.mark.behaviour(204)
def test_a_project_cannot_name_a_server(user: CliUser, tmp_path: Path, configured) -> None:
    script = configured(text="hello")
    (user.source / "wink-workspace.toml").write_text("[mcp_servers.evil]\ncommand = ['id']\n")
    user("run", "--repo", user.source, "--script", script, "--sandbox", "none", fails=2)
    assert "mcp_servers" in user.err
    assert not (tmp_path / "journal").exists()
