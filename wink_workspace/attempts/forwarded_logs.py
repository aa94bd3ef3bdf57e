"""Logs of attempts, which run in other processes, in the logs of the coordinator.

Rule 1: a record keeps the name of its logger and its level, so the settings of the coordinator
decide where it goes. Records of this package are sent from the coordinator's level on, those of
other loggers from the level that they have in the worker, which is warning by default.
Rule 2: only text is sent: one bounded line, and a bounded number of lines for each attempt.
Rule 3: Ray's own records are not sent: sending could make more of them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final

from wink_workspace.errors import DeadlineExceededError

_ROOT: Final = "wink_workspace"
_MAX_CHARS: Final = 2_000
_MAX_LINES: Final = 1_000


@dataclass(frozen=True, slots=True)
class LogLine:
    """One record of a worker's logs.

    Attributes:
        logger: The name of its logger.
        level: A number of ``logging``, from 10 (debug) to 50 (critical).
        text: The message and the error, as one line of at most 2,000 characters.
    """

    logger: str
    level: int
    text: str


def log_level() -> int:
    """The lowest level that this process logs."""
    return logging.getLogger(_ROOT).getEffectiveLevel()


def write_log(number: int, line: LogLine) -> None:
    """Log a line of attempt *number* in this process."""
    text = "".join(char if char.isprintable() else " " for char in line.text[:_MAX_CHARS])
    logging.getLogger(line.logger).log(line.level, "attempt %d: %s", number, text)


@contextmanager
def forwarding_logs(send: Callable[[LogLine], object], level: int) -> Generator[None]:
    """Send what is logged in the block, from *level* on, to the coordinator.

    *send* is called on a thread of its own: the time limit of a scorer raises in the main thread,
    and must not interrupt a message. All lines are sent when the block has ended.
    """
    lines: SimpleQueue[LogLine | None] = SimpleQueue()

    def deliver() -> None:
        while (line := lines.get()) is not None:
            send(line)

    sender = threading.Thread(target=deliver, daemon=True)
    sender.start()
    handler, ours = _Forwarder(lines.put, level), logging.getLogger(_ROOT)
    level_before = ours.level
    logging.getLogger().addHandler(handler)
    ours.setLevel(level)
    try:
        yield
    finally:
        ours.setLevel(level_before)
        logging.getLogger().removeHandler(handler)
        lines.put(None)
        sender.join()


class _Forwarder(logging.Handler):
    def __init__(self, put: Callable[[LogLine], object], level: int) -> None:
        super().__init__(level)
        self._put = put
        self._n_lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Send it; a record that cannot be formatted is handled as in every handler."""
        if record.name.partition(".")[0] == "ray" or self._n_lines > _MAX_LINES:
            return
        self._n_lines += 1
        try:
            text = " ".join(self.format(record).split())[:_MAX_CHARS]
        except DeadlineExceededError:  # of the scorer that logs
            raise
        except Exception:  # noqa: BLE001 - as in the handlers of the standard library
            self.handleError(record)
            return
        if self._n_lines > _MAX_LINES:
            text = f"more than {_MAX_LINES:,} lines were logged; the others are not shown"
        self._put(LogLine(record.name, record.levelno, text))
