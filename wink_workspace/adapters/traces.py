"""The spans of one evaluation: the agent, each turn of its model, each call of a tool.

Names and attributes are those of the semantic conventions for generative AI.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from wink_workspace.clock import Clock
from wink_workspace.prompt import Tool
from wink_workspace.runtime import CallSpan, ToolCall, call_span
from wink_workspace.telemetry import span

from .messages import ModelTurn

if TYPE_CHECKING:
    from .core import ProviderAdapter

__all__ = ["Traces"]


class Traces:
    """Makes the spans of one evaluation of the prompt *agent* by *adapter*."""

    def __init__(self, adapter: ProviderAdapter[Any], agent: str, clock: Clock) -> None:
        self._adapter = adapter
        self._agent = agent
        self._clock = clock
        self._who = {
            "gen_ai.provider.name": adapter.provider_name,
            "gen_ai.request.model": adapter.model_name.partition(":")[2] or adapter.model_name,
        }

    @contextmanager
    def evaluation(self) -> Generator[None]:
        """The whole evaluation."""
        what = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": self._agent}
        with span(f"invoke_agent {self._agent}", {**what, **self._who}):
            yield

    @contextmanager
    def chat(self) -> Generator[Callable[[ModelTurn], None]]:
        """One turn of the model, with all that had to be repeated for it; told how it ended."""
        what = {"gen_ai.operation.name": "chat", **self._who}
        with span(f"chat {self._who['gen_ai.request.model']}", what, is_remote=True) as chat:
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
        """One call, the commit or the rollback included; told its outcome."""
        content = self._adapter.traces_content
        return call_span(call, tool=tool, clock=self._clock, with_content=content)
