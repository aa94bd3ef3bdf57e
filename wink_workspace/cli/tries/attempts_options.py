"""The options of the commands ``attempts …``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from wink_workspace.cli.run.run_options import NewRepoOption, TaskArgument, WorkOptions
from wink_workspace.cli.sandbox.sandbox_options import check_sandbox
from wink_workspace.errors import UsageError
from wink_workspace.sandbox import AUTO_SANDBOX

_MAX_N: Final = 10_000


class KeepMode(StrEnum):
    """What happens with the best attempt."""

    BEST = "best"
    ASK = "ask"
    NONE = "none"


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
class RunningOptions(WorkOptions):
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
class StartOptions(RunningOptions):
    """The options of ``start``."""

    task: TaskArgument = ""
    repo: NewRepoOption = None
    workspace: Annotated[
        str | None,
        typer.Option(help="An existing workspace; the attempts begin at its newest entry."),
    ] = None
    n: Annotated[int, typer.Option("--n", "-n", help="How many attempts.")] = 4
    models: Annotated[
        str | None,
        typer.Option(help="PROVIDER:NAME of a model, or several with commas, taken in turn."),
    ] = None
    agent: Annotated[
        str | None,
        typer.Option(help="An agent program in place of a model, as for `run`; see --models."),
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
        if self.repo is not None and self.workspace is not None:
            raise UsageError(
                "attempts need one place to work in", hint="Give one of --repo and --workspace."
            )
        if self.models and self.script:
            raise UsageError("attempts have one kind of model", hint="Give --models or --script.")
        if self.agent is not None:
            self._check_agent()
        if (self.junit or self.first) and not self.score:
            raise UsageError(
                "without a command nothing is scored", hint="Add --score COMMAND, such as pytest."
            )
        check_sandbox(self.sandbox or AUTO_SANDBOX)
        self.check_ways(can_ask=can_ask)
        self.keep_mode(can_ask=can_ask)

    def _check_agent(self) -> None:
        if self.script:
            raise UsageError("attempts have one kind of model", hint="Give --agent or --script.")
        self.check_agent()
        if self.engine != "local":
            raise UsageError("an agent program runs on this machine", hint="Leave out --engine.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeOptions(RunningOptions):
    """The options of ``resume``."""

    repo: RepoOption = Path()
    workspace: WorkspaceOption = None
    run: RunOption = None


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
