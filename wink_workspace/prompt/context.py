"""What a handler knows of the run that calls it: a ``ToolContext``.

Prompts are made of sections, sections of tools, and the handler of a tool takes a context. So the
context knows the prompt, its rendering and the adapter by protocols, which name what a handler
may use of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from typing_extensions import TypeVar

from wink_workspace.clock import BudgetTracker, Cancellation, Deadline, Heartbeat
from wink_workspace.filesystem.protocol import Filesystem
from wink_workspace.resources import ToolResources
from wink_workspace.session import Dispatcher, EventBus, Session, SessionProtocol

__all__ = [
    "PromptProtocol",
    "PromptResponseProtocol",
    "ProviderAdapterProtocol",
    "RenderedPromptProtocol",
    "ToolContext",
]

OutputT_co = TypeVar("OutputT_co", covariant=True)
PromptT_contra = TypeVar("PromptT_contra", contravariant=True, default=Any)


class RenderedPromptProtocol(Protocol):
    """What a handler may use of a ``RenderedPrompt``."""

    @property
    def prompt_name(self) -> str:
        """The prompt that was rendered."""
        ...

    @property
    def text(self) -> str:
        """What the model reads."""
        ...

    @property
    def closed_sections(self) -> tuple[str, ...]:
        """The paths of the sections that are shown as summaries."""
        ...

    def closed_above(self, path: str) -> tuple[str, ...] | None:
        """The sections to open so that the one at *path* is shown; see ``RenderedPrompt``."""
        ...

    def read_section(self, path: str) -> str | None:
        """The text that opening the section at *path* would show; None when there is none."""
        ...


class PromptProtocol(Protocol):
    """What a handler may use of a ``Prompt``."""

    @property
    def ns(self) -> str:
        """The group of the prompt."""
        ...

    @property
    def key(self) -> str:
        """The name of the prompt within ``ns``."""
        ...

    @property
    def name(self) -> str:
        """What people and records call the prompt."""
        ...

    def bind(self, *params: object, resources: Mapping[type[Any], object] | None = None) -> Self:
        """Give the prompt values; a failed call takes back what its handler has bound."""
        ...

    def render(
        self, *params: object, session: SessionProtocol | None = None
    ) -> RenderedPromptProtocol:
        """The prompt's text and tools as they are now."""
        ...


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
class ProviderAdapterProtocol(Protocol[OutputT_co, PromptT_contra]):
    """Evaluates prompts; a handler uses it to evaluate a prompt of its own inside a call.

    ``ProviderAdapter[Output]`` takes a ``Prompt[Output]`` and raises ``UsageError`` for anything
    else.
    """

    def evaluate(
        self,
        prompt: PromptT_contra,
        *params: object,
        session: Session,
        deadline: Deadline | None = None,
        budget_tracker: BudgetTracker | None = None,
        bus: EventBus | None = None,
    ) -> PromptResponseProtocol[OutputT_co]:
        """Run *prompt*, bound to *params*, until the model has answered.

        *bus* is also notified of the run's events; see ``ProviderAdapter.evaluate``.
        """
        ...


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
        budget_tracker: Tokens spent and allowed, ``None`` without a tracker.
        heartbeat: What ``beat`` notifies, ``None`` without an observer.
        cancellation: Whether the call is still wanted, ``None`` when it cannot be cancelled. It
            fails in any case once it was cancelled; a handler that asks ends sooner.
    """

    prompt: PromptProtocol
    rendered_prompt: RenderedPromptProtocol | None
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
