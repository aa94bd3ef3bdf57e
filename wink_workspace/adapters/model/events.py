"""What an adapter tells while it waits for a turn."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ModelEvent", "Retrying", "TextDelta"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the turn's text, as it came."""

    text: str


@dataclass(frozen=True, slots=True)
class Retrying:
    """The turn is asked for again in ``wait_s``; the text told so far is void."""

    attempt: int
    wait_s: float
    reason: str


ModelEvent = TextDelta | Retrying
