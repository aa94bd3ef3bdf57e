"""The commands ``attempts …``: models try a task several times, and the best attempt is kept.

The settings, sandboxes, models and the question what to apply are those of ``run``. What a run
needs to be continued is stored with it, without secrets. The settings are read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Self

import typer

from wink_workspace.clock import Budget, Deadline
from wink_workspace.errors import UsageError, WinkError
from wink_workspace.sandbox import AUTO_SANDBOX
from wink_workspace.wording import counted

from .choosing import ask_line, choose_parts
from .context import CommandContext, FullOption, JsonOption, print_json
from .display import print_diff, print_table, printable, warn_of_left_out
from .live_area import plain_lines
from .output_file import check_output_file, write_patch
from .preview import print_preview
from .project import for_project, for_workspace
from .run import WorkOptions, apply_changes, check_branch, known_model, workspace_for_run
from .run_limits import RunLimits, price_of
from .sandboxes import check_sandbox, chosen_sandbox, configured, running_config

if TYPE_CHECKING:
    from wink_workspace.attempts import Attempts, AttemptStatus, Engine, RunStatus
    from wink_workspace.workspace import Workspace

    from .model_attempt import ModelAttempt, RedactedScore

__all__ = [
    "KeepMode",
    "ResumeOptions",
    "StartOptions",
    "diff",
    "keep",
    "list_runs",
    "remove",
    "resume",
    "show",
    "start",
]

_MAX_N: Final = 10_000
_KEEP_HELP: Final = """\
y - keep this attempt: merge it into the workspace
n - keep none now; `wink-workspace attempts keep` does it later
d - show its changes
NUMBER - look at another attempt
? - print this help"""


class KeepMode(StrEnum):
    """What happens with the best attempt."""

    BEST = "best"
    ASK = "ask"
    NONE = "none"


# Options

RepoOption = Annotated[
    Path, typer.Option("--repo", help="The directory of the run, if --workspace is not given.")
]
WorkspaceOption = Annotated[
    str | None, typer.Option("--workspace", help="The workspace of the run.")
]
RunOption = Annotated[
    str | None,
    typer.Option(
        "--run", help="The run, or the beginning of its id; by default the newest of --repo."
    ),
]
NumberArgument = Annotated[int, typer.Argument(help="The number of an attempt.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunningOptions(WorkOptions):
    """The options of ``start`` and ``resume``."""

    engine: Annotated[
        str, typer.Option(help="Where attempts run: local, or ray://HOST:PORT for a Ray cluster.")
    ] = "local"
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="How many attempts run at the same time; 2 by default, or what a cluster can do.",
        ),
    ] = None
    keep: Annotated[
        KeepMode | None,
        typer.Option(help="Merge the best attempt: best, ask, none; by default, ask if possible."),
    ] = None

    def keep_mode(self, *, can_ask: bool) -> KeepMode:
        """What to do with the best attempt."""
        asks = can_ask and not self.json
        if self.keep is KeepMode.ASK and not asks:
            raise UsageError("nothing can be asked here", hint="Use --keep best or --keep none.")
        if self.keep is not None:
            return self.keep
        if self.yes or self.apply or self.branch or self.patch:
            return KeepMode.BEST
        return KeepMode.ASK if asks else KeepMode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions(_RunningOptions):
    """The options of ``start``."""

    task: Annotated[str, typer.Argument(help="What to do, in your own words.")] = ""
    repo: Annotated[
        Path | None, typer.Option(help="The directory to copy into a new workspace.")
    ] = None
    workspace: Annotated[
        str | None,
        typer.Option(help="An existing workspace; the attempts begin at its newest entry."),
    ] = None
    n: Annotated[int, typer.Option("--n", "-n", help="How many attempts.")] = 4
    models: Annotated[
        str | None,
        typer.Option(help="PROVIDER:NAME of a model, or several with commas, taken in turn."),
    ] = None
    script: Annotated[
        list[Path] | None,
        typer.Option(help="Play these turns instead; give it again for others, taken in turn."),
    ] = None
    score: Annotated[
        str, typer.Option(help="A command that runs in the sandbox; exit code 0 means passed.")
    ] = ""
    junit: Annotated[
        str, typer.Option(help="A JUnit file that it writes; the score is the part that passed.")
    ] = ""
    score_timeout_s: Annotated[
        float,
        typer.Option("--score-timeout", min=0.001, help="Seconds until it is ended, and failed."),
    ] = 600.0
    first: Annotated[bool, typer.Option("--first", help="End when an attempt has passed.")] = False

    def check(self, *, can_ask: bool) -> None:
        """Raise ``UsageError`` if these options contradict each other."""
        if not self.task and not self.script:
            raise UsageError("there is nothing to do", hint="Give a TASK or a --script.")
        if not 1 <= self.n <= _MAX_N:
            raise UsageError(f"{self.n} attempts were asked for", hint=f"Use from 1 to {_MAX_N:,}.")
        if (self.repo is None) == (self.workspace is None):
            raise UsageError(
                "attempts need one place to work in", hint="Give one of --repo and --workspace."
            )
        if self.models and self.script:
            raise UsageError("attempts have one kind of model", hint="Give --models or --script.")
        if (self.junit or self.first) and not self.score:
            raise UsageError(
                "without a command nothing is scored", hint="Add --score COMMAND, such as pytest."
            )
        check_sandbox(self.sandbox or AUTO_SANDBOX)
        self.check_ways(can_ask=can_ask)
        self.keep_mode(can_ask=can_ask)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeOptions(_RunningOptions):
    """The options of ``resume``."""

    repo: RepoOption = Path()
    workspace: WorkspaceOption = None
    run: RunOption = None


# What is stored with a run


@dataclass(frozen=True, slots=True, kw_only=True)
class _About:
    """What a run needs to be continued; JSON, without secrets."""

    task: str
    models: tuple[str, ...]
    scripts: tuple[str, ...]
    sandbox: str
    score: str
    junit: str
    score_timeout_s: float
    first: bool
    max_turns: int
    deadline_s: float

    @classmethod
    def of(cls, context: CommandContext, options: StartOptions, limits: RunLimits) -> Self:
        """For a new run."""
        names = [name.strip() for name in (options.models or "").split(",") if name.strip()]
        models = () if options.script else (*names,) or (known_model(context, None),)
        return cls(
            task=context.redact(options.task),
            models=tuple(models),
            scripts=tuple(str(path.absolute()) for path in options.script or ()),
            sandbox=chosen_sandbox(context, context.settings_for().sandbox, image=options.image),
            score=context.redact(options.score),
            junit=options.junit,
            score_timeout_s=options.score_timeout_s,
            first=options.first,
            max_turns=limits.turns,
            deadline_s=limits.time,
        )

    @classmethod
    def parse(cls, run: RunStatus) -> Self:
        """Of a run that the command began.

        Raises:
            UsageError: If another program began it.
        """
        try:
            about = dict(run.about)
            about["models"], about["scripts"] = tuple(about["models"]), tuple(about["scripts"])
            return cls(**about)
        except (KeyError, TypeError) as error:
            raise UsageError(
                f"run {run.run_id} was not begun by this command",
                hint="Continue it with Attempts.open in the program that began it.",
            ) from error

    def attempt(
        self, context: CommandContext, options: WorkOptions, limits: RunLimits
    ) -> ModelAttempt:
        """The function that every attempt runs."""
        from wink_workspace.adapters import load_script

        from .model_attempt import ModelAttempt

        for model in self.models:
            price_of(model, limits)  # refuses a limit of the cost if the price is not known
        return ModelAttempt(
            context=context,
            task=self.task,
            models=self.models,
            scripts=tuple(load_script(path) for path in self.scripts),
            sandbox=self.sandbox,
            config=configured(context, self.sandbox, image=options.image),
            limits=limits,
        )

    def scorer(self, context: CommandContext, options: WorkOptions) -> RedactedScore | None:
        """The scorer; ``None`` if nothing is scored."""
        from wink_workspace.attempts import CommandScore

        from .model_attempt import RedactedScore

        if not self.score:
            return None
        command = CommandScore(
            self.score,
            junit=self.junit,
            timeout_s=self.score_timeout_s,
            sandbox=running_config(context, options.sandbox, image=options.image),
        )
        return RedactedScore(command, context)


def _engine(options: _RunningOptions, attempt: ModelAttempt) -> Engine:
    from wink_workspace.attempts import engine_at

    return engine_at(options.engine, workers=options.workers, sandbox=attempt.config)


# Running


def start(context: CommandContext, options: StartOptions) -> int:
    """Let models try a task several times, each time in a fork; then keep the best attempt.

    An attempt is scored by a command that runs in the sandbox, in a fork that is deleted. Each
    attempt is a branch: look at it, compare it, keep parts of it. The limits are those of all
    attempts together; only --max-turns is that of each.
    """
    options.check(can_ask=context.can_ask)
    with ExitStack() as opened:
        opened.callback(context.export_spans())
        if options.patch is not None:
            check_output_file(options.patch)
        context = _for_source(context, options)
        limits = RunLimits.of(options.given, context.settings_for())
        about = _About.of(context, options, limits)
        attempt, scorer = about.attempt(context, options, limits), about.scorer(context, options)
        engine = _engine(options, attempt)
        workspace = _workspace(context, options, opened)
        check_branch(options, Path(workspace.info.source))
        if scorer is not None:
            _try_scorer(context, workspace, scorer)
        from wink_workspace.attempts import Attempts

        attempts = Attempts(
            workspace,
            n=options.n,
            engine=engine,
            budget=Budget(max_total_tokens=limits.tokens, max_cost_usd=limits.money),
            score_timeout_s=about.score_timeout_s + 60,
            about=asdict(about),
        )
        context.err.print(
            printable(f"run {attempts.run_id} in workspace {workspace.info.id}"), markup=False
        )
        return _run(context, options, attempts, (attempt, scorer, about), workspace)


def resume(context: CommandContext, options: ResumeOptions) -> int:
    """Continue a run that was interrupted, or that reached a limit.

    Attempts that ended are not run again; others continue from their last entry. An option that
    sets a limit counts, otherwise the limits are as before; the time begins again.
    """
    options.check_ways(can_ask=context.can_ask)
    name, run = _find(context, options.repo, options.workspace, options.run)
    about = _About.parse(run)
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
        attempt, scorer = about.attempt(context, options, limits), about.scorer(context, options)
        workspace = opened.enter_context(context.open(name))
        check_branch(options, Path(workspace.info.source))
        from wink_workspace.attempts import Attempts

        attempts = Attempts.open(
            workspace,
            run.run_id,
            engine=_engine(options, attempt),
            budget=Budget(max_total_tokens=limits.tokens, max_cost_usd=limits.money),
            score_timeout_s=about.score_timeout_s + 60,
        )
        about = replace(about, deadline_s=limits.time)
        return _run(context, options, attempts, (attempt, scorer, about), workspace)


def _for_source(context: CommandContext, options: StartOptions) -> CommandContext:
    """*context* with the settings of the project, where options come before its file."""
    asks = not (options.yes or options.json)
    if options.workspace is not None:
        return for_workspace(context, options.workspace, options.given, asks=asks)
    return for_project(context, options.repo or Path(), options.given, asks=asks)


def _workspace(context: CommandContext, options: StartOptions, opened: ExitStack) -> Workspace:
    if options.workspace is not None:
        return opened.enter_context(context.open(options.workspace))
    repo = (options.repo or Path()).absolute()
    check_branch(options, repo)
    return workspace_for_run(context, repo, opened)


def _try_scorer(context: CommandContext, workspace: Workspace, scorer: RedactedScore) -> None:
    """Score the files as they are. A scorer that cannot run is an error before tokens are spent."""
    with context.spinner("scoring the files as they are"), workspace.temporary_fork() as fork:
        score = scorer(fork)
    note = " (so an attempt that changes nothing passes)" if score.passed else ""
    line = f"score without changes: {score.value:.4g}, {score.detail}{note}"
    context.err.print(" ".join(plain_lines([line])), markup=False)


def _run(
    context: CommandContext,
    options: _RunningOptions,
    attempts: Attempts,
    parts: tuple[ModelAttempt, RedactedScore | None, _About],
    workspace: Workspace,
) -> int:
    """Run to the end, show the attempts, keep one, and apply it; returns the exit code."""
    from wink_workspace.attempts import AttemptResult, first_passing

    from .attempts_display import AttemptsDisplay

    attempt, scorer, about = parts
    deadline = Deadline.after(about.deadline_s)
    display = AttemptsDisplay(
        context.err,
        live=context.shows_progress and not options.json,
        read=lambda: attempts.status,
    )

    def stop(results: Sequence[AttemptResult]) -> bool:
        return deadline.expired or (about.first and first_passing(results))

    name = _name(workspace)
    resume_command = f"wink-workspace attempts resume --run {attempts.run_id}"
    try:
        with display.showing():
            for result in attempts.run(attempt, score=scorer, stop=stop, watch=display.watch):
                display.ended(result.number)
    except (KeyboardInterrupt, WinkError) as error:
        if not isinstance(error, UsageError):  # such an error came before anything was written
            context.err.print(f"continue with: {resume_command}", markup=False)
        raise
    run = attempts.status
    if options.json:
        print_json(_run_fields(name, run))
    else:
        _print_run(context, run)
    reason = "the time is over" if deadline.expired else "the budget is spent"
    if not run.is_complete and not (about.first and any(e.passed for e in run.attempts)):
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
    context: CommandContext, options: _RunningOptions, attempts: Attempts, workspace: Workspace
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
    _keep(context, attempts, chosen.number)
    if options.patch is not None:
        review = workspace.changeset(include_ignored=options.include_ignored).review()
        write_patch(options.patch, partial(review.write_to, full=True))
        context.err.print(f"patch written to {options.patch}", markup=False)
    if workspace.changeset(include_ignored=options.include_ignored).paths:
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


# Runs that exist


def _find(
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
        source = None if run_id else repo.absolute()
        infos = context.storage.all()
        names = [info.id for info in infos if source is None or Path(info.source) == source]
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
        print_json([_run_fields(name, run) for name, run in found])
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
    name, found = _find(context, repo, workspace, run)
    if json:
        print_json(_run_fields(name, found))
        return
    task, score = found.about.get("task", ""), found.about.get("score", "")
    context.out.print(printable(f"run {found.run_id} in workspace {name}: {task}"), markup=False)
    if score:
        context.out.print(printable(f"score: {score}"), markup=False)
    _print_run(context, found)


def _print_run(context: CommandContext, run: RunStatus) -> None:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepOptions:
    """The options of ``keep``."""

    number: Annotated[
        int | None, typer.Argument(help="The number of an attempt; the best by default.")
    ] = None
    path: Annotated[
        list[str] | None, typer.Option(help="Keep only this path, with everything below it.")
    ] = None
    interactive: Annotated[
        bool,
        typer.Option(
            "--interactive", "-p", help="Choose files and hunks; the others stay for later."
        ),
    ] = False
    repo: RepoOption = Path()
    workspace: WorkspaceOption = None
    run: RunOption = None


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
        _keep(context, attempts, number, paths=options.path, interactive=options.interactive)
        context.err.print(f"to apply: wink-workspace apply {name}", markup=False)


def _keep(
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

    name, found = _find(context, repo, workspace, run)
    return Attempts.open(opened.enter_context(context.open(name)), found.run_id), name


def _run_fields(workspace: str, run: RunStatus) -> Mapping[str, object]:
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
