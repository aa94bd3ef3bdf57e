"""What an agent works with, which the program that serves it decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from wink_workspace.adapters import ProviderAdapter
from wink_workspace.clock import BudgetTracker, Deadline
from wink_workspace.prompt import Prompt, Section
from wink_workspace.workspace import RecordedRun, Workspace, WorkspaceConfig, WorkspaceStorage

__all__ = ["AcpHost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpHost:
    """What an agent works with.

    Attributes:
        storage: Where its workspaces are stored.
        adapter: Opens the model for one message of the user. It calls its argument with each piece
            of text that the model streams.
        prompt: Makes the prompt of a run: from the workspace, its task, and sections whose tools
            need a permission if they reach beyond the workspace.
        sections: Those sections, such as one for commands; new ones for each run.
        sandbox: The name of the sandbox, for the record.
        config: The settings of workspaces.
        budgets: The deadline and the budget of a run.
    """

    storage: WorkspaceStorage
    adapter: Callable[[Callable[[str], None]], AbstractContextManager[ProviderAdapter[None]]]
    prompt: Callable[[Workspace, str, Sequence[Section[None]]], Prompt[None]]
    sections: Callable[[], Sequence[Section[None]]] = tuple
    sandbox: str = "none"
    config: WorkspaceConfig | None = None
    budgets: Callable[[RecordedRun], tuple[Deadline | None, BudgetTracker | None]] = lambda _: (
        None,
        None,
    )
