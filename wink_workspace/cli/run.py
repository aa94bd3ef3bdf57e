"""The command ``run``: a task for a model, or a script of turns, over a place with files."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from wink_workspace.clock import Budget, BudgetTracker, Deadline, TokenUsage
from wink_workspace.environment import Environment
from wink_workspace.errors import PromptEvaluationError, UsageError
from wink_workspace.sandbox import NO_SANDBOX
from wink_workspace.wording import counted

from .display import consoles, print_diff, printable, waiting, warn_of_left_out
from .places import (
    IncludeIgnoredOption,
    JsonOption,
    config_of,
    line_of,
    open_workspace,
    storage_of,
    workspace_in,
)
from .preview import preview_fields, print_left_out
from .sandboxes import SANDBOX_HELP, check_sandbox

if TYPE_CHECKING:
    from wink_workspace.adapters import Message, ProviderAdapter
    from wink_workspace.adapters.model import ModelEvent
    from wink_workspace.filesystem import Diff
    from wink_workspace.workspace import RecordedRun, Workspace

    from .running import Run, RunReport

__all__ = ["run", "shows_content"]

# What runs need is imported inside the functions: it takes longer than most other commands do.

MODEL_VARIABLE: Final = "WINK_WORKSPACE_MODEL"
_CONTENT_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

_NOTHING_TO_APPLY: Final = ("in place there is nothing to apply", "Leave out --apply.")
_CODE_NEEDS_A_COPY: Final = ("code runs over a workspace's own copy alone", "Leave out --sandbox.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What the command was given, checked against itself."""

    task: str
    repo: Path | None
    workspace: str | None
    source: Path | None
    in_place: bool
    model: str | None
    script: Path | None
    sandbox: str | None
    apply: bool
    patch: Path | None
    branch: str | None
    budget: Budget
    deadline_s: float | None
    yes: bool
    resume: bool
    record: Path | None
    include_ignored: bool
    json: bool

    def check(self, environment: Environment) -> None:
        """Raise ``UsageError`` for what cannot be meant."""
        has_task = bool(self.task or self.script)
        applies = bool(self.apply or self.branch)
        in_memory = self.source is not None
        check_sandbox(self.sandbox or NO_SANDBOX)
        nobody_to_ask = self.json or not environment.stdin_is_terminal
        n_places = _n_given(self.repo, self.workspace, self.source)
        n_ways = _n_given(self.apply, self.patch, self.branch)
        _refuse_first(
            (
                not has_task and not self.resume,
                "there is nothing to do",
                "Give a TASK, or a --script.",
            ),
            (
                n_places != 1,
                "a run is over one place",
                "Give one of --repo, --workspace and --source.",
            ),
            (
                self.in_place and not self.repo,
                "--in-place needs a directory",
                "Name it with --repo.",
            ),
            (
                _n_given(self.model, self.script) > 1,
                "a run has one model",
                "Give either --model or --script.",
            ),
            (n_ways > 1, "one way at a time", "Give one of --apply, --patch and --branch."),
            (
                in_memory and (applies or self.resume or self.yes),
                "a copy in memory is gone with its run",
                "Use --repo, or take a --patch.",
            ),
            (self.in_place and self.apply, *_NOTHING_TO_APPLY),
            (self.resume and has_task, "a resumed run has its task", "Give --resume without one."),
            (self.has_sandbox and (self.in_place or in_memory), *_CODE_NEEDS_A_COPY),
            (
                applies and not self.yes and nobody_to_ask,
                "nobody is there to be asked",
                "Add --yes to apply unasked.",
            ),
        )

    @property
    def has_sandbox(self) -> bool:
        return self.sandbox not in (None, NO_SANDBOX)


def _n_given(*options: object) -> int:
    return sum(option not in (None, False) for option in options)


def _refuse_first(*rules: tuple[bool, str, str]) -> None:
    """Raise ``UsageError`` for the first broken rule: whether it is, what is wrong, the hint."""
    for is_broken, problem, hint in rules:
        if is_broken:
            raise UsageError(problem, hint=hint)


def run(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help="What is to be done, in your words.")] = "",
    repo: Annotated[
        Path | None, typer.Option(help="The directory to work on a copy of, as a new workspace.")
    ] = None,
    workspace: Annotated[
        str | None, typer.Option(help="A workspace to work in; every call joins its history.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option(help="A directory to work on a copy of, in memory.")
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Work in the directory of --repo itself.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help=f"PROVIDER:NAME of the model; or set {MODEL_VARIABLE}.")
    ] = None,
    script: Annotated[
        Path | None, typer.Option(help="Play these turns, JSON lines, instead of a model's.")
    ] = None,
    sandbox: Annotated[str | None, typer.Option(help=SANDBOX_HELP)] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Bring the changes back to the directory.")
    ] = False,
    patch: Annotated[Path | None, typer.Option(help="Write the changes here as a patch.")] = None,
    branch: Annotated[
        str | None, typer.Option(help="Make this new branch in the directory's repository.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="End the run when it has taken so many tokens.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help="End the run after this time: 90s, 30m, 1h30m.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Apply without asking.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the last run, which was interrupted.")
    ] = False,
    record: Annotated[Path | None, typer.Option(help="Write the turns here, for --script.")] = None,
    include_ignored: IncludeIgnoredOption = False,
    json: JsonOption = False,
) -> None:
    """Let a model work on a task, or play a script; then look at what changed, and apply it.

    Every call is a transaction and one entry of the workspace's history. Nothing leaves the
    workspace before you say so.
    """
    environment: Environment = context.obj
    options = _Options(
        task=task,
        repo=repo,
        workspace=workspace,
        source=source,
        in_place=in_place,
        model=model,
        script=script,
        sandbox=sandbox,
        apply=apply,
        patch=patch,
        branch=branch,
        budget=Budget(max_total_tokens=max_tokens),
        deadline_s=None if deadline is None else _seconds(deadline),
        yes=yes,
        resume=resume,
        record=record,
        include_ignored=include_ignored,
        json=json,
    )
    options.check(environment)
    from wink_workspace.telemetry import export_spans

    with ExitStack() as opened:
        opened.callback(export_spans(environment.variables))
        _work(environment, options, opened)


def shows_content(environment: Environment) -> bool:
    """Whether spans are to hold the arguments and results of calls."""
    return environment.variables.get(_CONTENT_VARIABLE, "").lower() == "true"


def _seconds(text: str) -> float:
    """A time such as ``1h30m``, in seconds."""
    match = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip())
    seconds = 0
    if match is not None:
        hours, minutes, rest = (int(part or 0) for part in match.groups())
        seconds = hours * 3600 + minutes * 60 + rest
    if not seconds:
        raise UsageError(f"{text!r} is no length of time", hint="Write it as 90s, 30m or 1h30m.")
    return seconds


def _work(environment: Environment, options: _Options, opened: ExitStack) -> None:
    """The run from its beginning to what becomes of its changes."""
    from .following import Follower
    from .running import check_place

    out, err = consoles(environment)
    if options.patch is not None:
        check_place(options.patch)
    if options.record is not None:
        check_place(options.record, "the turns")
    follower = Follower(
        err,
        live=environment.shows_progress and not options.json,
        redact=environment.redactor(),
    )
    begun, adapter = _begin(environment, options, opened, follower.tell)
    tracker = BudgetTracker(options.budget)
    tracker.record(begun.usage)
    place = begun.place
    if place is not None:
        _introduce(err, place, begun.name)
    # What prints the whole diff at its end, into a pipe, does not show it call by call, too.
    shows_diffs = out.is_terminal or options.json or options.patch is not None
    newest_changes = None
    if place is not None and shows_diffs:
        newest_changes = partial(_newest_changes, place)
    try:
        report = begun.run.evaluate(
            adapter,
            display=lambda: follower.following(begun.run.session, newest_changes),
            deadline=None if options.deadline_s is None else Deadline.after(options.deadline_s),
            budget_tracker=tracker,
            conversation=begun.conversation,
        )
    except (PromptEvaluationError, KeyboardInterrupt):
        if place is not None:
            err.print(
                f"go on with: wink-workspace run --workspace {begun.name} --resume", markup=False
            )
        raise
    finally:
        _tell_tokens(err, tracker.used)
    _finish(environment, options, begun, report, tracker.used)


def _finish(
    environment: Environment,
    options: _Options,
    begun: _Begun,
    report: RunReport,
    used: TokenUsage,
) -> None:
    """Write the patch, print what came of the run, and bring its changes to where they are to go.

    A patch that cannot be written is printed instead, and a reader that leaves before the end of
    what is printed takes back nothing that was asked for; both are raised in the end.
    """
    from .handing_over import hand_over
    from .running import write_patch

    out, err = consoles(environment)
    try:
        if options.patch is not None:
            write_patch(options.patch, partial(report.diff.write_to, full=True))
    except UsageError:
        _tell_report(out, err, replace(options, patch=None), report, used, begun.name)
        raise
    unread: BaseException | None = None
    try:
        _tell_report(out, err, options, report, used, begun.name)
    except (BrokenPipeError, SystemExit) as error:  # the latter is rich's word for the former
        unread = error
    place = begun.place
    if place is None or not report.changed_paths or (begun.is_in_place and not options.branch):
        print_left_out(consoles(environment)[1], report.changes.left_out)
    else:
        hand_over(
            place,
            environment,
            begun.name,
            to_source=options.apply or (options.yes and not (options.patch or options.branch)),
            branch=options.branch,
            asks=not options.yes and options.patch is None and not options.json,
            include_ignored=options.include_ignored,
        )
    if unread is not None:
        raise unread


def _newest_changes(place: Workspace) -> Diff:
    return place.review_of(place.head)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """A run that is ready; ``place`` is ``None`` for one in memory."""

    run: Run
    place: Workspace | None = None
    name: str = ""
    record: RecordedRun | None = None
    conversation: tuple[Message, ...] = ()
    usage: TokenUsage = TokenUsage()  # noqa: RUF009 - frozen, so it may be shared
    is_in_place: bool = False


def _begin(
    environment: Environment,
    options: _Options,
    opened: ExitStack,
    tell: Callable[[ModelEvent], None],
) -> tuple[_Begun, ProviderAdapter[None]]:
    """The run, and what takes its turns; nothing is copied before it is known who does."""

    def adapter(recorded_model: str = "") -> ProviderAdapter[None]:
        return _adapter(environment, options, recorded_model, opened, tell)

    if options.resume:
        begun = _over_workspace(environment, options, opened)
        record = begun.record
        taking_turns = adapter("" if record is None else record.about.model)
        if record is not None and taking_turns.model_name == record.about.model:
            said = record.with_natives(begun.conversation, taking_turns.load_native)
            begun = replace(begun, conversation=said)
        return begun, _recorded_adapter(taking_turns, options, begun)
    taking_turns = adapter()
    if options.source is not None:
        from .running import Run

        begun = _Begun(
            run=Run.over_copy(
                options.source, task=options.task, include_ignored=options.include_ignored
            )
        )
    else:
        begun = _over_workspace(environment, options, opened)
    return begun, _recorded_adapter(taking_turns, options, begun)


def _over_workspace(environment: Environment, options: _Options, opened: ExitStack) -> _Begun:
    from .running import Run

    place, name = _place(environment, options, opened)
    is_in_place = place.info.mode == "in_place" and "/" not in name  # a fork is a copy
    _refuse_first(
        (options.has_sandbox and is_in_place, *_CODE_NEEDS_A_COPY),
        (options.apply and is_in_place, *_NOTHING_TO_APPLY),
    )
    _check_branch(options, Path(place.info.source))
    record, conversation = _recorded(environment, options, place, name)
    began = place.entry(record.about.after_entry)
    run = Run(
        place.files,
        session=place.session,
        task=record.about.task,
        sandbox=record.about.sandbox,
        resources=place.resources,
        # In place, what others changed before is not the run's to show.
        changes=lambda: place.changeset(
            since=began if is_in_place else None, include_ignored=options.include_ignored
        ),
    )
    return _Begun(
        run=run,
        place=place,
        name=name,
        record=record,
        conversation=conversation,
        usage=record.usage,
        is_in_place=is_in_place,
    )


def _place(environment: Environment, options: _Options, opened: ExitStack) -> tuple[Workspace, str]:
    """The workspace to work in, and what to call it."""
    from wink_workspace.workspace import Workspace

    if options.workspace is not None:
        place = opened.enter_context(open_workspace(environment, options.workspace))
        _, slash, fork = options.workspace.partition("/")
        return place, place.info.id + slash + fork
    repo = (options.repo or Path()).absolute()
    _check_branch(options, repo)
    if options.in_place:
        if options.resume and storage_of(environment).in_place(repo) is None:
            raise UsageError(f"there was no run in {repo}", hint="Begin one with a task.")
        name = workspace_in(environment, repo)
        return opened.enter_context(open_workspace(environment, name)), name
    if options.resume:
        name = _interrupted_in(environment, repo)
        return opened.enter_context(open_workspace(environment, name)), name
    with waiting(environment, f"copying {repo}"):
        place = opened.enter_context(
            Workspace.create(repo, storage=storage_of(environment), config=config_of(environment))
        )
    return place, place.info.id


def _check_branch(options: _Options, source: Path) -> None:
    """Refuse a branch that nothing of the run could be made into at its end."""
    if options.branch is not None and not (source / ".git").exists():
        raise UsageError(
            f"{source} is not the top of a git repository, so there can be no branch",
            hint="Use --apply or --patch.",
        )


def _interrupted_in(environment: Environment, repo: Path) -> str:
    """The newest workspace that is a copy of *repo* and whose last run did not end."""
    from wink_workspace.workspace import RecordedRun

    storage = storage_of(environment)
    for info in storage.all():
        if info.mode == "copy" and Path(info.source) == repo:
            newest = RecordedRun.newest(storage.folder(info.id))
            if newest is not None and not newest.is_finished:
                return info.id
    raise UsageError(
        f"no run over {repo} was interrupted", hint="Name the workspace with --workspace."
    )


def _recorded(
    environment: Environment, options: _Options, place: Workspace, name: str
) -> tuple[RecordedRun, tuple[Message, ...]]:
    """The record of the run, and what was said in it already."""
    from wink_workspace.workspace import RecordedRun, RunAbout

    which, line = line_of(name)
    folder = storage_of(environment).folder(which).of_line(line)
    if not options.resume:
        about = RunAbout(
            task=environment.redactor()(options.task),
            model=_model_name(environment, options.model) if options.script is None else "",
            sandbox=options.sandbox or NO_SANDBOX,
            after_entry=place.head.number,
        )
        return RecordedRun.begin(folder, about), ()
    record = RecordedRun.newest(folder)
    if record is None:
        raise UsageError(f"{name} has no run to go on with", hint="Begin one with a task.")
    record.drop_half_turn()
    return record, record.conversation(place)


def _model_name(environment: Environment, given: str | None) -> str:
    name = given or environment.variables.get(MODEL_VARIABLE)
    if not name:
        raise UsageError(
            "no model is named",
            hint=f"Give --model PROVIDER:NAME, such as anthropic:NAME, or set {MODEL_VARIABLE}.",
        )
    return name


def _adapter(
    environment: Environment,
    options: _Options,
    recorded_model: str,
    opened: ExitStack,
    tell: Callable[[ModelEvent], None],
) -> ProviderAdapter[None]:
    """What takes the turns."""
    settings: dict[str, Any] = {
        "redact": environment.redactor(),
        "traces_content": shows_content(environment),
    }
    if options.script is not None:
        from wink_workspace.adapters import ScriptedAdapter, load_script

        return ScriptedAdapter[None](load_script(options.script), **settings)
    from wink_workspace.adapters.model import ModelAdapter

    name = _model_name(environment, options.model or recorded_model)
    return opened.enter_context(
        ModelAdapter[None](name, environment=environment, on_event=tell, **settings)
    )


def _recorded_adapter(
    adapter: ProviderAdapter[None], options: _Options, begun: _Begun
) -> ProviderAdapter[None]:
    """*adapter* with every turn written down."""
    from wink_workspace.adapters import ScriptRecorder

    if begun.record is not None:
        adapter = ScriptRecorder(
            adapter, begun.record.script, append=True, on_native=begun.record.keep_native
        )
    if options.record is not None:
        adapter = ScriptRecorder(adapter, options.record)
    return adapter


def _introduce(err: Console, place: Workspace, name: str) -> None:
    mode = place.info.mode.replace("_", " ")
    err.print(f"workspace {name}: {mode} of {printable(place.info.source)}", markup=False)


def _tell_tokens(err: Console, used: TokenUsage) -> None:
    if used.total_tokens:
        cached = f" ({used.cached_tokens:,} cached)" if used.cached_tokens else ""
        err.print(f"tokens: {used.input_tokens:,} in{cached}, {used.output_tokens:,} out")


def _tell_report(
    out: Console, err: Console, options: _Options, report: RunReport, used: TokenUsage, name: str
) -> None:
    """Print what came of the run, with its patch unless that is in a file."""
    if options.json:
        from wink_workspace import serde

        summary = _summary(report, options.patch, used)
        # Not by the console, which takes 20 s and 1.6 GiB to format 100 MB.
        typer.echo(serde.dump_json({**summary, "workspace": name or None}, indent=2))
    else:
        _print_report(out, err, report, options.patch)


def _summary(report: RunReport, patch: Path | None, used: TokenUsage) -> dict[str, object]:
    pieces: list[bytes] = []
    not_shown = () if patch is not None else report.diff.write_to(pieces.append)
    text = b"".join(pieces).decode("utf-8", "surrogateescape")
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
        "changed_paths": list(report.changed_paths),
        "preview": preview_fields(report.changes),
        "patch": text if patch is None else str(patch),
        "not_shown": not_shown,
        "usage": used,
    }


def _print_report(out: Console, err: Console, report: RunReport, patch: Path | None) -> None:
    if patch is None:
        left_out = print_diff(out, report.diff.write_to)
        warn_of_left_out(err, left_out, hint="--patch FILE, or --full of the command diff")
    n_failed = sum(not call.success for call in report.calls)
    out.print(
        f"{counted(len(report.calls), 'call')}, {n_failed} undone; "
        f"{counted(len(report.changed_paths), 'path')} changed"
        + ("" if patch is None else f"; patch written to {patch}"),
        markup=False,
    )
    out.print(printable(report.answer), markup=False)
