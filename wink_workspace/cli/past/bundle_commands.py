"""The commands that write a workspace to one file and make a workspace of one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from wink_workspace.cli.screen.command_context import (
    CommandContext,
    JsonOption,
    WorkspaceArgument,
    print_json,
    split_name,
)
from wink_workspace.cli.screen.display import printable
from wink_workspace.counts import counted, sized
from wink_workspace.project import parse_size

from .workspaces import NewMode


def export(
    context: CommandContext,
    workspace: WorkspaceArgument,
    file: Annotated[Path, typer.Argument(help="Where to write it; an existing file is replaced.")],
    discards: Annotated[
        bool, typer.Option("--discards", help="Include the files that failed calls discarded.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write a workspace with its history and forks to one file, for `import` on any machine.

    Of a fork, only this branch is written, as the main branch. The file has what the history has:
    no derived or excluded paths, so no .env and no node_modules. It has the records of all calls,
    so treat it as you treat the files. Plain git can clone it.
    """
    from wink_workspace.workspace import export_workspace

    which, branch = split_name(workspace)
    chosen = branch if "/" in workspace else None
    with context.spinner(f"exporting {printable(workspace)}"):
        size = export_workspace(
            which, file, storage=context.storage, branch=chosen, discards=discards
        )
    n_bytes = file.stat().st_size
    if json:
        print_json({**asdict(size), "file": str(file), "file_bytes": n_bytes})
        return
    entries = counted(size.n_commits, "commit")
    context.out.print(f"{printable(str(file))}: {entries}, {sized(n_bytes)}", markup=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """The options of ``import``."""

    file: Annotated[
        Path, typer.Argument(help="A file that `export` wrote; it need not be trusted.")
    ]
    source: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY",
            help="The directory that `apply` writes to. Without it, use apply --patch.",
        ),
    ] = None
    mode: Annotated[NewMode, typer.Option("--mode", help="What the files are, as for `new`.")] = (
        NewMode.AUTO
    )
    max_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Refuse a bundle with larger contents, such as 500M; 64G by default.",
        ),
    ] = None
    json: JsonOption = False


def import_bundle(context: CommandContext, options: ImportOptions) -> None:
    """Make a new workspace of a file that `export` wrote, with all of its history.

    The file is checked first. One that is damaged, newer, or made to do harm changes nothing.
    """
    from wink_workspace.ledger import BundleLimits
    from wink_workspace.workspace import WorkspaceReader, import_workspace

    limits = BundleLimits()
    if options.max_size is not None:
        limits = BundleLimits(most_bytes=parse_size(options.max_size))
    with context.spinner(f"importing {printable(str(options.file))}"):
        info = import_workspace(
            options.file,
            storage=context.storage,
            source=options.source,
            mode=options.mode.value,
            limits=limits,
            config=context.config(context.settings_for(options.source)),
        )
    if options.json:
        print_json({**asdict(info), "created_at": info.created_at.isoformat()})
        return
    with WorkspaceReader(context.storage.folder(info.id)) as reader:
        number, forks = reader.head.number, reader.forks()
    more = f", {counted(len(forks), 'fork')}" if forks else ""
    context.out.print(f"{info.id}: {counted(number, 'entry', 'entries')}{more}", markup=False)
