"""What passes between the evaluation loop and a provider, in no provider's dialect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from wink_workspace.clock import Deadline, TokenUsage
from wink_workspace.runtime import ToolCall
from wink_workspace.serde import JsonValue

__all__ = [
    "AssistantMessage",
    "Message",
    "ModelRequest",
    "ModelTurn",
    "ToolDefinition",
    "ToolMessage",
    "UserMessage",
]


@dataclass(frozen=True, slots=True)
class UserMessage:
    """Something the model is told, such as what was wrong with its last answer."""

    text: str


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What the model said and which tools it asked for.

    ``native`` is the turn as the adapter got it, for that adapter alone to look at: signed or
    encrypted reasoning must go back to a provider as it came. ``None`` means it is told from
    the other two.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    native: object = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The answer to one call."""

    call_id: str
    tool: str
    text: str
    success: bool


Message = UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as a provider wants it: ``schema`` is JSON Schema clean for strict modes."""

    name: str
    description: str
    schema: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Everything a provider needs for one turn.

    ``instructions`` is the rendered prompt; ``output_schema`` is set when the prompt asks
    for structured output. The answer must be there by ``deadline``.
    """

    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...]
    output_schema: dict[str, JsonValue] | None = None
    deadline: Deadline | None = None


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One answer of a model. Without ``tool_calls`` it is the last one.

    ``native`` comes back with the ``AssistantMessage`` that is made of it.
    """

    text: str = ""
    tool_calls: Sequence[ToolCall] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)
    native: object = field(default=None, compare=False, repr=False)

    def with_call_ids(self, number: int) -> ModelTurn:
        """The same turn with an id for each call: ``call-NUMBER-1`` where the first has none."""
        if all(call.id for call in self.tool_calls):
            return self
        calls = tuple(
            call if call.id else call.with_id(f"call-{number}-{n}")
            for n, call in enumerate(self.tool_calls, start=1)
        )
        return replace(self, tool_calls=calls)
