"""The spans of one evaluation: the agent, each turn of its model, each call of a tool.

Names and attributes are those of the semantic conventions for generative AI; what is our own
begins with ``wink_workspace.``. A call made by a handler is inside the span of the handler's call,
since a span's parent is whatever span is open on the thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from wink_workspace import serde
from wink_workspace.clock import Clock
from wink_workspace.errors import UsageError
from wink_workspace.runtime import CallOutcome, ToolCall
from wink_workspace.telemetry import Span, span

from .messages import ModelTurn

if TYPE_CHECKING:
    from .core import ProviderAdapter

__all__ = ["Traces"]

_log = logging.getLogger(__name__)


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

    @contextmanager
    def tool_call(
        self, call: ToolCall, *, is_known: bool
    ) -> Generator[Callable[[CallOutcome], None]]:
        """One call, the commit or the rollback included; told its outcome.

        A name that the model made up is content, and there is no end to such names.
        """
        name = call.name if is_known else "unknown"
        what = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
        }
        started_s = self._clock.monotonic_s()
        with span(f"execute_tool {name}", what) as traced:
            yield lambda outcome: self._note_call(
                traced, outcome, self._clock.monotonic_s() - started_s
            )

    def _note_call(self, traced: Span, outcome: CallOutcome, taken_s: float) -> None:
        event = outcome.event
        _log.info(
            "Call %s of %s: %s in %.1f ms", event.call_id, event.tool[:64], event.outcome.value,
            taken_s * 1e3,
        )  # fmt: skip
        traced.note(
            {
                "wink_workspace.transaction.outcome": event.outcome.value,
                # what it took to snapshot, to commit or roll back, and to record
                "wink_workspace.transaction.overhead_s": max(0.0, taken_s - event.duration_s),
            }
        )
        refusal = next((each.policy for each in event.decisions if not each.allowed), None)
        if refusal is not None:
            traced.note({"wink_workspace.policy.refused_by": refusal})
        if not event.success:
            traced.fail("refused" if refusal is not None else "tool_failed")
        if self._adapter.traces_content and traced.is_recording:
            traced.note(
                {
                    "gen_ai.tool.call.arguments": _as_json(event.params),
                    "gen_ai.tool.call.result": event.text,
                }
            )


def _as_json(value: object) -> str:
    try:
        return serde.dump_json(value)
    except UsageError:
        return repr(value)
