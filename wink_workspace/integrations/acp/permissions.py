"""Asks the user before a call that reaches beyond the workspace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from wink_workspace.clock import Cancellation
from wink_workspace.integrations.frameworks import importing
from wink_workspace.prompt import PolicyDecision, Tool, ToolContext, ToolPolicy

from .updates import TEXT_CHARS

with importing("acp"):
    from acp.helpers import text_block, tool_content

__all__ = ["ALLOW", "ALWAYS", "REJECT", "AskUser"]

ALLOW: Final = "allow"
ALWAYS: Final = "always"
REJECT: Final = "reject"
"""The options of a permission."""


class AskUser(ToolPolicy):
    """Asks the user before a call of a tool that reaches beyond the workspace."""

    __slots__ = ("_allowed", "_ask", "_cancellation")

    name = "permission"

    def __init__(
        self,
        ask: Callable[[str, Sequence[Any], Any, Cancellation], str],
        allowed: set[str],
        cancellation: Cancellation,
    ) -> None:
        self._ask = ask
        self._allowed = allowed
        self._cancellation = cancellation

    def check(
        self, tool: Tool[Any, Any], params: object, *, context: ToolContext
    ) -> PolicyDecision:
        """Allow the call if the user does, or did for the whole session."""
        del context
        if tool.annotations.open_world is False or tool.name in self._allowed:
            return PolicyDecision.allow()
        content = [tool_content(text_block(str(params)[:TEXT_CHARS]))]
        chosen = self._ask(f"Allow {tool.name}?", content, "execute", self._cancellation)
        if chosen == ALWAYS:
            self._allowed.add(tool.name)
        if chosen in (ALLOW, ALWAYS):
            return PolicyDecision.allow()
        return PolicyDecision.deny("the user did not allow it")
