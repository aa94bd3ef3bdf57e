"""All commands in one application, and how a command ends.

A command is a function of a ``CommandContext`` and its own options: either single parameters, or
one frozen dataclass ``options`` whose fields are the options. ``typer`` parses both from their
annotations.
"""

from __future__ import annotations

import errno
import inspect
import io
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module  # noqa: TID251 - commands are loaded by name
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final, TextIO, get_type_hints

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from wink_workspace.environment import Environment
from wink_workspace.errors import ConflictError, MountError, ScriptError, UsageError, WinkError
from wink_workspace.telemetry import open_span

from .screen.command_context import LOG_VARIABLE, CommandContext
from .screen.display import printable

__all__ = ["JsonLines", "Warnings", "application", "logged", "run_command"]

# ------------------------------------------------------------------------------------------- logs

# Logs on standard error: warnings as text, or one JSON object a line if the user asks for them.
#
# ``WINK_WORKSPACE_LOG`` names the lowest level, ``debug`` to ``error``, of the JSON lines. Each of
# these names the open span, so that logs and traces can be joined. Secrets of the environment are
# redacted. Warnings name files that untrusted code made, so control characters are replaced.


_LEVELS: Final = ("debug", "info", "warning", "error")
_ROOT: Final = "wink_workspace"


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON, with every value redacted."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """The line, without a line break."""
        fields = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **({"error": self.formatException(record.exc_info)} if record.exc_info else {}),
            **open_span(),
        }
        redacted = {name: self._redact(value) for name, value in fields.items()}
        return json.dumps(redacted, ensure_ascii=False)


class Warnings(logging.Formatter):
    """Formats a record for a terminal: its message as one line, and any traceback, redacted."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """The lines; a line break of the message is replaced like any other control character."""
        message = printable(self._redact(record.getMessage())).replace("\n", "\ufffd")
        if not record.exc_info:
            return message
        return f"{message}\n{printable(self._redact(self.formatException(record.exc_info)))}"


@contextmanager
def logged(
    level: str, redact: Callable[[str], str], stream: TextIO | None = None
) -> Generator[None]:
    """Write logs while the block runs.

    Args:
        level: The lowest level to write as JSON; empty for warnings as text, unless the program has
            handlers of its own.
        redact: Applied to every value.
        stream: Where to write them; standard error when omitted.

    Raises:
        UsageError: If there is no such level.
    """
    if level and level not in _LEVELS:
        raise UsageError(f"{LOG_VARIABLE} is {level!r}", hint=f"Use {', '.join(_LEVELS)}.")
    logger = logging.getLogger(_ROOT)
    if not level and logger.hasHandlers():
        yield
        return
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(redact) if level else Warnings(redact))
    level_before, propagated = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level.upper() if level else logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level_before)
        logger.propagate = propagated


# -------------------------------------------------------------------------------------------- app


Command = Callable[..., object]

EXIT_RUN_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

_INTERRUPTED = "interrupted; nothing is half done"

_USER_ERRNOS = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR),
    *(errno.ENOSPC, errno.EDQUOT),
)
"""Errors that only the user can fix: a full disk, a missing directory, a missing permission."""

_EPILOG = "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."


def demo(
    context: CommandContext,
    patch: Annotated[Path, typer.Option(help="Where to write the resulting patch.")] = Path(
        "wink-demo.patch"
    ),
    build: Annotated[
        bool,
        typer.Option("--build/--no-build", help="Build the sandbox's image if it is missing."),
    ] = True,
) -> None:
    """Watch a scripted agent edit a real package, fail, be rolled back, and recover."""
    from .demo import play_renaming, play_tests
    from .sandbox import sandboxes

    play_renaming(context.out, patch)
    play_tests(context.out, sandboxes.default_images(context), build=build)


_COMMANDS: dict[str, dict[str, str]] = {
    "Runs": {
        "demo": "app.demo",
        "run": "run.run_command.run",
        "script": "run.run_command.script",
        "tools": "run.run_command.tools",
        "eval": "sandbox.sandboxes.evaluate",
        "mcp": "serve.mcp_command.mcp",
        "acp": "serve.acp.acp",
    },
    "Workspaces": {
        "new": "past.workspaces.create",
        "list": "past.workspaces.list_all",
        "fork": "past.workspaces.fork",
        "checkpoint": "past.workspaces.checkpoint",
        "apply": "past.workspaces.apply",
        "merge": "past.workspaces.merge",
        "sync": "past.workspaces.sync",
        "mount": "past.workspaces.mount",
        "export": "past.bundle_commands.export",
        "import": "past.bundle_commands.import_bundle",
        "recover": "past.workspaces.recover",
        "repair": "past.workspaces.repair",
        "gc": "past.workspaces.gc",
        "rm": "past.workspaces.remove",
    },
    "Projects": {
        "init": "sandbox.project.init",
        "trust": "sandbox.project.trust",
    },
    "History": {
        "log": "past.history_commands.log",
        "show": "past.history_commands.show",
        "report": "past.history_commands.report",
        "diff": "past.history_commands.diff",
        "undo": "past.history_commands.undo",
        "redo": "past.history_commands.redo",
        "restore": "past.history_commands.restore",
        "discarded": "past.history_commands.discarded",
        "bisect": "past.bisect_and_blame.bisect",
        "blame": "past.bisect_and_blame.blame",
        "ui": "serve.ui.ui",
    },
    "Sandboxes": {
        "doctor": "sandbox.sandboxes.doctor",
        "version": "version.show_version",
        "exec": "sandbox.sandboxes.execute",
        "shell": "sandbox.sandboxes.shell",
        "port": "sandbox.port_command.port",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Commands below one name; *default* is run if the first argument names none of them."""

    help: str
    panel: str
    commands: dict[str, str]
    default: str = ""


_GROUPS = {
    "attempts": _Group(
        help="Let models try a task several times, each in a fork, and keep the best attempt. "
        "`attempts TASK` is `attempts start TASK`.",
        panel="Runs",
        commands={
            "start": "tries.attempts_run.start",
            "list": "tries.attempts_stored_runs.list_runs",
            "show": "tries.attempts_stored_runs.show",
            "diff": "tries.attempts_stored_runs.diff",
            "keep": "tries.attempts_stored_runs.keep",
            "resume": "tries.attempts_run.resume",
            "rm": "tries.attempts_stored_runs.remove",
        },
        default="start",
    ),
    "image": _Group(
        help="Build, list and delete the images of sandboxes.",
        panel="Sandboxes",
        commands={
            "build": "sandbox.sandboxes.build_images",
            "list": "sandbox.sandboxes.list_images",
            "prune": "sandbox.sandboxes.prune_images",
        },
    ),
}
"""Each command as ``module.function``: one invocation imports the module of its command only."""

_NAMES = {name for commands in _COMMANDS.values() for name in commands} | {*_GROUPS}
_OF_NO_COMMAND = ("--help", "--version")


def application(
    only: str | None = None, *, load: Callable[[str], Command] | None = None
) -> typer.Typer:
    """Every command with its options.

    Args:
        only: Add this command alone.
        load: Makes a command of ``module.function``; by default that function.
    """
    load = load or _load
    wanted = _NAMES if only is None else {only}
    app = typer.Typer(
        help="A workspace for coding agents in which every tool call is a transaction.",
        epilog=_EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_global_options)
    for panel, commands in _COMMANDS.items():
        for name, command in commands.items():
            if name in wanted:
                _add(app, name, load(command), panel=panel)
    for name, group in _GROUPS.items():
        if name in wanted:
            below = typer.Typer(
                cls=_with_default(group.default),
                help=group.help,
                epilog=_EPILOG,
                no_args_is_help=True,
            )
            for each, command in group.commands.items():
                _add(below, each, load(command))
            app.add_typer(below, name=name, rich_help_panel=group.panel)
    return app


def _with_default(default: str) -> type[TyperGroup]:
    """A group that runs the command *default*, if any, when its arguments begin with no command."""

    class Group(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: a private type
            if default and args and args[0] not in (*self.commands, "--help"):
                args = [default, *args]
            return super().parse_args(ctx, args)

    return Group


def _load(command: str) -> Command:
    module, _, function = command.rpartition(".")
    return getattr(import_module(f".{module}", __package__), function)


def _described(command: str) -> Command:
    """A command with its docstring and without options, for the list of all commands.

    The docstring is read from the source: importing every module takes longer than all else.
    """
    module, _, function = command.rpartition(".")
    source = (
        Path(__file__).parent.joinpath(f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    )
    found = re.search(rf'^def {function}\(.*?"""(.+?)"""', source, re.DOTALL | re.MULTILINE)

    def described() -> None:
        pass

    described.__doc__ = found and found[1]
    return described


def _add(
    app: typer.Typer, name: str, command: Callable[..., object], *, panel: str | None = None
) -> None:
    """Add *command*, with its docstring as its help."""
    # Each paragraph on one line, for the terminal to wrap.
    paragraphs = (command.__doc__ or "").split("\n\n")
    help_text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    app.command(name, help=help_text, epilog=_EPILOG, rich_help_panel=panel)(_for_typer(command))


def _for_typer(command: Callable[..., object]) -> Callable[..., object]:
    """*command* as a function with one parameter for each option, which typer inspects."""
    options: Callable[..., object] | None = get_type_hints(command).get("options")
    parsed = command if options is None else options
    hints = get_type_hints(parsed, include_extras=True)
    parameters = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in inspect.signature(parsed).parameters.items()
        if name != "context"
    ]

    def call(context: typer.Context, **given: Any) -> object:  # Any: what typer has parsed
        if options is None:
            return command(context.obj, **given)
        return command(context.obj, options(**given))

    first = Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    signature = inspect.Signature([first, *parameters])
    call.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess] - for inspect
    call.__annotations__ = {each.name: each.annotation for each in (first, *parameters)}
    return call


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(version("wink-workspace"))
        raise typer.Exit


def _global_options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


def run_command(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; an error is one line on standard error."""
    _replace_closed_streams()
    context = CommandContext(Environment.from_os())
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks is replaced; it must not end the command.
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
    try:
        with logged(context.log_level, context.redact):
            given = sys.argv[1:] if arguments is None else arguments
            named = given[0] if given else ""
            only, is_list = (named if named in _NAMES else None), named in _OF_NO_COMMAND
            app = application(only, load=_described if is_list else None)
            code = app(arguments, standalone_mode=False, obj=context, prog_name="wink-workspace")
    except TyperException as error:
        if message := error.format_message():  # empty where help was shown instead
            command = getattr(getattr(error, "ctx", None), "command_path", None)
            command = command if isinstance(command, str) else "wink-workspace"
            sentence = message if message.endswith((".", "?")) else f"{message}."
            _print_error(context, f"{sentence} See {command} --help.")
        return EXIT_USAGE
    except ConflictError as error:
        if error.details:
            context.err.print(printable(error.details), markup=False)
        _print_error(context, str(error))
        return EXIT_RUN_FAILED
    except WinkError as error:
        _print_error(context, str(error))
        is_usage = isinstance(error, (MountError, ScriptError, UsageError))
        return EXIT_USAGE if is_usage else EXIT_RUN_FAILED
    except OSError as error:
        if error.errno not in _USER_ERRNOS:
            raise
        _print_error(context, _explain(error))
        return EXIT_RUN_FAILED
    except (KeyboardInterrupt, typer.Abort):  # typer raises Abort for Ctrl-C at a question
        code = EXIT_INTERRUPTED
    if code == EXIT_INTERRUPTED:  # typer returns this code for any other Ctrl-C
        _print_error(context, _INTERRUPTED)
    return code if isinstance(code, int) else 0


def _replace_closed_streams() -> None:
    """Open the null device for each closed standard stream.

    Otherwise the next opened file would get the descriptor, and output would be written to it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Gets the lowest free descriptor, which is the stream's own.
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - stays open


def _explain(error: OSError) -> str:
    if not error.filename:  # an open file: mostly standard output
        return (
            f"{error.strerror}: the output or the records of a workspace cannot be written. "
            "Free some space where they are written."
        )
    return (
        f"{error.filename}: {error.strerror}. Free some space there, or get permission to write; "
        "XDG_STATE_HOME moves workspaces to another directory."
    )


def _print_error(context: CommandContext, message: str) -> None:
    one_line = " ".join(message.split())
    context.err.print(f"wink-workspace: {one_line}", markup=False, style="red")
