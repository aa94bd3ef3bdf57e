"""All commands in one application, and how a command ends.

A command is a function of a ``CommandContext`` and its own options: either single parameters, or
one frozen dataclass ``options`` whose fields are the options. ``typer`` parses both from their
annotations.
"""

from __future__ import annotations

import errno
import inspect
import json
import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from importlib import import_module  # noqa: TID251 - commands are loaded by name
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final, TextIO, cast, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from wink_workspace.environment import Environment
from wink_workspace.errors import ConflictError, MountError, ScriptError, UsageError, WinkError
from wink_workspace.telemetry import open_span

from .command_list import COMMANDS, EPILOG, GROUPS, HELP
from .screen.command_context import LOG_VARIABLE, CommandContext
from .screen.display import printable

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


_ID_CHARS: Final = 12
_HERE: Final = "."
_MAKING: Final = ("exec", "shell", "port", "eval")
"""Commands that make a workspace of a directory that has none."""
_READING: Final = ("blame", "diff", "log", "report", "script", "show", "ui")
_RESOLVING: Final = ("use",)
"""Commands that look at what the user named."""
_NAMES = {name for commands in COMMANDS.values() for name in commands} | {*GROUPS}


def application(only: str | None = None) -> typer.Typer:
    """Every command with its options; with *only*, that command alone."""
    wanted = _NAMES if only is None else {only}
    app = typer.Typer(
        cls=_with_default(""),
        help=HELP,
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_global_options)
    for panel, commands in COMMANDS.items():
        for name, command in commands.items():
            if name in wanted:
                _add(app, name, _load(command), panel=panel)
    for name, group in GROUPS.items():
        if name in wanted:
            below = typer.Typer(
                cls=_with_default(group.default),
                help=group.help,
                epilog=EPILOG,
                no_args_is_help=True,
            )
            for each, command in group.commands.items():
                _add(below, each, _load(command))
            app.add_typer(below, name=name, rich_help_panel=group.panel)
    return app


class _Value:
    """Parses the value of an option; typer does it only where it has to.

    Typer makes a pydantic validator for every option, given or not. To load pydantic takes a
    quarter of a short command.
    """

    def __init__(self, parameter: Any) -> None:  # Any: typer does not publish its classes
        descriptor = parameter.type_descriptor
        self._parsed_by_typer = parameter.__class__.get_runtime_param
        self._default = parameter.default
        is_text = descriptor.annotation in (str, list[str])
        self._is_plain_text = is_text and not descriptor.parameter_info.parser

    def coerce(self, value: object, param: Any, ctx: Any) -> object:
        """*value* with the type of the option."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if value is self._default:
            return value
        if self._is_plain_text:
            words: list[str] = [value] if isinstance(value, str) else [*cast("list[str]", value)]
            if "".join(words).isascii():
                return value if isinstance(value, str) else words
        return self._parsed_by_typer(param).coerce(value, param=param, ctx=ctx)


class _Parsing:
    """What commands and groups of typer have in common here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse *args* into the options of *ctx*."""
        command: Any = self
        for each in command.get_params(ctx):
            each.get_runtime_param = partial(_Value, each)
        parsed: Any = super()
        return parsed.parse_args(ctx, args)


class _Command(_Parsing, TyperCommand):
    """A command whose first argument, if it is a workspace, can be left out."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._arguments = [each for each in self.params if each.param_type_name == "argument"]
        first = self._arguments[0] if self._arguments else None
        self._takes_workspace = first is not None and first.name == "workspace" and first.required
        if self._takes_workspace and first is not None:
            first.required = False  # its help says what the default is

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if self._takes_workspace and not self._names_workspace(ctx, args):
            args = [_HERE, *args]
        return super().parse_args(ctx, args)

    def _names_workspace(self, ctx: Any, args: list[str]) -> bool:
        """Whether the first of the arguments is a workspace, and not already one of the others."""
        end = args.index("--") if "--" in args else len(args)
        options = self.make_parser(ctx)
        options._args.clear()  # noqa: SLF001 - so that all arguments are left over
        _, words, _ = options.parse_args(args[:end])
        others: list[Any] = [
            each for each in self._arguments[1:] if end == len(args) or each.nargs != -1
        ]
        n_required = sum(each.required for each in others)
        if len(words) <= n_required or not others:
            return bool(words) and not others
        if len(words) == 1 and others[0].name in ("directory", "file") and words[0][0] in "./~":
            return False
        kind: object = others[0].type_descriptor.annotation
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            return words[0] not in set(kind)
        if others[0].name == "entry" and words[0].isdecimal() and len(words[0]) < _ID_CHARS:
            return False
        is_fixed = n_required == len(others) and others[-1].nargs == 1
        return is_fixed or ctx.obj.is_name(words[0])


def _with_default(default: str) -> type[TyperGroup]:
    """A group that runs the command *default*, if any, when its arguments begin with no command."""

    class Group(_Parsing, TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: a private type
            if default and args and args[0] not in (*self.commands, "--help"):
                args = [default, *args]
            return super().parse_args(ctx, args)

    return Group


def _load(command: str) -> Command:
    module, _, function = command.rpartition(".")
    return getattr(import_module(f".{module}", __package__), function)


def _add(
    app: typer.Typer, name: str, command: Callable[..., object], *, panel: str | None = None
) -> None:
    """Add *command*, with its docstring as its help."""
    # Each paragraph on one line, for the terminal to wrap.
    paragraphs = (command.__doc__ or "").split("\n\n")
    help_text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    add = app.command(name, cls=_Command, help=help_text, epilog=EPILOG, rich_help_panel=panel)
    add(_for_typer(command))


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
        _resolve(context.obj, context.info_name or "", given)
        if options is None:
            return command(context.obj, **given)
        return command(context.obj, options(**given))

    first = Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    signature = inspect.Signature([first, *parameters])
    call.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess] - for inspect
    call.__annotations__ = {each.name: each.annotation for each in (first, *parameters)}
    return call


def _resolve(context: CommandContext, command: str, given: dict[str, Any]) -> None:
    """Replace the workspace that the user names, or does not name, by its id and fork.

    It is the last one used from now on. A command that changes it prints it, unless it was named.
    """
    if command in _RESOLVING or given.get("temporary"):
        return
    for option in ("workspace", "into"):
        named = given.get(option)
        if not named:
            continue
        is_path = named.startswith((".", "/", "~"))
        if is_path and command == "rm":
            raise UsageError(
                f"rm needs an id, and {named} is a directory",
                hint="`wink-workspace list DIRECTORY` shows the ids.",
            )
        found = given[option] = context.named(named, makes=command in _MAKING)
        folder = None if found.startswith("/") else context.folder(found)
        if folder is None:
            continue
        if command != "rm":
            from wink_workspace.workspace.place.last_used import keep_use

            keep_use(context.storage, folder.info())
        if is_path and command not in _READING:
            sys.stderr.write(printable(f"workspace {found} of {folder.info().source}\n"))


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
    context = CommandContext(Environment.from_os())
    try:
        with logged(context.log_level, context.redact):
            given = sys.argv[1:] if arguments is None else arguments
            named = given[0] if given else ""
            app = application(named if named in _NAMES else None)
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
