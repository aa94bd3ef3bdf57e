"""What a handler gets to know of the run that calls it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wink_workspace.clock import BudgetTracker, Cancellation, Deadline, Heartbeat
from wink_workspace.filesystem.protocol import Filesystem
from wink_workspace.resources import ToolResources
from wink_workspace.session import Dispatcher, Session

from .adapter import ProviderAdapterProtocol

if TYPE_CHECKING:
    from .prompt import Prompt, RenderedPrompt

__all__ = ["ToolContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The surroundings of one call; made for it and of no use after it.

    Attributes:
        prompt: The prompt being evaluated.
        rendered_prompt: What it was rendered to, ``None`` before the first rendering.
        adapter: The adapter that runs it; evaluate nested prompts with it.
        session: Where state lives; change it with ``session.dispatch``.
        resources: What is bound to the prompt, by type.
        deadline: When the run must end, ``None`` for no limit.
        budget_tracker: Tokens spent and allowed, ``None`` when nobody counts.
        heartbeat: Whom ``beat`` tells, ``None`` when nobody listens.
        cancellation: Whether the call is still wanted, ``None`` when nobody can cancel it. It
            fails in any case once it was cancelled; a handler that asks ends sooner.
    """

    prompt: Prompt[Any]
    rendered_prompt: RenderedPrompt[Any] | None
    adapter: ProviderAdapterProtocol[Any]
    session: Session
    resources: ToolResources
    deadline: Deadline | None = None
    budget_tracker: BudgetTracker | None = None
    heartbeat: Heartbeat | None = None
    cancellation: Cancellation | None = None

    @property
    def filesystem(self) -> Filesystem | None:
        """The workspace's files, ``None`` when no ``Filesystem`` is bound."""
        return self.resources.get_optional(Filesystem)

    @property
    def dispatcher(self) -> Dispatcher:
        """The session's dispatcher, for subscribers and telemetry."""
        return self.session.dispatcher

    @property
    def event_bus(self) -> Dispatcher:
        """``dispatcher`` under its older name."""
        return self.session.dispatcher

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the deadline, 0.0 when it has passed, ``None`` without one."""
        return None if self.deadline is None else self.deadline.remaining_s()

    def beat(self) -> None:
        """Show that the handler is at work; call it now and then when work takes long."""
        if self.heartbeat is not None:
            self.heartbeat.beat()
