"""The command for what rollbacks, recoveries and undos threw away: list it, show it, restore it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from wink_workspace.errors import LedgerBusyError, UsageError, WinkError
from wink_workspace.wording import counted

from .display import consoles, print_diff, print_table, printable, warn_of_left_out
from .places import (
    JsonOption,
    WorkspaceArgument,
    entry_fields,
    open_workspace,
    print_json,
    read_workspace,
)

if TYPE_CHECKING:
    from wink_workspace.environment import Environment
    from wink_workspace.ledger import Discarded
    from wink_workspace.workspace import Workspace, WorkspaceReader

__all__ = ["discarded"]

_MAX_NAMES = 3


class _Action(StrEnum):
    LIST = "list"
    SHOW = "show"
    RESTORE = "restore"


def discarded(
    context: typer.Context,
    workspace: WorkspaceArgument,
    action: Annotated[_Action, typer.Argument(help="What to do.")] = _Action.LIST,
    discard: Annotated[
        str | None, typer.Argument(help="The discard's number, or its id's beginning.")
    ] = None,
    paths: Annotated[
        list[str] | None, typer.Argument(help="Restore only these; all files when left out.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List, show or restore the files that failed calls, crashes and undos threw away.

    A restore is an entry that undo takes back.
    """
    if (action is _Action.LIST) is not (discard is None):
        raise UsageError(
            f"{action} {'takes no' if discard else 'needs a'} discard",
            hint="Write: discarded WORKSPACE, or discarded WORKSPACE show N, or"
            " discarded WORKSPACE restore N [PATHS].",
        )
    if paths and action is not _Action.RESTORE:
        raise UsageError(f"{action} takes no paths", hint="Give only the discard's number.")
    if discard is not None and action is _Action.RESTORE:
        _restore(context, workspace, discard, paths, json=json)
        return
    with _opened_or_read(context.obj, workspace) as place:
        if discard is None:
            _list(context, place, json=json)
        else:
            _show(context, place, discard, json=json)


def _opened_or_read(environment: Environment, workspace: str) -> Workspace | WorkspaceReader:
    """Opened, so that all that was thrown away is listed; else what the history has of it."""
    try:
        return open_workspace(environment, workspace)
    except LedgerBusyError:
        return read_workspace(environment, workspace)
    except WinkError as error:
        _, err = consoles(environment)
        message = f"only what the history has is listed: {printable(error.message)}"
        reader = read_workspace(environment, workspace)
        err.print(message, markup=False)
        return reader


def _list(context: typer.Context, place: Workspace | WorkspaceReader, *, json: bool) -> None:
    out, _ = consoles(context.obj)
    found = place.discarded()
    if json:
        print_json([_fields(place, each) for each in found])
        return
    rows = [
        (
            str(each.discard or each.id[:12]),
            f"{each.at:%Y-%m-%d %H:%M:%S}",
            str(each.number),
            f"{each.reason}: {each.call_id}",
            _summary(place, each),
        )
        for each in found
    ]
    print_table(out, ("DISCARD", "WHEN (UTC)", "AFTER ENTRY", "WHY", "PATHS"), rows)


def _summary(place: Workspace | WorkspaceReader, each: Discarded) -> str:
    paths = [str(path) for path in place.discarded_paths(each)]
    names = ", ".join(paths[:_MAX_NAMES]) + (", …" if len(paths) > _MAX_NAMES else "")
    parts = [f"{counted(len(paths), 'path')}: {names}" if paths else "no path"]
    if each.removed:
        parts.append(f"{len(each.removed):,} deleted")
    if each.dropped:
        parts.append(f"{each.dropped.n_files:,} not kept")
    return "; ".join(parts)


def _show(
    context: typer.Context, place: Workspace | WorkspaceReader, which: str, *, json: bool
) -> None:
    out, err = consoles(context.obj)
    found = place.find_discarded(which)
    changed = place.review_of_discarded(found)
    if json:
        pieces: list[bytes] = []
        not_shown = changed.write_to(pieces.append)
        diff = b"".join(pieces).decode("utf-8", "surrogateescape")
        print_json({**_fields(place, found), "diff": diff, "not_shown": not_shown})
        return
    lines = [
        f"discard {found.discard or found.id[:12]}, {found.at:%Y-%m-%d %H:%M:%S} UTC",
        f"id {found.id}",
        f"{found.reason}: call {found.call_id}, found after entry {found.number}",
    ]
    lines += [
        f"not kept: {each.path}, {each.size_bytes:,} bytes, {each.reason}"
        for each in found.dropped.named
    ]
    n_unnamed = found.dropped.n_files - len(found.dropped.named)
    if n_unnamed:
        lines.append(f"not kept: {counted(n_unnamed, 'other file')}")
    out.print(printable("\n".join([*lines, ""])), markup=False)
    warn_of_left_out(err, print_diff(out, changed.write_to), hint="discarded restore")


def _restore(
    context: typer.Context, workspace: str, which: str, paths: list[str] | None, *, json: bool
) -> None:
    out, err = consoles(context.obj)
    with open_workspace(context.obj, workspace) as place:
        entry = place.restore_discarded(which, paths=paths or None)
        found = place.find_discarded(which)
    if json:
        print_json(entry_fields(entry))
    else:
        out.print(f"entry {entry.number}: {printable(entry.subject)}", markup=False)
    if paths:
        return
    if found.removed:
        named = ", ".join(map(str, found.removed[:_MAX_NAMES]))
        more = ", …" if len(found.removed) > _MAX_NAMES else ""
        message = f"deleted then and left as they are: {named}{more}; name a path to delete it"
        err.print(printable(message), markup=False)
    if found.dropped:
        err.print(printable(str(found.dropped)), markup=False)


def _fields(place: Workspace | WorkspaceReader, each: Discarded) -> dict[str, object]:
    """What programs get to know of a discard."""
    return {
        "discard": each.discard,
        "id": each.id,
        "at": each.at.isoformat(),
        "reason": each.reason,
        "call_id": each.call_id,
        "after_entry": each.number,
        "paths": [str(path) for path in place.discarded_paths(each)],
        "deleted": [str(path) for path in each.removed],
        "not_kept": {
            "n_files": each.dropped.n_files,
            "n_bytes": each.dropped.n_bytes,
            "files": [
                {"path": file.path, "size_bytes": file.size_bytes, "reason": file.reason}
                for file in each.dropped.named
            ],
        },
    }
