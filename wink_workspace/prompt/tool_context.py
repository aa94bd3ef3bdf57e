"""``ToolContext``: what a handler gets about the run that calls it.

A prompt contains sections, a section contains tools, and the handler of a tool takes a context.
To avoid an import cycle, the context refers to prompt, rendering and adapter by protocols. They
name what a handler may use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from typing_extensions import TypeVar

from wink_workspace.filesystem.protocol import Filesystem

if TYPE_CHECKING:
    from wink_workspace.clock import BudgetTracker, Cancellation, Deadline, Heartbeat
    from wink_workspace.resources import ToolResources
    from wink_workspace.session import Dispatcher, EventBus, Session, SessionProtocol


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
        """The text for the model."""
        ...

    def tool_with_result(self, result_type: type[Any]) -> str:
        """The name of the first tool whose results are a *result_type*; empty without one."""
        ...

    @property
    def closed_sections(self) -> tuple[str, ...]:
        """The paths of the sections that are shown as summaries."""
        ...

    def closed_above(self, path: str) -> tuple[str, ...] | None:
        """The sections to open so that the one at *path* is shown; see ``RenderedPrompt``."""
        ...

    def read_section(self, path: str) -> str | None:
        """The text that opening the section at *path* would show; None without such a section."""
        ...


class SectionProtocol(Protocol):
    """What a handler may use of a ``Section``."""

    @property
    def key(self) -> str:
        """Identifies the section among its siblings."""
        ...

    @property
    def title(self) -> str:
        """The heading."""
        ...

    @property
    def template(self) -> str | None:
        """The body with its placeholders; None if the body is not a template."""
        ...

    @property
    def children(self) -> tuple[SectionProtocol, ...]:
        """The sections below this one."""
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
        """The name of the prompt for users and in records."""
        ...

    @property
    def sections(self) -> tuple[SectionProtocol, ...]:
        """The top-level sections."""
        ...

    def bind(self, *params: object, resources: Mapping[type[Any], object] | None = None) -> Self:
        """Bind *params* and *resources* (as ``Prompt.bind``); a failed call undoes it."""
        ...

    def render(
        self, *params: object, session: SessionProtocol | None = None
    ) -> RenderedPromptProtocol:
        """The prompt's text and tools as they are now; *params* as for ``Prompt.render``."""
        ...


class PromptResponseProtocol(Protocol[OutputT_co]):
    """The result of an evaluation."""

    @property
    def prompt_name(self) -> str:
        """The prompt that was evaluated."""
        ...

    @property
    def text(self) -> str | None:
        """The model's last text, ``None`` if it returned only structured output."""
        ...

    @property
    def output(self) -> OutputT_co:
        """The parsed output, ``None`` if the prompt has no output type."""
        ...


@runtime_checkable
class ProviderAdapterProtocol(Protocol[OutputT_co, PromptT_contra]):
    """Evaluates prompts; a handler uses it to evaluate another prompt inside a call.

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
    """The context of one call; do not use it after the call.

    Attributes:
        prompt: The prompt being evaluated.
        rendered_prompt: Its rendering, ``None`` before the first one.
        adapter: The adapter that runs it; evaluate nested prompts with it.
        session: The state; change it with ``session.dispatch``.
        resources: The resources bound to the prompt, by type.
        deadline: When the run must end, ``None`` for no limit.
        budget_tracker: Tokens spent and allowed, ``None`` without a tracker.
        heartbeat: Notified by ``beat``, ``None`` without an observer.
        cancellation: Whether the call was cancelled, ``None`` if it cannot be. A cancelled call
            always fails; a handler that checks it ends sooner.
        on_output: Gets the output of a running command, for subscribers; see ``output``.
        on_outside_effect: Records an effect outside of the workspace; see ``outside_effect``.
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
    on_output: Callable[[str, bytes], None] | None = None
    on_outside_effect: Callable[[str], None] | None = None

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
        """The older name of ``dispatcher``."""
        return self.session.dispatcher

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the deadline, 0.0 when it has passed, ``None`` without one."""
        return None if self.deadline is None else self.deadline.remaining_s()

    def beat(self) -> None:
        """Report that the handler is running; call it regularly during long work."""
        if self.heartbeat is not None:
            self.heartbeat.beat()

    def output(self, stream: str, data: bytes) -> None:
        """Report a piece of output, which subscribers get as ``ToolOutput``; it also beats.

        Args:
            stream: The name of the stream, such as ``stdout``.
            data: The bytes; lines may be split between pieces.
        """
        self.beat()
        if self.on_output is not None:
            self.on_output(stream, data)

    def outside_effect(self, effect: str) -> None:
        """Record, before it begins, what neither a rollback nor an undo takes back.

        The record has it also if the handler is interrupted. If the call fails after this, its
        outcome is ``unknown``, not ``rolled_back``.

        Args:
            effect: One line, such as ``sent a request to example.org``.
        """
        if self.on_outside_effect is not None:
            self.on_outside_effect(effect)
