"""The commands ``exec`` and ``shell``, which run a program in a sandbox over a workspace.

Each is one call of the workspace, so a failure leaves no trace in the files. It is a module of its
own because a short command waits for what it loads.
"""

from __future__ import annotations

import codecs
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from wink_workspace.cli.screen.command_context import CommandContext, WorkspaceArgument
from wink_workspace.cli.screen.display import printable
from wink_workspace.errors import ProgramError, UsageError, WinkError
from wink_workspace.sandbox import ExecRequest, ExecResult, StreamName

from .project import for_project, for_workspace, outside, source_of
from .sandbox_options import ImageOption, RunnerOption, first_sandbox, running_config

if TYPE_CHECKING:
    from wink_workspace.prompt import ToolResult
    from wink_workspace.sections.command_results import CommandOutput

RollbackOption = Annotated[
    bool, typer.Option("--rollback", help="Undo its changes if its exit code is not 0.")
]

_MAX_INPUT_BYTES: Final = 256 * 1_048_576  # held in memory
_TIMEOUT_S: Final = 300.0  # a project's tests

_EXIT_STOPPED: Final = 124  # as timeout(1)
_EXIT_NOT_EXECUTABLE, _EXIT_NOT_FOUND = 126, 127  # as a shell
_EXIT_SIGNAL: Final = 128  # as a shell: this plus the signal's number


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecOptions:
    """The options of ``exec``."""

    workspace: WorkspaceArgument
    command: Annotated[list[str], typer.Argument(help="After --, the program and its arguments.")]
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Pass standard input on to the program.")
    ] = False
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0.001,
            help="Seconds until the program is ended; by default limits.timeout, or 300.",
        ),
    ] = None
    image: ImageOption = None
    sandbox: RunnerOption = None
    rollback: RollbackOption = False
    temporary: Annotated[
        bool,
        typer.Option(
            "--temporary", help="Use a new copy of the directory, and delete it afterwards."
        ),
    ] = False


def execute(context: CommandContext, options: ExecOptions) -> int:
    """Run one command in a sandbox over the workspace, as one call of its history.

    A directory that has no workspace yet gets one. In a directory below, the command starts in that
    one. The exit code is the command's own. It is 124 if
    a limit ended the command, which is then undone, and 128 plus the signal's number if a signal
    ended it. It is 127 if the program does not exist, and 126 if it cannot be run.
    """
    name = options.workspace
    if options.temporary:
        name = str(Path(name).expanduser().resolve())
    project = source_of(context, name)
    context = outside(context, project)
    # It starts while this process loads the rest. Files of settings rarely name another sandbox.
    engine = first_sandbox(context, options.sandbox).connect(context.environment)
    from wink_workspace.project import Settings
    from wink_workspace.workspace.changes.source_edits import was_source_edited

    given = Settings(sandbox=options.sandbox, base=options.image)
    context = for_project(context, project, given, asks=not options.stdin)
    config = running_config(context, options.sandbox, image=options.image)
    if not name.startswith("/"):
        context.prepare_sandbox(name, config)
    here, source = Path.cwd(), project.resolve()
    cwd = str(here.relative_to(source)) if here.is_relative_to(source) else "."
    request = ExecRequest(
        argv=tuple(options.command),
        cwd=cwd,
        stdin=_standard_input() if options.stdin else b"",
        timeout_s=options.timeout_s or context.settings_for().timeout_s or _TIMEOUT_S,
    )
    result: ExecResult | None = None
    error: WinkError | None = None
    with (
        context.temporary(project) if options.temporary else context.open_or_make(name)
    ) as workspace:
        sandbox = workspace.sandbox(config)
        params = {"argv": request.argv} | ({} if cwd == "." else {"cwd": cwd})
        with workspace.call("exec", params=params) as call:
            try:
                result = sandbox.run(request, observer=_Output())
                call.tool_result = _tool_result(result, request.timeout_s, options)
            except WinkError as failure:  # recorded with its own message, and raised below
                error = failure
                call.fail(str(failure))
    del engine  # the sandbox used it
    if not name.startswith("/") and was_source_edited(context.folder(name)):
        note = "the source was edited since; to have the edits here: wink-workspace sync"
        sys.stderr.write(f"wink-workspace: {note}\n")
    if error is not None and not isinstance(error, ProgramError):
        raise error
    if not call.tool_result.success:
        message = printable(call.tool_result.message)
        context.err.print(f"wink-workspace: {message}", markup=False, style="yellow")
    if isinstance(error, ProgramError):
        return _EXIT_NOT_FOUND if error.is_missing else _EXIT_NOT_EXECUTABLE
    return 0 if result is None else _exit_code(result)


def _standard_input() -> bytes:
    data = sys.stdin.buffer.read(_MAX_INPUT_BYTES + 1)
    if len(data) > _MAX_INPUT_BYTES:
        raise UsageError(
            f"the input is longer than {_MAX_INPUT_BYTES:,} bytes",
            hint="Put it into a file of the workspace, and let the command read that file.",
        )
    return data


def _tool_result(
    result: ExecResult, timeout_s: float, options: ExecOptions | ShellOptions
) -> ToolResult[CommandOutput]:
    """What the entry shows; a failure if the command is to be undone."""
    from wink_workspace.prompt import ToolResult
    from wink_workspace.sections.command_results import CommandOutput, stopped_summary

    output = CommandOutput.of(result)
    stopped = stopped_summary(result, timeout_s)
    if stopped is None and options.rollback and not output.succeeded:
        stopped = f"{output.summary()}. Its changes were undone."
    return ToolResult(
        stopped or output.summary(),
        output,
        success=stopped is None,
        outside_effects=output.outside_effects,
    )


def _exit_code(result: ExecResult) -> int:
    if result.timed_out or result.stopped:
        return _EXIT_STOPPED
    if result.signal is not None:
        return _EXIT_SIGNAL + result.signal
    return result.exit_code or 0


class _Output:
    """Prints what a command writes: every byte, but on a terminal no control characters."""

    def __init__(self) -> None:
        self._streams: dict[StreamName, TextIO] = {"stdout": sys.stdout, "stderr": sys.stderr}
        utf8 = codecs.getincrementaldecoder("utf-8")
        self._decoders = {name: utf8("replace") for name in self._streams}

    def __call__(self, stream: StreamName, data: bytes) -> None:
        target = self._streams[stream]
        if target.isatty():
            text = self._decoders[stream].decode(data)
            target.write(printable(text.replace("\r\n", "\n").replace("\r", "\n")))
        else:
            target.buffer.write(data)
        target.flush()


# shell


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellOptions:
    """The options of ``shell``."""

    workspace: WorkspaceArgument
    command: Annotated[
        list[str] | None,
        typer.Argument(help="After --, another program and its arguments; bash or sh by default."),
    ] = None
    image: ImageOption = None
    sandbox: RunnerOption = None
    rollback: RollbackOption = False


def shell(context: CommandContext, options: ShellOptions) -> int:
    """Open a shell in a workspace or fork, inside of a sandbox, as one call of its history.

    The shell cannot reach your other files, nor hosts that your network list does not have, so
    programs that a model wrote can be tried in it. The command's exit code is that of the shell. If
    the sandbox fails, the changes of the shell are undone.
    """
    engine = first_sandbox(context, options.sandbox).connect(context.environment)
    from wink_workspace.project import Settings

    given = Settings(sandbox=options.sandbox, base=options.image)
    context = for_workspace(context, options.workspace, given, asks=True)
    config = running_config(context, options.sandbox, image=options.image)
    if not options.workspace.startswith("/"):
        context.prepare_sandbox(options.workspace, config)
    argv = tuple(options.command or ())
    terminal = {"TERM": context.environment.variables.get("TERM", "dumb")}
    code = 1
    with context.open_or_make(options.workspace) as workspace:
        sandbox = workspace.sandbox(config)
        sandbox.start()
        del engine  # the sandbox uses it
        with workspace.call("shell", params={"argv": argv}) as call:
            result = sandbox.interact(argv, env=terminal)
            call.tool_result = _tool_result(result, _TIMEOUT_S, options)
            code = _exit_code(result)
    return code
