"""The command ``eval``: Python behind the wall, over a workspace's files, as one call of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wink_workspace.errors import UsageError

from .display import consoles, printable
from .places import JsonOption, WorkspaceArgument, open_workspace, print_json

if TYPE_CHECKING:
    from wink_workspace.session import ToolInvoked
    from wink_workspace.workspace import Workspace

__all__ = ["eval_code"]


def eval_code(
    context: typer.Context,
    workspace: WorkspaceArgument,
    file: Annotated[
        Path | None, typer.Argument(help="A file with the code; - for standard input.")
    ] = None,
    code: Annotated[str | None, typer.Option("-c", help="The code itself.")] = None,
    reads: Annotated[
        list[str] | None,
        typer.Option(help="What the code may read; everything when left out."),
    ] = None,
    writes: Annotated[
        list[str] | None, typer.Option(help="A file that it may make or replace; once for each.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.001, max=600, help="Seconds until it is killed.")
    ] = 5.0,
    json: JsonOption = False,
) -> int:
    """Evaluate Python over a workspace's files, walled in; a failure leaves no trace in them.

    Exit code 1 if the code failed.
    """
    out, err = consoles(context.obj)
    arguments: dict[str, object] = {
        "code": _code(file, code),
        "reads": ["."] if reads is None else reads,
        "writes": writes or [],
    }
    with open_workspace(context.obj, workspace) as place:
        called = _called(place, arguments, timeout)
    if json:
        _print_json(called)
    else:
        result = called.value
        stdout = getattr(result, "stdout", "")
        value = getattr(result, "value", None)
        out.print(printable(stdout), markup=False, end="")
        if called.success and value is not None:
            out.print(printable(value), markup=False)
        if not called.success:
            err.print(printable(called.message), markup=False, style="red")
    return 0 if called.success else 1


def _code(file: Path | None, code: str | None) -> str:
    if (file is None) == (code is None):
        raise UsageError("code comes from one place", hint="Give either a file or -c CODE.")
    if file is None:
        return code or ""
    try:
        if str(file) == "-":
            return sys.stdin.read()
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{file} cannot be read: {why}", hint="Name a text file.") from error


def _called(place: Workspace, arguments: dict[str, object], timeout_s: float) -> ToolInvoked:
    """The record of the call, which is an entry of the workspace's history like any other."""
    from wink_workspace.prompt import Prompt
    from wink_workspace.runtime import ToolCall
    from wink_workspace.sandbox.asteval import AstevalConfig
    from wink_workspace.sections import AstevalSection

    # A person stands behind it, who need not have read a file to replace it
    section = AstevalSection(config=AstevalConfig(timeout_s=timeout_s), policies=())
    prompt = Prompt[None](ns="wink-workspace", key="eval", name="eval", sections=[section])
    return place.execute(prompt, ToolCall.of("evaluate_python", arguments, id="eval")).event


def _print_json(called: ToolInvoked) -> None:
    from wink_workspace import serde

    result: object = None if called.value is None else serde.dump(called.value)
    print_json({"success": called.success, "message": called.message, "result": result})
