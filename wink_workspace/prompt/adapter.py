"""What a prompt's tools may know of the adapter that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from wink_workspace.clock import BudgetTracker, Deadline
from wink_workspace.session import Session

if TYPE_CHECKING:
    from .prompt import Prompt

__all__ = ["PromptResponseProtocol", "ProviderAdapterProtocol"]

OutputT = TypeVar("OutputT")
OutputT_co = TypeVar("OutputT_co", covariant=True)


class PromptResponseProtocol(Protocol[OutputT_co]):
    """What an evaluation gives."""

    @property
    def prompt_name(self) -> str:
        """The prompt that was evaluated."""
        ...

    @property
    def text(self) -> str | None:
        """The model's last text, ``None`` when it gave only structured output."""
        ...

    @property
    def output(self) -> OutputT_co:
        """The parsed output, ``None`` when the prompt asks for none."""
        ...


@runtime_checkable
class ProviderAdapterProtocol(Protocol[OutputT]):
    """Evaluates prompts; a handler uses it to evaluate one of its own inside a call."""

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *params: object,
        session: Session,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
    ) -> PromptResponseProtocol[OutputT]:
        """Run *prompt*, bound to *params*, until the model has answered."""
        ...
