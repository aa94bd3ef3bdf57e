"""What the libraries log, for whoever asks: one JSON object a line, on standard error.

``WINK_WORKSPACE_LOG`` names the least level to be told (``debug`` to ``error``); when it is not
set, Python prints warnings as ever. No secret of the environment is in a line; each names the span
that was open, so that logs and traces find one another.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, TextIO

from wink_workspace.environment import Environment
from wink_workspace.errors import UsageError
from wink_workspace.telemetry import open_span

__all__ = ["LOG_VARIABLE", "JsonLines", "logged"]

LOG_VARIABLE: Final = "WINK_WORKSPACE_LOG"

_LEVELS: Final = ("debug", "info", "warning", "error")
_ROOT: Final = "wink_workspace"


class JsonLines(logging.Formatter):
    """A record as one line of JSON, without what *redact* takes out."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
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


@contextmanager
def logged(environment: Environment, stream: TextIO | None = None) -> Generator[None]:
    """Write logs while the block runs, if the environment asks for it.

    Raises:
        UsageError: If it asks for a level that there is none of.
    """
    level = environment.variables.get(LOG_VARIABLE, "").lower()
    if not level:
        yield
        return
    if level not in _LEVELS:
        raise UsageError(f"{LOG_VARIABLE} is {level!r}", hint=f"Use {', '.join(_LEVELS)}.")
    logger = logging.getLogger(_ROOT)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(environment.redactor()))
    level_before, propagated = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level_before)
        logger.propagate = propagated
