"""Where a run works: a new workspace, an existing one, or the one of the last run."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wink_workspace.cli.screen.command_context import CommandContext
from wink_workspace.errors import UsageError

from .run_options import RunOptions, WorkOptions, refuse

if TYPE_CHECKING:
    from wink_workspace.workspace import Workspace

__all__ = ["RunPlace", "check_branch", "open_workspace", "works_in_place", "workspace_for_run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """Where a run works; ``workspace`` is ``None`` for a run in memory."""

    workspace: Workspace | None = None
    name: str = ""
    is_in_place: bool = False


def open_workspace(
    context: CommandContext, options: RunOptions, opened: ExitStack
) -> tuple[Workspace, str]:
    """The workspace to work in, and its name."""
    from wink_workspace.workspace.summaries import unmark_made_for_run

    if options.workspace is not None:
        workspace = opened.enter_context(context.open(options.workspace))
        if not options.resume:
            unmark_made_for_run(context.storage.folder(workspace.info.id))
        _, slash, fork = options.workspace.partition("/")
        return workspace, workspace.info.id + slash + fork
    repo = (options.repo or Path()).absolute()
    check_branch(options, repo)
    if options.in_place:
        refuse(
            options.resume and context.storage.in_place(repo) is None,
            f"there was no run in {repo}",
            "Start one with a task.",
        )
        name = context.in_place_workspace(repo)
        return opened.enter_context(context.open(name)), name
    if options.resume:
        name = _last_workspace(context, repo, interrupted=options.message is None)
        return opened.enter_context(context.open(name)), name
    workspace = workspace_for_run(context, repo, opened)
    return workspace, workspace.info.id


def workspace_for_run(context: CommandContext, repo: Path, opened: ExitStack) -> Workspace:
    """A new workspace with a copy of *repo*."""
    from wink_workspace.workspace import Workspace
    from wink_workspace.workspace.summaries import mark_made_for_run

    with context.spinner(f"copying {repo}"):
        workspace = opened.enter_context(
            Workspace.create(repo, storage=context.storage, config=context.config())
        )
    mark_made_for_run(context.storage.folder(workspace.info.id))
    return workspace


def check_branch(options: WorkOptions, source: Path) -> None:
    """Refuse --branch now if the source is not a repository; at the end the work would be done."""
    refuse(
        options.branch is not None and not (source / ".git").exists(),
        f"{source} is not the top of a git repository, so it cannot get a branch",
        "Use --apply or --patch.",
    )


def _last_workspace(context: CommandContext, repo: Path, *, interrupted: bool) -> str:
    """The newest workspace that is a copy of *repo* and had a run, or an *interrupted* one."""
    from wink_workspace.workspace import RecordedRun

    storage = context.storage
    for info in storage.all():
        if info.mode != "in_place" and Path(info.source) == repo:
            newest = RecordedRun.newest(storage.folder_of(info))
            if newest is not None and not (interrupted and newest.is_finished):
                return info.id
    raise UsageError(
        f"no run over {repo} was interrupted" if interrupted else f"there was no run over {repo}",
        hint="Name the workspace with --workspace.",
    )


def works_in_place(workspace: Workspace, name: str) -> bool:
    """Whether calls change the user's own directory; a fork is a copy."""
    return workspace.info.mode == "in_place" and "/" not in name
