"""The command ``guard``: undo for an agent program that works in the user's own directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wink_workspace.cli.screen.command_context import CommandContext
from wink_workspace.cli.screen.display import print_table, printable
from wink_workspace.counts import counted
from wink_workspace.errors import UsageError
from wink_workspace.guard import GuardedProject
from wink_workspace.guard.guarded_project import find_project
from wink_workspace.guard.installing import Installation
from wink_workspace.guard.programs.registry import PROGRAMS


def guard(
    context: CommandContext,
    program: Annotated[
        str | None, typer.Argument(help=f"The agent program: {', '.join(PROGRAMS)}.")
    ] = None,
    user: Annotated[
        bool, typer.Option("--user", help="Write the hooks into your own settings of the program.")
    ] = False,
    project: Annotated[
        bool,
        typer.Option(
            "--project", help="Write them into the project's settings that are not committed."
        ),
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the hooks.")] = False,
) -> None:
    """Record each step that an agent program makes in this project, so that it can be undone.

    Without PROGRAM, show which programs are guarded.
    """
    if context.environment.home is None:
        raise UsageError("there is no home directory", hint="Set HOME.")
    installation = Installation(context.environment.state_dir, context.environment.home)
    if program is None:
        _show(context, installation)
        return
    if program not in PROGRAMS:
        raise UsageError(
            f"there are no hooks for {program!r}", hint=f"Use one of: {', '.join(PROGRAMS)}."
        )
    if user and project:
        raise UsageError("--user and --project exclude each other", hint="Give one of them.")
    hooks, top = PROGRAMS[program], context.top_of(Path())
    of_project = project or (not user and bool(hooks.project_settings))
    if remove:
        changed = installation.remove(hooks, top if project else None)
        for path in changed:
            context.out.print(f"removed from {printable(str(path))}", markup=False)
        if not changed:
            context.out.print(f"{program} has no hooks of ours", markup=False)
        return
    _record(context, top)
    for path in installation.install(hooks, top if of_project else None):
        context.out.print(f"{program}: hooks in {printable(str(path))}", markup=False)
    context.out.print(
        "Each of its steps is recorded now. `wink-workspace log` lists them,"
        " `wink-workspace undo` takes the last one back."
    )


def _record(context: CommandContext, top: Path) -> None:
    """Begin the history of the project, if it has none."""
    if top == context.environment.home or top == Path("/"):
        raise UsageError(
            f"{top} is not a project", hint="Go into the directory of a project, then try again."
        )
    recorded = GuardedProject(context.storage, top)
    with context.spinner(f"recording {top}"):
        workspace = recorded.workspace
    context.out.print(f"workspace {workspace.info.id} of {printable(str(top))}", markup=False)
    recorded.release()


def _show(context: CommandContext, installation: Installation) -> None:
    files = installation.files()
    if not files:
        context.out.print(
            f"No program is guarded. Try `wink-workspace guard {next(iter(PROGRAMS))}`."
        )
    rows = [
        (each.program, printable(str(each.path)), "works" if each.works else "was removed")
        for each in files
    ]
    if rows:
        print_table(context.out, ("program", "file", ""), rows)
    info = find_project(context.storage, Path())
    if info is None:
        context.out.print("This directory is not recorded.")
        return
    with context.read(info.id) as reader:
        n_entries = counted(reader.head.number, "entry", "entries")
    context.out.print(f"{info.id} of {printable(info.source)}: {n_entries}", markup=False)
