"""The commands for whole workspaces: create, fork, apply, merge, sync, recover, gc, remove."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wink_workspace.errors import LedgerBusyError, UsageError
from wink_workspace.wording import counted

from .context import (
    KEEP_BYTES,
    KEEP_DAYS,
    CommandContext,
    IncludeIgnoredOption,
    JsonOption,
    WorkspaceArgument,
    entry_fields,
    print_json,
    split_name,
)
from .display import print_table, printable, progress_bar
from .output_file import write_patch
from .preview import preview_fields, print_not_kept, print_preview
from .sandboxes import sweep_sandboxes

if TYPE_CHECKING:
    from wink_workspace.ledger import LogEntry
    from wink_workspace.workspace import Applied, ApplyTarget, ChangeSet, Workspace

__all__ = [
    "ApplyOptions",
    "apply",
    "create",
    "fork",
    "gc",
    "list_all",
    "merge",
    "recover",
    "remove",
    "sync",
]

_MAX_NAMES = 5


class NewMode(StrEnum):
    """What the files of a new workspace are."""

    AUTO = "auto"
    OVERLAY = "overlay"
    COPY = "copy"


def create(
    context: CommandContext,
    source: Annotated[Path, typer.Argument(help="The directory to copy; it is only read.")],
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Copy nothing: work in the directory itself, beside you."),
    ] = False,
    mode: Annotated[
        NewMode,
        typer.Option(
            "--mode",
            help="What the files are: an overlay over a shared base, or a plain copy. By default "
            "an overlay where the system supports it.",
        ),
    ] = NewMode.AUTO,
    json: JsonOption = False,
) -> None:
    """Create a workspace of a directory, uncommitted and ignored files included."""
    from rich.progress import TextColumn

    from wink_workspace.workspace import Workspace

    if in_place and mode is not NewMode.AUTO:
        raise UsageError(
            "a workspace in place has no other mode", hint="Omit --mode, or omit --in-place."
        )
    column = TextColumn("{task.fields[n_files]:,} files, {task.fields[n_bytes]:,} bytes")
    what = f"{'reading' if in_place else 'copying'} {source}"
    with (
        progress_bar(
            context.err, what, column, is_shown=context.shows_progress, n_files=0, n_bytes=0
        ) as update,
        Workspace.create(
            source,
            storage=context.storage,
            mode="in_place" if in_place else mode.value,
            progress=lambda n_files, n_bytes: update(n_files=n_files, n_bytes=n_bytes),
        ) as workspace,
    ):
        info, record = workspace.info, workspace.record(workspace.entry(1))
    if json:
        print_json({**asdict(info), "created_at": info.created_at.isoformat()})
        return
    imported = record.data if isinstance(record.data, dict) else {}
    n_files, skipped = imported.get("n_files"), imported.get("skipped")
    names = [str(name) for name in skipped] if isinstance(skipped, list) else []
    left = ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
    context.out.print(
        f"{info.id}: {'in' if in_place else 'a copy of'} {printable(info.source)}, "
        + counted(n_files if isinstance(n_files, int) else 0, "file")
        + (f"; could not be {'read' if in_place else 'copied'}: {printable(left)}" if left else ""),
        markup=False,
    )


def list_all(context: CommandContext, json: JsonOption = False) -> None:
    """List the workspaces, newest first."""
    found = list(context.storage.all())
    if json:
        print_json([{**asdict(i), "created_at": i.created_at.isoformat()} for i in found])
    elif found:
        rows = [
            (i.id, f"{i.created_at:%Y-%m-%d %H:%M}", i.mode.replace("_", " "), i.source)
            for i in found
        ]
        print_table(context.out, ("WORKSPACE", "CREATED (UTC)", "MODE", "SOURCE"), rows)


def fork(
    context: CommandContext,
    workspace: WorkspaceArgument,
    name: Annotated[str, typer.Argument(help="The name of the new branch.")],
    json: JsonOption = False,
) -> None:
    """Create a branch of a workspace, with files of its own; its name is WORKSPACE/NAME."""
    try:
        with context.open(workspace) as opened:
            opened.fork(name)
            forked = opened.info.id
    except LedgerBusyError:  # the newest entry can be forked; this is the advice of that error
        with context.read(workspace) as reader:
            reader.fork(name)
            forked = reader.info.id
    if json:
        print_json({"workspace": forked, "fork": name, "name": f"{forked}/{name}"})
    else:
        context.out.print(f"{forked}/{name}", markup=False)


def remove(
    context: CommandContext,
    workspace: WorkspaceArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Remove it even if its history cannot be read.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Delete a workspace with its files and its history, or a fork.

    For a workspace in place only the history is deleted; the files are yours, and stay.
    """
    from wink_workspace.ledger import MAIN_BRANCH
    from wink_workspace.workspace import Workspace

    name, branch = split_name(workspace)
    storage = context.storage
    removed = storage.folder(name).info().id
    if branch != MAIN_BRANCH:
        with closing(Workspace.open(name, storage=storage)) as opened:
            opened.delete_fork(branch)
        removed += f"/{branch}"
    elif force:
        storage.remove(storage.folder(name))
    else:
        Workspace.delete(name, storage=storage)
    if json:
        print_json({"removed": removed})


# Changes from one branch, or the source, to another


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """The options of ``apply``."""

    workspace: WorkspaceArgument
    patch: Annotated[
        Path | None, typer.Option(help="Write a patch here; the source is not changed.")
    ] = None
    branch: Annotated[
        str | None, typer.Option(help="Create this branch in the source's repository.")
    ] = None
    include_ignored: IncludeIgnoredOption = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be applied; write nothing.")
    ] = False
    merge: Annotated[
        bool,
        typer.Option("--merge", help="Write what can be merged, and conflict markers elsewhere."),
    ] = False
    json: JsonOption = False

    @property
    def target(self) -> ApplyTarget:
        """Where the changes go."""
        if self.patch is not None:
            return "patch"
        return "worktree" if self.branch is None else "branch"


def apply(context: CommandContext, options: ApplyOptions) -> None:
    """Merge the changes into the source, line by line.

    The paths are shown first, with what each adds and removes. A path marked with ! can run
    something on your machine without being started by name. A conflict changes nothing and is
    shown, unless --merge is given.
    """
    if (options.patch is not None) + (options.branch is not None) + options.merge > 1:
        raise UsageError("one way at a time", hint="Give one of --patch, --branch and --merge.")
    with context.open(options.workspace) as workspace:
        preview = workspace.preview(options.target, include_ignored=options.include_ignored)
        fields: Mapping[str, object] = preview_fields(preview) if options.json else {}
        if not options.json:
            print_preview(context.out if options.dry_run else context.err, preview)
        if options.dry_run:
            applied, where = None, None
        else:
            applied, where = _apply(context, options, workspace, preview)
    paths = preview.paths if applied is None else applied.paths
    left_out = () if applied is None else applied.left_out
    if options.json:
        names = left_out or tuple(str(each.path) for each in preview.left_out)
        print_json({"paths": paths, "left_out": names, "to": where, "preview": fields})
    elif where is not None:
        print_not_kept(context.err, left_out, preview)
        done = "applied" if options.patch is None else "written"
        context.out.print(
            f"{counted(len(paths), 'path')} {done} to {printable(where)}", markup=False
        )


def _apply(
    context: CommandContext,
    options: ApplyOptions,
    workspace: Workspace,
    preview: ChangeSet,
) -> tuple[Applied, str]:
    """Apply the changes; the result, and where they are now."""
    if options.patch is not None:
        write_to = partial(
            workspace.write_patch, include_ignored=options.include_ignored, previewed=preview
        )
        return write_patch(options.patch, write_to), str(options.patch)
    applied = workspace.apply(
        options.target,
        branch=options.branch or "",
        merge=options.merge,
        include_ignored=options.include_ignored,
        previewed=preview,
    )
    for conflict in applied.conflicts:
        what = "has conflict markers" if conflict.hunks else f"is unchanged: {conflict.reason}"
        context.err.print(printable(f"{conflict.path} {what}"), markup=False)
    if options.branch is not None:
        return applied, f"branch {options.branch}, commit {applied.commit[:12]}"
    return applied, workspace.info.source


def merge(
    context: CommandContext,
    workspace: WorkspaceArgument,
    into: Annotated[
        str, typer.Option("--into", help="The branch that gets the changes: WORKSPACE/FORK.")
    ],
    json: JsonOption = False,
) -> None:
    """Merge the changes of one branch of a workspace into another one, as one entry.

    WORKSPACE without a fork is its main branch. The entry can be undone.
    """
    (source, branch), (target, _) = split_name(workspace), split_name(into)
    if context.storage.folder(source).path != context.storage.folder(target).path:
        raise UsageError(
            f"{workspace} and {into} are not branches of one workspace",
            hint="Merge branches of the same workspace.",
        )
    with context.open(into) as opened:
        _print_merge(context, opened, opened.merge(branch), as_json=json)


def sync(context: CommandContext, workspace: WorkspaceArgument, json: JsonOption = False) -> None:
    """Merge later changes of the source into a workspace, as one entry.

    Afterwards `diff` and `apply` are relative to the current source. The entry can be undone.
    """
    with context.open(workspace) as opened:
        _print_merge(context, opened, opened.sync(), as_json=json)


def _print_merge(
    context: CommandContext, workspace: Workspace, entry: LogEntry | None, *, as_json: bool
) -> None:
    if as_json:
        print_json(None if entry is None else entry_fields(entry))
    elif entry is None:
        context.out.print("already up to date")
    else:
        n_paths = len(workspace.changes_of(entry))
        context.out.print(
            f"entry {entry.number}: {printable(entry.subject)}, {counted(n_paths, 'path')} changed",
            markup=False,
        )


# Maintenance


def recover(
    context: CommandContext, workspace: WorkspaceArgument, json: JsonOption = False
) -> None:
    """Undo what a crash interrupted, and report it; opening a workspace does the same."""
    with context.read(workspace) as reader:
        last = reader.head.number
    with context.open(workspace) as opened:
        recovered = [entry for entry in opened.log(limit=2) if entry.number > last]
        records = [opened.record(entry).data for entry in recovered]
        is_unfinished = opened.has_unfinished_apply
    if json:
        print_json([entry_fields(entry) for entry in recovered])
        return
    for entry, data in zip(recovered, records, strict=True):
        # The whole message, unlike in `log`: it names what was undone and what was not.
        message = data.get("message") if isinstance(data, dict) else None
        what = f"{entry.tool}: {message}" if message else entry.subject
        context.out.print(f"entry {entry.number}: {printable(what)}", markup=False)
    if is_unfinished:
        context.out.print("an apply to the source was interrupted; apply again to finish it")
    elif not recovered:
        context.out.print("nothing to recover")


def gc(
    context: CommandContext,
    workspace: WorkspaceArgument,
    keep_days: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            show_default=False,
            help=f"Forget entries older than this ({KEEP_DAYS}; 30 by default).",
        ),
    ] = None,
    keep_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help=f"Forget the oldest entries above this size ({KEEP_BYTES}; 2 GiB by default).",
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file of the bases and compare its hash.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Forget old or large history, pack the rest, and remove what crashed processes left.

    Checkouts that no workspace uses are deleted, and damaged ones are made again when they are
    needed. The limits apply to this command only; the variables apply to every command.
    """
    from rich.progress import MofNCompleteColumn

    from wink_workspace.workspace.bases import collect_bases

    with (
        context.open(
            workspace, config=context.config(keep_days=keep_days, keep_bytes=keep_bytes)
        ) as opened,
        progress_bar(
            context.err, "reading entries", MofNCompleteColumn(), is_shown=context.shows_progress
        ) as update,
    ):
        done = opened.maintain(
            steps=lambda what, n_done, n_all: update(
                description=what, completed=n_done, total=n_all
            )
        )
    n_unfinished = context.storage.sweep()
    swept = sweep_sandboxes(context)
    bases = collect_bases(context.storage.state_dir, checks_contents=verify)
    if json:
        unfinished = {"unfinished_workspaces_removed": n_unfinished}
        print_json(
            {**asdict(done), **unfinished, "containers_removed": swept, "bases": asdict(bases)}
        )
        return
    out = context.out
    if n_unfinished:
        out.print(f"{counted(n_unfinished, 'unfinished workspace')} of dead processes removed")
    if swept:
        out.print(f"{counted(len(swept), 'container')} of dead processes removed")
    if bases.n_deleted:
        out.print(f"{counted(bases.n_deleted, 'base')} deleted that no workspace uses")
    for name in bases.damaged:
        out.print(f"the base {name} was damaged; it is made again when it is needed")
    if bases.disk_bytes:
        out.print(f"{bases.disk_bytes:,} bytes in bases, which workspaces share")
    if not done.ran:
        out.print("another process is using the workspace; nothing was collected")
    else:
        out.print(
            f"{counted(done.n_entries_forgotten, 'entry', 'entries')} and "
            f"{counted(done.n_discards_forgotten, 'discard')} forgotten; "
            f"{done.freed_bytes:,} bytes freed, {done.disk_bytes:,} in use"
        )
    if done.forgotten:
        out.print(done.forgotten)
