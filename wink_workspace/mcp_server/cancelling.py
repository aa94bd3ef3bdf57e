"""Calls that a client takes back.

A handler cannot be killed, so a call that is already running runs on; but whatever it does then
leaves no trace: the policy here sees the result before it is kept, and fails the call. A call
that is still waiting for its turn never begins.
"""

from __future__ import annotations

import threading
from typing import Any

from wink_workspace.errors import PromptEvaluationError
from wink_workspace.prompt import PolicyDecision, Tool, ToolContext, ToolPolicy, ToolResult

__all__ = ["CancelledCalls"]


class CancelledCalls(ToolPolicy):
    """Refuses the call under way once ``cancel`` was called; ``begin`` starts afresh."""

    name = "cancelled by the client"

    def __init__(self) -> None:
        self._cancelled = threading.Event()

    def begin(self, cancelled: threading.Event) -> None:
        """The next call is the one that sets *cancelled* when it is taken back."""
        self._cancelled = cancelled

    def check(
        self, tool: Tool[Any, Any], params: object, *, context: ToolContext
    ) -> PolicyDecision:
        """No once the call was cancelled."""
        del tool, params, context
        if self._cancelled.is_set():
            return PolicyDecision.deny("the client has cancelled the call")
        return PolicyDecision.allow()

    def on_result(
        self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext
    ) -> None:
        """Fail a call that was cancelled while it ran."""
        del tool, params, result, context
        if self._cancelled.is_set():
            raise PromptEvaluationError("the client has cancelled the call", phase="tool")
