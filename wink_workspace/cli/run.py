"""The commands ``run``, ``script`` and ``tools``: a model or a script works on a directory.

A run works in a workspace, where every call is an entry of the history, or on a copy in memory.
The model adapter is created before anything is copied, so that a missing key leaves nothing
behind. What the run needs is imported inside the functions: it takes longer to load than most
other commands take to run.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from wink_workspace.clock import SYSTEM_CLOCK, TokenUsage
from wink_workspace.errors import (
    AgentError,
    PromptEvaluationError,
    UsageError,
    WinkError,
)
from wink_workspace.sandbox import AUTO_SANDBOX, NO_SANDBOX
from wink_workspace.wording import counted

from .choosing import NextStep, ask_next_step, choose_parts
from .context import (
    MODEL_VARIABLE,
    CommandContext,
    WorkspaceArgument,
)
from .display import diff_text, print_diff, printable, warn_of_left_out
from .live_area import elapsed
from .output_file import check_output_file, write_patch
from .preview import preview_fields, print_left_out, print_not_kept, print_preview
from .project import for_place
from .run_evaluation import Run, RunReport
from .run_limits import RunLimits, RunMeter, price_of
from .run_options import NOTHING_TO_APPLY, SANDBOX_NEEDS_COPY, RunOptions, WorkOptions, refuse
from .sandbox_options import (
    check_sandbox,
    chosen_sandbox,
    configured,
)
from .workspaces import remove_finished_runs

if TYPE_CHECKING:
    from wink_workspace.adapters import Message, ModelTurn, ProviderAdapter
    from wink_workspace.adapters.model import ModelEvent
    from wink_workspace.agents import AgentProgram
    from wink_workspace.filesystem import Diff
    from wink_workspace.prompt import Section
    from wink_workspace.workspace import (
        ApplyTarget,
        ChangeSet,
        RecordedRun,
        RunAbout,
        Workspace,
        WorkspaceFolder,
    )

    from .agent_run import ContainedAgent
    from .run_display import RunDisplay, RunFeed

__all__ = [
    "apply_changes",
    "check_branch",
    "known_model",
    "run",
    "script",
    "tools",
    "work_adapter",
    "workspace_for_run",
]

_MAX_INPUT_BYTES: Final = 2**20


def run(context: CommandContext, options: RunOptions) -> None:
    """Let a model work on a task, or play a script; then show the changes, and apply them.

    Every call is a transaction and one entry of the workspace's history. No change leaves the
    workspace until you say so.
    """
    options.check(can_ask=context.can_ask)
    if options.message is not None:
        options = replace(options, message=_message(options.message))
    if options.attach:
        from .attaching import attach

        attach(context, repo=options.repo, workspace=options.workspace)
        return
    from .run_display import RunDisplay, RunFeed

    with ExitStack() as opened:
        opened.callback(context.export_spans())
        if options.patch is not None:
            check_output_file(options.patch)
        if options.record is not None:
            check_output_file(options.record, "the turns")
        context = for_place(
            context,
            options.workspace,
            options.repo or options.source,
            options.given,
            asks=not (options.yes or options.json),
        )
        check_sandbox(context.settings_for().sandbox or AUTO_SANDBOX, image=options.image)
        display = RunDisplay(
            context.err,
            live=context.shows_progress and not options.json,
            redact=context.redact,
        )
        feed = RunFeed(display, redact=context.redact)
        if options.source is None and options.message is None:  # it may be that of a finished run
            remove_finished_runs(context)
        if options.agent is not None:
            _run_agent(context, options, opened, display, feed)
            return
        prepared, model, meter = _prepare(context, options, opened, feed.on_model_event)
        if prepared.workspace is not None:
            display.diff_of = _diff_of(context, options, prepared.workspace)
        adapter = _recorded(options, prepared, model, meter)
        report = _evaluate(context, prepared, adapter, meter, feed)
        while message := _finish(context, options, prepared, report, feed):
            prepared = _continued(context, prepared, model, message)
            meter = meter.of_next(prepared.record)
            adapter = _recorded(options, prepared, model, meter, append=True)
            report = _evaluate(context, prepared, adapter, meter, feed)


def _message(given: str) -> str:
    """The text of --message."""
    from wink_workspace.workspace.live_runs import check_message

    if given == "-":
        given = sys.stdin.buffer.read(_MAX_INPUT_BYTES).decode("utf-8", "surrogateescape")
    check_message(given)
    return given


def _run_agent(
    context: CommandContext,
    options: RunOptions,
    opened: ExitStack,
    display: RunDisplay,
    feed: RunFeed,
) -> None:
    """As ``run``, with an agent program of others in place of a model."""
    from wink_workspace.agents import AgentProgram
    from wink_workspace.workspace import RecordedRun

    from .agent_run import CONTINUE, ContainedAgent

    program = AgentProgram.named(options.agent or "", model=options.model or "")
    agent = ContainedAgent(context, program, options.given, options.image)
    workspace, name = _open_workspace(context, options, opened)
    refuse(_is_in_place(workspace, name), *SANDBOX_NEEDS_COPY)
    check_branch(options, Path(workspace.info.source))
    display.diff_of = _diff_of(context, options, workspace)
    place, message = _Place(workspace=workspace, name=name), ""
    folder = context.folder(name)
    if options.resume:
        record, message = _interrupted_agent(folder, program, name), CONTINUE
        agent = ContainedAgent(context, program, options.given, options.image, record.about)
        record = replace(record, about=agent.noted_in(record.about))
        record.keep_about()
    else:
        about = agent.about(options.task, after_entry=workspace.head.number)
        record = RecordedRun.begin(folder, about)
    while True:
        report = _agent_report(context, options, agent, place, record, message, feed)
        message = _finish(context, options, place, report, feed)
        if not message:
            return
        record = RecordedRun.begin(folder, _of_message(context, record, workspace, message))


def _interrupted_agent(folder: WorkspaceFolder, program: AgentProgram, name: str) -> RecordedRun:
    """The run of an agent program to resume."""
    from wink_workspace.workspace import RecordedRun

    record = RecordedRun.newest(folder)
    refuse(record is None, f"{name} has no run to resume", "Start one with a task.")
    assert record is not None  # noqa: S101 - refused above
    about = record.about
    refuse(
        not about.is_agent or about.model != program.name,
        f"the last run of {name} was not one of {program.name}",
        f"Leave out --resume, and give a task; or continue the run of {about.model or 'a script'}.",
    )
    refuse(
        record.is_finished,
        f"the last run of {name} has ended",
        "Leave out --resume, and give a task.",
    )
    return record


def _agent_report(
    context: CommandContext,
    options: RunOptions,
    agent: ContainedAgent,
    place: _Place,
    record: RecordedRun,
    message: str,
    feed: RunFeed,
) -> RunReport:
    """Let the agent program work; a *message* continues its session. Show what happens."""
    from wink_workspace.session import ToolInvoked

    workspace = place.workspace
    assert workspace is not None  # noqa: S101 - an agent program works in a workspace
    calls, started_s = workspace.session[ToolInvoked], SYSTEM_CLOCK.monotonic_s()
    n_earlier = len(calls)
    _print_place(context, place.name, workspace)
    try:
        with _published_in(workspace, record, feed, context.redact) as messages:
            answer = agent.answer(workspace, record, message=message, messages=messages)
    except (WinkError, KeyboardInterrupt) as error:
        if isinstance(error, AgentError):
            error.hint = f"Its edits are kept: wink-workspace log {place.name}"
        agent_name = shlex.quote(options.agent or "")
        command = f"wink-workspace run --workspace {place.name} --agent {agent_name} --resume"
        context.err.print(f"resume with: {command}", markup=False)
        raise
    finally:
        context.err.print(f"elapsed: {elapsed(SYSTEM_CLOCK.monotonic_s() - started_s)}")
    return RunReport(
        answer=answer,
        calls=calls.all()[n_earlier:],
        changes=workspace.changeset(include_ignored=options.include_ignored),
        usage=TokenUsage(),
    )


def script(context: CommandContext, workspace: WorkspaceArgument) -> None:
    """Print the turns of the last run; run --script plays them again."""
    from wink_workspace.workspace import RecordedRun

    newest = RecordedRun.newest(context.folder(workspace))
    if newest is None:
        raise UsageError(f"{workspace} has had no run", hint="Start one with a task.")
    typer.echo(newest.script.read_text(encoding="utf-8"), nl=False)


def tools(context: CommandContext) -> None:
    """Print the tools that a run offers, with their schemas, as JSON."""
    from wink_workspace import serde
    from wink_workspace.filesystem import MemoryFilesystem
    from wink_workspace.prompt import Prompt
    from wink_workspace.sections import PlanningToolsSection, VfsToolsSection

    prompt = Prompt[None](
        ns="wink-workspace",
        key="run",
        sections=[VfsToolsSection(MemoryFilesystem()), PlanningToolsSection()],
    )
    rendered = prompt.render()
    listed = [
        {
            "name": tool.name,
            "description": tool.description,
            "schema": rendered.tool_schema(tool.name),
            "examples": [serde.dump(example) for example in tool.examples],
        }
        for tool in rendered.tools
    ]
    context.out.print_json(serde.dump_json(listed))


# Before the run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a run works; ``workspace`` is ``None`` for a run in memory."""

    workspace: Workspace | None = None
    name: str = ""
    is_in_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared(_Place):
    """A run that can start; ``record`` is ``None`` for a run in memory."""

    run: Run
    record: RecordedRun | None = None
    conversation: tuple[Message, ...] = ()


def _prepare(
    context: CommandContext,
    options: RunOptions,
    opened: ExitStack,
    on_event: Callable[[ModelEvent], None],
) -> tuple[_Prepared, ProviderAdapter[None], RunMeter]:
    """The run, the adapter that takes its turns, and the meter of what it uses."""
    prepared: _Prepared | None = None
    about: RunAbout | None = None
    if options.resume:
        prepared = _prepare_in_workspace(context, options, opened)
        about = None if prepared.record is None else prepared.record.about
        refuse(
            about is not None and about.is_agent,
            f"the last run of {prepared.name} was one of an agent program",
            f"Continue it: --workspace {prepared.name} --agent NAME --resume.",
        )
    limits = RunLimits.of(options.given, context.settings_for(), about)
    name = _model_name(context, options, about)
    price = price_of(name, limits)
    adapter = work_adapter(context, name or _turns_of(options), limits, opened, on_event=on_event)
    if prepared is None:
        prepared = _prepare_new(context, options, opened)
    record = prepared.record
    if about is not None:
        prepared = _resumed(context, prepared, adapter, options.message)
        record = prepared.record
    if record is not None:
        record = replace(record, about=limits.noted_in(record.about))
        record.keep_about()
    meter = RunMeter(limits, price, record)
    return replace(prepared, record=record), adapter, meter


def _prepare_new(context: CommandContext, options: RunOptions, opened: ExitStack) -> _Prepared:
    if options.source is None:
        return _prepare_in_workspace(context, options, opened)
    in_memory = Run.in_memory(
        options.source,
        task=options.task,
        include_ignored=options.include_ignored,
        more_sections=_mcp_sections(context, opened),
    )
    return _Prepared(run=in_memory)


def _mcp_sections(context: CommandContext, opened: ExitStack) -> Sequence[Section[None]]:
    """The tools of the MCP servers in the settings, which end with *opened*."""
    from wink_workspace.project import mcp_sections

    return mcp_sections(context.settings_for(), context.environment.variables, opened)


def _recorded(
    options: RunOptions,
    prepared: _Prepared,
    adapter: ProviderAdapter[None],
    meter: RunMeter,
    *,
    append: bool = False,
) -> ProviderAdapter[None]:
    """*adapter* with its turns recorded; with *append*, behind those in the file of --record."""
    from wink_workspace.adapters import ScriptRecorder

    record = prepared.record
    if record is not None:

        def keep(number: int, native: str | None) -> None:
            meter.keep(number - 1)  # this turn is not counted yet
            record.keep_native(number, native)

        adapter = ScriptRecorder(adapter, record.script, append=True, on_native=keep)
    if options.record is not None:
        adapter = ScriptRecorder(adapter, options.record, append=append)
    return adapter


def _turns_of(options: RunOptions) -> tuple[ModelTurn, ...]:
    from wink_workspace.adapters import load_script

    assert options.script is not None  # noqa: S101 - otherwise there is a model
    return load_script(options.script)


def work_adapter(
    context: CommandContext,
    model: str | Sequence[ModelTurn],
    limits: RunLimits,
    opened: ExitStack,
    *,
    on_event: Callable[[ModelEvent], None] | None = None,
) -> ProviderAdapter[None]:
    """The adapter for the model of that name, or for the turns of a script."""
    settings: dict[str, Any] = {
        "limits": limits.of_loop(),
        "redact": context.redact,
        "traces_content": context.captures_content,
    }
    if not isinstance(model, str):
        from wink_workspace.adapters import ScriptedAdapter

        return ScriptedAdapter[None](model, **settings)
    from wink_workspace.adapters.model import ModelAdapter

    return opened.enter_context(
        ModelAdapter[None](model, environment=context.environment, on_event=on_event, **settings)
    )


def _model_name(
    context: CommandContext, options: RunOptions, about: RunAbout | None = None
) -> str | None:
    """The name of the model; ``None`` for a script."""
    if options.script is not None:
        return None
    return known_model(context, options.model or ("" if about is None else about.model))


def known_model(context: CommandContext, name: str | None) -> str:
    """The model *name*, or that of the settings; ``UsageError`` if there is none."""
    name = name or context.settings_for().model
    if not name:
        raise UsageError(
            "no model is named",
            hint=f"Give --model PROVIDER:NAME, such as anthropic:NAME, or set {MODEL_VARIABLE}.",
        )
    return name


def _prepare_in_workspace(
    context: CommandContext, options: RunOptions, opened: ExitStack
) -> _Prepared:
    servers = _mcp_sections(context, opened)  # before anything is copied
    workspace, name = _open_workspace(context, options, opened)
    is_in_place = _is_in_place(workspace, name)
    refuse(options.has_sandbox and is_in_place, *SANDBOX_NEEDS_COPY)
    refuse(options.apply and is_in_place, *NOTHING_TO_APPLY)
    check_branch(options, Path(workspace.info.source))
    record, conversation = _record(context, options, workspace, name)
    # In place, the changes of others before the run are not part of it.
    since = workspace.entry(record.about.after_entry) if is_in_place else None
    return _Prepared(
        run=Run.in_workspace(
            workspace,
            task=record.about.task,
            sandbox=record.about.sandbox,
            config=configured(context, record.about.sandbox, image=options.image),
            changes=partial(
                workspace.changeset, since=since, include_ignored=options.include_ignored
            ),
            more_sections=servers,
        ),
        workspace=workspace,
        name=name,
        record=record,
        conversation=conversation,
        is_in_place=is_in_place,
    )


def _open_workspace(
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
            newest = RecordedRun.newest(storage.folder(info.id))
            if newest is not None and not (interrupted and newest.is_finished):
                return info.id
    raise UsageError(
        f"no run over {repo} was interrupted" if interrupted else f"there was no run over {repo}",
        hint="Name the workspace with --workspace.",
    )


def _record(
    context: CommandContext, options: RunOptions, workspace: Workspace, name: str
) -> tuple[RecordedRun, tuple[Message, ...]]:
    """The record of the run, and its conversation so far."""
    from wink_workspace.workspace import RecordedRun, RunAbout

    folder = context.folder(name)
    if not options.resume:
        about = RunAbout(
            task=context.redact(options.task),
            model=_model_name(context, options) or "",
            sandbox=_sandbox(context, options, is_copy=not _is_in_place(workspace, name)),
            after_entry=workspace.head.number,
        )
        return RecordedRun.begin(folder, about), ()
    record = RecordedRun.newest(folder)
    if record is None:
        raise UsageError(f"{name} has no run to resume", hint="Start one with a task.")
    record.drop_half_turn()
    return record, () if options.message else record.conversation(workspace)


def _is_in_place(workspace: Workspace, name: str) -> bool:
    """Whether calls change the user's own directory; a fork is a copy."""
    return workspace.info.mode == "in_place" and "/" not in name


def _sandbox(context: CommandContext, options: RunOptions, *, is_copy: bool) -> str:
    """The name of the sandbox; one that only a file of settings names is for copies."""
    if not is_copy:
        return (options.sandbox or NO_SANDBOX) if options.has_sandbox else NO_SANDBOX
    return chosen_sandbox(context, context.settings_for().sandbox, image=options.image)


# The run, and what follows it


def _diff_of(
    context: CommandContext, options: RunOptions, workspace: Workspace
) -> Callable[[int], Diff] | None:
    """The diff of an entry, if each call is shown with its diff.

    A pipe gets the whole diff at the end, so the diffs of calls would be a repetition.
    """
    if context.out.is_terminal or options.json or options.patch is not None:
        return lambda number: workspace.review_of(workspace.entry(number))
    return None


def _evaluate(
    context: CommandContext,
    prepared: _Prepared,
    adapter: ProviderAdapter[None],
    meter: RunMeter,
    feed: RunFeed,
) -> RunReport:
    """Run to the end; show and publish what happens."""
    err, workspace = context.err, prepared.workspace
    if workspace is not None:
        _print_place(context, prepared.name, workspace)
    try:
        with _published(prepared, feed, context.redact) as messages:
            return prepared.run.evaluate(
                adapter,
                deadline=meter.deadline,
                budget_tracker=meter.tracker,
                conversation=prepared.conversation,
                messages=messages,
            )
    except (PromptEvaluationError, KeyboardInterrupt) as error:
        command = f"wink-workspace run --workspace {prepared.name} --resume"
        if workspace is None:
            raise
        if isinstance(error, KeyboardInterrupt) or not meter.explain(error, command):
            err.print(f"resume with: {command}", markup=False)
        raise
    finally:
        if prepared.record is not None:
            meter.keep(len(prepared.record.turns()))
        used = meter.tracker.used
        footer = f"elapsed: {elapsed(meter.elapsed_s)}"
        if used.total_tokens:
            cached = f" ({used.cached_tokens:,} cached)" if used.cached_tokens else ""
            footer += f", tokens: {used.input_tokens:,} in{cached}, {used.output_tokens:,} out"
        if meter.tracker.cost_usd:
            footer += f", cost: ${meter.tracker.cost_usd:.4f}"
        err.print(footer)


def _print_place(context: CommandContext, name: str, workspace: Workspace) -> None:
    mode, source = workspace.info.mode.replace("_", " "), printable(workspace.info.source)
    context.err.print(f"workspace {name}: {mode} of {source}", markup=False)


@contextmanager
def _published(
    prepared: _Prepared, feed: RunFeed, redact: Callable[[str], str]
) -> Generator[Callable[[], Sequence[str]] | None]:
    """Show the run in the block, and let others watch it; yields how it gets their messages."""
    workspace, record = prepared.workspace, prepared.record
    if workspace is None or record is None:
        with feed.of(prepared.run.session):
            yield None
        return
    with _published_in(workspace, record, feed, redact) as messages:
        yield messages


@contextmanager
def _published_in(
    workspace: Workspace, record: RecordedRun, feed: RunFeed, redact: Callable[[str], str]
) -> Generator[Callable[[], Sequence[str]]]:
    """Show the run in the block, and let others watch it; yields how it gets their messages."""
    from wink_workspace.workspace.live_runs import MessageReceived, PublishedRun

    run = PublishedRun(record)

    def messages() -> list[str]:
        texts = [redact(text) for text in run.messages()]
        for text in texts:
            record.keep_message(text)
            feed.publish(MessageReceived(text=text))
        return texts

    try:
        with feed.of(workspace.session, run.publish, lambda: workspace.head.number):
            yield messages
    except BaseException as error:
        run.end("interrupted" if isinstance(error, KeyboardInterrupt) else str(error))
        raise
    run.end()


def _resumed(
    context: CommandContext, prepared: _Prepared, model: ProviderAdapter[None], message: str | None
) -> _Prepared:
    """The interrupted run, or the one that continues it, with its conversation."""
    workspace, record, conversation = prepared.workspace, prepared.record, prepared.conversation
    assert workspace is not None  # noqa: S101 - only runs in workspaces are resumed
    assert record is not None  # noqa: S101 - and each of them is recorded
    if message is not None:
        if record.is_finished:
            return _continued(context, prepared, model, message)
        record.keep_message(context.redact(message))
        conversation = record.conversation(workspace)
    return replace(prepared, conversation=_in_format_of(model, record, conversation))


def _in_format_of(
    model: ProviderAdapter[None], record: RecordedRun, conversation: Sequence[Message]
) -> tuple[Message, ...]:
    """*conversation* with the turns that *model* made in the format of its provider."""
    if model.model_name != record.about.model:
        return tuple(conversation)
    return record.with_natives(conversation, model.load_native)


def _continued(
    context: CommandContext, prepared: _Prepared, model: ProviderAdapter[None], message: str
) -> _Prepared:
    """The run that continues a finished one with a *message* of the user."""
    from wink_workspace.workspace import RecordedRun

    workspace, record = prepared.workspace, prepared.record
    assert workspace is not None  # noqa: S101 - only the changes of a workspace are asked about
    assert record is not None  # noqa: S101 - each of its runs is recorded
    about = _of_message(context, record, workspace, message)
    following = RecordedRun.begin(context.folder(prepared.name), about)
    conversation = following.conversation(workspace)
    return replace(
        prepared,
        record=following,
        conversation=_in_format_of(model, following, conversation),
    )


def _of_message(
    context: CommandContext, record: RecordedRun, workspace: Workspace, message: str
) -> RunAbout:
    """The start of a run that continues a finished one with a *message* of the user."""
    return replace(
        record.about,
        after_entry=workspace.head.number,
        follows=record.number,
        message=context.redact(message),
    )


def _finish(
    context: CommandContext,
    options: RunOptions,
    place: _Place,
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
        _print_report(context, printed, report, place.name, with_answer=not is_shown)
        raise
    broken_pipe: BaseException | None = None
    try:
        _print_report(context, options, report, place.name, with_answer=not is_shown)
    except (BrokenPipeError, SystemExit) as error:  # rich raises SystemExit for a broken pipe
        broken_pipe = error
    workspace, stays = place.workspace, place.is_in_place and options.branch is None
    message = ""
    if workspace is None or not report.changes.paths or stays:
        print_left_out(context.err, report.changes.left_out)
    else:
        message = apply_changes(context, options, workspace, place.name)
    if broken_pipe is not None:
        raise broken_pipe
    return message


def _print_report(
    context: CommandContext,
    options: RunOptions,
    report: RunReport,
    name: str,
    *,
    with_answer: bool,
) -> None:
    """Print the report, with the diff unless it is in a patch file."""
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
    if options.patch is None:
        not_shown = print_diff(context.out, diff.write_to)
        warn_of_left_out(context.err, not_shown, hint="--patch FILE, or --full of the command diff")
    n_failed = sum(not call.success for call in report.calls)
    context.out.print(
        f"{counted(len(report.calls), 'call')}, {n_failed} undone; "
        f"{counted(len(report.changes.paths), 'path')} changed"
        + ("" if options.patch is None else f"; patch written to {options.patch}"),
        markup=False,
    )
    if with_answer:
        context.out.print(printable(report.answer), markup=False)


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
    err, branch = context.err, options.branch
    target: ApplyTarget = "worktree" if branch is None else "branch"
    preview = workspace.preview(target, include_ignored=options.include_ignored)
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
        applied = workspace.apply(
            target,
            branch=branch or "",
            include_ignored=options.include_ignored,
            previewed=preview,
            selected=step.selected,
        )
    except WinkError:
        err.print(later, markup=False)
        raise
    where = f"applied to {workspace.info.source}"
    if branch is not None:
        where = f"on branch {branch}, commit {applied.commit[:12]}"
    err.print(printable(f"{counted(len(applied.paths), 'path')} {where}"), markup=False)
    print_not_kept(err, applied.left_out, preview)
    if step.selected is not None and workspace.preview(target).paths:
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
        takes_message=isinstance(options, RunOptions),
    )
