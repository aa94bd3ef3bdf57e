"""The commands for sandboxes: ``doctor`` examines the machine, ``exec`` runs one command."""

from __future__ import annotations

import codecs
import shutil
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer
from rich.console import Console
from rich.text import Text

from wink_workspace.environment import Environment
from wink_workspace.errors import ProgramError, SandboxError

from .display import consoles, printable
from .places import JsonOption, WorkspaceArgument, open_workspace, print_json

if TYPE_CHECKING:
    from wink_workspace.sandbox import StreamName
    from wink_workspace.sandbox.findings import Finding

__all__ = ["doctor", "exec_command", "sweep_containers"]

_EXAMINERS = ("wink_workspace.sandbox.podman", "wink_workspace.sandbox.asteval")
"""Each may have a module ``diagnosis`` with ``examine(environment) -> tuple[Finding, ...]``."""

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
    for package in _EXAMINERS:
        name = f"{package}.diagnosis"
        if find_spec(name) is not None:
            module = cast("Any", import_module(name))  # Any: found by its name
            examine: Callable[[Environment], tuple[Finding, ...]] = module.examine
            findings += examine(environment)
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


def sweep_containers(environment: Environment) -> tuple[str, ...]:
    """Remove the containers of processes that are dead; their names.

    Where there is no engine, there are none.
    """
    if shutil.which("podman", path=environment.variables.get("PATH")) is None:
        return ()
    from wink_workspace.sandbox.podman import PodmanService
    from wink_workspace.sandbox.podman.containers import sweep

    with suppress(SandboxError), closing(PodmanService(environment)) as service:
        return sweep(service)
    return ()


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
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Undo what it did if it ends with a code but 0.")
    ] = False,
) -> int:
    """Run one command in a sandbox over the workspace, as one call of its history.

    The exit code is the command's own; 124 if a limit ended it, and it was undone; 128 and the
    signal's number if a signal did; 127 if there is no such program, 126 if it cannot be run.
    """
    from wink_workspace.sandbox.podman import DEFAULT_IMAGE, PodmanConfig

    from .executing import Execution, exit_code_of

    config = PodmanConfig(image=image or DEFAULT_IMAGE)
    most_bytes = config.stdin_bytes
    execution = Execution(
        command,
        config=config,
        stdin=sys.stdin.buffer.read(most_bytes + 1) if stdin else b"",  # one too many is refused
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
