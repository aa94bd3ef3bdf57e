"""The commands for whole workspaces: create, fork, apply, merge, recover, repair, gc, remove."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wink_workspace.cli.sandbox.project import for_project
from wink_workspace.cli.screen.command_context import (
    CommandContext,
    CommitMessageOption,
    IncludeIgnoredOption,
    JsonOption,
    WorkspaceArgument,
    entry_fields,
    print_json,
    split_name,
)
from wink_workspace.cli.screen.display import print_table, printable, progress_bar
from wink_workspace.cli.screen.preview import preview_fields, print_not_kept, print_preview
from wink_workspace.counts import counted, listed, sized
from wink_workspace.errors import LedgerBusyError, UsageError, WinkError
from wink_workspace.project import parse_seconds, parse_size

if TYPE_CHECKING:
    from rich.console import Console

    from wink_workspace.filesystem import WorkspacePath
    from wink_workspace.ledger import LogEntry
    from wink_workspace.ledger.upkeep.damage import LostObject
    from wink_workspace.ledger.upkeep.retention import Maintenance
    from wink_workspace.project import Settings
    from wink_workspace.workspace import (
        Applied,
        ApplyTarget,
        ChangeSet,
        Selection,
        Workspace,
        WorkspaceConfig,
    )
    from wink_workspace.workspace.summaries import WorkspaceSummary


_MAX_NAMES = 5
_WIDE = 100
_BUSY_S = 3.0
_ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


class NewMode(StrEnum):
    """What the files of a new workspace are."""

    AUTO = "auto"
    OVERLAY = "overlay"
    COPY = "copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOptions:
    """The options of ``new``."""

    source: Annotated[Path, typer.Argument(help="The directory to copy; it is only read.")]
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Copy nothing: work in the directory itself, beside you."),
    ] = False
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GLOB",
            help="Do not copy these paths, such as data or '*.mp4', as in .gitignore; repeatable.",
        ),
    ] = None
    derived: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GLOB", help="Copy these paths, but do not record their changes; repeatable."
        ),
    ] = None
    no_derived: Annotated[
        bool,
        typer.Option(
            "--no-derived",
            help="Record everything else: also node_modules, .venv, caches, .env and key files.",
        ),
    ] = False
    restore_derived: Annotated[
        bool,
        typer.Option(
            "--restore-derived",
            help="Keep a second copy of derived paths, so that rollbacks restore them.",
        ),
    ] = False
    max_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Refuse a larger source, such as 500M; 10G by default."),
    ] = None
    max_files: Annotated[
        int | None,
        typer.Option(min=1, help="Refuse a source with more files; 500,000 by default."),
    ] = None
    mode: Annotated[
        NewMode,
        typer.Option(
            "--mode",
            help="What the files are: an overlay over a shared base, or a plain copy. By default "
            "an overlay where the system supports it.",
        ),
    ] = NewMode.AUTO
    json: JsonOption = False

    def config(self, own: WorkspaceConfig) -> WorkspaceConfig:
        """*own*, the configuration that the settings make, with what these options add to it.

        Raises:
            UsageError: If a value cannot be used.
        """
        if self.in_place and (self.exclude or self.derived or self.restore_derived):
            raise UsageError(
                "a workspace in place copies nothing, so no path is excluded or derived",
                hint="Leave these options out, or leave out --in-place.",
            )
        if self.in_place and self.mode is not NewMode.AUTO:
            raise UsageError(
                "a workspace in place has no other mode", hint="Omit --mode, or omit --in-place."
            )
        default = own.imported
        imported = replace(
            default,
            exclude=(*default.exclude, *(self.exclude or ())),
            derived=(*default.derived, *(self.derived or ())),
            propose_derived=not self.no_derived,
            on_rollback="restore" if self.restore_derived else "drop",
            most_bytes=default.most_bytes if self.max_size is None else parse_size(self.max_size),
            most_files=self.max_files or default.most_files,
        )
        return replace(own, imported=imported)


def create(context: CommandContext, options: NewOptions) -> None:
    """Create a workspace of a directory, uncommitted and ignored files included.

    Derived paths are copied, but not recorded: node_modules, .venv, caches, ignored build
    directories, and secrets such as .env and key files. A path that git tracks is always recorded.
    """
    from rich.progress import TextColumn

    from wink_workspace.workspace import Workspace

    source, in_place, json = options.source, options.in_place, options.json
    context = for_project(context, source)
    if not in_place:
        from wink_workspace.cli.sandbox.sandbox_options import note_unusable_packages

        note_unusable_packages(context)
    column = TextColumn("{task.fields[n_files]:,} files, {task.fields[n_bytes]:,} bytes")
    what = f"{'reading' if in_place else 'copying'} {source}"
    with (
        progress_bar(
            context.err, what, column, is_shown=context.shows_progress, n_files=0, n_bytes=0
        ) as update,
        Workspace.create(
            source,
            storage=context.storage,
            mode="in_place" if in_place else options.mode.value,
            config=options.config(context.config()),
            progress=lambda n_files, n_bytes: update(n_files=n_files, n_bytes=n_bytes),
        ) as workspace,
    ):
        info, record = workspace.info, workspace.record(workspace.entry(1))
        derived = workspace.derived_paths()
    if json:
        fields = {**asdict(info), "created_at": info.created_at.isoformat()}
        print_json({**fields, "derived": [str(path) for path in derived]})
        return
    imported = record.data if isinstance(record.data, dict) else {}
    n_files, skipped = imported.get("n_files"), imported.get("skipped")
    names = [str(name) for name in skipped] if isinstance(skipped, list) else []
    left = listed(names, _MAX_NAMES)
    context.out.print(
        f"{info.id}: {'in' if in_place else 'a copy of'} {printable(info.source)}, "
        + counted(n_files if isinstance(n_files, int) else 0, "file")
        + (f"; could not be {'read' if in_place else 'copied'}: {printable(left)}" if left else ""),
        markup=False,
    )
    if derived:
        message = f"derived, so copied and not recorded: {listed(derived, _MAX_NAMES)}"
        context.out.print(printable(message), markup=False)


def mount(
    context: CommandContext,
    workspace: WorkspaceArgument,
    directory: Annotated[
        Path | None,
        typer.Argument(help="An empty directory, created if missing; a temporary one by default."),
    ] = None,
) -> None:
    """Show the files of a workspace or fork in a directory until Ctrl-C, for people and editors.

    Other commands cannot open it meanwhile. What you change there becomes an entry of its own, as
    any edit that no call made. Only root can mount; others use `shell`.
    """
    from wink_workspace.filesystem.overlay.mount_point import MountPoint

    with context.open(workspace) as opened, ExitStack() as entered:
        name = printable(workspace)
        branch = opened.mount
        if branch is None:
            context.out.print(f"{opened.files_path}", markup=False)
            context.err.print(f"{name} is a plain directory; nothing to mount.", markup=False)
            return
        if directory is None:
            made = tempfile.TemporaryDirectory(prefix="wink-workspace-mount-")
            directory = Path(entered.enter_context(made))
        else:
            directory.mkdir(parents=True, exist_ok=True)
        entered.enter_context(_signals_blocked())  # before a person can see the path
        point = entered.enter_context(MountPoint(branch, directory))
        context.out.print(str(point.directory), markup=False)
        context.err.print(f"{name} is mounted there until Ctrl-C.", markup=False)
        signal.sigwait(_ENDING)
        while not point.detach():
            context.err.print(
                f"{point.directory} is in use. Close the programs that use it; Ctrl-C again"
                " detaches it all the same.",
                markup=False,
            )
            if signal.sigtimedwait(_ENDING, _BUSY_S) is not None:
                break


@contextmanager
def _signals_blocked() -> Generator[None]:
    """Block the signals of ``_ENDING``, so that only ``sigwait`` receives them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def use(
    context: CommandContext,
    workspace: Annotated[
        str, typer.Argument(help="A workspace or a fork; without it, print which one is taken.")
    ] = "",
) -> None:
    """Choose the workspace or fork that commands in its directory take, and that `run` continues.

    The choice ends when another workspace of this directory is used.
    """
    name = context.named(workspace or ".")
    from wink_workspace.workspace.place.last_used import keep_use

    info, branch = context.folder(name).info(), split_name(name)[1]
    if workspace:
        with context.read(name):  # raises if there is no such fork
            keep_use(context.storage, info, branch)
        what = f"commands in {info.source} now take {name}"
    else:
        what = f"{name}: {info.source}"
    context.out.print(printable(what), markup=False)


def list_all(
    context: CommandContext,
    directory: Annotated[
        Path | None,
        typer.Argument(help="Only those of this directory, such as ., the one used last first."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the workspaces, newest first: task, state, paths that can be applied, size on the disk.

    Edits that are not an entry yet are not counted, and the source is not compared.
    """
    from wink_workspace.workspace.summaries import summaries_of

    found = summaries_of(context.storage, of_directory=directory)
    if json:
        print_json([_summary_fields(each) for each in found])
        return
    if not found:
        return
    out = context.out
    rows = [
        (
            each.state,
            "" if each.n_changes is None else f"{each.n_changes:,}",
            f"{sized(each.size_bytes):>9}",
            " ".join(each.task.split()) or f"({each.info.source})",
        )
        for each in found
    ]
    heads = ("WORKSPACE", "STATE", "CHANGES", "SIZE", "TASK")
    first = [(each.info.id,) for each in found]
    if not out.is_terminal or out.width >= _WIDE:
        first = [
            (each.info.id, f"{each.info.created_at.astimezone():%Y-%m-%d %H:%M}") for each in found
        ]
        heads = ("WORKSPACE", "CREATED", *heads[1:])
    if not out.is_terminal:  # programs read these columns by their number
        first = [
            (*cells, each.info.mode.replace("_", " "), each.info.source)
            for cells, each in zip(first, found, strict=True)
        ]
    forks = [[f"fork {name}" for name in each.forks] for each in found] if out.is_terminal else ()
    print_table(out, heads, [(*a, *b) for a, b in zip(first, rows, strict=True)], below=forks)


def _summary_fields(summary: WorkspaceSummary) -> dict[str, object]:
    """The JSON form of one line of the list."""
    info = summary.info
    return {
        **asdict(info),
        "created_at": info.created_at.isoformat(),
        "task": summary.task,
        "state": summary.state,
        "n_changes": summary.n_changes,
        "size_bytes": summary.size_bytes,
        "last_used": summary.last_used.isoformat(),
        "forks": summary.forks,
    }


def fork(
    context: CommandContext,
    workspace: WorkspaceArgument,
    name: Annotated[str, typer.Argument(help="The name of the new branch.")],
    at: Annotated[
        str | None, typer.Option("--at", help="Begin at this entry, by default at the newest.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Create a branch of a workspace, with files of its own; its name is WORKSPACE/NAME."""
    without: Sequence[WorkspacePath] = ()
    try:
        with context.open(workspace) as opened:
            without = opened.fork(name, at=at).left_out
            forked = opened.info.id
    except LedgerBusyError:  # the newest entry can be forked; this is the advice of that error
        with context.read(workspace) as reader:
            reader.fork(name, at=at)
            forked = reader.info.id
    if json:
        fields = {"workspace": forked, "fork": name, "name": f"{forked}/{name}"}
        print_json({**fields, "without": [str(path) for path in without]})
        return
    context.out.print(f"{forked}/{name}", markup=False)
    if context.out.is_terminal:
        context.err.print(f"to work in it: wink-workspace use {forked}/{name}", markup=False)
    if without:
        names = listed(without, _MAX_NAMES)
        message = f"the fork begins without derived paths that are large: {names}"
        context.err.print(printable(message), markup=False)


def checkpoint(
    context: CommandContext, workspace: WorkspaceArgument, json: JsonOption = False
) -> None:
    """Keep the present derived paths, such as node_modules, for later rollbacks.

    A rollback then restores them instead of deleting what the failed call changed.
    """
    with context.open(workspace) as opened:
        kept = opened.checkpoint()
    if json:
        print_json({"kept": [str(path) for path in kept]})
    else:
        context.out.print(f"{counted(len(kept), 'derived path')} kept", markup=False)


def remove(
    context: CommandContext,
    workspace: Annotated[
        str, typer.Argument(help="The workspace's id or its beginning; WORKSPACE/FORK for a fork.")
    ] = "",
    applied: Annotated[
        bool, typer.Option("--applied", help="Delete all workspaces with nothing left to apply.")
    ] = False,
    older: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="With --applied: only those not used for this time, such as 7d."
        ),
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Remove it even if its history cannot be read.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Delete a workspace with its files and its history, or a fork; or all that were applied.

    For a workspace in place only the history is deleted; the files are yours, and stay. With
    --applied, a workspace stays if anything of it is not applied, in a fork, too: also ignored
    files that it made, and derived paths that changed.
    """
    if applied is bool(workspace) or (older and not applied) or (applied and force):
        raise UsageError(
            "name one workspace, or give --applied alone",
            hint="Write: rm WORKSPACE, or rm --applied --older 7d.",
        )
    if applied:
        removed = _remove_applied(context, older)
    else:
        removed = [_remove_one(context, workspace, force=force)]
    if json:
        print_json({"removed": removed if applied else removed[0]})
    elif applied:
        context.out.print(f"{counted(len(removed), 'workspace')} removed")


def _remove_applied(context: CommandContext, older: str) -> list[str]:
    """Delete what --applied and --older select; returns the ids."""
    from wink_workspace.clock import SYSTEM_CLOCK
    from wink_workspace.workspace import Workspace
    from wink_workspace.workspace.summaries import applied_workspaces

    age = timedelta(seconds=parse_seconds(older) if older else 0)
    storage, removed = context.storage, list[str]()
    for info in applied_workspaces(storage, older=age, now=SYSTEM_CLOCK.now()):
        Workspace.delete(info.id, storage=storage)
        removed.append(info.id)
    return removed


def _remove_one(context: CommandContext, workspace: str, *, force: bool) -> str:
    """Delete a workspace or a fork; returns its name."""
    from wink_workspace.ledger import MAIN_BRANCH
    from wink_workspace.workspace import Workspace

    name, branch = split_name(workspace)
    storage = context.storage
    removed = storage.folder(name).info().id
    if branch != MAIN_BRANCH:
        with closing(Workspace.open(name, storage=storage)) as opened:
            opened.branches.delete(branch)
        return f"{removed}/{branch}"
    if force:
        storage.remove(storage.folder(name))
    else:
        Workspace.delete(name, storage=storage)
    return removed


def remove_finished_runs(context: CommandContext) -> None:
    """Delete the workspaces of old runs of which nothing is left, and print one line."""
    from wink_workspace.clock import SYSTEM_CLOCK
    from wink_workspace.workspace.summaries import remove_finished

    removed = remove_finished(context.storage, now=SYSTEM_CLOCK.now())
    if removed:
        context.err.print(
            f"removed {counted(len(removed), 'workspace')} of old runs, with nothing left to"
            f" apply: {listed(removed, _MAX_NAMES)}",
            markup=False,
        )


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
    commit_message: CommitMessageOption = None
    include_ignored: IncludeIgnoredOption = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be applied; write nothing.")
    ] = False
    merge: Annotated[
        bool,
        typer.Option("--merge", help="Write what can be merged, and conflict markers elsewhere."),
    ] = False
    undo: Annotated[
        bool, typer.Option("--undo", help="Take back the last apply; later edits stay.")
    ] = False
    interactive: Annotated[
        bool,
        typer.Option(
            "--interactive", "-p", help="Choose files and hunks; the others stay for later."
        ),
    ] = False
    json: JsonOption = False

    def check(self, *, can_ask: bool) -> None:
        """Raise ``UsageError`` if these options contradict each other."""
        if (self.patch is not None) + (self.branch is not None) + self.merge > 1:
            raise UsageError("one way at a time", hint="Give one of --patch, --branch and --merge.")
        others = self.patch is not None or self.branch is not None or self.include_ignored
        if self.commit_message is not None and self.branch is None:
            raise UsageError("--commit-message is for a new branch", hint="Add --branch NAME.")
        if self.undo and (others or self.interactive or self.dry_run):
            raise UsageError(
                "--undo takes back the last apply to the source", hint="Give only --merge with it."
            )
        if self.interactive and (self.json or self.dry_run or not can_ask):
            raise UsageError(
                "nothing can be asked here",
                hint="Leave out --interactive, or use it on a terminal without --json and "
                "--dry-run.",
            )

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
    shown, unless --merge is given. With -p you choose files and hunks; what you do not choose can
    be applied later. --undo takes back the last apply, by the same merge.
    """
    options.check(can_ask=context.can_ask)
    with context.open(options.workspace) as workspace:
        if options.undo:
            undone = workspace.source.undo_apply(merge=options.merge)
            _print_conflicts(context, undone)
            if options.json:
                print_json({"paths": undone.paths, "to": workspace.info.source})
            else:
                what = f"{counted(len(undone.paths), 'path')} reverted in {workspace.info.source}"
                context.out.print(printable(what), markup=False)
            return
        preview = workspace.source.preview(options.target, include_ignored=options.include_ignored)
        fields: Mapping[str, object] = preview_fields(preview) if options.json else {}
        if not options.json:
            print_preview(context.out if options.dry_run else context.err, preview)
        selected = None
        if options.interactive:
            from wink_workspace.cli.screen.choose_hunks import choose_parts

            selected = choose_parts(context, preview)
        if options.dry_run:
            applied, where = None, None
        elif selected is not None and not selected:
            context.err.print("nothing chosen")
            return
        else:
            applied, where = _apply(context, options, workspace, preview, selected)
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
    selected: Selection | None,
) -> tuple[Applied, str]:
    """Apply the changes; the result, and where they are now."""
    if options.patch is not None:
        from wink_workspace.cli.screen.console import write_patch

        write_to = partial(
            workspace.source.write_patch,
            include_ignored=options.include_ignored,
            previewed=preview,
            selected=selected,
        )
        return write_patch(options.patch, write_to), str(options.patch)
    applied, where = context.apply(
        workspace,
        options,
        asks=not options.json,
        previewed=preview,
        selected=selected,
        merge=options.merge,
    )
    _print_conflicts(context, applied)
    return applied, where


def _print_conflicts(context: CommandContext, applied: Applied) -> None:
    """Print what was not merged, and what stays as it was edited in the source."""
    for conflict in applied.conflicts:
        what = "has conflict markers" if conflict.hunks else "is unchanged"
        context.err.print(printable(f"{conflict.path} {what}: {conflict.reason}"), markup=False)
    for path in applied.edited:
        what = "stays as it was edited or deleted in the source since it was applied"
        context.err.print(printable(f"{path} {what}"), markup=False)


def merge(
    context: CommandContext,
    workspace: WorkspaceArgument,
    into: Annotated[
        str | None,
        typer.Option("--into", help="The branch that gets the changes; by default the main one."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Merge the changes of one branch of a workspace into another one, as one entry.

    WORKSPACE without a fork is its main branch. The entry can be undone.
    """
    (source, branch), (target, _) = split_name(workspace), split_name(into or workspace)
    into = into or source
    if source != target:
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
        is_unfinished = opened.source.has_unfinished_apply
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
    workspace: Annotated[
        str, typer.Argument(help="A workspace, as for other commands; all by default.")
    ] = "",
    keep_days: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            show_default=False,
            help="Forget entries older than this; otherwise retention.days, or 30.",
        ),
    ] = None,
    keep_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help="Forget the oldest entries above this size; otherwise retention.size, or 2 GiB.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Read all files and objects, and compare hashes; name what is damaged."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Forget old or large history, pack the rest, and remove what crashed processes left.

    Checkouts that no workspace uses are deleted, and damaged ones are made again when they are
    needed. The limits apply to this command only; the settings of the same name to every command.
    """
    from wink_workspace.cli.sandbox.sandboxes import sweep_sandboxes
    from wink_workspace.project import Settings
    from wink_workspace.workspace.create.bases import collect_bases
    from wink_workspace.workspace.create.git_copies import GitCopies
    from wink_workspace.workspace.place.storage import sweep_temporary

    given = Settings(keep_days=keep_days, keep_bytes=keep_bytes)
    names = [workspace] if workspace else [info.id for info in context.storage.all()]
    lost: list[LostObject] = []
    done: dict[str, Maintenance] = {}
    for name in names:
        try:
            lost += _verified(context, name) if verify else ()
            done[name] = _maintained(context, name, given)
        except WinkError as error:
            if workspace:
                raise
            context.err.print(printable(f"{name}: {error}"), markup=False, style="yellow")
    n_unfinished = context.storage.sweep() + sweep_temporary()
    remove_finished_runs(context)
    swept = sweep_sandboxes(context)
    bases = collect_bases(context.storage.state_dir, checks_contents=verify)
    GitCopies(context.storage.state_dir).collect()
    if json:
        of_each = {name: asdict(each) for name, each in done.items()}
        print_json(
            {
                **(of_each[workspace] if workspace else {"workspaces": of_each}),
                "unfinished_workspaces_removed": n_unfinished,
                "containers_removed": swept,
                "bases": asdict(bases),
                "lost": [asdict(each) for each in lost],
            }
        )
        return
    out = context.out
    if n_unfinished:
        out.print(f"{counted(n_unfinished, 'unfinished workspace')} of dead processes removed")
    if swept:
        out.print(f"{counted(len(swept), 'container')} of dead processes removed")
    if bases.n_deleted:
        out.print(f"{counted(bases.n_deleted, 'base')} deleted that no workspace uses")
    _print_damaged_bases(context, bases.damaged)
    if bases.disk_bytes:
        out.print(f"{bases.disk_bytes:,} bytes in bases, which workspaces share")
    for name, each in done.items():
        _print_maintenance(out, each, "" if workspace else f"{name}: ")


def _maintained(context: CommandContext, name: str, given: Settings) -> Maintenance:
    """Maintain one workspace, with its project's limits unless others are *given*."""
    from rich.progress import MofNCompleteColumn

    source = Path(context.folder(name).info().source)
    settings = given.over(context.settings_for(source))
    with (
        context.open(name, config=context.config(settings)) as opened,
        progress_bar(
            context.err, "reading entries", MofNCompleteColumn(), is_shown=context.shows_progress
        ) as update,
    ):
        return opened.maintain(
            steps=lambda what, n_done, n_all: update(
                description=what, completed=n_done, total=n_all
            )
        )


def _print_maintenance(out: Console, done: Maintenance, begin: str) -> None:
    if not done.ran:
        out.print(f"{begin}another process is using the workspace; nothing was collected")
        return
    out.print(
        f"{begin}{counted(done.n_entries_forgotten, 'entry', 'entries')} and "
        f"{counted(done.n_discards_forgotten, 'discard')} forgotten; "
        f"{done.freed_bytes:,} bytes freed, {done.disk_bytes:,} in use"
    )
    if done.forgotten:
        out.print(done.forgotten)


def _verified(context: CommandContext, workspace: str) -> tuple[LostObject, ...]:
    """What the history has lost, which is printed: a later error may end the command."""
    from wink_workspace.ledger import Ledger
    from wink_workspace.ledger.upkeep.damage import ObjectCheck

    which = split_name(workspace)[0]
    ledger = Ledger(context.storage.folder(which).ledger)
    with context.spinner("reading all objects"), ledger:
        lost = ObjectCheck(ledger.store).lost()
    _print_lost(context.err, lost)
    if lost:
        context.err.print(f'run "wink-workspace repair {printable(which)}"', markup=False)
    return lost


def _print_lost(console: Console, lost: Iterable[LostObject]) -> None:
    for each in lost:
        entries = f"entries {each.first} to {each.last} of {each.branch}"
        if not each.last:
            first = f"entries from {each.first} on of " if each.first > 1 else ""
            entries = f"{first}{each.branch}"
        console.print(printable(f"cannot be read: {entries} {each.path}".rstrip()), markup=False)


def _print_damaged_bases(context: CommandContext, damaged: Mapping[str, Iterable[str]]) -> None:
    for name, paths in damaged.items():
        context.out.print(f"the base {name} was damaged; it is made again when it is needed")
        for path in paths:
            context.out.print(printable(f"  damaged: {path}"), markup=False)


def repair(
    context: CommandContext,
    workspace: WorkspaceArgument,
    json: JsonOption = False,
) -> None:
    """Restore damaged history and files from where they can still be read; name what is lost.

    It reads everything, rebuilds indexes, and replaces damaged packs and bases. What the base, the
    branches or the source have with the same content is read again. A file that is lost is removed
    from its branch by a new entry. A branch whose newest entries are lost ends with the one before
    them, and its files stay; a history begins after an older entry that is lost. No process may
    have the workspace open.
    """
    from wink_workspace.workspace import repair_workspace

    with context.spinner("reading all objects and files"):
        done = repair_workspace(split_name(workspace)[0], storage=context.storage)
    if json:
        print_json(asdict(done))
        return
    _print_damaged_bases(context, done.bases)
    for branch, paths in done.removed.items():
        for path in paths:
            context.out.print(printable(f"lost, and removed from {branch}: {path}"), markup=False)
    _print_lost(context.out, done.lost)
    context.out.print(
        f"{counted(done.n_indexes, 'index', 'indexes')} rebuilt, "
        f"{counted(done.n_packs, 'damaged pack')} replaced, "
        f"{counted(done.n_objects, 'object')} read again; "
        f"{counted(len(done.lost), 'path')} lost"
    )
