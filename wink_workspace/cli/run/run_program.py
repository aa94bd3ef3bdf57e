"""``run --agent``: an agent program of others works in place of a model."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from wink_workspace.agents import AgentProgram
from wink_workspace.cli.screen.command_context import CommandContext
from wink_workspace.cli.screen.live_area import elapsed
from wink_workspace.clock import SYSTEM_CLOCK, TokenUsage
from wink_workspace.errors import AgentError, WinkError
from wink_workspace.session import ToolInvoked
from wink_workspace.workspace import RecordedRun, WorkspaceFolder

from .agent_run import CONTINUE, ContainedAgent
from .run_display import RunDisplay, RunFeed
from .run_end import finish
from .run_evaluation import RunReport
from .run_options import SANDBOX_NEEDS_COPY, RunOptions, refuse
from .run_place import RunPlace, check_branch, open_workspace, works_in_place
from .run_preparation import about_next
from .run_publishing import diff_of, print_place, published

__all__ = ["run_program"]


def run_program(
    context: CommandContext,
    options: RunOptions,
    opened: ExitStack,
    display: RunDisplay,
    feed: RunFeed,
) -> None:
    """Let the agent program work, and continue with each message of the user."""
    program = AgentProgram.named(options.agent or "", model=options.model or "")
    agent = ContainedAgent(context, program, options.given, options.image)
    workspace, name = open_workspace(context, options, opened)
    refuse(works_in_place(workspace, name), *SANDBOX_NEEDS_COPY)
    check_branch(options, Path(workspace.info.source))
    display.diff_of = diff_of(context, options, workspace)
    place, message = RunPlace(workspace=workspace, name=name), ""
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
        message = finish(context, options, place, report, feed)
        if not message:
            return
        record = RecordedRun.begin(folder, about_next(context, record, workspace, message))


def _interrupted_agent(folder: WorkspaceFolder, program: AgentProgram, name: str) -> RecordedRun:
    """The run of an agent program to resume."""
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
    place: RunPlace,
    record: RecordedRun,
    message: str,
    feed: RunFeed,
) -> RunReport:
    """Let the agent program work; a *message* continues its session. Show what happens."""
    workspace = place.workspace
    assert workspace is not None  # noqa: S101 - an agent program works in a workspace
    calls, started_s = workspace.session[ToolInvoked], SYSTEM_CLOCK.monotonic_s()
    n_earlier = len(calls)
    print_place(context, place.name, workspace)
    try:
        with published(workspace, record, feed, context.redact) as messages:
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
