"""A server with options that the command does not have: ``python http_server.py SOURCE STATE JSON``."""

from __future__ import annotations

import json
import sys

from wink_workspace.mcp_server import Catalog, HttpOptions, serve_http
from wink_workspace.mcp_server.hosting import WorkspaceProvider
from wink_workspace.sandbox.asteval import AstevalConfig
from wink_workspace.sections import AstevalSection, VfsToolsSection
from wink_workspace.workspace import Workspace, WorkspaceStorage


def main() -> None:
    source, state, options = sys.argv[1:]
    storage = WorkspaceStorage(state)
    provider = WorkspaceProvider(lambda _: Workspace.create(source, storage=storage))
    python = AstevalSection(config=AstevalConfig(timeout_s=1_200))
    serve_http(
        provider,
        Catalog([VfsToolsSection(), python], operations=True),
        HttpOptions(**json.loads(options)),
        on_ready=lambda url: print("serving on", url, file=sys.stderr, flush=True),
    )


if __name__ == "__main__":
    main()
