"""What a client sends: messages of the user, MCP servers, directories; and refusals of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wink_workspace.errors import UsageError
from wink_workspace.integrations.frameworks import importing
from wink_workspace.mcp_client import McpSection

with importing("acp"):
    from acp import RequestError
    from acp.schema import (
        EmbeddedResourceContentBlock,
        HttpMcpServer,
        McpServerStdio,
        ResourceContentBlock,
        TextContentBlock,
        TextResourceContents,
    )

__all__ = ["directory_of", "mcp_section", "refused", "text_of"]


def text_of(blocks: Sequence[Any]) -> str:
    """The message of the user as text."""
    parts: list[str] = []
    for block in blocks:
        match block:
            case TextContentBlock():
                parts.append(block.text)
            case ResourceContentBlock():
                parts.append(f"[{block.name}]({block.uri})")
            case EmbeddedResourceContentBlock(resource=TextResourceContents() as resource):
                parts.append(f"{resource.uri}:\n```\n{resource.text}\n```")
            case _:
                raise refused("the message has a part that is not text")
    text = "\n".join(parts).strip()
    if not text:
        raise refused("the message is empty")
    return text


def mcp_section(server: Any) -> McpSection:
    """The section of a server in the client's configuration."""
    name = "".join(c if c.isalnum() and c.isascii() else "-" for c in server.name.lower())[:24]
    match server:
        case McpServerStdio():
            env = {each.name: each.value for each in server.env}
            return McpSection(name, command=(server.command, *server.args), env=env)
        case HttpMcpServer():
            headers = {each.name: each.value for each in server.headers}
            return McpSection(name, url=server.url, headers=headers)
        case _:
            raise UsageError(
                f"the MCP server {server.name} has a transport that is not supported",
                hint="Use stdio or HTTP.",
            )


def directory_of(cwd: str) -> Path:
    """The directory of a session."""
    path = Path(cwd)
    if not path.is_absolute() or not path.is_dir():
        raise refused(f"{cwd} is not an absolute path of a directory")
    return path


def refused(message: str) -> RequestError:
    """The error that a client gets for a request."""
    details: Mapping[str, str] = {"details": message}
    return RequestError(-32602, message, dict(details))
