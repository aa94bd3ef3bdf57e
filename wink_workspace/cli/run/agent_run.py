"""``--agent``: an agent program of others in place of a model, in a sandbox over a branch."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from wink_workspace.agents import AgentLimits, AgentProgram, run_agent
from wink_workspace.attempts import AttemptContext
from wink_workspace.cli.sandbox.sandbox_options import configured, running_name
from wink_workspace.cli.screen.command_context import CommandContext
from wink_workspace.clock import SYSTEM_CLOCK, TokenUsage
from wink_workspace.counts import lasted
from wink_workspace.errors import AgentError, UsageError, WinkError
from wink_workspace.ledger import EntryKind, LogEntry
from wink_workspace.project import Secret, Settings
from wink_workspace.sandbox import SANDBOXES, SandboxConfig
from wink_workspace.session import ToolInvoked
from wink_workspace.workspace import RecordedRun, RunAbout, Workspace
from wink_workspace.workspace.runs.task_run import RunReport

from .run_display import RunDisplay, RunFeed, diff_of, print_place, published
from .run_end import finish
from .run_limits import RunLimits, RunMeter
from .run_options import (
    SANDBOX_NEEDS_COPY,
    RunOptions,
    RunPlace,
    check_branch,
    open_place,
    refuse,
)
from .run_preparation import about_next

CONTINUE: Final = "You were interrupted. Continue with the task."
"""The message with which an interrupted run is resumed."""

_KEEP_S: Final = 10.0
"""How often the time of a run is stored, which counts when it is resumed."""

_MEMORY_BYTES: Final = 4 * 1_073_741_824
_N_PROCESSES: Final = 1_024
_SILENT_S: Final = 600.0
_N_REQUESTS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAttempt:
    """The attempt of ``attempts``: each takes the next of *agents*, and the first after the last.

    Attributes:
        agents: The program, once for each model.
        task: What to do, without secrets.
    """

    agents: tuple[ContainedAgent, ...]
    task: str

    @property
    def config(self) -> SandboxConfig:
        """The configuration of the sandbox."""
        return self.agents[0].config

    def __call__(self, attempt: AttemptContext) -> None:
        """Let the program work; continues its session if an earlier worker of the attempt died."""
        agent = self.agents[(attempt.number - 1) % len(self.agents)]
        workspace = attempt.workspace
        folder = workspace.folder.of_branch(workspace.branch_name)
        record, message = RecordedRun.newest(folder), CONTINUE
        if record is None:
            about = agent.about(self.task, after_entry=workspace.head.number)
            record, message = RecordedRun.begin(folder, about), ""
        if not record.is_finished:  # else the worker was lost while it scored
            agent.answer(workspace, record, message=message, check=attempt.check)


class ContainedAgent:
    """An agent program, with the sandbox that it runs in.

    Args:
        context: The settings.
        program: The program.
        given: What options set.
        image: The image in an option.
        about: The interrupted run, if one is resumed; its limits stay, unless options set others.

    Attributes:
        program: The program.
        config: The configuration of the sandbox.

    Raises:
        UsageError: If a setting cannot be used, or the program is not there.
    """

    def __init__(
        self,
        context: CommandContext,
        program: AgentProgram,
        given: Settings,
        image: str | None,
        about: RunAbout | None = None,
    ) -> None:
        self.program = program
        self._context = context = self._with_provider(context)
        self._limits = RunLimits.of(given, context.settings_for(), about)
        name = given.sandbox if about is None else about.sandbox
        self.config = self._sandbox_config(running_name(context, name, image=image), image)

    def about(self, task: str, *, after_entry: int) -> RunAbout:
        """The start of a run."""
        about = RunAbout(
            task=self._context.redact(task),
            model=self.program.name,
            sandbox=self.config.backend,
            after_entry=after_entry,
            is_agent=True,
        )
        return self.noted_in(about)

    def noted_in(self, about: RunAbout) -> RunAbout:
        """*about* with the limits, to keep them when the run is resumed."""
        return self._limits.noted_in(about)

    def answer(
        self,
        workspace: Workspace,
        record: RecordedRun,
        *,
        message: str = "",
        messages: Callable[[], Sequence[str]] = tuple,
        check: Callable[[], object] = lambda: None,
    ) -> str:
        """Let it work on the task of *record*, then on the messages that came meanwhile.

        Args:
            workspace: Where it works.
            record: The run; what it and those that it continues have used counts.
            message: Continues the newest session of the program with it, if there is one.
            messages: Those that came since the last call.
            check: As for ``run_agent``.

        Returns:
            Its last answer.

        Raises:
            AgentError: If it failed, or a limit ended it.
            UsageError: If a limit was reached before.
        """
        meter = RunMeter(self._limits, lambda _: Decimal(0), record)
        kept_s = meter.elapsed_s

        def keep_time() -> None:
            nonlocal kept_s
            check()
            if meter.elapsed_s - kept_s >= _KEEP_S:
                kept_s = meter.elapsed_s
                meter.keep(0)

        try:
            while True:
                program, text = self._next(workspace, record, message)
                result = run_agent(
                    workspace,
                    workspace.sandbox(self.config),
                    program,
                    text,
                    limits=self._left(workspace, record, meter),
                    redact=self._context.redact,
                    check=keep_time,
                )
                message = "\n".join(messages())
                if not message:
                    break
        finally:
            meter.keep(0)
        record.keep_answer(result.answer)
        return result.answer

    def _next(
        self, workspace: Workspace, record: RecordedRun, message: str
    ) -> tuple[AgentProgram, str]:
        """The program to run, and the text that it gets."""
        if not message:
            return self.program, record.about.task
        resumed = self.program.resumed(workspace.files)
        if resumed is not None:
            return resumed, message
        self._context.err.print(
            f"{self.program.name} has no session that it can continue, so it starts again",
            markup=False,
            style="yellow",
        )
        return self.program, record.about.task if message == CONTINUE else message

    def _is_own(self, entry: LogEntry) -> bool:
        return entry.kind is EntryKind.CALL and entry.tool.split(" ")[0] == self.program.name

    def _left(self, workspace: Workspace, record: RecordedRun, meter: RunMeter) -> AgentLimits:
        """What is left of the limits."""
        first = record
        while (previous := first.previous) is not None:
            first = previous
        since = takewhile(lambda entry: entry.number > first.about.after_entry, workspace.log())
        made = [each for each in since if self._is_own(each)]
        n_left = self._limits.turns - len(made)
        time_left_s = self._limits.time - meter.elapsed_s
        if n_left <= 0 or time_left_s <= 0:
            option = "--max-turns" if n_left <= 0 else "--deadline"
            raise UsageError(
                f"the run of {self.program.name} has reached its limit",
                hint=f"Resume it with a higher {option}.",
            )
        return AgentLimits(timeout_s=time_left_s, most_entries=n_left)

    def _with_provider(self, context: CommandContext) -> CommandContext:
        """*context* with the program's provider as a secret, unless the user configured it."""
        provider, settings = self.program.provider, context.settings_for()
        secrets = dict(settings.secrets or {})
        if provider is None or provider.name in secrets:
            return context
        secrets[provider.name] = Secret(
            host=provider.host,
            variable=provider.variable,
            header=provider.header,
            prefix=provider.prefix,
        )
        return replace(context, settings=replace(settings, secrets=secrets))

    def _sandbox_config(self, name: str, image: str | None) -> SandboxConfig:
        """The sandbox of commands, with room for a program that runs for hours."""
        settings, source = self._context.settings_for(), self._context.source
        config: Any = configured(self._context, name, image=image, agent=self.program)
        find, executable = SANDBOXES.get(name).find_program, self.program.executable
        if find is not None and executable and source is not None:
            config, path = find(config, executable, source, self._context.environment)
            self.program = self.program.at(path)
        network = replace(
            config.network.limits,
            requests=_N_REQUESTS,
            idle_s=_SILENT_S,
            longest_s=self._limits.time,
        )
        wanted: dict[str, Any] = {  # Any: each field has its own type
            "longest_timeout_s": self._limits.time,
            "network": replace(config.network, limits=network),
        }
        if settings.memory_bytes is None:
            wanted["memory_bytes"] = _MEMORY_BYTES
        if settings.n_processes is None:
            wanted["n_processes"] = _N_PROCESSES
        found: SandboxConfig = replace(config, **wanted)
        return found


# ------------------------------------------------------------------------------------ run program


def run_program(
    context: CommandContext,
    options: RunOptions,
    opened: ExitStack,
    display: RunDisplay,
    feed: RunFeed,
) -> None:
    """Let the agent program work, and continue with each message of the user."""
    program = AgentProgram.named(options.agent or "", model=options.model or "")
    make = partial(ContainedAgent, context, program, options.given, options.image)
    agent = None if options.resume else make()  # refuses before anything is copied
    place, message = open_place(context, options, opened), ""
    workspace = place.workspace
    refuse(place.is_in_place, *SANDBOX_NEEDS_COPY)
    check_branch(options, Path(workspace.info.source))
    display.diff_of = diff_of(context, options, place)
    if agent is None:
        record, message = _interrupted_agent(place, program), CONTINUE
        agent = make(record.about)
        record = replace(record, about=agent.noted_in(record.about))
        record.keep_about()
    else:
        about = agent.about(options.task, after_entry=workspace.head.number)
        record = RecordedRun.begin(place.folder, about)
    while True:
        report = _agent_report(context, options, agent, place, record, message, feed)
        message = finish(context, options, place, report, feed)
        if not message:
            return
        record = RecordedRun.begin(place.folder, about_next(context, record, workspace, message))


def _interrupted_agent(place: RunPlace, program: AgentProgram) -> RecordedRun:
    """The run of an agent program to resume."""
    record, name = RecordedRun.newest(place.folder), place.name
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
    calls, started_s = workspace.session[ToolInvoked], SYSTEM_CLOCK.monotonic_s()
    n_earlier = len(calls)
    print_place(context, place)
    try:
        with published(place, record, feed, context.redact) as messages:
            answer = agent.answer(workspace, record, message=message, messages=messages)
    except (WinkError, KeyboardInterrupt) as error:
        if isinstance(error, AgentError):
            error.hint = f"Its edits are kept: wink-workspace log {place.name}"
        agent_name = shlex.quote(options.agent or "")
        command = f"wink-workspace run --workspace {place.name} --agent {agent_name} --resume"
        context.err.print(f"resume with: {command}", markup=False)
        raise
    finally:
        context.err.print(f"elapsed: {lasted(SYSTEM_CLOCK.monotonic_s() - started_s)}")
    return RunReport(
        answer=answer,
        calls=calls.all()[n_earlier:],
        changes=workspace.changeset(include_ignored=options.include_ignored),
        usage=TokenUsage(),
    )
