"""The commands ``attempts …`` on runs that exist; ``attempts_run`` begins and continues them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wink_workspace.cli.screen.choose_hunks import choose_parts
from wink_workspace.cli.screen.command_context import (
    CommandContext,
    FullOption,
    JsonOption,
    print_json,
)
from wink_workspace.cli.screen.display import print_diff, print_table, printable, warn_of_left_out
from wink_workspace.cli.screen.preview import print_preview
from wink_workspace.counts import counted
from wink_workspace.errors import UsageError, WinkError

from .attempts_options import (
    KeepOptions,
    NumberArgument,
    RepoOption,
    RunOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from wink_workspace.attempts import Attempts, RunStatus


def find_run(
    context: CommandContext, repo: Path, workspace: str | None, run_id: str | None
) -> tuple[str, RunStatus]:
    """The newest run with that beginning of an id, and the workspace to open for it.

    Raises:
        UsageError: If there is none.
    """
    from wink_workspace.attempts import read_runs

    if workspace is not None:
        names = [workspace.partition("/")[0]]
    else:
        infos = context.storage.all() if run_id else context.workspaces_of(repo)
        names = [info.id for info in infos]
    found: list[tuple[str, RunStatus]] = []
    for name in names:
        with context.read(name) as reader:
            runs = [run for run in read_runs(reader) if run.run_id.startswith(run_id or "")]
            found += [(reader.info.id, run) for run in runs]
    if not found:
        wanted = (
            f"run {run_id!r}" if run_id else f"run of attempts in {workspace or repo.absolute()}"
        )
        raise UsageError(
            f"there is no {wanted}",
            hint="wink-workspace attempts list shows all runs.",
        )
    name, run = max(found, key=lambda each: each[1].begun_at)
    return (name if run.branch == "main" else f"{name}/{run.branch}"), run


def list_runs(context: CommandContext, json: JsonOption = False) -> None:
    """List all runs of attempts, newest first."""
    from wink_workspace.attempts import read_runs

    from .attempts_display import RUN_HEADS, run_row

    found: list[tuple[str, RunStatus]] = []
    for info in context.storage.all():
        try:
            with context.read(info.id) as reader:
                found += [(info.id, run) for run in read_runs(reader)]
        except WinkError as error:
            context.err.print(printable(f"{info.id}: {error}"), markup=False, style="yellow")
    found.sort(key=lambda each: each[1].begun_at, reverse=True)
    if json:
        print_json([run_fields(name, run) for name, run in found])
    elif not found:
        context.err.print("no runs of attempts")
    else:
        print_table(context.out, RUN_HEADS, [run_row(name, run) for name, run in found])


def show(
    context: CommandContext,
    repo: RepoOption = Path(),
    workspace: WorkspaceOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> None:
    """Show a run and its attempts."""
    name, found = find_run(context, repo, workspace, run)
    if json:
        print_json(run_fields(name, found))
        return
    task, score = found.about.get("task", ""), found.about.get("score", "")
    context.out.print(printable(f"run {found.run_id} in workspace {name}: {task}"), markup=False)
    if score:
        context.out.print(printable(f"score: {score}"), markup=False)
    print_run(context, found)


def print_run(context: CommandContext, run: RunStatus) -> None:
    """Print a table of its attempts, and their sum."""
    from .attempts_display import HEADS, attempt_row, summary_line

    print_table(context.out, HEADS, [attempt_row(run, each) for each in run.attempts])
    best = f"; best: attempt {run.best.number}" if run.best is not None else ""
    context.out.print(summary_line(run) + best, markup=False)


def diff(
    context: CommandContext,
    number: NumberArgument,
    other: Annotated[int | None, typer.Argument(help="Compare with this attempt.")] = None,
    repo: RepoOption = Path(),
    workspace: WorkspaceOption = None,
    run: RunOption = None,
    full: FullOption = False,
) -> None:
    """Show the changes of an attempt, or the differences between two."""
    with ExitStack() as opened:
        attempts, _ = _open(context, opened, repo, workspace, run)
        changes = attempts.changes_of(number) if other is None else attempts.diff(number, other)
        not_shown = print_diff(context.out, partial(changes.review().write_to, full=full))
        warn_of_left_out(context.err, not_shown)


def keep(context: CommandContext, options: KeepOptions) -> None:
    """Merge an attempt into the workspace, as one entry that undo takes back.

    A conflict with what was kept before is shown by hunk, and nothing is changed.
    """
    if options.interactive and (options.path or not context.can_ask):
        raise UsageError(
            "nothing can be asked here" if not options.path else "one way of choosing at a time",
            hint="Leave out --interactive, or use it on a terminal without --path.",
        )
    with ExitStack() as opened:
        attempts, name = _open(context, opened, options.repo, options.workspace, options.run)
        number = options.number
        if number is None:
            best = attempts.status.best
            if best is None:
                raise UsageError("no attempt finished", hint="See wink-workspace attempts show.")
            number = best.number
        keep_attempt(context, attempts, number, paths=options.path, interactive=options.interactive)
        context.err.print(f"to apply: wink-workspace apply {name}", markup=False)


def keep_attempt(
    context: CommandContext,
    attempts: Attempts,
    number: int,
    *,
    paths: list[str] | None = None,
    interactive: bool = False,
) -> None:
    """Merge an attempt, or the parts of it that the user chooses."""
    shown = selected = None
    if interactive:
        shown = attempts.changes_of(number)
        print_preview(context.err, shown)
        selected = choose_parts(context, shown)
        if not selected:
            context.err.print("nothing chosen")
            return
    entry = attempts.keep(number, paths=paths, selected=selected, shown=shown)
    if entry is None:
        context.err.print(f"attempt {number} has nothing that is not merged already")
    else:
        context.err.print(f"attempt {number} kept, as entry {entry.number}")


def remove(
    context: CommandContext,
    repo: RepoOption = Path(),
    workspace: WorkspaceOption = None,
    run: RunOption = None,
) -> None:
    """Delete a run with the branches of its attempts; what was kept stays."""
    with ExitStack() as opened:
        attempts, name = _open(context, opened, repo, workspace, run)
        n = len(attempts.status.attempts)
        attempts.remove()
    context.err.print(
        f"deleted run {attempts.run_id} of workspace {name}, {counted(n, 'attempt')}", markup=False
    )


def _open(
    context: CommandContext, opened: ExitStack, repo: Path, workspace: str | None, run: str | None
) -> tuple[Attempts, str]:
    from wink_workspace.attempts import Attempts

    name, found = find_run(context, repo, workspace, run)
    return Attempts.open(opened.enter_context(context.open(name)), found.run_id), name


def run_fields(workspace: str, run: RunStatus) -> Mapping[str, object]:
    """The JSON form of a run."""
    return {
        "run": run.run_id,
        "workspace": workspace,
        "begun_at": run.begun_at.isoformat(),
        "best": None if run.best is None else run.best.number,
        "usage": asdict(run.spent.usage),
        "cost_usd": str(run.spent.usd),
        "about": dict(run.about),
        "attempts": [asdict(each) | {"passed": each.passed} for each in run.attempts],
    }
