"""The messages of a request, within the context window of the model.

When the conversation nears the window, the oldest large results of tools are replaced by one line
each: tool, arguments, size, outcome, and the id under which the history has the whole. Enough is
replaced at once that many turns follow before the next time, because each change of old messages
makes the provider's prompt cache useless.

Rule 1: the results of the newest turns stay whole. Every call keeps its answer.
Rule 2: what is replaced follows from the messages alone, so a resumed run sends the same ones.

Sizes are estimates: four bytes of UTF-8 for a token, corrected by the input tokens that the
provider reports, if those are more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from wink_workspace.errors import UsageError
from wink_workspace.runtime import ToolCall

from .messages import AssistantMessage, Message, ToolMessage

__all__ = ["ContextLimits", "ContextWindow"]

_BYTES_OF_TOKEN: Final = 4
_BYTES_OF_MESSAGE: Final = 40  # what a provider adds: roles, ids, separators
_BYTES_OF_IMAGE: Final = 6_400  # about 1,600 tokens
_MOST_CORRECTION: Final = 4.0
_MAX_ARGUMENT_CHARS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLimits:
    """How a long conversation is kept within the context window of the model.

    Attributes:
        tokens: The size of the window; ``None`` for what the adapter knows of the model.
            ``ModelAdapter`` takes 128,000 for a model that it does not know. If an adapter names
            no size, results are never replaced.
        full: Fraction of the window at which old results are replaced.
        target: Fraction of the window that the conversation then has at most, if possible.
        keep_turns: The newest turns, whose results stay whole.
        small_bytes: Results up to this size stay whole.
    """

    tokens: int | None = None
    full: float = 0.7
    target: float = 0.4
    keep_turns: int = 3
    small_bytes: int = 1_000

    def __post_init__(self) -> None:
        is_valid = (
            (self.tokens is None or self.tokens > 0)
            and 0 < self.target <= self.full <= 1
            and self.keep_turns >= 1
            and self.small_bytes >= 0
        )
        if not is_valid:
            raise UsageError(
                f"invalid limits: {self}",
                hint="Use 0 < target <= full <= 1, keep_turns >= 1 and the others >= 0.",
            )


class ContextWindow:
    """The messages of one run, as the next request has them.

    Args:
        limits: When results are replaced, and how many.
        tokens: The size of the window; ``None`` if it is not known.
    """

    def __init__(self, limits: ContextLimits, tokens: int | None) -> None:
        self._limits = limits
        self._tokens = tokens if limits.tokens is None else limits.tokens
        self._shown: list[Message] = []
        self._sizes: list[int] = []
        self._calls: dict[int, ToolCall] = {}  # by the place of the result
        self._newest_calls: dict[str, ToolCall] = {}
        self._correction = 1.0
        self._requested = 0

    def append(self, message: Message) -> None:
        """Add the newest message."""
        if isinstance(message, AssistantMessage):
            self._newest_calls = {call.id: call for call in message.tool_calls}
            self._correct(message.input_tokens)
        elif isinstance(message, ToolMessage) and message.call_id in self._newest_calls:
            self._calls[len(self._shown)] = self._newest_calls[message.call_id]
        self._shown.append(message)
        self._sizes.append(_size(message))

    def fit(self, n_more_bytes: int) -> tuple[Message, ...]:
        """The messages of the next request, with old results replaced if necessary.

        Args:
            n_more_bytes: Size of the instructions and tools, which are sent with them.
        """
        if self._tokens is not None:
            self._replace(self._tokens, n_more_bytes)
        self._requested = self._n_tokens(n_more_bytes)
        return tuple(self._shown)

    def _n_tokens(self, n_more_bytes: int) -> int:
        return int((sum(self._sizes) + n_more_bytes) / _BYTES_OF_TOKEN * self._correction)

    def _correct(self, input_tokens: int) -> None:
        """Correct the estimate by what the provider counted for the last request."""
        if input_tokens and self._requested:
            corrected = self._correction * input_tokens / self._requested
            self._correction = min(max(corrected, 1.0), _MOST_CORRECTION)

    def _replace(self, tokens: int, n_more_bytes: int) -> None:
        limits = self._limits
        if self._n_tokens(n_more_bytes) <= limits.full * tokens:
            return
        for place in range(self._first_kept()):
            if self._n_tokens(n_more_bytes) <= limits.target * tokens:
                return
            message = self._shown[place]
            if isinstance(message, ToolMessage) and self._sizes[place] > limits.small_bytes:
                summary = _summary(message, self._calls.get(place))
                self._shown[place] = replace(message, text=summary, image=None)
                self._sizes[place] = _size(self._shown[place])

    def _first_kept(self) -> int:
        """The place of the first message of the newest turns."""
        turns = [
            place
            for place, message in enumerate(self._shown)
            if isinstance(message, AssistantMessage)
        ]
        return 0 if len(turns) <= self._limits.keep_turns else turns[-self._limits.keep_turns]


def _summary(message: ToolMessage, call: ToolCall | None) -> str:
    arguments = "" if call is None else _argument_text(call)
    outcome = "succeeded" if message.success else "failed"
    return (
        f"[{message.tool} {arguments} {outcome} with a result of {len(message.text):,} characters,"
        " which is left out here to save space. It is in the history of the workspace, as call"
        f" {message.call_id}. Make the call again if you need the result.]"
    )


def _argument_text(call: ToolCall) -> str:
    given = call.arguments
    text = given if isinstance(given, str) else ", ".join(f"{k}={v!r}" for k, v in given.items())
    text = " ".join(text.split())
    return text if len(text) <= _MAX_ARGUMENT_CHARS else f"{text[: _MAX_ARGUMENT_CHARS - 1]}…"


def _size(message: Message) -> int:
    """Size of *message* in a request, in bytes of UTF-8."""
    texts: Sequence[str] = (message.text,)
    if isinstance(message, AssistantMessage):
        calls = ((call.name, str(call.arguments)) for call in message.tool_calls)
        texts = (message.text, *(text for call in calls for text in call))
    has_image = isinstance(message, ToolMessage) and message.image is not None
    size = _BYTES_OF_MESSAGE + (_BYTES_OF_IMAGE if has_image else 0)
    return size + sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
