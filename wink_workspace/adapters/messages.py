"""Messages between the evaluation loop and a provider, independent of any provider.

Rule: no text in them has a lone surrogate, which no provider accepts: U+FFFD replaces it. So text
of a model, a user or a record may be passed in as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from wink_workspace import serde
from wink_workspace.clock import Deadline, TokenUsage
from wink_workspace.prompt import ToolImage
from wink_workspace.runtime import ToolCall
from wink_workspace.serde import JsonValue


def _make_encodable(message: UserMessage | AssistantMessage | ToolMessage | ModelTurn) -> None:
    object.__setattr__(message, "text", serde.well_formed(message.text))


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message to the model, such as the problems of its last answer."""

    text: str
    __post_init__ = _make_encodable


@dataclass(frozen=True, slots=True)
class SummaryMessage(UserMessage):
    """A summary, which takes the place of all messages before it."""


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A turn of the model: its text and the ``tool_calls`` that it requested, in its order.

    ``native`` is the provider's own form of the turn; only the adapter reads it. Signed or
    encrypted reasoning must go back to a provider unchanged. If it is ``None``, the adapter
    builds the message from the other two. ``input_tokens`` is the size of the request, as the
    provider counted it; 0 if that is not known.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    native: object = field(default=None, compare=False, repr=False)
    input_tokens: int = field(default=0, compare=False, repr=False)
    __post_init__ = _make_encodable


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The answer to one call; *image* is for models that take images."""

    call_id: str
    tool: str
    text: str
    success: bool
    image: ToolImage | None = None
    __post_init__ = _make_encodable


Message = UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool for a provider; ``schema`` is JSON Schema that strict modes accept."""

    name: str
    description: str
    schema: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Everything a provider needs for one turn.

    ``instructions`` is the rendered prompt. ``messages`` is the conversation, oldest first, and
    ``tools`` what the model may call in this turn. ``output_schema`` is the JSON schema of the
    answer, if the prompt has an output type. The answer must arrive before ``deadline``.
    ``n_summarised`` is not 0 if the answer is a summary of the first turns, and no turn itself.
    """

    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...]
    output_schema: dict[str, JsonValue] | None = None
    deadline: Deadline | None = None
    n_summarised: int = 0


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One answer of a model. A turn without ``tool_calls`` is the final answer.

    ``native`` is passed on in the ``AssistantMessage`` of this turn.
    """

    text: str = ""
    tool_calls: Sequence[ToolCall] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)
    native: object = field(default=None, compare=False, repr=False)
    __post_init__ = _make_encodable

    def with_call_ids(self, number: int) -> ModelTurn:
        """Return the turn with an id for each call: ``call-NUMBER-1`` if the first has none."""
        if all(call.id for call in self.tool_calls):
            return self
        calls = tuple(
            call if call.id else call.with_id(f"call-{number}-{n}")
            for n, call in enumerate(self.tool_calls, start=1)
        )
        return replace(self, tool_calls=calls)
