"""Conversion between our messages and those of pydantic-ai."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic_ai.messages import (
    BinaryContent,
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
from pydantic_ai.messages import ModelRequest as PydanticRequest
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition as PydanticTool

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

_MOST_IMAGE_BYTES = 12_582_912
"""Providers take requests of about 20 MiB, in base64."""
_FIRST_MESSAGE = "Do what the instructions say."
"""Providers require a user message first; the content is in the instructions."""


def model_messages(messages: Sequence[Message], *, images: bool = True) -> list[ModelMessage]:
    """Return the conversation: alternating requests and responses, a request first.

    With *images*, it has the newest ones of results, as many as fit into a request.
    """
    messages = _without_old_images(messages, _MOST_IMAGE_BYTES if images else 0)
    converted: list[ModelMessage] = []
    parts: list[ModelRequestPart] = [UserPromptPart(content=_FIRST_MESSAGE)]
    for message in messages:
        if isinstance(message, AssistantMessage):
            converted += [PydanticRequest(parts=parts), _response(message)]
            parts = []
        else:
            parts.append(_part(message))
    return [*converted, PydanticRequest(parts=parts)]


def _without_old_images(messages: Sequence[Message], left_bytes: int) -> Sequence[Message]:
    kept = list(messages)
    for place, message in reversed(list(enumerate(messages))):
        if isinstance(message, ToolMessage) and message.image is not None:
            left_bytes -= len(message.image.data)
            if left_bytes < 0:
                text = f"{message.text}\n(The image is not shown.)"
                kept[place] = replace(message, image=None, text=text)
    return kept


def _part(message: UserMessage | ToolMessage) -> ModelRequestPart:
    if isinstance(message, UserMessage):
        return UserPromptPart(content=message.text)
    image = message.image
    return ToolReturnPart(
        tool_name=message.tool,
        content=message.text
        if image is None
        else [message.text, BinaryContent(image.data, media_type=image.media_type)],
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
    """Return instructions, tools and output format.

    For a model without native structured output, the schema is added to the instructions.
    """
    tools = [
        PydanticTool(
            name=tool.name, description=tool.description, parameters_json_schema=tool.schema
        )
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
    """Return the model's turn, with the unchanged response as its native form."""
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
        response.usage.cache_write_tokens,
    )
    # What cannot be dumped cannot be sent back: text with a lone surrogate
    return ModelTurn(text, calls, usage, native=response if dump_response(response) else None)


def dump_response(native: object) -> str | None:
    """Return a response as the library's own JSON; ``None`` for any other, or if it has none."""
    if not isinstance(native, ModelResponse):
        return None
    try:
        return ModelMessagesTypeAdapter.dump_json([native]).decode()
    except ValueError:  # a lone surrogate
        return None


def load_response(text: str) -> ModelResponse | None:
    """Return the response from the JSON of ``dump_response``; ``None`` if it cannot be read."""
    try:
        (message,) = ModelMessagesTypeAdapter.validate_json(text)
    except ValueError:
        return None
    return message if isinstance(message, ModelResponse) else None


def _arguments(part: ToolCallPart) -> str | dict[str, object]:
    return part.args or {}
