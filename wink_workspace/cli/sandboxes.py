"""The commands for sandboxes: ``doctor`` examines the machine, ``exec`` runs one command."""

from __future__ import annotations

import codecs
import sys
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer
from rich.console import Console
from rich.text import Text

from wink_workspace.environment import Environment
from wink_workspace.errors import ProgramError, SandboxUnavailableError, UsageError
from wink_workspace.sandbox import (
    DEFAULT_SANDBOX,
    NO_SANDBOX,
    SANDBOXES,
    Finding,
    SandboxBackend,
    SandboxConfig,
    StreamName,
)

from .display import consoles, printable
from .places import JsonOption, WorkspaceArgument, open_workspace, print_json

if TYPE_CHECKING:
    from wink_workspace.prompt import Section

__all__ = [
    "SANDBOX_HELP",
    "check_sandbox",
    "doctor",
    "exec_command",
    "sandbox_sections",
    "sweep_sandboxes",
]

_MOST_INPUT_BYTES: Final = 256 * 1_048_576  # it is held in memory
"""All of it is held in memory."""

SANDBOX_HELP: Final = (
    f"Where code may run: {NO_SANDBOX}, {', '.join(SANDBOXES.own)}, or one that a package adds."
)

_MARKS = {"good": ("✓", "green"), "limited": ("!", "yellow"), "missing": ("✗", "red")}


def doctor(context: typer.Context, json: JsonOption = False) -> int:
    """Examine what sandboxes need, and say for each problem what to do about it."""
    findings = _examined(context.obj)
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        out, _ = consoles(context.obj)
        for finding in findings:
            _print_finding(out, finding)
    return int(any(finding.state == "missing" for finding in findings))


def _examined(environment: Environment) -> list[Finding]:
    findings: list[Finding] = []
    for name in SANDBOXES.names():
        try:
            findings += SANDBOXES.get(name).examine(environment)
        except SandboxUnavailableError as error:
            findings.append(Finding(name, "package", "missing", error.message, error.hint))
    return findings


def _print_finding(out: Console, finding: Finding) -> None:
    mark, style = _MARKS[finding.state]
    line = Text(f"{mark} ", style=style)
    line.append(f"{finding.part:<8}", style="dim")
    line.append(f"{finding.name:<20}", style="bold")
    line.append(printable(finding.detail))
    out.print(line)
    if finding.fix:
        out.print(Text(f"{'':<30}{printable(finding.fix)}", style=style))


def sweep_sandboxes(environment: Environment) -> tuple[str, ...]:
    """Remove what sandboxes of dead processes left, such as containers; the names."""
    swept: list[str] = []
    for name in SANDBOXES.names():
        try:
            swept += SANDBOXES.get(name).sweep(environment)
        except SandboxUnavailableError as error:
            _, err = consoles(environment)
            left = f"what the sandbox {name} left cannot be removed: {error}"
            err.print(printable(left), markup=False, style="yellow")
    return tuple(swept)


def check_sandbox(name: str) -> None:
    """Raise ``UsageError`` if there is no such sandbox; ``none`` stands for none."""
    if name not in (NO_SANDBOX, *SANDBOXES.names()):
        SANDBOXES.get(name)


def sandbox_sections(name: str) -> list[Section[None]]:
    """The section of a sandbox with its default configuration; nothing for ``none``."""
    if name == NO_SANDBOX:
        return []
    backend = SANDBOXES.get(name)
    return [backend.section(backend.config())]


def _configured(backend: SandboxBackend[Any], image: str | None) -> SandboxConfig:
    """The configuration for one command: the default one, with *image* if one is named."""
    backend.factory()  # refused before a workspace is opened, if it runs no commands
    if image is None:
        return backend.config()
    if "image" not in {field.name for field in fields(backend.config)}:
        raise UsageError(f"the sandbox {backend.name!r} has no images", hint="Leave out --image.")
    return backend.config(image=image)


def exec_command(
    context: typer.Context,
    workspace: WorkspaceArgument,
    command: Annotated[list[str], typer.Argument(help="After --, the program and its arguments.")],
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Let it read what this command reads.")
    ] = False,
    timeout_s: Annotated[
        float | None,
        typer.Option("--timeout", min=0.001, help="Seconds until it is ended; 30 when left out."),
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="The image to run it in; python of ours when left out.")
    ] = None,
    sandbox: Annotated[
        str, typer.Option(help="The sandbox to run it in, one of those that `doctor` examines.")
    ] = DEFAULT_SANDBOX,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Undo what it did if it ends with a code but 0.")
    ] = False,
) -> int:
    """Run one command in a sandbox over the workspace, as one call of its history.

    The exit code is the command's own; 124 if a limit ended it, and it was undone; 128 and the
    signal's number if a signal did; 127 if there is no such program, 126 if it cannot be run.
    """
    from .executing import Execution, exit_code_of

    given = sys.stdin.buffer.read(_MOST_INPUT_BYTES + 1) if stdin else b""
    if len(given) > _MOST_INPUT_BYTES:
        raise UsageError(
            f"the input is longer than {_MOST_INPUT_BYTES:,} bytes",
            hint="Put it into a file of the workspace, and let the command read that.",
        )
    execution = Execution(
        command,
        config=_configured(SANDBOXES.get(sandbox), image),
        stdin=given,
        timeout_s=timeout_s,
        rollback=rollback,
    )
    try:
        with open_workspace(context.obj, workspace) as place:
            code, undone = execution.run(place, _Output())
    except ProgramError as error:
        code, undone = exit_code_of(error), str(error)
    if undone:
        _, err = consoles(context.obj)
        err.print(f"wink-workspace: {printable(undone)}", markup=False, style="yellow")
    return code


class _Output:
    """Passes on what a command writes: every byte, or to a terminal text that cannot steer it."""

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
