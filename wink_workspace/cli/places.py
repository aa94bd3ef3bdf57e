"""How commands name and open workspaces, and how entries go out as JSON.

A workspace is named by its id or the beginning of it, a fork by ``<workspace>/<fork>``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from wink_workspace.environment import Environment
from wink_workspace.errors import UsageError

if TYPE_CHECKING:
    from wink_workspace.ledger import LogEntry
    from wink_workspace.workspace import (
        Workspace,
        WorkspaceConfig,
        WorkspaceReader,
        WorkspaceStorage,
    )

__all__ = [
    "KEEP_BYTES",
    "KEEP_DAYS",
    "EntryArgument",
    "FullOption",
    "IncludeIgnoredOption",
    "JsonOption",
    "WorkspaceArgument",
    "as_json",
    "config_of",
    "entry_fields",
    "line_of",
    "open_workspace",
    "print_json",
    "read_workspace",
    "storage_of",
    "workspace_in",
]

KEEP_DAYS = "WINK_WORKSPACE_KEEP_DAYS"
"""The variable for how old entries and discards may become."""
KEEP_BYTES = "WINK_WORKSPACE_KEEP_BYTES"
"""The variable for how much room on the disk the history of a workspace may take."""

_NumberT = TypeVar("_NumberT", int, float)

FullOption = Annotated[
    bool, typer.Option("--full", help="Leave no path out of the diff, however large it is.")
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


def open_workspace(
    environment: Environment, name: str, *, config: WorkspaceConfig | None = None
) -> Workspace:
    """The workspace or fork *name*, to work in; what a crash interrupted is recovered.

    Raises:
        UsageError: If there is no such workspace.
        LedgerBusyError: If another process has it open.
    """
    from wink_workspace.workspace import Workspace

    which, line = line_of(name)
    config = config or config_of(environment)
    return Workspace.open(which, storage=storage_of(environment), line=line, config=config)


def config_of(
    environment: Environment, *, keep_days: float | None = None, keep_bytes: int | None = None
) -> WorkspaceConfig:
    """How a workspace behaves: as asked for, else as the variables say, else as usual.

    Raises:
        UsageError: If a limit is no positive number.
    """
    from wink_workspace.ledger import Retention
    from wink_workspace.workspace import WorkspaceConfig

    usual = Retention()
    retention = Retention(
        max_age_days=keep_days or _limit(environment, KEEP_DAYS, float, usual.max_age_days),
        budget_bytes=keep_bytes or _limit(environment, KEEP_BYTES, int, usual.budget_bytes),
    )
    return WorkspaceConfig(retention=retention)


def _limit(
    environment: Environment, variable: str, read: Callable[[str], _NumberT], usual: _NumberT
) -> _NumberT:
    given = environment.variables.get(variable, "")
    try:
        return read(given) if given else usual
    except ValueError as error:
        raise UsageError(
            f"{variable} is {given!r}, which is not a number", hint=f"Set it as {usual!r}."
        ) from error


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
