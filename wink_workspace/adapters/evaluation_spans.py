"""Spans of one evaluation: the agent, each model turn, each tool call.

Names and attributes follow the OpenTelemetry semantic conventions for generative AI.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from wink_workspace.clock import Clock
from wink_workspace.prompt import Tool
from wink_workspace.runtime import CallSpan, ToolCall, call_span
from wink_workspace.telemetry import span

from .messages import ModelTurn

__all__ = ["Traces"]


class Traces:
    """Creates the spans of one evaluation.

    Args:
        agent: The prompt's name.
        provider_name: The provider.
        model_name: The model, with or without a ``provider:`` prefix.
        clock: Measures the calls.
        with_content: Whether call spans also get arguments and results.
    """

    def __init__(
        self, agent: str, *, provider_name: str, model_name: str, clock: Clock, with_content: bool
    ) -> None:
        self._agent = agent
        self._clock = clock
        self._with_content = with_content
        self._model = {
            "gen_ai.provider.name": provider_name,
            "gen_ai.request.model": model_name.partition(":")[2] or model_name,
        }

    @contextmanager
    def evaluation(self) -> Generator[None]:
        """Open the span of the whole evaluation."""
        what = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": self._agent}
        with span(f"invoke_agent {self._agent}", {**what, **self._model}):
            yield

    @contextmanager
    def chat(self) -> Generator[Callable[[ModelTurn], None]]:
        """Open the span of one model turn with its retries; the block passes it the turn."""
        what = {"gen_ai.operation.name": "chat", **self._model}
        with span(f"chat {self._model['gen_ai.request.model']}", what, is_remote=True) as chat:
            yield lambda turn: chat.note(
                {
                    "gen_ai.usage.input_tokens": turn.usage.input_tokens,
                    "gen_ai.usage.output_tokens": turn.usage.output_tokens,
                    "gen_ai.usage.cache_read.input_tokens": turn.usage.cached_tokens,
                    "gen_ai.response.finish_reasons": ["tool_call" if turn.tool_calls else "stop"],
                }
            )

    def tool_call(
        self, call: ToolCall, tool: Tool[Any, Any] | None
    ) -> AbstractContextManager[CallSpan]:
        """Open the span of one call, including its commit or rollback."""
        return call_span(call, tool=tool, clock=self._clock, with_content=self._with_content)
