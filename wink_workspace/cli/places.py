"""How commands name and open workspaces, and how entries go out as JSON.

A workspace is named by its id or the beginning of it, a fork by ``<workspace>/<fork>``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wink_workspace.environment import Environment

if TYPE_CHECKING:
    from wink_workspace.ledger import LogEntry
    from wink_workspace.workspace import Workspace, WorkspaceReader, WorkspaceStorage

__all__ = [
    "EntryArgument",
    "IncludeIgnoredOption",
    "JsonOption",
    "WorkspaceArgument",
    "as_json",
    "entry_fields",
    "line_of",
    "open_workspace",
    "print_json",
    "read_workspace",
    "storage_of",
    "workspace_in",
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
IncludeIgnoredOption = Annotated[
    bool,
    typer.Option("--include-ignored", help="Also new files that the source's rules ignore."),
]
WorkspaceArgument = Annotated[
    str, typer.Argument(help="The workspace's id or its beginning; WORKSPACE/FORK for a fork.")
]
EntryArgument = Annotated[str, typer.Argument(help="The entry's number, or its id's beginning.")]


def storage_of(environment: Environment) -> WorkspaceStorage:
    """Where the user's workspaces are."""
    from wink_workspace.workspace import WorkspaceStorage

    return WorkspaceStorage(environment.state_dir)


def line_of(name: str) -> tuple[str, str]:
    """The workspace and the line that *name* stands for."""
    from wink_workspace.ledger import MAIN_LINE

    which, _, fork = name.partition("/")
    return which, fork or MAIN_LINE


def open_workspace(environment: Environment, name: str) -> Workspace:
    """The workspace or fork *name*, to work in; what a crash interrupted is recovered.

    Raises:
        UsageError: If there is no such workspace.
        LedgerBusyError: If another process has it open.
    """
    from wink_workspace.workspace import Workspace

    which, line = line_of(name)
    return Workspace.open(which, storage=storage_of(environment), line=line)


def workspace_in(environment: Environment, place: Path) -> str:
    """The id of the workspace that is in the directory *place*, made if there is none."""
    from wink_workspace.workspace import Workspace

    storage = storage_of(environment)
    info = storage.in_place(place)
    if info is None:
        with Workspace.create(place, storage=storage, mode="in_place") as made:
            info = made.info
    return info.id


def read_workspace(environment: Environment, name: str) -> WorkspaceReader:
    """The history of the workspace or fork *name*, which others may have open."""
    from wink_workspace.workspace import WorkspaceReader

    which, line = line_of(name)
    return WorkspaceReader(storage_of(environment).folder(which), line=line)


def entry_fields(entry: LogEntry) -> dict[str, object]:
    """What programs get to know of an entry."""
    return {
        "number": entry.number,
        "id": entry.id,
        "kind": entry.kind.value,
        "subject": entry.subject,
        "at": entry.at.isoformat(),
        "tool": entry.tool,
        "call_id": entry.call_id,
        "outcome": None if entry.outcome is None else entry.outcome.value,
        "target": entry.target,
    }


def as_json(value: object) -> str:
    """*value* as JSON; bytes of names that are not UTF-8 come as escapes."""
    plain: Callable[[Any], object] = str
    return json.dumps(value, indent=2, default=plain)


def print_json(value: object) -> None:
    """Print *value* as JSON, and nothing else."""
    typer.echo(as_json(value))
