"""``run --attach``: watch a run of another process. It only reads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wink_workspace.cli.screen.command_context import CommandContext, split_name
from wink_workspace.cli.screen.display import printable
from wink_workspace.clock import SYSTEM_CLOCK, WaitingClock
from wink_workspace.errors import UsageError
from wink_workspace.workspace import WorkspaceReader
from wink_workspace.workspace.runs.live_runs import RunEnded, RunInProgress

from .run_display import RunDisplay

if TYPE_CHECKING:
    from wink_workspace.filesystem import Diff
    from wink_workspace.workspace import WorkspaceStorage

__all__ = ["attach"]

_LOOK_S: Final = 0.1
_KILLED: Final = "its process ended without an answer"


def attach(
    context: CommandContext,
    *,
    repo: Path | None = None,
    workspace: str | None = None,
    clock: WaitingClock = SYSTEM_CLOCK,
) -> None:
    """Show a run in progress until it ends.

    Args:
        context: Where to show it.
        repo: Watch the run over this directory.
        workspace: Watch the run in this workspace. Without both, the only one in progress.
        clock: Waits between two looks.

    Raises:
        UsageError: If no such run is in progress, or if there are several.
    """
    err, run = context.err, _chosen(context, repo, workspace)
    workspace, branch = split_name(run.name)
    with (
        closing(run),
        WorkspaceReader(context.storage.folder(workspace), branch=branch) as reader,
    ):
        err.print(f"workspace {run.name}, {run.owner}", markup=False, style="dim")
        err.print(printable(run.record.about.task), markup=False, style="bold")
        live = context.shows_progress
        display = RunDisplay(err, live=live, diff_of=_diff_of(reader), clock=clock)
        display.show_activity()
        try:
            problem = _watch(run, display, clock)
        finally:
            display.end()
    err.print(f"the run has ended{f': {printable(problem)}' if problem else ''}", markup=False)


def _chosen(context: CommandContext, repo: Path | None, workspace: str | None) -> RunInProgress:
    storage = context.storage
    if workspace is not None:
        found = RunInProgress.of(context.folder(workspace))
        runs, where = [] if found is None else [found], f" in {workspace}"
    else:
        runs, where = list(RunInProgress.all(storage)), ""
    if repo is not None:
        runs = [run for run in runs if _source(storage, run) == repo.resolve()]
        where = f" over {repo}"
    if not runs:
        raise UsageError(
            f"no run is in progress{where}",
            hint="Start one with a task, or continue the last one with --resume.",
        )
    if len(runs) > 1:
        names = ", ".join(run.name for run in runs)
        raise UsageError(
            f"{len(runs)} runs are in progress{where}: {names}", hint="Name one with --workspace."
        )
    return runs[0]


def _source(storage: WorkspaceStorage, run: RunInProgress) -> Path:
    return Path(storage.folder(split_name(run.name)[0]).info().source).resolve()


def _watch(run: RunInProgress, display: RunDisplay, clock: WaitingClock) -> str:
    """Show events until the run is over; returns its problem, or ``""``."""
    while True:
        is_over = run.is_over  # before the events are read, which are then the last ones
        for event in run.new_events():
            display.show(event)
            if isinstance(event, RunEnded):
                return event.problem
        if is_over:
            return _KILLED
        clock.wait(_LOOK_S)


def _diff_of(reader: WorkspaceReader) -> Callable[[int], Diff]:
    def diff_of(number: int) -> Diff:
        reader.refresh()
        return reader.review_of(reader.entry(number))

    return diff_of
