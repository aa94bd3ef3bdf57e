"""A workspace's tools over the Model Context Protocol, for any MCP client.

Each client has one workspace: over stdio the process serves one client, over HTTP each session
gets its own. Every tool call goes through the executor, so it is the same transaction as in a run
of our own agent loop. This package only translates between messages and calls. ``mcp_client`` has
the other side of the protocol. The two and the I/O of the sandbox are the only asynchronous code,
and only the two import ``mcp`` and its dependencies.

Importing this package loads nothing: each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .catalog import Catalog as Catalog
    from .hosting import HostedWorkspace as HostedWorkspace
    from .hosting import WorkspaceProvider as WorkspaceProvider
    from .http import HttpOptions as HttpOptions
    from .http import serve_http as serve_http
    from .stdio import serve_stdio as serve_stdio

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
