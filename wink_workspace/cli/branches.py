"""The commands that bring changes from one branch, or from the source, into another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from wink_workspace.environment import Environment
from wink_workspace.errors import UsageError
from wink_workspace.wording import counted

from .display import consoles, printable
from .places import (
    JsonOption,
    WorkspaceArgument,
    entry_fields,
    line_of,
    open_workspace,
    print_json,
    storage_of,
)

if TYPE_CHECKING:
    from wink_workspace.ledger import LogEntry
    from wink_workspace.workspace import Workspace

__all__ = ["merge", "sync"]


def merge(
    context: typer.Context,
    workspace: WorkspaceArgument,
    into: Annotated[
        str, typer.Option("--into", help="The branch that gets the changes: WORKSPACE/FORK.")
    ],
    json: JsonOption = False,
) -> None:
    """Merge the changes of one branch of a workspace into another one, as one entry.

    The branch WORKSPACE alone is the main one. The entry can be undone.
    """
    storage = storage_of(context.obj)
    (which, line), (target, _) = line_of(workspace), line_of(into)
    if storage.folder(which).path != storage.folder(target).path:
        raise UsageError(
            f"{workspace} and {into} are not branches of one workspace",
            hint="Only branches of the same workspace can be merged.",
        )
    with open_workspace(context.obj, into) as place:
        entry = place.merge(line)
        _report(context.obj, place, entry, as_json=json)


def sync(context: typer.Context, workspace: WorkspaceArgument, json: JsonOption = False) -> None:
    """Merge later changes of the source into a workspace, as one entry.

    Afterwards `diff` and `apply` are relative to the source as it is now. The entry can be undone.
    """
    with open_workspace(context.obj, workspace) as place:
        entry = place.sync()
        _report(context.obj, place, entry, as_json=json)


def _report(
    environment: Environment, place: Workspace, entry: LogEntry | None, *, as_json: bool
) -> None:
    if as_json:
        print_json(None if entry is None else entry_fields(entry))
        return
    out, _ = consoles(environment)
    if entry is None:
        out.print("nothing is new")
        return
    n_paths = len(place.changes_of(entry))
    out.print(
        f"entry {entry.number}: {printable(entry.subject)}, {counted(n_paths, 'path')} changed",
        markup=False,
    )
