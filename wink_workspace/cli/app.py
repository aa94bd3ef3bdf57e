"""All commands in one application, and how a command ends."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from wink_workspace.environment import Environment
from wink_workspace.errors import ConflictError, MountError, ScriptError, UsageError, WinkError

from . import (
    branches,
    discarded,
    evaluating,
    history,
    images,
    runs,
    sandboxes,
    serving,
    workspaces,
)
from .display import consoles, printable
from .logs import logged
from .run import run

__all__ = ["run_command"]

EXIT_RUN_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

_INTERRUPTED = "interrupted; nothing is half done"

_PLACE_REFUSES = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR),
    *(errno.ENOSPC, errno.EDQUOT),
)
"""What only the user can mend: a place that is full, not there, or not theirs to write to."""

_EPILOG = "Exit codes: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted."

_COMMANDS = {
    "Runs": (runs.demo, run, runs.script, runs.tools, evaluating.eval_code, serving.mcp),
    "Workspaces": (
        workspaces.new,
        workspaces.list_all,
        workspaces.fork,
        workspaces.apply,
        branches.merge,
        branches.sync,
        workspaces.recover,
        workspaces.gc,
        workspaces.rm,
    ),
    "History": (
        history.log,
        history.show,
        history.diff,
        history.undo,
        history.redo,
        history.restore,
        discarded.discarded,
    ),
    "Sandboxes": (sandboxes.doctor, sandboxes.exec_command),
}
_GROUPS = {
    "image": ("Build and list the images of sandboxes.", (images.build, images.list_all)),
}


def _application() -> typer.Typer:
    app = typer.Typer(
        help="A workspace for coding agents in which every tool call is a transaction.",
        epilog=_EPILOG,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_own_options)
    for panel, commands in _COMMANDS.items():
        for command in commands:
            app.command(
                _name_of(command), help=_help_of(command), epilog=_EPILOG, rich_help_panel=panel
            )(command)
    for name, (help_text, commands) in _GROUPS.items():
        group = typer.Typer(help=help_text, epilog=_EPILOG, no_args_is_help=True)
        for command in commands:
            group.command(_name_of(command), epilog=_EPILOG)(command)
        app.add_typer(group, name=name, rich_help_panel="Sandboxes")
    return app


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(version("wink-workspace"))
        raise typer.Exit


def _own_options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


def _name_of(command: Callable[..., object]) -> str:
    return command.__name__.partition("_")[0]


def _help_of(command: Callable[..., object]) -> str:
    """Its docstring with each paragraph in one line, for the terminal to wrap."""
    paragraphs = (command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; whatever goes wrong is one line on stderr."""
    _stand_in_for_closed_streams()
    environment = Environment.from_os()
    _print_whatever_the_encoding()
    try:
        with logged(environment):
            code = _application()(
                arguments, standalone_mode=False, obj=environment, prog_name="wink-workspace"
            )
    except TyperException as error:
        if message := error.format_message():  # none where help was shown instead
            sentence = message if message.endswith((".", "?")) else f"{message}."
            _end(environment, f"{sentence} See {_command_of(error)} --help.", EXIT_USAGE)
        return EXIT_USAGE
    except (MountError, ScriptError, UsageError) as error:
        return _end(environment, str(error), EXIT_USAGE)
    except ConflictError as error:
        _, err = consoles(environment)
        if error.details:
            err.print(printable(error.details), markup=False)
        return _end(environment, str(error), EXIT_RUN_FAILED)
    except WinkError as error:
        return _end(environment, str(error), EXIT_RUN_FAILED)
    except OSError as error:
        if error.errno not in _PLACE_REFUSES:
            raise
        return _end(environment, _of_the_place(error), EXIT_RUN_FAILED)
    except (KeyboardInterrupt, typer.Abort):  # the second is typer's for one at a question
        return _end(environment, _INTERRUPTED, EXIT_INTERRUPTED)
    if code == EXIT_INTERRUPTED:  # typer's answer to Ctrl-C, which it does not let through
        return _end(environment, _INTERRUPTED, EXIT_INTERRUPTED)
    return code if isinstance(code, int) else 0


def _stand_in_for_closed_streams() -> None:
    """Let nobody else's file come to be standard output: a closed one is as if nobody read it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The least descriptor that is free, so that it is theirs unless it was taken already.
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - stays


def _print_whatever_the_encoding() -> None:
    """Let a terminal that does not know a character show another, instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def _command_of(error: TyperException) -> str:
    command = getattr(getattr(error, "ctx", None), "command_path", None)
    return command if isinstance(command, str) else "wink-workspace"


def _of_the_place(error: OSError) -> str:
    if not error.filename:  # what was open already: the output, mostly
        return (
            f"{error.strerror}: the output, or what is noted of a workspace, cannot be written. "
            "Make room where they go."
        )
    return (
        f"{error.filename}: {error.strerror}. Make room there, or get the right to write there; "
        "XDG_STATE_HOME names another place for workspaces."
    )


def _end(environment: Environment, message: str, code: int) -> int:
    _, err = consoles(environment)
    err.print(f"wink-workspace: {' '.join(message.split())}", markup=False, style="red")
    return code
