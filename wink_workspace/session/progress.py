"""A call in progress: what it works on, and its output so far.

These events are for subscribers only. No reducer gets them, nothing stores them, and they are not
part of the record: ``ToolInvoked`` has the whole result.
"""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

_SUBJECT_FIELDS: Final = ("command", "file_path", "pattern", "path", "code", "name", "objective")
_MAX_SUBJECT_CHARS: Final = 200
_MAX_LINES: Final = 50
_MAX_LINE_CHARS: Final = 400
_MAX_PENDING_CHARS: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A call has begun; ``subject`` names its command or file, ``""`` if it has none."""

    call_id: str
    tool: str
    subject: str
    depth: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """Complete lines that a command printed: at most 50 of each piece, of 400 characters each."""

    call_id: str
    lines: tuple[str, ...]


def call_subject(params: object, redact: Callable[[str], str] = str) -> str:
    """What a call with these parameters works on: its command, file or pattern, in one line.

    *params* is the parameters of a tool or a ``dict``; other objects without these attributes have
    no subject. *redact* is applied before the text is cut.
    """
    for name in _SUBJECT_FIELDS:
        value: object = (
            cast("dict[str, object]", params).get(name)
            if isinstance(params, dict)
            else getattr(params, name, None)
        )
        if isinstance(value, str) and value.strip():
            first, *more = redact(value).strip().splitlines() or [""]
            cut = len(first) > _MAX_SUBJECT_CHARS
            return first[:_MAX_SUBJECT_CHARS] + ("…" if cut or more else "")
    return ""


class OutputLines:
    """Makes events of the output of one call, piece by piece.

    Text is redacted before it becomes an event. A part that ends within a line waits for the rest
    of the line.

    Args:
        call_id: The call.
        redact: Applied to each part.
        notify: Gets the events.
        thread: The identifier of the thread of the call. Output that arrives on another one is
            left out, because a subscriber may wait for the session.
    """

    def __init__(
        self,
        call_id: str,
        redact: Callable[[str], str],
        notify: Callable[[object], None],
        *,
        thread: int,
    ) -> None:
        self._call_id = call_id
        self._redact = redact
        self._notify = notify
        self._thread = thread
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._pending: dict[str, str] = {}

    def __call__(self, stream: str, data: bytes) -> None:
        """Add a piece of *stream*."""
        if threading.get_ident() != self._thread:
            return
        decoder = self._decoders.setdefault(
            stream, codecs.getincrementaldecoder("utf-8")("backslashreplace")
        )
        text = self._pending.get(stream, "") + decoder.decode(data).replace("\r", "\n")
        end = text.rfind("\n") + 1
        if len(text) - end > _MAX_PENDING_CHARS:
            end = len(text)
        self._pending[stream] = text[end:]
        lines = [line for line in self._redact(text[:end]).splitlines() if line.strip()]
        if lines:
            shown = tuple(line[:_MAX_LINE_CHARS] for line in lines[-_MAX_LINES:])
            self._notify(ToolOutput(call_id=self._call_id, lines=shown))
