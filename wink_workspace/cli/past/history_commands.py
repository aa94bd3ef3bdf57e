"""The commands for the history of a workspace: look at it, undo it, and restore from it.

Commands that only look work while another process has the workspace open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from wink_workspace.cli.sandbox.project import for_workspace
from wink_workspace.cli.screen.command_context import (
    CommandContext,
    EntryArgument,
    FullOption,
    IncludeIgnoredOption,
    JsonOption,
    NoPagerOption,
    WorkspaceArgument,
    as_json,
    entry_fields,
    print_json,
)
from wink_workspace.cli.screen.display import (
    MARKS,
    diff_text,
    local_time,
    print_diff,
    print_table,
    printable,
    stat_lines,
    warn_of_left_out,
)
from wink_workspace.cli.screen.preview import (
    preview_fields,
    print_derived,
    print_left_out,
    print_preview,
)
from wink_workspace.cli.screen.user_programs import paged
from wink_workspace.counts import counted, listed
from wink_workspace.errors import (
    FilesystemError,
    LedgerBusyError,
    LedgerError,
    MissingExtraError,
    UsageError,
    WinkError,
)

if TYPE_CHECKING:
    from rich.console import Console

    from wink_workspace.ledger import Discarded, LogEntry, Record
    from wink_workspace.workspace import ChangeSet, Workspace, WorkspaceReader


_MAX_NAMES = 3
_MOST_LISTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The options of ``log``."""

    workspace: WorkspaceArgument
    limit: Annotated[int | None, typer.Option("-n", min=1, help="Most entries to list.")] = None
    graph: Annotated[
        bool, typer.Option("--graph", help="Show all branches, each in a lane of its own.")
    ] = False
    stat: Annotated[
        bool, typer.Option("--stat", help="Show the changed paths and line counts of each entry.")
    ] = False
    no_pager: NoPagerOption = False
    json: JsonOption = False


def log(context: CommandContext, options: LogOptions) -> None:
    """List the entries, newest first; another process may have the workspace open."""
    limit = options.limit
    with context.read(options.workspace) as reader:
        is_graph = options.graph and not options.json
        lines = list(_graph(context, options, reader)) if is_graph else []
        kept = list(reader.log(limit=limit and limit + 1))
        entries = kept[:limit]
        trees = {each.id: each.files for each in kept}
        changed = {
            each.id for each in entries if each.parent and trees.get(each.parent) != each.files
        }
        is_complete = len(kept) == len(entries)
        forgotten = reader.forgotten() if is_complete else None
        stats = {each.id: _stat(reader, each) for each in entries} if options.stat else {}
    if options.json:
        note = [] if forgotten is None else [{"kind": "forgotten", **asdict(forgotten)}]
        fields = [
            entry_fields(each)
            | {"changed_files": each.id in changed}
            | ({"paths": stats[each.id]} if stats else {})
            for each in entries
        ]
        print_json([*fields, *note])
        return
    with paged(context.out, context.environment, is_wanted=not options.no_pager) as out:
        if options.graph:
            from rich.text import Text

            for line in lines:
                is_cut = out.is_terminal  # `print` ignores the options of a text
                overflow = "ellipsis" if is_cut else "ignore"
                out.print(Text(line), no_wrap=True, overflow=overflow, soft_wrap=False)
            return
        rows = [
            _row(entry, short=out.is_terminal, changed=entry.id in changed) for entry in entries
        ]
        if forgotten is not None:
            what = (
                f"entries up to {forgotten.up_to_number}, of {local_time(forgotten.up_to)}"
                f" and before: {forgotten.reason}"
            )
            rows.append(
                ("", local_time(forgotten.at, short=out.is_terminal), "forgotten", " ", what)
            )
        below = [stats.get(entry.id, ()) for entry in entries]
        print_table(out, ("ENTRY", "WHEN", "KIND", "", "WHAT"), rows, below=below)


def _row(entry: LogEntry, *, short: bool, changed: bool) -> tuple[str, ...]:
    """The cells of an entry; M marks one that changed files, as in git."""
    return (
        str(entry.number),
        local_time(entry.at, short=short),
        entry.kind.value,
        (" " if entry.outcome is None else MARKS.get(entry.outcome, " "))
        + (" M" if changed else ""),
        entry.subject,
    )


def _stat(reader: WorkspaceReader, entry: LogEntry) -> tuple[str, ...]:
    """The changed paths of an entry with their line counts; an import has none."""
    if entry.parent is None:
        return ()
    if lost := reader.lost_changes(entry):
        return (lost,)
    return stat_lines(reader.review_of(entry))


def _graph(context: CommandContext, options: LogOptions, reader: WorkspaceReader) -> Iterator[str]:
    """One line for each entry of all branches, newest first, with the branches as lanes."""
    for row in islice(reader.timeline(), options.limit):
        entry, lanes = row.entry, " ".join(row.lanes)
        names = f" ({', '.join(row.branches)})" if row.branches else ""
        mark = " " if entry.outcome is None else MARKS.get(entry.outcome, " ")
        when = local_time(entry.at, short=context.out.is_terminal)
        yield printable(f"{lanes} {entry.number} {when} {mark}{names} {entry.subject}")
        for line in _stat(reader, entry) if options.stat else ():
            yield printable(f"{lanes.replace('*', '|')}     {line}")


def show(
    context: CommandContext,
    workspace: WorkspaceArgument,
    entry: EntryArgument,
    full: FullOption = False,
    no_pager: NoPagerOption = False,
    json: JsonOption = False,
) -> None:
    """Show one entry: the call, its answer to the model, and its changes to files."""
    with context.read(workspace) as reader:
        found = reader.entry(entry)
        record = reader.record(found)
        # An import adds every file, so its diff would repeat the files themselves.
        changed = None if found.parent is None else reader.review_of(found)
        if json:
            text, not_shown = ("", ()) if changed is None else diff_text(changed, full=full)
            shown = {"diff": text, "not_shown": not_shown, "lost": reader.lost_changes(found)}
            print_json({**entry_fields(found), "record": record.data, **shown})
            return
        not_shown = ()
        with paged(context.out, context.environment, is_wanted=not no_pager) as out:
            _print_entry(out, found, record)
            if changed is not None:
                not_shown = print_diff(out, partial(changed.write_to, full=full))
        if lost := reader.lost_changes(found):
            context.err.print(lost, markup=False)
        warn_of_left_out(context.err, not_shown)


def _print_entry(out: Console, entry: LogEntry, record: Record) -> None:
    outcome = "" if entry.outcome is None else f", {entry.outcome.value.replace('_', ' ')}"
    lines = [
        f"entry {entry.number}, {entry.kind.value}{outcome}, {local_time(entry.at)}",
        f"id {entry.id}",
    ]
    data = record.data if isinstance(record.data, dict) else {}
    if entry.tool:
        lines += [f"call {entry.call_id}: {entry.tool} {as_json(data.get('params'))}"]
    text = data.get("text") or data.get("reason") or entry.subject
    lines += ["", str(text).rstrip("\n"), ""]
    for name in ("notes", "outside_effects"):
        found = data.get(name)
        if isinstance(found, list) and found:
            lines += [*map(str, found), ""]
    out.print(printable("\n".join(lines)), markup=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """The options of ``diff``."""

    workspace: WorkspaceArgument
    stat: Annotated[bool, typer.Option("--stat", help="Print paths and line counts only.")] = False
    include_ignored: IncludeIgnoredOption = False
    full: FullOption = False
    no_pager: NoPagerOption = False
    json: JsonOption = False


def diff(context: CommandContext, options: DiffOptions) -> None:
    """Print the differences from the source as it was copied, as a diff that git can apply.

    A path that is too large gets one line. With --full the workspace stays open until the whole
    diff has been read.
    """
    stat, full, json = options.stat, options.full, options.json
    if stat and full:
        raise UsageError("--stat shows no contents", hint="Give either --stat or --full.")
    with ExitStack() as opened:
        changes = _changeset(context, options, opened)
        if stat and not json:
            print_preview(context.out, changes, max_paths=None)
            return
        if full and not json:
            with paged(context.out, context.environment, is_wanted=not options.no_pager) as out:
                print_diff(out, partial(changes.review().write_to, full=True))
            print_left_out(context.err, changes.left_out)
            print_derived(context.err, changes.derived)
            return
        text, not_shown = ("", ()) if stat else diff_text(changes.review(), full=full)
        preview: Mapping[str, object] = preview_fields(changes) if json else {}
    # The workspace is closed by now, so a reader with a pager does not keep it locked.
    if json:
        content = {} if stat else {"diff": text, "not_shown": not_shown}
        print_json({"paths": changes.paths, **content, **preview})
        return
    with paged(context.out, context.environment, is_wanted=not options.no_pager) as out:
        print_diff(out, lambda write: write(text.encode("utf-8", "surrogateescape")))
    warn_of_left_out(context.err, not_shown)
    print_left_out(context.err, changes.left_out)
    print_derived(context.err, changes.derived)


def _changeset(context: CommandContext, options: DiffOptions, opened: ExitStack) -> ChangeSet:
    """The changes now, or at the newest entry if the workspace is in use or the disk is full."""
    from wink_workspace.ledger import is_disk_full

    try:
        with ExitStack() as opening:
            workspace = opening.enter_context(context.open(options.workspace))
            changes = workspace.changeset(include_ignored=options.include_ignored)
            opened.push(opening.pop_all())
            return changes
    except (LedgerError, FilesystemError) as error:
        if not isinstance(error, LedgerBusyError) and not is_disk_full(error):
            raise
        reader = opened.enter_context(context.read(options.workspace))
        if is_disk_full(error):
            context.err.print(
                f"the disk is full, so edits made since entry {reader.head.number} are not shown",
                markup=False,
            )
        return reader.changeset(include_ignored=options.include_ignored)


# Undo and restore


def undo(
    context: CommandContext,
    workspace: WorkspaceArgument,
    entry: Annotated[
        str | None,
        typer.Argument(help="Undo this entry, by its number or its id's beginning."),
    ] = None,
    uncertain: Annotated[
        bool,
        typer.Option(
            "--uncertain",
            help="Undo also what changed while an agent's command ran, perhaps not by it.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Undo the newest entry that changed files and is not undone yet, or ENTRY; later edits stay.

    A restore is such an entry. An edit that no call made is undone only as ENTRY.
    """
    with context.open(workspace) as opened:
        if not uncertain and context.can_ask:
            paths = opened.preview_undo(entry, uncertain=True).uncertain
            uncertain = bool(paths) and _undoes_uncertain(context, paths)
        made = opened.undo(entry, uncertain=uncertain)
        _print_new_entry(context, opened, made, json=json, stays=opened.not_undone(made))


def _undoes_uncertain(context: CommandContext, paths: tuple[str, ...]) -> bool:
    """Ask what happens to paths that may have been changed by another program."""
    context.err.print(
        f"{counted(len(paths), 'path')} changed while the command ran, by it or by you: "
        f"{printable(listed(paths, _MOST_LISTED))}",
        markup=False,
    )
    from wink_workspace.cli.screen.console import ask_yes_no

    return ask_yes_no("Undo these, too?", default=True)


def redo(context: CommandContext, workspace: WorkspaceArgument, json: JsonOption = False) -> None:
    """Revert the newest undo."""
    with context.open(workspace) as opened:
        _print_new_entry(context, opened, opened.redo(), json=json)


def restore(
    context: CommandContext,
    workspace: WorkspaceArgument,
    entry: EntryArgument,
    paths: Annotated[
        list[str] | None, typer.Argument(help="Restore only these paths; all by default.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Restore files to their state after an entry, as a new entry."""
    with context.open(workspace) as opened:
        restored = opened.restore(entry, paths=paths or None)
        _print_new_entry(context, opened, restored, json=json)


def _print_new_entry(
    context: CommandContext,
    workspace: Workspace,
    entry: LogEntry,
    *,
    json: bool,
    stays: tuple[str, ...] = (),
) -> None:
    """Print the entry and, as they are not in it, the derived paths that changed.

    *stays* are the outside effects of an undone call, which stay.
    """
    derived = workspace.derived_changes()
    if json:
        not_in_it = {"derived": [str(path) for path in derived], "not_undone": stays}
        print_json({**entry_fields(entry), **not_in_it})
    else:
        nothing = "" if workspace.review_of(entry).paths else "; no file changed"
        what = f"entry {entry.number}: {printable(entry.subject)}{nothing}"
        context.out.print(what, markup=False)
        print_derived(context.err, derived)
        for effect in stays:
            context.err.print(f"not undone: {printable(effect)}", markup=False, style="yellow")


# Discarded files


class DiscardedAction(StrEnum):
    """What ``discarded`` does."""

    LIST = "list"
    SHOW = "show"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardedOptions:
    """The options of ``discarded``."""

    workspace: WorkspaceArgument
    action: Annotated[DiscardedAction, typer.Argument(help="What to do.")] = DiscardedAction.LIST
    discard: Annotated[
        str | None, typer.Argument(help="The discard's number, or its id's beginning.")
    ] = None
    paths: Annotated[
        list[str] | None, typer.Argument(help="Restore only these paths; all by default.")
    ] = None
    json: JsonOption = False


def discarded(context: CommandContext, options: DiscardedOptions) -> None:
    """List, show or restore the files that failed calls, crashes and undos discarded.

    A restore is an entry, which can be undone.
    """
    action, discard = options.action, options.discard
    if (action is DiscardedAction.LIST) is not (discard is None):
        raise UsageError(
            f"{action} {'takes no' if discard else 'needs a'} discard",
            hint="Write: discarded WORKSPACE, or discarded WORKSPACE show N, or"
            " discarded WORKSPACE restore N [PATHS].",
        )
    if options.paths and action is not DiscardedAction.RESTORE:
        raise UsageError(f"{action} takes no paths", hint="Give only the discard's number.")
    if discard is not None and action is DiscardedAction.RESTORE:
        _restore_discard(context, options, discard)
        return
    with _open_or_read(context, options.workspace) as history:
        if discard is None:
            _list_discards(context, history, json=options.json)
        else:
            _show_discard(context, history, discard, json=options.json)


def _open_or_read(context: CommandContext, workspace: str) -> Workspace | WorkspaceReader:
    """Open the workspace, so that every discard is listed; else read its history."""
    try:
        return context.open(workspace)
    except LedgerBusyError:
        return context.read(workspace)
    except WinkError as error:
        reader = context.read(workspace)
        message = f"only discards in the history are listed: {printable(error.message)}"
        context.err.print(message, markup=False)
        return reader


def _list_discards(
    context: CommandContext, history: Workspace | WorkspaceReader, *, json: bool
) -> None:
    found = history.discarded()
    if json:
        print_json([_discard_fields(history, each) for each in found])
        return
    rows = [
        (
            str(each.discard or each.id[:12]),
            local_time(each.at, short=context.out.is_terminal),
            str(each.number),
            f"{each.reason}: {each.call_id}",
            _discard_summary(history, each),
        )
        for each in found
    ]
    print_table(context.out, ("DISCARD", "WHEN", "AFTER ENTRY", "WHY", "PATHS"), rows)


def _discard_summary(history: Workspace | WorkspaceReader, discard: Discarded) -> str:
    paths = history.discarded_paths(discard)
    parts = [f"{counted(len(paths), 'path')}: {listed(paths, _MAX_NAMES)}" if paths else "no path"]
    if discard.removed:
        parts.append(f"{len(discard.removed):,} deleted")
    if discard.dropped:
        parts.append(f"{discard.dropped.n_files:,} not kept")
    return "; ".join(parts)


def _show_discard(
    context: CommandContext, history: Workspace | WorkspaceReader, which: str, *, json: bool
) -> None:
    found = history.find_discarded(which)
    changed = history.review_of_discarded(found)
    if json:
        text, not_shown = diff_text(changed)
        print_json({**_discard_fields(history, found), "diff": text, "not_shown": not_shown})
        return
    lines = [
        f"discard {found.discard or found.id[:12]}, {local_time(found.at)}",
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
    context.out.print(printable("\n".join([*lines, ""])), markup=False)
    not_shown = print_diff(context.out, changed.write_to)
    warn_of_left_out(context.err, not_shown, hint="discarded restore")


def _restore_discard(context: CommandContext, options: DiscardedOptions, which: str) -> None:
    with context.open(options.workspace) as workspace:
        entry = workspace.restore_discarded(which, paths=options.paths or None)
        found = workspace.find_discarded(which)
        _print_new_entry(context, workspace, entry, json=options.json)
    if options.paths:
        return
    if found.removed:
        named = listed(found.removed, _MAX_NAMES)
        message = f"the call had deleted {named}; name a path to delete it again"
        context.err.print(printable(message), markup=False)
    if found.dropped:
        context.err.print(printable(str(found.dropped)), markup=False)


def _discard_fields(history: Workspace | WorkspaceReader, discard: Discarded) -> dict[str, object]:
    """The JSON form of a discard."""
    return {
        "discard": discard.discard,
        "id": discard.id,
        "at": discard.at.isoformat(),
        "reason": discard.reason,
        "call_id": discard.call_id,
        "after_entry": discard.number,
        "paths": [str(path) for path in history.discarded_paths(discard)],
        "deleted": [str(path) for path in discard.removed],
        "not_kept": {
            "n_files": discard.dropped.n_files,
            "n_bytes": discard.dropped.n_bytes,
            "files": [
                {"path": file.path, "size_bytes": file.size_bytes, "reason": file.reason}
                for file in discard.dropped.named
            ],
        },
    }


# ----------------------------------------------------------------------------------------- report


def report(context: CommandContext, workspace: WorkspaceArgument) -> None:
    """Print the history as one HTML page, without secrets: every call, its output and its diff.

    The page has no scripts and loads nothing: wink-workspace report > run.html
    """
    try:
        from wink_workspace.report import ReportedHistory, write_page
    except ImportError as error:
        raise MissingExtraError.of("the report", "report", error.name) from error
    from wink_workspace.project import Settings
    from wink_workspace.workspace import RecordedRun

    context = for_workspace(context, workspace, Settings())
    runs = list(RecordedRun.all(context.folder(workspace)))
    out = typer.get_binary_stream("stdout")
    with context.read(workspace) as reader:
        branch = reader.branch_name
        title = reader.info.id if branch == "main" else f"{reader.info.id}/{branch}"
        history = ReportedHistory(reader, runs, redact=context.redact, title=title)
        write_page(history, lambda piece: out.write(piece.encode()))
    out.flush()
