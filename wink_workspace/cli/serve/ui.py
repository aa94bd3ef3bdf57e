"""The command ``ui``: workspaces in a browser."""

from __future__ import annotations

import sys
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from wink_workspace.cli.screen.background import BackgroundRun
from wink_workspace.cli.screen.command_context import CommandContext
from wink_workspace.errors import MissingExtraError

__all__ = ["ui"]

WorkspaceArgument = Annotated[
    str, typer.Argument(help="The workspace to begin with; the list of all, if left out.")
]
PortOption = Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 for any free one.")]
WriteOption = Annotated[
    bool,
    typer.Option(
        "--write", help="Let the pages undo, restore, fork, merge, apply, and continue runs."
    ),
]
OpenOption = Annotated[bool, typer.Option("--open", help="Open the page in your browser.")]


def ui(
    context: CommandContext,
    workspace: WorkspaceArgument = "",
    port: PortOption = 0,
    open_browser: OpenOption = False,
    write: WriteOption = False,
) -> None:
    """Show the history of your workspaces in a browser, live.

    The pages change something only with --write, and show it first. They are on this machine only.
    The link works once; press Enter for another one.
    """
    try:
        from wink_workspace.web import serve_web
    except ImportError as error:
        raise MissingExtraError.of("the web interface", "web", error.name) from error

    def show(link: Callable[[], str]) -> None:
        if open_browser:
            webbrowser.open(page_of(link()).as_uri())
        else:
            context.out.print(link(), markup=False, style="bold")
        context.err.print(
            "The link works once, within a minute. Enter: another link. Ctrl-C: end.", style="dim"
        )
        if context.can_ask:
            threading.Thread(target=print_links, args=(link,), daemon=True).start()

    def page_of(address: str) -> Path:
        """A file that leads to the link: other users see the arguments of a browser."""
        page = context.environment.state_dir / "ui.html"
        page.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        page.unlink(missing_ok=True)
        page.touch(mode=0o600, exist_ok=False)
        page.write_text(f'<meta http-equiv="refresh" content="0; url={address}">\n')
        return page

    def continue_run(name: str, message: str) -> BackgroundRun:
        return BackgroundRun(name, message, context.environment.variables)

    def print_links(link: Callable[[], str]) -> None:
        for _ in sys.stdin:
            context.out.print(link(), markup=False, style="bold")

    serve_web(
        context.storage,
        redact=context.redact,
        on_ready=show,
        open_workspace=context.open if write else None,
        continue_run=continue_run,
        workspace=workspace,
        port=port,
    )
