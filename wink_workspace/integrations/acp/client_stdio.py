"""Serves one client on the standard streams."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from typing import Any, Final, cast

from wink_workspace.errors import UsageError
from wink_workspace.integrations.frameworks import importing

from .agent import AcpAgent
from .client_requests import AcpHost

with importing("acp"):
    from acp import Agent, run_agent
    from acp.stdio import stdio_streams


_MESSAGE_BYTES: Final = 50 * 1024 * 1024


def serve_acp(host: AcpHost) -> None:
    """Serve one client on the standard streams until it disconnects.

    Raises:
        UsageError: If they are not pipes, or what arrives is not the protocol.
    """
    modes = [os.fstat(stream.fileno()).st_mode for stream in (sys.stdin, sys.stdout)]
    if not all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes):
        raise UsageError(
            "the standard streams are not pipes", hint="Let an editor start this command."
        )
    asyncio.run(_serve(AcpAgent(host)))


async def _serve(agent: AcpAgent) -> None:
    lines = _Lines(*await stdio_streams(limit=_MESSAGE_BYTES))
    try:
        # The protocol's class lists methods that an agent may leave out.
        await run_agent(cast("Agent", agent), lines, use_unstable_protocol=True)  # session/fork
    finally:
        await agent.close()
    if lines.problem:
        raise UsageError(
            f"standard input is not the Agent Client Protocol: {lines.problem}",
            hint="Let an editor start this command.",
        )


class _Lines:
    """One JSON object in each line. What is anything else ends the connection.

    Implements the ``Transport`` of the protocol's library.

    Attributes:
        problem: Why the connection was ended, if it was.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.problem = ""
        self._reader = reader
        self._writer = writer

    async def receive(self) -> dict[str, Any] | None:
        """The next message; ``None`` at the end."""
        try:
            while (line := await self._reader.readline()) and not line.strip():
                pass
            message: object = json.loads(line) if line else None
        except ValueError as error:  # not JSON, or longer than the limit
            self.problem = f"a line is not JSON ({error})"
            return None
        if message is not None and not isinstance(message, dict):
            self.problem = "a line is not a JSON object"
            return None
        return cast("dict[str, Any] | None", message)

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message."""
        self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        await self._writer.drain()

    async def close(self) -> None:
        """End the output."""
        self._writer.close()
