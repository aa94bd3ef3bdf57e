"""A workspace's tools over the Model Context Protocol, for any client that speaks it.

One client, one workspace: a process that serves over its standard streams has one, and over
HTTP each session gets its own. Every tool call goes through the executor, so it is the same
transaction that it is in a run of our own; here is only the way from a message to a call and
back. This package and the sandbox's input and output are all of the toolkit that is
asynchronous, and ``mcp`` with what comes along with it is imported nowhere else.

Importing this package loads nothing: what a name needs is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .catalog import Catalog
    from .hosting import HostedWorkspace
    from .http import HttpOptions, serve_http
    from .stdio import serve_stdio

__all__ = ["Catalog", "HostedWorkspace", "HttpOptions", "serve_http", "serve_stdio"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
