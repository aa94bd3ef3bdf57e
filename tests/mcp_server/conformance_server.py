"""Our server with the tools of the conformance suite: ``python … SOURCE STATE``."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass

from wink_workspace.mcp_server import Catalog, HttpOptions, serve_http
from wink_workspace.mcp_server.hosting import WorkspaceProvider
from wink_workspace.prompt import MarkdownSection, Tool, ToolContext, ToolResult
from wink_workspace.sections import PlanningToolsSection, VfsToolsSection
from wink_workspace.workspace import Workspace, WorkspaceStorage


@dataclass(frozen=True, slots=True)
class Nothing:
    """No parameters."""


def simple_text(params: Nothing, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.ok(None, "This is a simple text response for testing.")


def error(params: Nothing, *, context: ToolContext) -> ToolResult[None]:
    raise RuntimeError("This tool intentionally returns an error for testing")


def with_progress(params: Nothing, *, context: ToolContext) -> ToolResult[None]:
    for _ in range(
        20
    ):  # the suite wants three notifications; heartbeats before one is sent are merged
        context.beat()
        threading.Event().wait(0.05)
    return ToolResult.ok(None, "done")


SECTION = MarkdownSection[None](
    title="Tools of the conformance suite",
    template="",
    tools=[
        Tool[Nothing, None](name=name, description="A test.", handler=handler)
        for name, handler in (
            ("test_simple_text", simple_text),
            ("test_error_handling", error),
            ("test_tool_with_progress", with_progress),
        )
    ],
)


def main() -> None:
    source, state = sys.argv[1:]
    storage = WorkspaceStorage(state)
    provider = WorkspaceProvider(lambda _: Workspace.create(source, storage=storage))
    serve_http(
        provider,
        Catalog([VfsToolsSection(), PlanningToolsSection(), SECTION], operations=True),
        HttpOptions(),
        on_ready=lambda url: print("serving on", url, file=sys.stderr, flush=True),
    )


if __name__ == "__main__":
    main()
