"""The command ``report``: the history of a workspace as a page to send to a colleague."""

from __future__ import annotations

import typer

from wink_workspace.cli.sandbox.project import for_workspace
from wink_workspace.cli.screen.command_context import CommandContext, WorkspaceArgument
from wink_workspace.errors import MissingExtraError

__all__ = ["report"]


def report(context: CommandContext, workspace: WorkspaceArgument) -> None:
    """Print the history as one HTML page, without secrets: every call, its output and its diff.

    The page has no scripts and loads nothing: wink-workspace report 3f1 > run.html
    """
    try:
        from wink_workspace.report import ReportedHistory, write_page
    except ImportError as error:
        raise MissingExtraError.of("the report", "report", error.name) from error
    from wink_workspace.project import Settings
    from wink_workspace.workspace import RecordedRun

    context = for_workspace(context, workspace, Settings())
    runs = list(RecordedRun.all(context.folder(workspace)))
    out = typer.get_binary_stream("stdout")
    with context.read(workspace) as reader:
        branch = reader.branch_name
        title = reader.info.id if branch == "main" else f"{reader.info.id}/{branch}"
        history = ReportedHistory(reader, runs, redact=context.redact, title=title)
        write_page(history, lambda piece: out.write(piece.encode()))
    out.flush()
