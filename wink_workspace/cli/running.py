"""A run over the files of a directory or a workspace: what is put together, what comes of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from wink_workspace.adapters import Message, ProviderAdapter
from wink_workspace.clock import BudgetTracker, Deadline
from wink_workspace.errors import FilesystemError, UsageError
from wink_workspace.filesystem import (
    Diff,
    FileKind,
    Filesystem,
    HostMount,
    MemoryFilesystem,
    WorkspacePath,
)
from wink_workspace.filesystem.ignoring import RULES_NAME, Parts
from wink_workspace.prompt import MarkdownSection, Prompt, Section
from wink_workspace.sandbox import NO_SANDBOX
from wink_workspace.sections import PlanningToolsSection, VfsToolsSection
from wink_workspace.session import Session, ToolInvoked
from wink_workspace.workspace import ChangeSet, FileChanges
from wink_workspace.workspace.changeset import Outside, nothing_outside
from wink_workspace.workspace.source_rules import outside_of

from .sandboxes import sandbox_sections

__all__ = [
    "Run",
    "RunReport",
    "check_place",
    "file_sections",
    "write_patch",
]

_T = TypeVar("_T")

_ANY_TASK = "Work on the files of this workspace. Each call can be undone; take your time."

_WAY_OF_WORKING = """
    You work alone and cannot ask. Find out what is there before you change it, make the change
    that the task asks for and no other, and check it as far as your tools allow. A call that
    fails has changed nothing. When you are done, answer without calling a tool: say in a few
    sentences what you changed and what you could not check.
"""


@dataclass(frozen=True, slots=True)
class TaskText:
    """What a person asked for."""

    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a run came to; ``diff`` is against the source, for as long as the files are open."""

    answer: str
    calls: tuple[ToolInvoked, ...]
    changes: ChangeSet | FileChanges

    @property
    def diff(self) -> Diff:
        """The changes to be shown; contents are read meanwhile."""
        return self.changes.review()

    @property
    def changed_paths(self) -> tuple[str, ...]:
        """The paths of ``changes``."""
        return self.changes.paths


def file_sections(files: Filesystem) -> list[Section[None]]:
    """What a run is offered when nothing else is said: a task, files, a plan."""
    return [
        MarkdownSection(title="Task", template=_ANY_TASK),
        VfsToolsSection(files),
        PlanningToolsSection(),
    ]


def _sections(task: str, sandbox: str) -> list[Section[Any]]:
    """The sections of a run; the files are bound to its prompt."""
    about: list[Section[Any]] = [
        MarkdownSection[TaskText](title="Task", template="${task}"),
        *([MarkdownSection(title="Way of working", template=_WAY_OF_WORKING)] if task else []),
    ]
    return [*about, VfsToolsSection(), *sandbox_sections(sandbox), PlanningToolsSection()]


class Run:
    """One evaluation over *files*.

    Args:
        files: What the run works on.
        session: Where it leaves its state; a new one when left out.
        task: What is to be done.
        sandbox: Where code may run; the name of a sandbox.
        resources: Bound to the prompt; the files alone when left out.
        changes: What the run is to be judged by; what it changed itself when left out.
        rules: Which of its own changes are left out then.
        more_sections: Beside all that.
    """

    def __init__(
        self,
        files: Filesystem,
        *,
        session: Session | None = None,
        task: str = "",
        sandbox: str = NO_SANDBOX,
        resources: Mapping[type[Any], object] | None = None,
        changes: Callable[[], ChangeSet | FileChanges] | None = None,
        rules: Callable[[Filesystem], AbstractContextManager[Outside]] | None = None,
        more_sections: tuple[Section[None], ...] = (),
    ) -> None:
        self.files = files
        self.session = session or Session()
        before = self.files.snapshot()
        self._changes = changes or (lambda: self._own_changes(before, rules))
        self._prompt = Prompt[None](
            ns="wink-workspace",
            key="run",
            name="run",
            sections=[*_sections(task, sandbox), *more_sections],
        )
        self._prompt.bind(TaskText(task or _ANY_TASK), resources=resources or {Filesystem: files})

    @classmethod
    def over_copy(
        cls,
        source: Path,
        *,
        task: str = "",
        include_ignored: bool = False,
        more_sections: tuple[Section[None], ...] = (),
    ) -> Run:
        """A run over a copy in memory of the directory *source*, which is never written.

        Without *include_ignored*, new files that the rules of *source* ignore are left out.

        Raises:
            MountError: If *source* cannot be copied.
        """
        files = MemoryFilesystem(mounts=[HostMount(source)])
        rules = partial(_rules_of, source, include_ignored=include_ignored)
        return cls(files, task=task, rules=rules, more_sections=more_sections)

    def _own_changes(
        self,
        before: object,
        rules: Callable[[Filesystem], AbstractContextManager[Outside]] | None,
    ) -> FileChanges:
        with nullcontext(nothing_outside) if rules is None else rules(self.files) as outside:
            return FileChanges.of(self.files.changes(before), outside)

    def evaluate(
        self,
        adapter: ProviderAdapter[None],
        *,
        display: Callable[[], AbstractContextManager[None]],
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        conversation: Sequence[Message] = (),
    ) -> RunReport:
        """Run *adapter* to its end inside *display*; takes and raises what ``evaluate`` does."""
        n_earlier = len(self.session[ToolInvoked])
        with display():
            response = adapter.evaluate(
                self._prompt,
                session=self.session,
                deadline=deadline,
                budget_tracker=budget_tracker,
                conversation=conversation,
            )
        return RunReport(
            answer=response.text if adapter.redact is None else adapter.redact(response.text),
            calls=self.session[ToolInvoked].all()[n_earlier:],
            changes=self._changes(),
        )


def _rules_of(
    source: Path, files: Filesystem, *, include_ignored: bool
) -> AbstractContextManager[Outside]:
    def read(parts: Parts) -> bytes | None:
        path = WorkspacePath((*parts, RULES_NAME))
        try:
            is_file = files.stat(path).kind is FileKind.FILE
            return files.read_bytes(path) if is_file else None
        except FilesystemError:
            return None

    return outside_of(source, read, include_ignored=include_ignored)


def check_place(path: Path, what: str = "the patch") -> None:
    """Raise ``UsageError`` if *what* could not be written to *path*, as far as is plain already."""
    if path.is_dir():
        raise _not_written(what, path, "it is a directory")
    if not path.parent.is_dir():
        raise _not_written(what, path, f"there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _not_written(what, path, "you may not write there")


def write_patch(path: Path, write_to: Callable[[Callable[[bytes], object]], _T]) -> _T:
    """Write a patch as it comes from *write_to*, whose result this is, to *path*.

    It is there whole or not at all. A pipe or a device, and a file in a directory where no other
    can be made, are written to as they are, and may get a part of it.

    Raises:
        UsageError: If it cannot be written.
    """
    try:
        place = path.resolve()
        if path.exists() and not (path.is_file() and os.access(place.parent, os.W_OK)):
            with path.open("wb") as file:
                return write_to(file.write)
        unfinished = place.with_name(f".{place.name}.{os.getpid()}.new")
        try:
            with unfinished.open("wb") as file:
                done = write_to(file.write)
            if place.exists():
                unfinished.chmod(place.stat().st_mode & 0o777)
            unfinished.replace(place)
            return done
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise _not_written("the patch", path, error.strerror or str(error)) from error


def _not_written(what: str, path: Path, why: str) -> UsageError:
    return UsageError(
        f"{what} cannot be written to {path}: {why}",
        hint="Name a file in a directory that you may write to and that has room.",
    )
