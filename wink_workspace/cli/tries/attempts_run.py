"""``attempts start`` and ``attempts resume``: models try a task, and the best attempt is kept.

The settings, sandboxes, models and the question what to apply are those of ``run``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wink_workspace.cli.run.run_limits import RunLimits
from wink_workspace.cli.run.run_options import check_branch
from wink_workspace.cli.sandbox.project import for_place, for_workspace
from wink_workspace.cli.screen.command_context import CommandContext, print_json
from wink_workspace.cli.screen.console import ask_line, check_output_file, write_patch
from wink_workspace.cli.screen.display import print_diff, printable
from wink_workspace.cli.screen.live_area import plain_lines
from wink_workspace.clock import Deadline
from wink_workspace.errors import ScorerError, UsageError, WinkError

from .attempts_options import KeepMode, ResumeOptions, RunningOptions, StartOptions
from .attempts_stored import AttemptsWork, StoredRun
from .attempts_stored_runs import find_run, keep_attempt, print_run, run_fields

if TYPE_CHECKING:
    from wink_workspace.attempts import Attempts, AttemptStatus
    from wink_workspace.workspace import Workspace

    from .model_attempt import RedactedScore


_KEEP_HELP: Final = """\
y - keep this attempt: merge it into the workspace
n - keep none now; `wink-workspace attempts keep` does it later
d - show its changes
NUMBER - look at another attempt
? - print this help"""


def start(context: CommandContext, options: StartOptions) -> int:
    """Let models try a task several times, each time in a fork; then keep the best attempt.

    An attempt is scored by a command that runs in the sandbox, in a fork that is deleted. Each
    attempt is a branch: look at it, compare it, keep parts of it. The limits are those of all
    attempts together; only --max-turns is that of each.
    """
    options.check(can_ask=context.can_ask)
    if options.repo is None and options.workspace is None:
        options = replace(options, repo=context.nearest_source())
    with ExitStack() as opened:
        opened.callback(context.export_spans())
        if options.patch is not None:
            check_output_file(options.patch)
        asks = not (options.yes or options.json)
        context = for_place(context, options.workspace, options.repo, options.given, asks=asks)
        limits = RunLimits.of(options.given, context.settings_for())
        about = StoredRun.of(context, options, limits)
        work = about.work(context, options, limits)
        workspace = _workspace(context, options, opened)
        check_branch(options, Path(workspace.info.source))
        if work.scorer is not None:
            _try_scorer(context, workspace, work.scorer)
        from wink_workspace.attempts import Attempts

        attempts = Attempts(
            workspace,
            n=options.n,
            engine=work.engine,
            budget=work.budget,
            score_timeout_s=work.score_timeout_s,
            about=asdict(about),
        )
        context.err.print(
            printable(f"run {attempts.run_id} in workspace {workspace.info.id}"), markup=False
        )
        return _run(context, options, attempts, work, workspace)


def resume(context: CommandContext, options: ResumeOptions) -> int:
    """Continue a run that was interrupted, or that reached a limit.

    Attempts that ended are not run again; others continue from their last entry. An option that
    sets a limit counts, otherwise the limits are as before; the time begins again.
    """
    options.check_ways(can_ask=context.can_ask)
    name, run = find_run(context, options.repo, options.workspace, options.run)
    about = StoredRun.parse(run)
    with ExitStack() as opened:
        opened.callback(context.export_spans())
        if options.patch is not None:
            check_output_file(options.patch)
        context = for_workspace(
            context, name, options.given, asks=not (options.yes or options.json)
        )
        found = RunLimits.of(options.given, context.settings_for())
        limits = replace(
            found,
            tokens=options.max_tokens or run.budget.max_total_tokens or found.tokens,
            money=options.max_cost_usd or run.budget.max_cost_usd,
            turns=options.max_turns or about.max_turns,
            time=options.deadline_s or about.deadline_s,
        )
        work = about.work(context, options, limits)
        workspace = opened.enter_context(context.open(name))
        check_branch(options, Path(workspace.info.source))
        from wink_workspace.attempts import Attempts

        attempts = Attempts.open(
            workspace,
            run.run_id,
            engine=work.engine,
            budget=work.budget,
            score_timeout_s=work.score_timeout_s,
        )
        return _run(context, options, attempts, work, workspace)


def _workspace(context: CommandContext, options: StartOptions, opened: ExitStack) -> Workspace:
    if options.workspace is not None:
        return opened.enter_context(context.open(options.workspace))
    repo = (options.repo or Path()).absolute()
    check_branch(options, repo)
    return opened.enter_context(context.make(repo))


def _try_scorer(context: CommandContext, workspace: Workspace, scorer: RedactedScore) -> None:
    """Score the files as they are. A scorer that cannot run is an error before tokens are spent."""
    try:
        with (
            context.spinner("scoring the files as they are"),
            workspace.branches.temporary() as fork,
        ):
            score = scorer(fork)
    except ScorerError as error:
        if error.kind != "no tests":  # an attempt may write them
            raise
        line = f"score without changes: none: {error.message}"
    else:
        note = " (so an attempt that changes nothing passes)" if score.passed else ""
        line = f"score without changes: {score.value:.4g}, {score.detail}{note}"
    context.err.print(" ".join(plain_lines([line])), markup=False)


def _run(
    context: CommandContext,
    options: RunningOptions,
    attempts: Attempts,
    work: AttemptsWork,
    workspace: Workspace,
) -> int:
    """Run to the end, show the attempts, keep one, and apply it; returns the exit code."""
    from wink_workspace.attempts import AttemptResult, first_passing

    from .attempts_display import AttemptsDisplay

    deadline = Deadline.after(work.deadline_s)
    display = AttemptsDisplay(
        context.err,
        live=context.shows_progress and not options.json,
        read=lambda: attempts.status,
    )

    def stop(results: Sequence[AttemptResult]) -> bool:
        return deadline.expired or (work.first and first_passing(results))

    name = _name(workspace)
    resume_command = f"wink-workspace attempts resume --run {attempts.run_id}"
    try:
        with display.showing():
            run = attempts.run(work.attempt, score=work.scorer, stop=stop, watch=display.watch)
            for result in run:
                display.ended(result.number)
    except (KeyboardInterrupt, WinkError):
        if attempts.run_id in attempts.run_ids(workspace):  # else nothing has begun
            context.err.print(f"continue with: {resume_command}", markup=False)
        raise
    status = attempts.status
    if options.json:
        print_json(run_fields(name, status))
    else:
        print_run(context, status)
    reason = "the time is over" if deadline.expired else "the budget is spent"
    if not status.is_complete and not (work.first and any(e.passed for e in status.attempts)):
        option = "--deadline TIME" if deadline.expired else "--max-tokens N, or --max-cost USD"
        context.err.print(
            f"{reason}, and the run is not complete; continue with: {resume_command} {option}",
            markup=False,
            style="yellow",
        )
    return _keep_best(context, options, attempts, workspace)


def _name(workspace: Workspace) -> str:
    """The name of the workspace with its branch, as commands take it."""
    branch = workspace.branch_name
    return workspace.info.id if branch == "main" else f"{workspace.info.id}/{branch}"


def _keep_best(
    context: CommandContext, options: RunningOptions, attempts: Attempts, workspace: Workspace
) -> int:
    """Keep an attempt, and apply it; 1 if there is none to keep."""
    run, name = attempts.status, _name(workspace)
    best = run.best
    if best is None:
        context.err.print("no attempt finished; their notes say why", style="red")
        return 1
    later = f"wink-workspace attempts keep {best.number} --run {run.run_id}"
    mode = options.keep_mode(can_ask=context.can_ask)
    chosen: AttemptStatus | None = None
    if mode is KeepMode.ASK:
        chosen = _ask_which(context, attempts, best)
    elif mode is KeepMode.BEST:
        if best.score is not None and not best.passed:
            context.err.print(
                f"no attempt passed; keep the best with: {later}",
                markup=False,
                style="red",
            )
            return 1
        chosen = best
    if chosen is None:
        context.err.print(
            f"keep one with: {later}",
            markup=False,
        )
        return 0
    keep_attempt(context, attempts, chosen.number)
    if options.patch is not None:
        review = workspace.changeset(include_ignored=options.include_ignored).review()
        write_patch(options.patch, partial(review.write_to, full=True))
        context.err.print(f"patch written to {options.patch}", markup=False)
    if workspace.changeset(include_ignored=options.include_ignored).paths:
        from wink_workspace.cli.run.run_end import apply_changes

        apply_changes(context, options, workspace, name)
    return 0


def _ask_which(
    context: CommandContext, attempts: Attempts, best: AttemptStatus
) -> AttemptStatus | None:
    """Ask whether to keep *best*, or another attempt; ``None`` for none."""
    chosen = best
    while True:
        answer = ask_line(f"Keep attempt {chosen.number}? [y,n,d,NUMBER,?] ").strip().lower()
        if answer in ("y", "yes"):
            return chosen
        if answer in ("n", "no"):
            return None
        if answer == "d":
            _print_changes(context, attempts, chosen.number)
        elif answer.isdecimal():
            try:
                attempts.changes_of(int(answer))
                chosen = attempts.status.attempt(int(answer))
            except UsageError as error:
                context.err.print(printable(str(error)), markup=False, style="red")
        else:
            context.err.print(_KEEP_HELP, markup=False, style="dim")


def _print_changes(context: CommandContext, attempts: Attempts, number: int) -> None:
    print_diff(context.out, attempts.changes_of(number).review().write_to)
