"""The options of ``run``, and those that it has in common with ``attempts``."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wink_workspace import serde
from wink_workspace.cli.sandbox.sandbox_options import SANDBOX_HELP, ImageOption, check_sandbox
from wink_workspace.cli.screen.command_context import (
    MODEL_VARIABLE,
    CommandContext,
    CommitMessageOption,
    IncludeIgnoredOption,
    JsonOption,
)
from wink_workspace.errors import UsageError
from wink_workspace.project import parse_seconds
from wink_workspace.project.settings import EFFORTS
from wink_workspace.sandbox import AUTO_SANDBOX, NO_SANDBOX

if TYPE_CHECKING:
    from wink_workspace.project import Settings
    from wink_workspace.workspace import Workspace, WorkspaceFolder


NOTHING_TO_APPLY: Final = ("a run in place leaves nothing to apply", "Leave out --apply.")

_AGENT_NEEDS_SANDBOX: Final = (
    "an agent program needs a sandbox, and a workspace that is a copy",
    "Use --repo or --workspace, and leave out --in-place.",
)

SANDBOX_NEEDS_COPY: Final = (
    "a sandbox needs a workspace that is a copy",
    "Leave out --sandbox.",
)

TaskArgument = Annotated[
    str, typer.Argument(help="What to do, in your own words.", callback=serde.well_formed)
]
NewRepoOption = Annotated[
    Path | None, typer.Option("--repo", help="The directory to copy into a new workspace.")
]


def _deadline(text: str) -> float:
    try:
        return parse_seconds(text)
    except UsageError as error:
        raise typer.BadParameter(str(error).rstrip(".")) from error


def _effort(text: str) -> str:
    if text not in EFFORTS:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(EFFORTS)}")
    return text


def _dollars(text: str) -> Decimal:
    try:
        dollars = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        dollars = Decimal(0)
    if not (dollars.is_finite() and dollars > 0):
        raise typer.BadParameter(f"{text!r} is not a positive number of US dollars")
    return dollars


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """The options that ``run`` and ``attempts`` have in common."""

    sandbox: Annotated[str | None, typer.Option(help=SANDBOX_HELP)] = None
    image: ImageOption = None
    apply: Annotated[bool, typer.Option("--apply", help="Apply the changes to the directory.")] = (
        False
    )
    patch: Annotated[Path | None, typer.Option(help="Write the changes here as a patch.")] = None
    branch: Annotated[
        str | None, typer.Option(help="Create this branch in the directory's repository.")
    ] = None
    commit_message: CommitMessageOption = None
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="End the run after this number of tokens; by default 5,000,000, or the limit of"
            " the run that is continued.",
        ),
    ] = None
    max_turns: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="End the run after this number of turns; by default 200, or the limit of the"
            " run that is continued.",
        ),
    ] = None
    max_cost_usd: Annotated[
        Decimal | None,
        typer.Option(
            "--max-cost",
            parser=_dollars,
            metavar="USD",
            help="End the run when it has cost this many US dollars, at list prices.",
        ),
    ] = None
    deadline_s: Annotated[
        float | None,
        typer.Option(
            "--deadline",
            parser=_deadline,
            metavar="TIME",
            help="End the run after this time: 90s, 30m, 1h30m; by default 2h, or the limit of the"
            " run that is continued.",
        ),
    ] = None
    effort: Annotated[
        str | None,
        typer.Option(
            parser=_effort,
            metavar="LEVEL",
            help=f"How much the model reasons: {', '.join(EFFORTS)}.",
        ),
    ] = None
    temperature: Annotated[
        float | None, typer.Option(min=0, max=2, help="Sampling temperature of the model.")
    ] = None
    answer_tokens: Annotated[
        int | None,
        typer.Option("--max-answer", min=1, help="Most tokens of one answer of the model."),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Apply without asking.")] = False
    include_ignored: IncludeIgnoredOption = False
    json: JsonOption = False

    @property
    def given(self) -> Settings:
        """The settings that these options set."""
        from wink_workspace.project import Settings

        return Settings(
            sandbox=self.sandbox,
            base=self.image,
            max_tokens=self.max_tokens,
            max_turns=self.max_turns,
            deadline_s=self.deadline_s,
            max_cost_usd=self.max_cost_usd,
            effort=self.effort,
            temperature=self.temperature,
            answer_tokens=self.answer_tokens,
        )

    @property
    def has_sandbox(self) -> bool:
        """Whether code runs in a sandbox."""
        return self.sandbox not in (None, NO_SANDBOX, AUTO_SANDBOX)

    def check_agent(self) -> None:
        """Raise ``UsageError`` if an option is not for an agent program."""
        refuse(self.sandbox == NO_SANDBOX, *_AGENT_NEEDS_SANDBOX)
        refuse(
            _n_given(self.max_tokens, self.max_cost_usd),
            "the tokens of an agent program are not known",
            "Limit it with --max-turns, which counts its entries, or --deadline.",
        )
        refuse(
            _n_given(self.effort, self.temperature, self.answer_tokens),
            "an agent program has its own settings",
            "Leave out --effort, --temperature and --max-answer.",
        )

    def check_ways(self, *, can_ask: bool) -> None:
        """Raise ``UsageError`` if what to do with the changes is not clear."""
        n_ways = _n_given(self.apply, self.patch, self.branch)
        refuse(
            self.commit_message is not None and self.branch is None,
            "--commit-message is for a new branch",
            "Name the branch with --branch.",
        )
        refuse(n_ways > 1, "one way at a time", "Give one of --apply, --patch and --branch.")
        refuse(
            (self.apply or self.branch is not None) and not self.yes and (self.json or not can_ask),
            "nothing can be asked here",
            "Add --yes to apply without asking.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(WorkOptions):
    """The options of ``run``."""

    task: TaskArgument = ""
    repo: NewRepoOption = None
    workspace: Annotated[
        str | None, typer.Option(help="An existing workspace; every call joins its history.")
    ] = None
    source: Annotated[Path | None, typer.Option(help="A directory to copy for this run only.")] = (
        None
    )
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Work in the directory of --repo itself.")
    ] = False
    model: Annotated[
        str | None, typer.Option(help=f"PROVIDER:NAME of the model; or set {MODEL_VARIABLE}.")
    ] = None
    agent: Annotated[
        str | None,
        typer.Option(
            help="Let an agent program work in a sandbox, instead of a model: claude-code, codex,"
            " opencode, or a shell command, which gets the task as its last argument."
        ),
    ] = None
    script: Annotated[
        Path | None, typer.Option(help="Play these turns, JSON lines, instead of asking a model.")
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the last run, which was interrupted.")
    ] = False
    message: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="With --resume: send the model this message, also if it has ended with an answer;"
            " - reads it from standard input.",
        ),
    ] = None
    attach: Annotated[
        bool, typer.Option("--attach", help="Only watch a run that is in progress, until it ends.")
    ] = False
    record: Annotated[Path | None, typer.Option(help="Write the turns here, for --script.")] = None

    def check(self, *, can_ask: bool) -> None:
        """Raise ``UsageError`` if these options contradict each other.

        Args:
            can_ask: Whether the user can answer a question.
        """
        has_task = bool(self.task or self.script)
        applies = self.apply or self.branch is not None
        is_temporary = self.source is not None
        if self.attach:
            others = replace(self, attach=False, repo=None, workspace=None)
            refuse(
                others != RunOptions() or _n_given(self.repo, self.workspace) > 1,
                "--attach only watches a run",
                "Give nothing else, or one of --repo and --workspace.",
            )
            return
        check_sandbox(self.sandbox or NO_SANDBOX)
        refuse(
            not has_task and not self.resume, "there is nothing to do", "Give a TASK or a --script."
        )
        refuse(
            _n_given(self.repo, self.workspace, self.source) > 1,
            "a run needs one place to work in",
            "Give one of --repo, --workspace and --source, or none for this directory.",
        )
        refuse(
            self.in_place and (self.workspace or self.source),
            "--in-place is for a directory",
            "Name it with --repo, or leave it out for this directory.",
        )
        refuse(
            _n_given(self.model or self.agent, self.script) > 1,
            "a run has one model",
            "Give either --model or --agent, or --script.",
        )
        if self.agent is not None:
            self._check_agent()
        refuse(
            is_temporary and (applies or self.resume or self.yes),
            "a temporary copy ends with its run",
            "Use --repo, or write a --patch.",
        )
        refuse(self.in_place and self.apply, *NOTHING_TO_APPLY)
        refuse(
            self.resume and has_task,
            "a resumed run keeps its task",
            "Give no task; --message sends the model a text.",
        )
        refuse(
            self.message is not None and not self.resume,
            "--message continues the last run",
            "Add --resume, or give a TASK.",
        )
        refuse(self.has_sandbox and (self.in_place or is_temporary), *SANDBOX_NEEDS_COPY)
        self.check_ways(can_ask=can_ask)

    def in_this_place(self, context: CommandContext) -> RunOptions:
        """These options with a place: by default what ``use`` chose here, else this directory."""
        if _n_given(self.repo, self.workspace, self.source):
            return self
        from wink_workspace.workspace.place.last_used import chosen_branch

        infos = context.workspaces_of(Path())
        if infos and not self.in_place and chosen_branch(context.storage, infos[0]) is not None:
            return replace(self, workspace=context.named("."))
        return replace(self, repo=context.nearest_source())

    def _check_agent(self) -> None:
        self.check_agent()
        refuse(self.in_place or self.source is not None, *_AGENT_NEEDS_SANDBOX)
        refuse(
            self.record is not None,
            "the turns of an agent program are not known",
            "Leave out --record.",
        )
        refuse(
            self.message is not None,
            "--message continues the run of a model",
            "Leave it out, and --resume, and give the text as a task.",
        )


def _n_given(*options: object) -> int:
    return sum(option not in (None, False) for option in options)


def refuse(is_wrong: object, problem: str, hint: str) -> None:
    """Raise ``UsageError`` with *problem* and *hint* if something *is_wrong*."""
    if is_wrong:
        raise UsageError(problem, hint=hint)


# -------------------------------------------------------------------------------------- run place


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """Where a run works.

    Attributes:
        workspace: The open workspace.
        name: Its name, and that of the fork; empty for a temporary workspace.
    """

    workspace: Workspace
    name: str

    @property
    def is_in_place(self) -> bool:
        """Whether calls change the user's own directory; a fork is a copy."""
        return self.workspace.info.mode == "in_place" and "/" not in self.name

    @property
    def folder(self) -> WorkspaceFolder:
        """Where its runs are recorded."""
        return self.workspace.folder.of_branch(self.workspace.branch_name)


def open_place(context: CommandContext, options: RunOptions, opened: ExitStack) -> RunPlace:
    """Open the workspace to work in."""
    from wink_workspace.workspace.summaries import unmark_made_for_run

    if options.workspace is not None:
        workspace = opened.enter_context(context.open(options.workspace))
        if not options.resume:
            unmark_made_for_run(context.storage.folder(workspace.info.id))
        _, slash, fork = options.workspace.partition("/")
        return RunPlace(workspace=workspace, name=workspace.info.id + slash + fork)
    if options.source is not None:
        with context.spinner(f"copying {options.source}"):
            workspace = opened.enter_context(context.temporary(options.source))
        return RunPlace(workspace=workspace, name="")
    repo = (options.repo or Path()).absolute()
    check_branch(options, repo)
    if options.in_place:
        refuse(
            options.resume and context.storage.in_place(repo) is None,
            f"there was no run in {repo}",
            "Start one with a task.",
        )
        name = context.in_place_workspace(repo)
    elif options.resume:
        name = _last_workspace(context, repo, interrupted=options.message is None)
    else:
        workspace = opened.enter_context(context.make(repo))
        return RunPlace(workspace=workspace, name=workspace.info.id)
    return RunPlace(workspace=opened.enter_context(context.open(name)), name=name)


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
    for info in context.workspaces_of(repo):
        if info.mode != "in_place":
            newest = RecordedRun.newest(storage.folder_of(info))
            if newest is not None and not (interrupted and newest.is_finished):
                return info.id
    raise UsageError(
        f"no run over {repo} was interrupted" if interrupted else f"there was no run over {repo}",
        hint="Name the workspace with --workspace.",
    )
