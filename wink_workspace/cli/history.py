"""The commands for what happened in a workspace: look at it, and move in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from wink_workspace.errors import FilesystemError, LedgerBusyError, LedgerError, UsageError

from .display import consoles, print_diff, print_table, printable, warn_of_left_out
from .places import (
    EntryArgument,
    FullOption,
    IncludeIgnoredOption,
    JsonOption,
    WorkspaceArgument,
    as_json,
    entry_fields,
    open_workspace,
    print_json,
    read_workspace,
)
from .preview import preview_fields, print_left_out, print_preview

if TYPE_CHECKING:
    from wink_workspace.filesystem import Diff
    from wink_workspace.ledger import LogEntry, Record
    from wink_workspace.workspace import ChangeSet

__all__ = ["diff", "log", "redo", "restore", "show", "undo"]

_MARKS = {"committed": "✓", "rolled_back": "↩", "unknown": "✗"}


def log(
    context: typer.Context,
    workspace: WorkspaceArgument,
    limit: Annotated[int | None, typer.Option("-n", min=1, help="Most entries to list.")] = None,
    json: JsonOption = False,
) -> None:
    """List what happened, newest first; others may be at work meanwhile."""
    out, _ = consoles(context.obj)
    with read_workspace(context.obj, workspace) as reader:
        entries = list(reader.log(limit=limit))
        is_whole = limit is None or len(entries) < limit
        forgotten = reader.forgotten() if is_whole else None
    if json:
        note = [] if forgotten is None else [{"kind": "forgotten", **asdict(forgotten)}]
        print_json([*(entry_fields(entry) for entry in entries), *note])
        return
    rows = [
        (
            str(entry.number),
            f"{entry.at:%Y-%m-%d %H:%M:%S}",
            entry.kind.value,
            _MARKS.get(entry.outcome or "", " "),
            entry.subject,
        )
        for entry in entries
    ]
    if forgotten is not None:
        what = (
            f"entries up to {forgotten.up_to_number}, of {forgotten.up_to:%Y-%m-%d %H:%M:%S} and"
            f" before: {forgotten.reason}"
        )
        when = f"{forgotten.at:%Y-%m-%d %H:%M:%S}"
        rows.append(("", when, "forgotten", " ", what))
    print_table(out, ("ENTRY", "WHEN (UTC)", "KIND", "", "WHAT"), rows)


def show(
    context: typer.Context,
    workspace: WorkspaceArgument,
    entry: EntryArgument,
    full: FullOption = False,
    json: JsonOption = False,
) -> None:
    """Show one entry: the call, what the model was told, and what it did to files."""
    out, err = consoles(context.obj)
    with read_workspace(context.obj, workspace) as reader:
        found = reader.entry(entry)
        record = reader.record(found)
        # An import changes every file there is; the files themselves say it better.
        changed = None if found.parent is None else reader.review_of(found)
        if json:
            pieces, not_shown = ([], ()) if changed is None else _in_memory(changed, full=full)
            shown = {"diff": _text(pieces), "not_shown": not_shown}
            print_json({**entry_fields(found), "record": record.data, **shown})
            return
        _print_entry(out, found, record)
        if changed is not None:
            warn_of_left_out(err, print_diff(out, partial(changed.write_to, full=full)))


def _in_memory(changed: Diff, *, full: bool) -> tuple[list[bytes], tuple[str, ...]]:
    pieces: list[bytes] = []
    return pieces, changed.write_to(pieces.append, full=full)


def _text(pieces: Sequence[bytes]) -> str:
    return b"".join(pieces).decode("utf-8", "surrogateescape")


def _print_entry(out: Console, entry: LogEntry, record: Record) -> None:
    outcome = "" if entry.outcome is None else f", {entry.outcome.value.replace('_', ' ')}"
    lines = [
        f"entry {entry.number}, {entry.kind.value}{outcome}, {entry.at:%Y-%m-%d %H:%M:%S} UTC",
        f"id {entry.id}",
    ]
    data = record.data if isinstance(record.data, dict) else {}
    if entry.tool:
        lines += [f"call {entry.call_id}: {entry.tool} {as_json(data.get('params'))}"]
    text = data.get("text") or data.get("reason") or entry.subject
    lines += ["", str(text).rstrip("\n"), ""]
    notes = data.get("notes")
    if isinstance(notes, list):
        lines += [*map(str, notes), ""] if notes else []
    out.print(printable("\n".join(lines)), markup=False)


def diff(
    context: typer.Context,
    workspace: WorkspaceArgument,
    stat: Annotated[
        bool, typer.Option("--stat", help="Print paths and numbers of lines only.")
    ] = False,
    include_ignored: IncludeIgnoredOption = False,
    full: FullOption = False,
    json: JsonOption = False,
) -> None:
    """Print what differs from the source, as it was copied, in a form that git applies.

    A path that is too large has one line. With --full the workspace is in use until all is read.
    """
    if stat and full:
        raise UsageError("--stat shows no contents", hint="Give either --stat or --full.")
    out, err = consoles(context.obj)
    with ExitStack() as opened:
        brought = _changeset(context, workspace, opened, include_ignored=include_ignored)
        if stat and not json:
            print_preview(out, brought, most_paths=None)
            return
        if full and not json:
            print_diff(out, partial(brought.review().write_to, full=True))
            print_left_out(err, brought.left_out)
            return
        pieces, not_shown = ([], ()) if stat else _in_memory(brought.review(), full=full)
        preview: Mapping[str, object] = preview_fields(brought) if json else {}
    # Whoever reads this page by page does not keep others from the workspace.
    if json:
        content = {} if stat else {"diff": _text(pieces), "not_shown": not_shown}
        print_json({"paths": brought.paths, **content, **preview})
        return
    print_diff(out, lambda write: [write(piece) for piece in pieces])
    warn_of_left_out(err, not_shown)
    print_left_out(err, brought.left_out)


def _changeset(
    context: typer.Context, workspace: str, opened: ExitStack, *, include_ignored: bool
) -> ChangeSet:
    """What differs now, or as of the newest entry if the workspace is in use or the disk full."""
    from wink_workspace.ledger import is_disk_full

    try:
        with ExitStack() as opening:
            place = opening.enter_context(open_workspace(context.obj, workspace))
            brought = place.changeset(include_ignored=include_ignored)
            opened.push(opening.pop_all())
            return brought
    except (LedgerError, FilesystemError) as error:
        if not isinstance(error, LedgerBusyError) and not is_disk_full(error):
            raise
        reader = opened.enter_context(read_workspace(context.obj, workspace))
        if is_disk_full(error):
            _, err = consoles(context.obj)
            number = reader.head.number
            message = f"the disk is full, so edits made since entry {number} are not shown"
            err.print(message, markup=False)
        return reader.changeset(include_ignored=include_ignored)


def undo(context: typer.Context, workspace: WorkspaceArgument, json: JsonOption = False) -> None:
    """Take back the newest call that is in force; later edits stay."""
    with open_workspace(context.obj, workspace) as place:
        _report(context, place.undo(), json=json)


def redo(context: typer.Context, workspace: WorkspaceArgument, json: JsonOption = False) -> None:
    """Take back the newest undo."""
    with open_workspace(context.obj, workspace) as place:
        _report(context, place.redo(), json=json)


def restore(
    context: typer.Context,
    workspace: WorkspaceArgument,
    entry: EntryArgument,
    paths: Annotated[
        list[str] | None, typer.Argument(help="Only these paths; all of them when left out.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Bring files back as they were after an entry; that is another entry."""
    with open_workspace(context.obj, workspace) as place:
        _report(context, place.restore(entry, paths=paths or None), json=json)


def _report(context: typer.Context, entry: LogEntry, *, json: bool) -> None:
    out, _ = consoles(context.obj)
    if json:
        print_json(entry_fields(entry))
    else:
        out.print(f"entry {entry.number}: {printable(entry.subject)}", markup=False)
