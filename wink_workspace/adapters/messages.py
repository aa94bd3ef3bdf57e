"""What passes between the evaluation loop and a provider, in no provider's dialect."""

from __future__ import annotations

from dataclasses import dataclass, field

from wink_workspace.clock import TokenUsage
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
    """What the model said and which tools it asked for."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()


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
    for structured output.
    """

    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...]
    output_schema: dict[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One answer of a model. Without ``tool_calls`` it is the last one."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)
