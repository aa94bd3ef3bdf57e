"""What a client sends: messages of the user, MCP servers, directories; and refusals of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wink_workspace.adapters import ProviderAdapter
from wink_workspace.clock import BudgetTracker, Deadline
from wink_workspace.errors import UsageError
from wink_workspace.integrations.frameworks import importing
from wink_workspace.mcp_client import McpSection
from wink_workspace.prompt import Prompt, Section
from wink_workspace.workspace import RecordedRun, Workspace, WorkspaceConfig, WorkspaceStorage

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


# ------------------------------------------------------------------------------------- agent host


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpHost:
    """What an agent works with.

    Attributes:
        storage: Where its workspaces are stored.
        adapter: Opens the model for one message of the user. It calls its argument with each piece
            of text that the model streams.
        prompt: Makes the prompt of a run: from the workspace, its task, and sections whose tools
            need a permission if they reach beyond the workspace.
        sections: Those sections, such as one for commands; new ones for each run.
        sandbox: The name of the sandbox, for the record.
        config: The settings of workspaces.
        budgets: The deadline and the budget of a run.
    """

    storage: WorkspaceStorage
    adapter: Callable[[Callable[[str], None]], AbstractContextManager[ProviderAdapter[None]]]
    prompt: Callable[[Workspace, str, Sequence[Section[None]]], Prompt[None]]
    sections: Callable[[], Sequence[Section[None]]] = tuple
    sandbox: str = "none"
    config: WorkspaceConfig | None = None
    budgets: Callable[[RecordedRun], tuple[Deadline | None, BudgetTracker | None]] = lambda _: (
        None,
        None,
    )
