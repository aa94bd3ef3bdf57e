"""The command ``ui``: workspaces in a browser."""

from __future__ import annotations

import os
import signal
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from wink_workspace.cli.screen.command_context import CommandContext
from wink_workspace.errors import MissingExtraError, UsageError

# ------------------------------------------------------------------------------------- background

# Runs that a page continues: processes of the command ``run``, which survive the page's server.
#
# Rule 1: such a process has a session of its own, so the end of the server or of its terminal
# does not reach it. Ctrl-C has its default effect there, so the run can be stopped. Rule 2: its
# arguments, which every user of the machine can see, have no message: that is its input. Keys are
# in its environment, which is that of the server. Rule 3: its output is discarded. Its errors are
# in a file in memory, which ends with both processes. A pipe would end the run when the server is
# killed.


_MAX_LINE_BYTES: Final = 4_096


class BackgroundRun:
    """A process that continues the last run of a workspace or a fork.

    Args:
        name: The workspace or fork.
        message: What the model gets from the user; ``""`` resumes an interrupted run.
        variables: Its environment.

    Attributes:
        pid: Its process.

    Raises:
        UsageError: If it cannot be started.
    """

    def __init__(self, name: str, message: str, variables: Mapping[str, str]) -> None:
        command = ["run", "--workspace", name, "--resume", *(["--message=-"] if message else [])]
        self._ending: str | None = None
        errors = os.memfd_create("errors")
        with os.fdopen(os.memfd_create("message"), "w+b") as given:
            given.write(message.encode())
            given.seek(0)
            try:
                self.pid: Final = os.posix_spawn(  # noqa: TID251 - the user's own command, in no sandbox
                    sys.executable,
                    [sys.executable, "-P", "-m", "wink_workspace.cli", *command],
                    {**variables, "NO_COLOR": "1"},
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, given.fileno(), 0),
                        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                        (os.POSIX_SPAWN_DUP2, errors, 2),
                    ],
                    setsid=True,
                    setsigmask=(),
                    setsigdef=(signal.SIGINT, signal.SIGTERM),
                )
            except OSError as error:
                os.close(errors)
                raise UsageError(
                    f"{sys.executable} cannot be started: {error.strerror}",
                    hint="It may have been replaced: end the server, and start it again.",
                ) from error
        self._waiting = threading.Thread(target=self._wait, args=(errors,), daemon=True)
        self._waiting.start()

    def ending(self) -> str | None:
        """``None`` while it runs, ``""`` after success, otherwise the last line of its errors."""
        return self._ending

    def _wait(self, errors: int) -> None:
        _, status = os.waitpid(self.pid, 0)
        exit_code = os.waitstatus_to_exitcode(status)
        size = os.fstat(errors).st_size
        content = os.pread(errors, _MAX_LINE_BYTES, max(0, size - _MAX_LINE_BYTES))
        os.close(errors)
        lines = [line for line in content.decode("utf-8", "replace").splitlines() if line.strip()]
        last = lines[-1].removeprefix("wink-workspace: ") if lines else ""
        self._ending = "" if exit_code == 0 else last or f"it ended with code {exit_code}"


# --------------------------------------------------------------------------------------------- ui


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
