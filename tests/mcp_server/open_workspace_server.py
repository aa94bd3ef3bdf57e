"""Serves a workspace that is open: ``python open_workspace_server.py SOURCE STATE stdio|http``."""

from __future__ import annotations

import sys

from wink_workspace.mcp_server import serve_http, serve_stdio
from wink_workspace.workspace import Workspace, WorkspaceStorage


def main() -> None:
    source, state, how = sys.argv[1:]
    with Workspace.create(source, storage=WorkspaceStorage(state)) as workspace:
        if how == "stdio":
            serve_stdio(workspace)
        else:
            serve_http(
                workspace,
                on_ready=lambda url: print("serving on", url, file=sys.stderr, flush=True),
            )
        workspace.files.write_text("still_open.txt", workspace.diff())


if __name__ == "__main__":
    main()
