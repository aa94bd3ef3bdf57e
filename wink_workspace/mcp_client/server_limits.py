"""What a foreign MCP server may use."""

from __future__ import annotations

from dataclasses import dataclass, fields

from wink_workspace.errors import UsageError

__all__ = ["McpLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class McpLimits:
    """Limits of one foreign MCP server.

    Attributes:
        start_timeout_s: Seconds until it must have listed its tools, also after a restart.
        call_timeout_s: Seconds for one call, at most until the deadline of the run.
        n_tools: Most tools that are offered. A server with more is refused, unless the wanted
            ones are named.
        description_chars: Characters of a tool's description that are shown; the rest is cut.
        definition_bytes: Bytes of all definitions of tools, as JSON. A server with more is
            refused.
        received_bytes: Bytes that the server may send between the beginnings of two requests. The
            connection ends above this, and above one value of JSON for 32 of these bytes.

    Raises:
        UsageError: If one is not positive.
    """

    start_timeout_s: float = 30.0
    call_timeout_s: float = 120.0
    n_tools: int = 64
    description_chars: int = 2_000
    definition_bytes: int = 262_144
    received_bytes: int = 8_388_608

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not value > 0:
                raise UsageError(f"{each.name} is {value}", hint="Use a number above 0.")
