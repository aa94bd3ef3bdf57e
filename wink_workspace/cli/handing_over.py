"""What becomes of the changes of a run: applied, made a branch, or left for later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from wink_workspace.environment import Environment
from wink_workspace.errors import WinkError
from wink_workspace.wording import counted

from .display import consoles, printable
from .preview import print_not_kept, print_preview

if TYPE_CHECKING:
    from wink_workspace.workspace import ApplyTarget, Workspace

__all__ = ["hand_over"]


def hand_over(
    place: Workspace,
    environment: Environment,
    name: str,
    *,
    to_source: bool,
    branch: str | None,
    asks: bool,
    include_ignored: bool,
) -> None:
    """Show the changes and bring them back, if that is wanted; say where they are.

    Args:
        place: The workspace.
        environment: Whether anybody can be asked, and where to print.
        name: What to call the workspace.
        to_source: Whether to change the source's files.
        branch: A branch to make instead.
        asks: Whether to ask first, or to offer it when nothing was said.
        include_ignored: Whether to bring what the source's rules ignore, too.

    Raises:
        ConflictError: If the source was changed meanwhile; the changes stay in the workspace.
    """
    _, err = consoles(environment)
    to: ApplyTarget = "worktree" if branch is None else "branch"
    brought = place.preview(to, include_ignored=include_ignored)
    print_preview(err, brought)
    later = f"to apply: wink-workspace apply {name}"
    wanted = to_source or branch is not None
    if asks and environment.stdin_is_terminal:
        where = f"as branch {branch}" if branch is not None else f"to {place.info.source}"
        try:
            wanted = typer.confirm(f"Apply {printable(where)}?", err=True)
        except typer.Abort:  # by Ctrl-C, or the end of the input
            err.print(f"\n{later}", markup=False)
            raise
    if not wanted:
        err.print(later, markup=False)
        return
    try:
        applied = place.apply(
            to, branch=branch or "", include_ignored=include_ignored, previewed=brought
        )
    except WinkError:
        err.print(later, markup=False)
        raise
    where = f"applied to {place.info.source}"
    if branch is not None:
        where = f"on branch {branch}, commit {applied.commit[:12]}"
    err.print(printable(f"{counted(len(applied.paths), 'path')} {where}"), markup=False)
    print_not_kept(err, applied.left_out, brought)
