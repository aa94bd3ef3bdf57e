"""The span of one call, whoever asks for it: a model in a run of ours, or a client of a server.

Names and attributes are those of the semantic conventions for generative AI; what is our own
begins with ``wink_workspace.``. A call made by a handler is inside the span of the handler's call,
since a span's parent is whatever span is open on the thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from wink_workspace import serde
from wink_workspace.clock import Clock
from wink_workspace.errors import UsageError
from wink_workspace.prompt import Tool
from wink_workspace.session import ToolInvoked
from wink_workspace.telemetry import AttributeValue, Span, span

from .call import CallOutcome, ToolCall

__all__ = ["CallSpan", "RemoteClient", "call_span"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemoteClient:
    """A client in another program that asks for a call.

    Attributes:
        method: What its protocol calls that.
        attributes: What else is known of it and its request.
        carrier: What it sent along of its own span; see ``telemetry.span``.
    """

    method: str
    attributes: Mapping[str, AttributeValue]
    carrier: Mapping[str, object]


class CallSpan:
    """The span of a call that is under way; see ``call_span``."""

    def __init__(
        self, span: Span, clock: Clock, *, with_content: bool, redact: Callable[[str], str]
    ) -> None:
        self._span = span
        self._clock = clock
        self._with_content = with_content
        self._redact = redact
        self._started_s = clock.monotonic_s()

    def note(self, outcome: CallOutcome) -> None:
        """How the call ended, and what its transaction took; also a line of the log."""
        event, taken_s = outcome.event, self._clock.monotonic_s() - self._started_s
        _log.info(
            "Call %s of %s: %s in %.1f ms", event.call_id, event.tool[:64], event.outcome.value,
            taken_s * 1e3,
        )  # fmt: skip
        self._span.note(
            {
                "wink_workspace.transaction.outcome": event.outcome.value,
                # what it took to snapshot, to commit or roll back, and to record
                "wink_workspace.transaction.overhead_s": max(0.0, taken_s - event.duration_s),
            }
        )
        refusal = next((each.policy for each in event.decisions if not each.allowed), None)
        if refusal is not None:
            self._span.note({"wink_workspace.policy.refused_by": refusal})
        if not event.success:
            self._span.fail("tool_error" if refusal is None else "refused")
        if self._with_content and self._span.is_recording:
            self._note_content(event)

    def _note_content(self, event: ToolInvoked) -> None:
        try:
            params = serde.map_strings(event.params, self._redact)
            text = self._redact(event.text)
        except Exception as error:  # noqa: BLE001 - telemetry fails no call
            # without its traceback, which may hold the text
            _log.error("The redactor raised %s; the span has no content", type(error).__name__)
            return
        self._span.note(
            {"gen_ai.tool.call.arguments": _as_json(params), "gen_ai.tool.call.result": text}
        )

    def fail(self, error_type: str = "tool_error") -> None:
        """Mark it as failed: where there is no outcome to note, or for another reason than its."""
        self._span.fail(error_type)


@contextmanager
def call_span(
    call: ToolCall,
    *,
    tool: Tool[Any, Any] | None,
    clock: Clock,
    with_content: bool,
    redact: Callable[[str], str] = str,
    client: RemoteClient | None = None,
) -> Generator[CallSpan]:
    """One call, the commit or the rollback included.

    Args:
        call: The call.
        tool: The tool, ``None`` if there is none of that name. Such a name is content, as it can
            be anything.
        clock: The time.
        with_content: Whether the span gets arguments and result, too.
        redact: Applied to those.
        client: Who asked for it, if not this program.
    """
    name = "unknown" if tool is None else call.name
    what = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
        **_annotations(tool),
    }
    if client is None:
        opened = span(f"execute_tool {name}", what)
    else:
        title = f"{client.method} {name}"
        opened = span(title, {**what, **client.attributes}, asked_by=client.carrier)
    with opened as traced:
        yield CallSpan(traced, clock, with_content=with_content, redact=redact)


def _annotations(tool: Tool[Any, Any] | None) -> dict[str, bool]:
    """What is known of what *tool* may do."""
    if tool is None:
        return {}
    hints = {
        "wink_workspace.tool.read_only": tool.annotations.read_only,
        "wink_workspace.tool.destructive": tool.annotations.destructive,
        "wink_workspace.tool.idempotent": tool.annotations.idempotent,
        "wink_workspace.tool.open_world": tool.annotations.open_world,
    }
    return {name: hint for name, hint in hints.items() if hint is not None}


def _as_json(value: object) -> str:
    try:
        return serde.dump_json(value)
    except UsageError:
        return repr(value)
