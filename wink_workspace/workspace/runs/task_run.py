"""One evaluation of a task over files: the prompt of a run, and its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from wink_workspace.clock import Budget, BudgetTracker, Deadline, TokenUsage
from wink_workspace.environment import Environment
from wink_workspace.sandbox import AUTO_SANDBOX, NO_SANDBOX, SANDBOXES, SandboxConfig

if TYPE_CHECKING:
    from wink_workspace.adapters import Message, ProviderAdapter
    from wink_workspace.filesystem import Filesystem
    from wink_workspace.prompt import Prompt, Section, Tool
    from wink_workspace.session import Session, ToolInvoked
    from wink_workspace.workspace.changes.changeset import ChangeSet
    from wink_workspace.workspace.place.storage import WorkspaceInfo


_DEFAULT_TASK: Final = (
    "Work on the files of this workspace. Each call can be undone; take your time."
)

_WAY_OF_WORKING: Final = """
    You work alone and cannot ask. Find out what is there before you change it, make the change
    that the task asks for and no other, and check it as far as your tools allow. A call that
    fails has changed nothing. When you are done, answer without calling a tool: say in a few
    sentences what you changed and what you could not check.
"""

_OWN_TOOLS: Final = "These tools are for this task."


@dataclass(frozen=True, slots=True)
class TaskText:
    """The user's task."""

    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The result of a run.

    Attributes:
        answer: The model's last text.
        calls: All calls in the workspace until it ended, in their order; also those of another task
            that ran at the same time.
        changes: What differs from the base; its diff can be read while the workspace is open.
        usage: The tokens of all requests.
    """

    answer: str
    calls: tuple[ToolInvoked, ...]
    changes: ChangeSet
    usage: TokenUsage


class TaskWorkspace(Protocol):
    """What a run needs of a ``Workspace``."""

    info: WorkspaceInfo
    session: Session

    @property
    def files(self) -> Filesystem:
        """Its files."""
        ...

    @property
    def resources(self) -> dict[type[Any], object]:
        """What its prompts are bound to."""
        ...

    def changeset(self) -> ChangeSet:
        """What changed since the base."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One evaluation in a workspace.

    Attributes:
        workspace: What the tools change, and where the calls and the plan are recorded.
        prompt: The task and the tools.
        changes: The changes to report.
    """

    workspace: TaskWorkspace
    prompt: Prompt[None]
    changes: Callable[[], ChangeSet]

    @classmethod
    def in_workspace(
        cls,
        workspace: TaskWorkspace,
        *,
        task: str = "",
        sandbox: str = NO_SANDBOX,
        config: SandboxConfig | None = None,
        changes: Callable[[], ChangeSet] | None = None,
        more_sections: Sequence[Section[None]] = (),
    ) -> Run:
        """A run in *workspace*, with the tools of *sandbox*; reports *changes*, or all of them."""
        sections = sandbox_sections(sandbox, config)
        return cls(
            workspace=workspace,
            prompt=run_prompt(workspace, task, sections, more_sections),
            changes=changes or workspace.changeset,
        )

    def evaluate(
        self,
        adapter: ProviderAdapter[None],
        *,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        conversation: Sequence[Message] = (),
        messages: Callable[[], Sequence[str]] | None = None,
    ) -> RunReport:
        """Evaluate the prompt with *adapter*; see ``ProviderAdapter.evaluate``."""
        from wink_workspace.session import ToolInvoked

        session = self.workspace.session
        n_earlier = len(session[ToolInvoked])
        response = adapter.evaluate(
            self.prompt,
            session=session,
            deadline=deadline,
            budget_tracker=budget_tracker,
            conversation=conversation,
            messages=messages,
        )
        return RunReport(
            answer=response.text if adapter.redact is None else adapter.redact(response.text),
            calls=session[ToolInvoked].all()[n_earlier:],
            changes=self.changes(),
            usage=TokenUsage() if budget_tracker is None else budget_tracker.used,
        )


def run_prompt(
    workspace: TaskWorkspace,
    task: str,
    sandbox: Sequence[Section[None]],
    more_sections: Sequence[Section[None]] = (),
) -> Prompt[None]:
    """The prompt of a run in *workspace*."""
    from wink_workspace.prompt import MarkdownSection, Prompt
    from wink_workspace.sections import (
        PlanningToolsSection,
        VfsToolsSection,
        notes_section,
        project_notes,
    )

    notes = project_notes(workspace.files, Path(workspace.info.source)) if task else None
    sections: list[Section[Any]] = [
        MarkdownSection[TaskText](title="Task", template="${task}"),
        *([MarkdownSection(title="Way of working", template=_WAY_OF_WORKING)] if task else []),
        *([notes_section()] if notes else []),
        VfsToolsSection(),
        *sandbox,
        PlanningToolsSection(),
        *more_sections,
    ]
    prompt = Prompt[None](ns="wink-workspace", key="run", name="run", sections=sections)
    params = (TaskText(task or _DEFAULT_TASK), *([notes] if notes else []))
    return prompt.bind(*params, resources=workspace.resources)


def sandbox_sections(name: str, config: SandboxConfig | None = None) -> list[Section[None]]:
    """The section of a sandbox, by default with its default configuration; none for ``none``."""
    if name == NO_SANDBOX:
        return []
    backend = SANDBOXES.get(name)
    return [backend.section(config or backend.config())]


def work(
    workspace: TaskWorkspace,
    task: str,
    *,
    model: str | ProviderAdapter[None],
    tools: Sequence[Tool[Any, Any]],
    sandbox: str | SandboxConfig,
    deadline: Deadline | None,
    budget: Budget | None,
) -> RunReport:
    """See ``Workspace.work``."""
    from wink_workspace.prompt import MarkdownSection

    config = None if isinstance(sandbox, str) else sandbox
    name = sandbox if isinstance(sandbox, str) else sandbox.backend
    if name == AUTO_SANDBOX:
        name = _automatic(workspace)
    own = MarkdownSection[None](title="Tools of the task", template=_OWN_TOOLS, tools=tools)
    run = Run.in_workspace(
        workspace, task=task, sandbox=name, config=config, more_sections=[own] if tools else []
    )
    with ExitStack() as opened:
        if isinstance(model, str):
            from wink_workspace.adapters.model import ModelAdapter

            model = opened.enter_context(ModelAdapter[None](model))
        return run.evaluate(
            model, deadline=deadline, budget_tracker=BudgetTracker(budget or Budget())
        )


def _automatic(workspace: TaskWorkspace) -> str:
    """The best sandbox that works here; in place there is none."""
    if workspace.info.mode == "in_place":
        return NO_SANDBOX
    from wink_workspace.sandbox import choose_sandbox

    return choose_sandbox(Environment.from_os()).name
