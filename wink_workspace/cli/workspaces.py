"""The commands for workspaces as a whole: make, list, fork, apply, recover, clean, remove."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wink_workspace.environment import Environment
from wink_workspace.errors import Conflict, LedgerBusyError, UsageError
from wink_workspace.wording import counted

from .display import consoles, counting, print_table, printable
from .places import (
    KEEP_BYTES,
    KEEP_DAYS,
    IncludeIgnoredOption,
    JsonOption,
    WorkspaceArgument,
    config_of,
    entry_fields,
    line_of,
    open_workspace,
    print_json,
    read_workspace,
    storage_of,
)
from .preview import preview_fields, print_not_kept, print_preview

if TYPE_CHECKING:
    from rich.console import Console

    from wink_workspace.workspace import ApplyTarget

__all__ = ["apply", "fork", "gc", "list_all", "new", "recover", "rm"]

_MOST_NAMES = 5


def new(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(help="The directory to copy; it is only read.")],
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Copy nothing: work in the directory itself, beside you."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Make a workspace of a directory, uncommitted and ignored files included."""
    from wink_workspace.workspace import Workspace

    out, _ = consoles(context.obj)
    with (
        counting(context.obj, f"{'reading' if in_place else 'copying'} {source}") as progress,
        Workspace.create(
            source,
            storage=storage_of(context.obj),
            mode="in_place" if in_place else "copy",
            progress=progress,
        ) as workspace,
    ):
        info, record = workspace.info, workspace.record(workspace.entry(1))
    if json:
        print_json({**asdict(info), "created_at": info.created_at.isoformat()})
        return
    imported = record.data if isinstance(record.data, dict) else {}
    n_files, skipped = imported.get("n_files"), imported.get("skipped")
    names = [str(name) for name in skipped] if isinstance(skipped, list) else []
    left = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
    what = "in" if in_place else "a copy of"
    out.print(
        f"{info.id}: {what} {printable(info.source)}, "
        + counted(n_files if isinstance(n_files, int) else 0, "file")
        + (f"; could not be {'read' if in_place else 'copied'}: {printable(left)}" if left else ""),
        markup=False,
    )


def list_all(context: typer.Context, json: JsonOption = False) -> None:
    """List the workspaces, newest first."""
    out, _ = consoles(context.obj)
    found = list(storage_of(context.obj).all())
    if json:
        print_json([{**asdict(i), "created_at": i.created_at.isoformat()} for i in found])
    elif found:
        rows = [
            (i.id, f"{i.created_at:%Y-%m-%d %H:%M}", i.mode.replace("_", " "), i.source)
            for i in found
        ]
        print_table(out, ("WORKSPACE", "MADE (UTC)", "MODE", "OF"), rows)


def fork(
    context: typer.Context,
    workspace: WorkspaceArgument,
    name: Annotated[str, typer.Argument(help="What to call the new line.")],
    json: JsonOption = False,
) -> None:
    """Begin another line of history, which then is WORKSPACE/NAME."""
    out, _ = consoles(context.obj)
    try:
        with open_workspace(context.obj, workspace) as place:
            place.fork(name)
            which = place.info.id
    except LedgerBusyError:  # then from the newest entry: forking is the way out of that error
        with read_workspace(context.obj, workspace) as reader:
            reader.fork(name)
            which = reader.info.id
    if json:
        print_json({"workspace": which, "fork": name, "name": f"{which}/{name}"})
    else:
        out.print(f"{which}/{name}", markup=False)


def apply(
    context: typer.Context,
    workspace: WorkspaceArgument,
    patch: Annotated[
        Path | None, typer.Option(help="Write a patch here; the source is left alone.")
    ] = None,
    branch: Annotated[
        str | None, typer.Option(help="Make this new branch in the source's repository.")
    ] = None,
    include_ignored: IncludeIgnoredOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be brought; write nothing.")
    ] = False,
    merge: Annotated[
        bool,
        typer.Option("--merge", help="Write what can be merged, and conflict markers elsewhere."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Merge the changes into the source, line by line.

    First the paths are shown, with what each adds and removes. Those marked with ! can run
    something on your machine without being started by name. A conflict changes nothing and is
    shown, unless --merge is given.
    """
    if (patch is not None) + (branch is not None) + merge > 1:
        raise UsageError("one way at a time", hint="Give one of --patch, --branch and --merge.")
    out, err = consoles(context.obj)
    to: ApplyTarget = "worktree" if branch is None else "branch"
    to = to if patch is None else "patch"
    with open_workspace(context.obj, workspace) as place:
        brought = place.preview(to, include_ignored=include_ignored)
        fields: Mapping[str, object] = preview_fields(brought) if json else {}
        if not json:
            print_preview(out if dry_run else err, brought)
        if dry_run:
            where, paths, left_out = None, brought.paths, ()
        else:
            if patch is not None:
                from .running import write_patch

                write_to = partial(
                    place.write_patch, include_ignored=include_ignored, previewed=brought
                )
                applied, where = write_patch(patch, write_to), str(patch)
            else:
                applied = place.apply(
                    to,
                    branch=branch or "",
                    merge=merge,
                    include_ignored=include_ignored,
                    previewed=brought,
                )
                _print_unmerged(err, applied.conflicts)
                where = place.info.source
                if branch is not None:
                    where = f"branch {branch}, commit {applied.commit[:12]}"
            paths, left_out = applied.paths, applied.left_out
    if json:
        names = left_out or tuple(str(each.path) for each in brought.left_out)
        print_json({"paths": paths, "left_out": names, "to": where, "preview": fields})
    elif where is not None:
        print_not_kept(err, left_out, brought)
        done = "applied" if patch is None else "written"
        out.print(f"{counted(len(paths), 'path')} {done} to {printable(where)}", markup=False)


def _print_unmerged(console: Console, conflicts: Sequence[Conflict]) -> None:
    for conflict in conflicts:
        what = "has conflict markers" if conflict.hunks else f"is left as it was: {conflict.reason}"
        console.print(printable(f"{conflict.path} {what}"), markup=False)


def recover(context: typer.Context, workspace: WorkspaceArgument, json: JsonOption = False) -> None:
    """Put right what a crash left behind, and say what that was; every opening does so too."""
    out, _ = consoles(context.obj)
    with read_workspace(context.obj, workspace) as reader:
        last = reader.head.number
    with open_workspace(context.obj, workspace) as place:
        recovered = [entry for entry in place.log(limit=2) if entry.number > last]
        said = [place.record(entry).data for entry in recovered]
        is_unfinished = place.has_unfinished_apply
    if json:
        print_json([entry_fields(entry) for entry in recovered])
        return
    for entry, data in zip(recovered, said, strict=True):
        # in full, unlike in the list of entries: it says what was undone, and what was not
        message = data.get("message") if isinstance(data, dict) else None
        what = f"{entry.tool}: {message}" if message else entry.subject
        out.print(f"entry {entry.number}: {printable(what)}", markup=False)
    if is_unfinished:
        out.print("an apply to the source was cut short; apply again to finish it")
    elif not recovered:
        out.print("nothing was left behind")


def gc(
    context: typer.Context,
    workspace: WorkspaceArgument,
    keep_days: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            show_default=False,
            help=f"Forget what is older ({KEEP_DAYS}; 30 by default).",
        ),
    ] = None,
    keep_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help=f"Forget the oldest above that size ({KEEP_BYTES}; 2 GiB by default).",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Forget the history that is too old or too large, pack the rest, end what crashes left.

    Both limits hold for this command alone; the variables hold for every command.
    """
    from .sandboxes import sweep_sandboxes

    out, _ = consoles(context.obj)
    with (
        open_workspace(
            context.obj,
            workspace,
            config=config_of(context.obj, keep_days=keep_days, keep_bytes=keep_bytes),
        ) as place,
        measuring(context.obj) as steps,
    ):
        done = place.maintain(steps=steps)
    n_unfinished = storage_of(context.obj).sweep()
    swept = sweep_sandboxes(context.obj)
    if json:
        unfinished = {"unfinished_workspaces_removed": n_unfinished}
        print_json({**asdict(done), **unfinished, "containers_removed": swept})
        return
    if n_unfinished:
        out.print(f"{counted(n_unfinished, 'unfinished workspace')} of dead processes removed")
    if swept:
        out.print(f"{counted(len(swept), 'container')} of dead processes removed")
    if not done.ran:
        out.print("others are at work on it; nothing was done")
    else:
        out.print(
            f"{counted(done.n_entries_forgotten, 'entry', 'entries')} and "
            f"{counted(done.n_discards_forgotten, 'thrown-away state')} forgotten; "
            f"{done.freed_bytes:,} bytes freed, {done.disk_bytes:,} in use"
        )
    if done.forgotten:
        out.print(done.forgotten)


@contextmanager
def measuring(environment: Environment) -> Generator[Callable[[str, int, int], None]]:
    """Show on a terminal how much is done, and of how much, as the function given is told."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    _, err = consoles(environment)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    shown = environment.shows_progress
    with Progress(*columns, console=err, transient=True, disable=not shown) as progress:
        task = progress.add_task("reading entries", total=None)

        def tell(what: str, n_done: int, n_all: int) -> None:
            progress.update(task, description=what, completed=n_done, total=n_all)

        yield tell


def rm(
    context: typer.Context,
    workspace: WorkspaceArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Also when its history cannot be read.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Delete a workspace with its files and its history, or a fork.

    Of one in place the history goes; the files are yours, and stay.
    """
    environment: Environment = context.obj
    from wink_workspace.ledger import MAIN_LINE
    from wink_workspace.workspace import Workspace

    which, line = line_of(workspace)
    storage = storage_of(environment)
    removed = storage.folder(which).info().id
    if line != MAIN_LINE:
        with closing(Workspace.open(which, storage=storage)) as place:
            place.delete_fork(line)
        removed += f"/{line}"
    elif force:
        storage.remove(storage.folder(which))
    else:
        Workspace.delete(which, storage=storage)
    if json:
        print_json({"removed": removed})
