"""Our messages in pydantic-ai's words, and its answers in ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequestPart,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as TheirRequest
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition as TheirTool

from wink_workspace import serde
from wink_workspace.adapters.messages import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelTurn,
    ToolMessage,
    UserMessage,
)
from wink_workspace.clock import TokenUsage
from wink_workspace.runtime import ToolCall

__all__ = ["model_messages", "request_parameters", "response_in", "text_of", "turn_of"]

_OPENING = "Do what the instructions say."
"""Providers want the user to speak first; everything there is to say is in the instructions."""


def model_messages(messages: Sequence[Message]) -> list[ModelMessage]:
    """The conversation: requests and responses in turn, beginning with a request."""
    told: list[ModelMessage] = []
    parts: list[ModelRequestPart] = [UserPromptPart(content=_OPENING)]
    for message in messages:
        if isinstance(message, AssistantMessage):
            told += [TheirRequest(parts=parts), _response(message)]
            parts = []
        else:
            parts.append(_part(message))
    return [*told, TheirRequest(parts=parts)]


def _part(message: UserMessage | ToolMessage) -> ModelRequestPart:
    if isinstance(message, UserMessage):
        return UserPromptPart(content=message.text)
    return ToolReturnPart(
        tool_name=message.tool,
        content=message.text,
        tool_call_id=message.call_id,
        outcome="success" if message.success else "failed",
    )


def _response(message: AssistantMessage) -> ModelResponse:
    if isinstance(message.native, ModelResponse):
        return message.native
    return ModelResponse(parts=list(_response_parts(message)))


def _response_parts(message: AssistantMessage) -> Iterator[TextPart | ToolCallPart]:
    if message.text or not message.tool_calls:
        yield TextPart(content=message.text)
    for call in message.tool_calls:
        arguments = call.arguments
        yield ToolCallPart(
            tool_name=call.name,
            args=arguments if isinstance(arguments, str) else dict(arguments),
            tool_call_id=call.id,
        )


def request_parameters(request: ModelRequest, model: Model) -> ModelRequestParameters:
    """Instructions, tools and the form of the answer.

    A model that cannot be held to a schema is told it in the instructions.
    """
    tools = [
        TheirTool(name=tool.name, description=tool.description, parameters_json_schema=tool.schema)
        for tool in request.tools
    ]
    instructions, schema = request.instructions, request.output_schema
    if schema is None:
        return ModelRequestParameters(
            function_tools=tools, instruction_parts=[InstructionPart(content=instructions)]
        )
    native = bool(model.profile.get("supports_json_schema_output"))
    if not native:
        instructions += (
            "\n\nWhen you are done, answer with JSON alone, in this schema:\n"
            + serde.dump_json(schema)
        )
    return ModelRequestParameters(
        function_tools=tools,
        instruction_parts=[InstructionPart(content=instructions)],
        output_mode="native" if native else "text",
        output_object=OutputObjectDefinition(json_schema=schema, name="answer", strict=True)
        if native
        else None,
    )


def turn_of(response: ModelResponse) -> ModelTurn:
    """The model's turn, with the response itself to be sent back as it is."""
    calls = tuple(
        ToolCall.of(part.tool_name, _arguments(part), id=part.tool_call_id)
        for part in response.parts
        if isinstance(part, ToolCallPart)
    )
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    usage = TokenUsage(
        response.usage.input_tokens,
        response.usage.output_tokens,
        response.usage.cache_read_tokens,
    )
    return ModelTurn(text, calls, usage, native=response)


def text_of(native: object) -> str | None:
    """A response as the library's own JSON; ``None`` for what is no response."""
    if not isinstance(native, ModelResponse):
        return None
    return ModelMessagesTypeAdapter.dump_json([native]).decode()


def response_in(text: str) -> ModelResponse | None:
    """The response in the JSON of ``text_of``; ``None`` if this library cannot read it."""
    try:
        (found,) = ModelMessagesTypeAdapter.validate_json(text)
    except ValueError:
        return None
    return found if isinstance(found, ModelResponse) else None


def _arguments(part: ToolCallPart) -> str | dict[str, object]:
    return part.args or {}
