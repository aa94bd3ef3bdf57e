"""A client of the MCP server runs commands in the container of its workspace."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from wink_workspace.mcp_server import HostedWorkspace, Offer
from wink_workspace.mcp_server.hosting import Answer, WorkspaceHome
from wink_workspace.sections import PodmanSandboxSection
from wink_workspace.workspace import Workspace

WATCHDOG_S = 120.0


def test_client_runs_a_command_and_takes_it_back(tmp_path: Path, python_image: str) -> None:
    del python_image  # it is there
    (tmp_path / "app.py").write_text("print('hello')\n")
    home = WorkspaceHome(lambda: Workspace.temporary(tmp_path))
    hosted = HostedWorkspace(home, Offer([PodmanSandboxSection()], operations=True))

    def call(name: str, **arguments: Any) -> Answer:
        asked = hosted.call(name, arguments, cancelled=threading.Event())
        return asked.result(WATCHDOG_S)

    class Closing:
        def close(self) -> None:
            hosted.close().result(WATCHDOG_S)

    with closing(Closing()):
        ran = call("shell_execute", command="python3 app.py > out.txt && cat out.txt")
        assert ran.success, ran.text
        assert "hello" in ran.text
        assert "hello" in call("read_file", file_path="out.txt").text
        assert call("workspace_undo").success
        assert not call("read_file", file_path="out.txt").success
