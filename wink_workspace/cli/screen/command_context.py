"""What every command works with: the environment, two consoles, and the user's workspaces.

Only this module and ``app`` read the environment; everything below takes what it needs. Users name
a workspace by its id or the beginning of it, by its directory, and a fork by ``WORKSPACE/FORK`` or
its own name. ``CommandContext.named`` makes ``ID`` or ``ID/FORK`` of all of them, before a command
begins.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import typer

from wink_workspace.environment import Environment
from wink_workspace.errors import LedgerBusyError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from wink_workspace.ledger import LogEntry
    from wink_workspace.project import Settings
    from wink_workspace.sandbox import SandboxConfig
    from wink_workspace.workspace import (
        Applied,
        ChangeSet,
        Selection,
        Workspace,
        WorkspaceConfig,
        WorkspaceFolder,
        WorkspaceInfo,
        WorkspaceReader,
        WorkspaceStorage,
    )


MODEL_VARIABLE: Final = "WINK_WORKSPACE_MODEL"
TOKEN_VARIABLE: Final = "WINK_WORKSPACE_TOKEN"  # noqa: S105 - the name of a variable
LOG_VARIABLE: Final = "WINK_WORKSPACE_LOG"
_SWITCH_INTERVAL_S: Final = 0.000_5
"""How long a thread that got an answer waits for one that loads modules; by default 5 ms."""
_CONTENT_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

FullOption = Annotated[
    bool, typer.Option("--full", help="Show every path in the diff, however large it is.")
]
CommitMessageOption = Annotated[
    str | None,
    typer.Option(
        "--commit-message", help="Of the commit of --branch; by default the task of the last run."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
NoPagerOption = Annotated[bool, typer.Option("--no-pager", help="Print without a pager.")]
IncludeIgnoredOption = Annotated[
    bool,
    typer.Option("--include-ignored", help="Include new files that the source's rules ignore."),
]
WorkspaceArgument = Annotated[
    str,
    typer.Argument(
        help="An id, a fork, ID/FORK, or a directory; by default what was used last here."
    ),
]
EntryArgument = Annotated[str, typer.Argument(help="The entry's number, or its id's beginning.")]


class ApplyingOptions(Protocol):
    """Where changes are applied, and which."""

    @property
    def branch(self) -> str | None:
        """The git branch that is made instead of changing the files."""
        ...

    @property
    def commit_message(self) -> str | None:
        """The message of that branch's commit."""
        ...

    @property
    def include_ignored(self) -> bool:
        """Whether new files that the source's rules ignore are applied."""
        ...


@dataclass(frozen=True)
class CommandContext:
    """What a command gets besides its own options.

    Attributes:
        environment: The environment of the process, for the parts that look up programs and keys.
        settings: The settings for the project that the command works on; ``None`` if it works on
            no particular one, or not yet.
        source: The directory of that project.
        confirmed: The SHA-256 of its file of settings and of each file that this names, by path;
            ``None`` without such a file.
    """

    environment: Environment
    settings: Settings | None = None
    source: Path | None = None
    confirmed: Mapping[str, str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For a worker of ``attempts``: without the consoles, which stay in this process."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def out(self) -> Console:
        """The console for results."""
        return self._console(
            is_terminal=self.environment.stdout_is_terminal,
            has_color=self.environment.stdout_color,
            is_err=False,
        )

    @cached_property
    def err(self) -> Console:
        """The console for progress and errors."""
        return self._console(
            is_terminal=self.environment.stderr_is_terminal,
            has_color=self.environment.stderr_color,
            is_err=True,
        )

    def _console(self, *, is_terminal: bool, has_color: bool, is_err: bool) -> Console:
        def make() -> Console:
            from .console import SafeConsole

            return SafeConsole(
                stderr=is_err, no_color=not has_color, highlight=False, soft_wrap=True
            )

        if is_terminal or "FORCE_COLOR" in self.environment.variables:
            return make()
        from .plain_console import PlainConsole

        plain: Any = PlainConsole(lambda: sys.stderr if is_err else sys.stdout, make)
        return plain

    # What the environment sets

    @property
    def can_ask(self) -> bool:
        """Whether the user can answer a question."""
        return self.environment.stdin_is_terminal

    @property
    def shows_progress(self) -> bool:
        """Whether standard error can show a progress bar."""
        return self.environment.shows_progress

    def spinner(self, what: str) -> AbstractContextManager[object]:
        """Shows *what* on a terminal while the block runs."""
        return self.err.status(what) if self.shows_progress else nullcontext()

    @cached_property
    def redact(self) -> Callable[[str], str]:
        """Redacts the secrets of the environment, and those that the settings name."""
        settings = self.settings
        secrets = (settings and settings.secrets) or {}
        servers = (settings and settings.mcp_servers) or {}
        variables = {each.variable for each in secrets.values()}
        return self.environment.redactor(
            variables.union(*(each.variables_of_user for each in servers.values()))
        )

    @property
    def log_level(self) -> str:
        """The lowest level to log; empty for none."""
        return self.environment.variables.get(LOG_VARIABLE, "").lower()

    @property
    def captures_content(self) -> bool:
        """Whether spans hold the arguments and results of calls."""
        return self.environment.variables.get(_CONTENT_VARIABLE, "").lower() == "true"

    @property
    def token(self) -> str | None:
        """The token that HTTP clients need."""
        return self.environment.variables.get(TOKEN_VARIABLE) or None

    def export_spans(self) -> Callable[[], None]:
        """Export spans as the environment asks, until the returned function is called."""
        from wink_workspace.telemetry import export_spans

        return export_spans(self.environment.variables)

    # Workspaces

    @property
    def storage(self) -> WorkspaceStorage:
        """Where the user's workspaces are."""
        from wink_workspace.workspace import WorkspaceStorage

        return WorkspaceStorage(self.environment.state_dir)

    def settings_for(self, source: Path | None = None) -> Settings:
        """``settings``; without them, those of the user alone, for the project in *source*.

        Raises:
            UsageError: If a file of settings or a variable cannot be used.
        """
        if self.settings is not None:
            return self.settings
        from wink_workspace.project import own_settings

        return own_settings(self.environment, source)

    def config(self, settings: Settings | None = None) -> WorkspaceConfig:
        """The configuration of a workspace with *settings*, by default those of the user.

        Raises:
            UsageError: As ``settings_for``.
        """
        from wink_workspace.project import Confirmations, workspace_config

        git_links = Confirmations(self.environment.state_dir).git_links()
        return workspace_config(settings or self.settings_for(), git_links)

    def named(self, name: str, *, makes: bool = False) -> str:
        """The id of the workspace *name*, with its fork: ``ID`` or ``ID/FORK``.

        Args:
            name: As users give it: an id or its beginning, with or without ``/FORK``; a directory,
                for its workspace that was used last; or a fork of that of this directory.
            makes: For a directory that has no workspace yet, return the absolute path of the top of
                its repository, or of the directory.

        Raises:
            UsageError: If it is not the name of one workspace.
        """
        if name.startswith((".", "/", "~")):
            return self._of_path(Path(name).expanduser(), makes=makes)
        found = self._candidates(name)
        if len(found) > 1:
            raise UsageError(
                f"{len(found)} workspaces or forks are called {name!r}",
                hint=f"Give one of these names: {', '.join(found)}.",
            )
        return found[0] if found else self.storage.folder(name.partition("/")[0]).path.name

    def is_name(self, word: str) -> bool:
        """Whether *word* names a workspace; a file does not."""
        if word.startswith((".", "/", "~")):
            path = Path(word).expanduser()
            return path.is_dir() or not path.exists()
        return bool(self._candidates(word))

    def _candidates(self, name: str) -> list[str]:
        first, slash, fork = name.partition("/")
        ids = [info.id for info in self.storage.all() if info.id.startswith(first or name)]
        if first in ids:
            return [name]
        here = [] if slash else self.workspaces_of(Path())[:1]
        forks = [_name_of(each.id, name) for each in here if self._has_branch(each.id, name)]
        return [*(each + slash + fork for each in ids), *forks]

    def _has_branch(self, workspace: str, branch: str) -> bool:
        from wink_workspace.ledger import MAIN_BRANCH

        with self.read(workspace) as reader:
            return branch in (MAIN_BRANCH, *reader.forks())

    def _of_path(self, path: Path, *, makes: bool) -> str:
        from wink_workspace.workspace.place.last_used import chosen_branch

        directory, fork = (path, None) if path.is_dir() else (path.parent, path.name)
        infos = self.workspaces_of(directory) if directory.is_dir() else []
        for info in infos[:1]:
            branch = fork or chosen_branch(self.storage, info)
            if branch is None or self._has_branch(info.id, branch):
                return _name_of(info.id, branch)
            if fork is None:  # the chosen one was deleted
                return info.id
        if fork is not None:
            where = f", and {infos[0].id} has no fork {fork!r}" if infos else ""
            raise UsageError(
                f"{path} does not exist{where}", hint="Name a directory, an id, or ID/FORK."
            )
        if makes:
            return str(self.top_of(path))
        raise UsageError(
            f"{path.resolve()} has no workspace yet",
            hint="Make one with `wink-workspace run TASK` or `wink-workspace exec -- COMMAND`, or"
            " name one of `wink-workspace list`.",
        )

    def workspaces_of(self, directory: Path) -> list[WorkspaceInfo]:
        """The workspaces of *directory*, or of the nearest one above; last used first."""
        from wink_workspace.workspace.place.last_used import workspaces_of

        return workspaces_of(self.storage, directory)

    def nearest_source(self) -> Path:
        """The directory whose workspaces commands take here; this one, if it has none."""
        infos = self.workspaces_of(Path())
        return Path(infos[0].source) if infos else self.top_of(Path())

    def top_of(self, directory: Path) -> Path:
        """The top of the repository of *directory*, which itself is in the home; else itself."""
        directory = directory.resolve()
        home = self.environment.home
        for each in (directory, *directory.parents):
            if home is not None and home.resolve().is_relative_to(each):
                break  # a repository of settings is not a project
            if (each / ".git").exists():
                return each
        return directory

    def folder(self, name: str) -> WorkspaceFolder:
        """Where the workspace or fork *name* is stored; ``UsageError`` if there is no workspace."""
        workspace, branch = split_name(name)
        return self.storage.folder(workspace).of_branch(branch)

    def open(self, name: str, *, config: WorkspaceConfig | None = None) -> Workspace:
        """Open the workspace or fork *name*, and recover it from a crash.

        Raises:
            UsageError: If there is no such workspace.
            LedgerBusyError: If another process has it open.
        """
        from wink_workspace.workspace import Workspace
        from wink_workspace.workspace.create.bases import is_unread

        workspace, branch = split_name(name)
        folder = self.storage.folder(workspace)
        if config is None:
            config = self.config(self.settings_for(Path(folder.info().source)))
        is_first = is_unread(folder.of_branch(branch))
        checking = "reading all files for the first time since the machine started"
        with self.spinner(checking) if is_first else nullcontext():
            try:
                return Workspace.open(workspace, storage=self.storage, branch=branch, config=config)
            except LedgerBusyError:
                if not self._is_released():
                    raise
                return Workspace.open(workspace, storage=self.storage, branch=branch, config=config)

    def _is_released(self) -> bool:
        """Whether the guard of an agent program has closed its workspaces for a moment."""
        from wink_workspace.guard.hook_pipes import ask

        return ask(self.environment.state_dir / "guard", {"release": True}) is not None

    def make(self, source: Path) -> Workspace:
        """A new workspace with a copy of *source*; ``run`` deletes it when nothing of it is left.

        Raises:
            UsageError: If there is no such directory.
        """
        from wink_workspace.workspace import Workspace
        from wink_workspace.workspace.summaries import mark_made_for_run

        with self.spinner(f"copying {source}"):
            made = Workspace.create(source, storage=self.storage, config=self.config())
        mark_made_for_run(made.folder)
        return made

    def open_or_make(self, name: str) -> Workspace:
        """As ``open``; of an absolute path, as ``named`` gives it, ``make`` a workspace."""
        if not name.startswith("/"):
            return self.open(name)
        made = self.make(Path(name))
        self.err.print(f"workspace {made.info.id}: a copy of {name}", markup=False)
        return made

    def _commit_message(self, workspace: Workspace, given: str | None, *, asks: bool) -> str:
        """*given*, or a message of the newest task, which the user may replace if *asks*."""
        from wink_workspace.workspace import RecordedRun

        run = RecordedRun.newest(workspace.folder.of_branch(workspace.branch_name))
        proposed = "" if run is None else run.about.commit_message
        if given is not None or not (asks and self.can_ask):
            return given or proposed
        from .console import ask_line

        subject = proposed.partition("\n")[0]
        return ask_line(f"Commit message{f' [{subject}]' if subject else ''}: ") or proposed

    def apply(
        self,
        workspace: Workspace,
        options: ApplyingOptions,
        *,
        asks: bool,
        previewed: ChangeSet,
        selected: Selection | None,
        merge: bool = False,
    ) -> tuple[Applied, str]:
        """Apply changes to the source, or to a new branch of it; the result, and where they are."""
        if options.branch is None:
            applied = workspace.apply(
                merge=merge,
                include_ignored=options.include_ignored,
                previewed=previewed,
                selected=selected,
            )
            return applied, workspace.info.source
        applied = workspace.source.apply_to_branch(
            options.branch,
            message=self._commit_message(workspace, options.commit_message, asks=asks),
            include_ignored=options.include_ignored,
            previewed=previewed,
            selected=selected,
        )
        return applied, f"branch {options.branch}, commit {applied.commit[:7]}"

    def prepare_sandbox(self, name: str, config: SandboxConfig) -> None:
        """Start what the first command in *name* needs while this process opens the workspace.

        Raises:
            UsageError: If there is no such workspace.
        """
        from wink_workspace.sandbox import SANDBOXES

        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        folder = self.folder(name)
        if folder.info().mode == "overlay":
            prepare = SANDBOXES.of_config(config).prepare
            prepare(config, self.environment, folder.git_copy)

    def temporary(self, source: Path) -> Workspace:
        """A new workspace of the directory *source*, which is deleted when it is closed.

        Raises:
            UsageError: If there is no such directory.
        """
        from wink_workspace.workspace import Workspace

        return Workspace.temporary(source, config=self.config())

    def read(self, name: str) -> WorkspaceReader:
        """The history of the workspace or fork *name*; another process may have it open."""
        from wink_workspace.workspace import WorkspaceReader

        workspace, branch = split_name(name)
        return WorkspaceReader(self.storage.folder(workspace), branch=branch)

    def in_place_workspace(self, directory: Path) -> str:
        """The id of the workspace in place in *directory*, created if there is none."""
        from wink_workspace.workspace import Workspace

        storage = self.storage
        info = storage.in_place(directory)
        if info is None:
            with Workspace.create(directory, storage=storage, mode="in_place") as created:
                info = created.info
        return info.id


def _name_of(workspace: str, branch: str | None) -> str:
    from wink_workspace.ledger import MAIN_BRANCH

    return workspace if branch in (None, MAIN_BRANCH) else f"{workspace}/{branch}"


def split_name(name: str) -> tuple[str, str]:
    """The workspace and the branch in *name*."""
    from wink_workspace.ledger import MAIN_BRANCH

    workspace, _, fork = name.partition("/")
    return workspace, fork or MAIN_BRANCH


def entry_fields(entry: LogEntry) -> dict[str, object]:
    """The JSON form of an entry."""
    return {
        "number": entry.number,
        "id": entry.id,
        "kind": entry.kind.value,
        "subject": entry.subject,
        "at": entry.at.isoformat(),
        "tool": entry.tool,
        "call_id": entry.call_id,
        "outcome": None if entry.outcome is None else entry.outcome.value,
        "target": entry.target,
    }


def as_json(value: object) -> str:
    """*value* as JSON; in names that are not UTF-8, the bytes are escaped."""
    plain: Callable[[Any], object] = str
    return json.dumps(value, indent=2, default=plain)


def print_json(value: object) -> None:
    """Print *value* as JSON, and nothing else."""
    typer.echo(as_json(value))
