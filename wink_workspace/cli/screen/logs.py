"""Logs on standard error: warnings as text, or one JSON object a line if the user asks for them.

``WINK_WORKSPACE_LOG`` names the lowest level, ``debug`` to ``error``, of the JSON lines. Each of
these names the open span, so that logs and traces can be joined. Secrets of the environment are
redacted. Warnings name files that untrusted code made, so control characters are replaced.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, TextIO

from wink_workspace.errors import UsageError
from wink_workspace.telemetry import open_span

from .command_context import LOG_VARIABLE
from .display import printable

__all__ = ["JsonLines", "Warnings", "logged"]

_LEVELS: Final = ("debug", "info", "warning", "error")
_ROOT: Final = "wink_workspace"


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON, with every value redacted."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """The line, without a line break."""
        fields = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **({"error": self.formatException(record.exc_info)} if record.exc_info else {}),
            **open_span(),
        }
        redacted = {name: self._redact(value) for name, value in fields.items()}
        return json.dumps(redacted, ensure_ascii=False)


class Warnings(logging.Formatter):
    """Formats a record for a terminal: its message as one line, and any traceback, redacted."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """The lines; a line break of the message is replaced like any other control character."""
        message = printable(self._redact(record.getMessage())).replace("\n", "\ufffd")
        if not record.exc_info:
            return message
        return f"{message}\n{printable(self._redact(self.formatException(record.exc_info)))}"


@contextmanager
def logged(
    level: str, redact: Callable[[str], str], stream: TextIO | None = None
) -> Generator[None]:
    """Write logs while the block runs.

    Args:
        level: The lowest level to write as JSON; empty for warnings as text, unless the program has
            handlers of its own.
        redact: Applied to every value.
        stream: Where to write them; standard error when omitted.

    Raises:
        UsageError: If there is no such level.
    """
    if level and level not in _LEVELS:
        raise UsageError(f"{LOG_VARIABLE} is {level!r}", hint=f"Use {', '.join(_LEVELS)}.")
    logger = logging.getLogger(_ROOT)
    if not level and logger.hasHandlers():
        yield
        return
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(redact) if level else Warnings(redact))
    level_before, propagated = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level.upper() if level else logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level_before)
        logger.propagate = propagated
