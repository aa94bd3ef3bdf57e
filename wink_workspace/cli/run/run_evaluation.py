"""One evaluation of a task over files: the prompt of a run, and its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wink_workspace.cli.sandbox.sandbox_options import sandbox_sections
from wink_workspace.clock import BudgetTracker, Deadline, TokenUsage
from wink_workspace.sandbox import NO_SANDBOX, SandboxConfig

if TYPE_CHECKING:
    from wink_workspace.adapters import Message, ProviderAdapter
    from wink_workspace.prompt import Prompt, Section
    from wink_workspace.session import ToolInvoked
    from wink_workspace.workspace import ChangeSet, Workspace

__all__ = ["Run", "RunReport", "TaskText", "run_prompt"]

_DEFAULT_TASK: Final = (
    "Work on the files of this workspace. Each call can be undone; take your time."
)

_WAY_OF_WORKING: Final = """
    You work alone and cannot ask. Find out what is there before you change it, make the change
    that the task asks for and no other, and check it as far as your tools allow. A call that
    fails has changed nothing. When you are done, answer without calling a tool: say in a few
    sentences what you changed and what you could not check.
"""


@dataclass(frozen=True, slots=True)
class TaskText:
    """The user's task."""

    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The result of a run; the diff of ``changes`` can be read while the files are open."""

    answer: str
    calls: tuple[ToolInvoked, ...]
    changes: ChangeSet
    usage: TokenUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One evaluation in a workspace.

    Attributes:
        workspace: What the tools change, and where the calls and the plan are recorded.
        prompt: The task and the tools.
        changes: The changes to report.
    """

    workspace: Workspace
    prompt: Prompt[None]
    changes: Callable[[], ChangeSet]

    @classmethod
    def in_workspace(
        cls,
        workspace: Workspace,
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
    workspace: Workspace,
    task: str,
    sandbox: Sequence[Section[None]],
    more_sections: Sequence[Section[None]] = (),
) -> Prompt[None]:
    """The prompt of a run in *workspace*."""
    from wink_workspace.project import notes_section, project_notes
    from wink_workspace.prompt import MarkdownSection, Prompt
    from wink_workspace.sections import PlanningToolsSection, VfsToolsSection

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
