"""The telemetry span of one call, made by a model in a run or by a client of a server.

Names and attributes are those of the semantic conventions for generative AI; our own begin with
``wink_workspace.``. The parent of a span is the span that is open on the thread. So a call made by
a handler is inside the span of the handler's call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wink_workspace import serde
from wink_workspace.errors import UsageError
from wink_workspace.telemetry import AttributeValue, Span, span

if TYPE_CHECKING:
    from wink_workspace.clock import Clock
    from wink_workspace.prompt import Tool
    from wink_workspace.session import ToolInvoked

    from .call import CallOutcome, ToolCall


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemoteClient:
    """A client in another program that requests a call.

    Attributes:
        method: The protocol's method for a call.
        attributes: Further span attributes of the client and its request, by name.
        carrier: The headers of the client's trace context, by name; see ``telemetry.span``.
    """

    method: str
    attributes: Mapping[str, AttributeValue]
    carrier: Mapping[str, object]


class CallSpan:
    """The span of a call in progress; see ``call_span``. *redact* removes secrets from texts."""

    def __init__(
        self, span: Span, clock: Clock, *, with_content: bool, redact: Callable[[str], str]
    ) -> None:
        self._span = span
        self._clock = clock
        self._with_content = with_content
        self._redact = redact
        self._started_s = clock.monotonic_s()

    def note(self, outcome: CallOutcome) -> None:
        """Record how the call ended and what its transaction cost, also in the log."""
        event, taken_s = outcome.event, self._clock.monotonic_s() - self._started_s
        _log.info(
            "Call %s of %s: %s in %.1f ms", event.call_id, event.tool[:64], event.outcome.value,
            taken_s * 1e3,
        )  # fmt: skip
        self._span.note(
            {
                "wink_workspace.transaction.outcome": event.outcome.value,
                # the time for snapshots, commit or rollback, and the record
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
        except Exception as error:  # noqa: BLE001 - telemetry must not fail a call
            # without its traceback, which may hold the text
            _log.error("The redactor raised %s; the span has no content", type(error).__name__)
            return
        self._span.note(
            {"gen_ai.tool.call.arguments": _as_json(params), "gen_ai.tool.call.result": text}
        )

    def fail(self, error_type: str = "tool_error") -> None:
        """Mark the span as failed, if there is no outcome or for a reason that it does not have."""
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
    """Open the span of one call, commit or rollback included.

    Args:
        call: The call.
        tool: The tool, ``None`` if the name is unknown. The span does not get an unknown name, as
            it can be any text.
        clock: The time.
        with_content: Whether the span gets arguments and result.
        redact: Applied to arguments and result.
        client: The client that requests it, if not this program.
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
    """The annotations that *tool* declares."""
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
