"""A call as it comes from a model, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wink_workspace.prompt import ToolResult
from wink_workspace.session import Outcome, ToolInvoked

__all__ = ["CallOutcome", "ToolCall"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A request to run one tool.

    ``arguments`` is the provider's JSON text or the mapping already decoded from it; nothing
    about it is trusted. ``id`` is the provider's name for the call and comes back with the
    answer.
    """

    id: str
    name: str
    arguments: str | Mapping[str, object]


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The answer to a call.

    ``text`` is exactly what the model is to see, ``event`` the record that was kept.
    """

    call: ToolCall
    result: ToolResult[Any]
    event: ToolInvoked

    @property
    def text(self) -> str:
        """What the model is to see."""
        return self.event.text

    @property
    def outcome(self) -> Outcome:
        """Whether the call's effects were kept."""
        return self.event.outcome
