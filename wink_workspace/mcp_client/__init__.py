"""Tools of foreign MCP servers, as a section of a prompt.

``McpSection`` starts a server, or connects to one, and offers its tools. Each call goes through the
executor, as a call of any other tool. The server is not trusted: what it sends is bounded, and a
part that is not valid is refused. ``server_connection`` speaks the protocol on a thread of its own,
``transports`` bounds what arrives, ``foreign_schemas`` makes types of the server's schemas.

Importing this package loads nothing: each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .foreign_section import McpSection as McpSection
    from .server_connection import McpLimits as McpLimits

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
