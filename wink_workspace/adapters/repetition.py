"""Detection of a model that repeats itself: the same calls with the same results.

A call is *new* if its tool, arguments and result together did not occur before in the run. Calls
that are not new bring no information, in whatever order or cycle they come. They are counted since
the last new call: at ``warn_at`` occurrences of one call its result gets a note, at ``stop_at``
the run ends. Failed calls in a row are counted, too, because a model can vary its arguments and be
refused each time.

Not repetition: the same test command after an edit, because the edit is a new call; and polling
that gets different answers. Durations such as ``0.31 s`` do not make a result different.

The state follows from the calls and results alone, so a resumed run computes it again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from wink_workspace.counts import counted
from wink_workspace.errors import UsageError
from wink_workspace.runtime import ToolCall

__all__ = ["Repetition", "RepetitionLimits"]

_DURATION: Final = re.compile(r"\b\d+\.\d+ ?(?:s|ms|secs?|seconds?)\b")
_MAX_SHOWN_CHARS: Final = 200

_ADVICE: Final = (
    "Do something else, or answer without calling a tool and say what prevents you from finishing."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionLimits:
    """When a model that repeats itself is warned, and when its run ends.

    Attributes:
        warn_at: Occurrences of a call with the same result after which its result gets a note.
        stop_at: Occurrences after which the run ends.
        warn_failures: Failed calls in a row after which the model is warned.
        stop_failures: Failed calls in a row after which the run ends.
    """

    warn_at: int = 3
    stop_at: int = 6
    warn_failures: int = 8
    stop_failures: int = 16

    def __post_init__(self) -> None:
        if not (
            2 <= self.warn_at <= self.stop_at and 2 <= self.warn_failures <= self.stop_failures
        ):
            raise UsageError(
                f"invalid limits: {self}", hint="Use 2 or more, and warn no later than you stop."
            )


class Repetition:
    """The calls of one run so far.

    Args:
        limits: When to warn and when to stop.
    """

    def __init__(self, limits: RepetitionLimits) -> None:
        self._limits = limits
        self._seen: set[bytes] = set()
        self._repeated: Counter[bytes] = Counter()  # calls since the last new one
        self._n_failures = 0
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """Why the run should end after the newest call; ``None`` to continue."""
        return self._problem

    def add(self, call: ToolCall, text: str, *, success: bool) -> str:
        """Add a call with its result; return the note for the model, or an empty text."""
        limits, signature = self._limits, _signature(call, text, success=success)
        self._n_failures = 0 if success else self._n_failures + 1
        if signature in self._seen:
            self._repeated[signature] += 1
        else:
            self._seen.add(signature)
            self._repeated.clear()
        n_times = self._repeated[signature] + 1
        self._problem = None
        if n_times >= limits.stop_at:
            shown = _shown(call)
            self._problem = (
                f"the model repeats itself: {shown} had the same result {n_times} times,"
                " with nothing new in between"
            )
        elif self._n_failures >= limits.stop_failures:
            failed = counted(self._n_failures, "call")
            self._problem = f"{failed} in a row failed, the last one was {_shown(call)}"
        elif n_times >= limits.warn_at:
            return (
                f"You have made this call {n_times} times with the same result. {_ADVICE} "
                f"The run ends if the call is repeated {limits.stop_at} times."
            )
        elif self._n_failures >= limits.warn_failures:
            return (
                f"{self._n_failures} calls in a row have failed. {_ADVICE} "
                f"The run ends after {limits.stop_failures} failed calls."
            )
        return ""


def _signature(call: ToolCall, text: str, *, success: bool) -> bytes:
    known = f"{call.name}\0{_arguments(call)}\0{success}\0{_DURATION.sub('0 s', text)}"
    return hashlib.sha256(known.encode("utf-8", "surrogatepass")).digest()


def _arguments(call: ToolCall) -> str:
    """The arguments as JSON that does not depend on the order of keys or on white space."""
    arguments: object = call.arguments
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return str(arguments)
    return json.dumps(arguments, sort_keys=True, default=str)


def _shown(call: ToolCall) -> str:
    text = f"{call.name} {_arguments(call)}"
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[: _MAX_SHOWN_CHARS - 1]}…"
