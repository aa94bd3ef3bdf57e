"""The end of a run: its report, and what becomes of its changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import typer

from wink_workspace.cli.screen.choose_hunks import NextStep, ask_next_step, choose_parts
from wink_workspace.cli.screen.command_context import CommandContext
from wink_workspace.cli.screen.console import write_patch
from wink_workspace.cli.screen.display import diff_text, print_diff, printable, warn_of_left_out
from wink_workspace.cli.screen.preview import (
    preview_fields,
    print_left_out,
    print_not_kept,
    print_preview,
)
from wink_workspace.cli.screen.user_programs import paged
from wink_workspace.counts import counted
from wink_workspace.errors import UsageError, WinkError
from wink_workspace.workspace.runs.task_run import RunReport

from .run_options import RunOptions, RunPlace, WorkOptions

if TYPE_CHECKING:
    from wink_workspace.workspace import ApplyTarget, ChangeSet, Workspace

    from .run_display import RunFeed


def finish(
    context: CommandContext,
    options: RunOptions,
    place: RunPlace,
    report: RunReport,
    feed: RunFeed,
) -> str:
    """Write the patch, print the report, and apply the changes.

    Returns the message with which the user continues the run, or ``""``.

    A patch that cannot be written is printed instead. A reader that closes standard output early
    does not prevent the changes from being applied. Both errors are raised at the end.
    """
    # On one terminal, the model's last words are there already.
    is_shown = (
        context.out.is_terminal
        and context.err.is_terminal
        and feed.last_words.strip() == report.answer.strip()
    )
    try:
        if options.patch is not None:
            write_patch(options.patch, partial(report.changes.review().write_to, full=True))
    except UsageError:
        printed = replace(options, patch=None)
        _print_report(context, printed, report, place.name, _Shown(answer=is_shown))
        raise
    broken_pipe: BaseException | None = None
    stays = not place.name or (place.is_in_place and options.branch is None)
    shown = _Shown(
        answer=is_shown,
        edits=feed.display.shows_edits,
        paths=not stays and bool(report.changes.paths),
    )
    try:
        _print_report(context, options, report, place.name, shown)
    except (BrokenPipeError, SystemExit) as error:  # rich raises SystemExit for a broken pipe
        broken_pipe = error
    message = ""
    if stays or not report.changes.paths:
        print_left_out(context.err, report.changes.left_out)
    else:
        message = apply_changes(context, options, place.workspace, place.name)
    if broken_pipe is not None:
        raise broken_pipe
    return message


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """What a terminal shows besides the report: before it, or, of the paths, below it."""

    answer: bool
    edits: bool = False
    paths: bool = False


def _print_report(
    context: CommandContext, options: RunOptions, report: RunReport, name: str, shown: _Shown
) -> None:
    """Print the report, without what is *shown*, and the diff if it fits on the screen."""
    diff = report.changes.review()
    if options.json:
        from wink_workspace import serde

        # Without the console, which needs 20 s and 1.6 GiB to format 100 MB.
        patch, not_shown = diff_text(diff) if options.patch is None else (str(options.patch), ())
        fields = {
            **_report_fields(report),
            "patch": patch,
            "not_shown": not_shown,
            "usage": report.usage,
            "workspace": name or None,
        }
        typer.echo(serde.dump_json(fields, indent=2))
        return
    if options.patch is None and not (context.out.is_terminal and shown.edits):
        _print_whole_diff(context, report, is_previewed=shown.paths)
    n_failed = sum(not call.success for call in report.calls)
    ended = [f"{counted(len(report.calls), 'call')}, {n_failed} undone"]
    if not (context.out.is_terminal and shown.paths):
        ended.append(f"{counted(len(report.changes.paths), 'path')} changed")
    if options.patch is not None:
        ended.append(f"patch written to {options.patch}")
    context.out.print("; ".join(ended), markup=False)
    if not shown.answer:
        context.out.print(printable(report.answer), markup=False)


def _print_whole_diff(context: CommandContext, report: RunReport, *, is_previewed: bool) -> None:
    diff, hint = report.changes.review(), "--patch FILE, or --full of the command diff"
    if context.out.is_terminal:
        text, not_shown = diff_text(diff)
        if text.count("\n") > context.out.height:
            if not is_previewed:
                print_preview(context.out, report.changes)
            return
        print_diff(context.out, lambda write: write(text.encode("utf-8", "surrogateescape")))
    else:
        not_shown = print_diff(context.out, diff.write_to)
    warn_of_left_out(context.err, not_shown, hint=hint)


def _report_fields(report: RunReport) -> dict[str, object]:
    return {
        "answer": report.answer,
        "calls": [
            {
                "id": call.call_id,
                "tool": call.tool,
                "success": call.success,
                "outcome": call.outcome,
                "duration_s": call.duration_s,
                "text": call.text,
            }
            for call in report.calls
        ],
        "changed_paths": list(report.changes.paths),
        "preview": preview_fields(report.changes),
    }


def apply_changes(
    context: CommandContext, options: WorkOptions, workspace: Workspace, name: str
) -> str:
    """Show the changes, ask if necessary, and apply them or print how to do so later.

    Returns the message with which the user continues the run instead, or ``""``.

    Raises:
        ConflictError: If the source was changed meanwhile; the changes stay in the workspace.
    """
    err = context.err
    target: ApplyTarget = "worktree" if options.branch is None else "branch"
    preview = workspace.source.preview(target, include_ignored=options.include_ignored)
    print_preview(err, preview)
    later = f"to apply: wink-workspace apply {name}"
    try:
        step = _next_step(context, options, workspace, preview)
    except typer.Abort:  # Ctrl-C, or the end of the input
        err.print(f"\n{later}", markup=False)
        raise
    if step.message or not step.applies:
        if not step.message:
            err.print(later, markup=False)
        return step.message
    try:
        applied, where = context.apply(
            workspace,
            options,
            asks=not (options.yes or options.json),
            previewed=preview,
            selected=step.selected,
        )
    except WinkError:
        err.print(later, markup=False)
        raise
    done = f"{counted(len(applied.paths), 'path')} applied to {where}"
    err.print(printable(done), markup=False)
    print_not_kept(err, applied.left_out, preview)
    if step.selected is not None and workspace.source.preview(target).paths:
        err.print(f"the rest can be applied later: wink-workspace apply -p {name}", markup=False)
    return ""


def _next_step(
    context: CommandContext, options: WorkOptions, workspace: Workspace, preview: ChangeSet
) -> NextStep:
    """What the options say to do with the changes, or what the user answers."""
    branch = options.branch
    is_wanted = options.apply or branch is not None or (options.yes and options.patch is None)
    asks = not (options.yes or options.json or options.patch is not None)
    if not asks or not context.can_ask:
        return NextStep(applies=is_wanted)
    where = f"to {workspace.info.source}" if branch is None else f"as branch {branch}"
    return ask_next_step(
        context.err,
        f"Apply {printable(where)}?",
        partial(choose_parts, context, preview),
        partial(_page_diff, context, preview),
        takes_message=isinstance(options, RunOptions),
    )


def _page_diff(context: CommandContext, changes: ChangeSet) -> None:
    with paged(context.err, context.environment, is_wanted=True) as out:
        not_shown = print_diff(out, changes.review().write_to)
    warn_of_left_out(context.err, not_shown)
