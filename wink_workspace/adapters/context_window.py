"""The messages of a request, within the context window of the model.

When the conversation nears the window, the model summarises its old turns, and the summary takes
their place in later requests. So much is summarised at once that many turns follow before the next
time, because each change of old messages makes the provider's prompt cache useless.

Rule 1: the newest turns stay whole. Every call keeps its answer, or both are summarised.
Rule 2: the request for a summary is the beginning of the conversation with one more message, which
a provider has in its cache.
Rule 3: a ``SummaryMessage`` replaces all messages before it, so a resumed run, which has the stored
summaries among its messages, sends the same ones.

Sizes are estimates: four bytes of UTF-8 for a token, corrected by the input tokens that the
provider reports, if those are more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from wink_workspace.errors import UsageError

from .messages import AssistantMessage, Message, SummaryMessage, ToolMessage

_BYTES_OF_TOKEN: Final = 4
_BYTES_OF_MESSAGE: Final = 40  # what a provider adds: roles, ids, separators
_BYTES_OF_IMAGE: Final = 6_400  # about 1,600 tokens
_MOST_CORRECTION: Final = 4.0
_LEAST_OLD: Final = 0.1

ASK_FOR_SUMMARY: Final = (
    "The conversation gets too long for your context window. Write a summary of everything until"
    " here, which will take its place; call no tool. In at most 1,000 words: what the user asked"
    " for, word by word where it matters; decisions and their reasons; what was changed, by path;"
    " what you found out, with exact names, numbers and errors; what failed; what is left to do."
)
SUMMARY_HEAD: Final = (
    "This is your own summary of the conversation until here. The whole is in the history of the"
    " workspace. Read a file again before you rely on its content.\n\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLimits:
    """How a long conversation is kept within the context window of the model.

    Attributes:
        tokens: The size of the window; ``None`` for what the adapter knows of the model.
            ``ModelAdapter`` takes 128,000 for a model that it does not know. If an adapter names
            no size, nothing is summarised.
        full: Fraction of the window at which old turns are summarised.
        keep_turns: The newest turns, which stay whole.
    """

    tokens: int | None = None
    full: float = 0.7
    keep_turns: int = 3

    def __post_init__(self) -> None:
        if not ((self.tokens or 1) > 0 and 0 < self.full <= 1 and self.keep_turns >= 1):
            raise UsageError(
                f"invalid limits: {self}",
                hint="Use tokens > 0, 0 < full <= 1 and keep_turns >= 1.",
            )


class ContextWindow:
    """The messages of one run, as the next request has them.

    Args:
        limits: When old turns are summarised, and how many.
        tokens: The size of the window; ``None`` if it is not known.
    """

    def __init__(self, limits: ContextLimits, tokens: int | None) -> None:
        self._limits = limits
        self._tokens = tokens if limits.tokens is None else limits.tokens
        self._shown: list[Message] = []
        self._sizes: list[int] = []
        self._n_turns = 0
        self._correction = 1.0
        self._requested = 0

    def append(self, message: Message) -> None:
        """Add the newest message; a summary removes those before it."""
        if isinstance(message, SummaryMessage):
            self._shown, self._sizes = [], []
        elif isinstance(message, AssistantMessage):
            self._n_turns += 1
            self._correct(message.input_tokens)
        self._shown.append(message)
        self._sizes.append(_size(message))

    def messages(self, n_more_bytes: int) -> tuple[Message, ...]:
        """The messages of the next request.

        Args:
            n_more_bytes: Size of the instructions and tools, which are sent with them.
        """
        self._requested = self._n_tokens(sum(self._sizes) + n_more_bytes)
        return tuple(self._shown)

    def old(self, n_more_bytes: int) -> tuple[Sequence[Message], int]:
        """The messages to summarise before the next request, and the number of turns until there.

        There are none while the conversation has room. Of a conversation that is larger than the
        window, those that fit come first.
        """
        if self._tokens is None:
            return (), 0
        room = self._limits.full * self._tokens
        if self._n_tokens(sum(self._sizes) + n_more_bytes) <= room:
            return (), 0
        turns = [n for n, each in enumerate(self._shown) if isinstance(each, AssistantMessage)]
        n_old, n_turns = 0, 0
        for n, place in enumerate(turns[1 : 1 + len(turns) - self._limits.keep_turns], start=1):
            if n_old and self._n_tokens(sum(self._sizes[:place]) + n_more_bytes) > room:
                break
            n_old, n_turns = place, self._n_turns - len(turns) + n
        is_worth_it = self._n_tokens(sum(self._sizes[:n_old])) >= _LEAST_OLD * self._tokens
        return (self._shown[:n_old], n_turns) if is_worth_it else ((), 0)

    def summarise(self, n_old: int, summary: SummaryMessage) -> None:
        """Replace the first *n_old* messages by *summary*."""
        self._shown[:n_old] = [summary]
        self._sizes[:n_old] = [_size(summary)]

    def _n_tokens(self, n_bytes: int) -> int:
        return int(n_bytes / _BYTES_OF_TOKEN * self._correction)

    def _correct(self, input_tokens: int) -> None:
        """Correct the estimate by what the provider counted for the last request."""
        if input_tokens and self._requested:
            corrected = self._correction * input_tokens / self._requested
            self._correction = min(max(corrected, 1.0), _MOST_CORRECTION)


def _size(message: Message) -> int:
    """Size of *message* in a request, in bytes of UTF-8."""
    texts: Sequence[str] = (message.text,)
    if isinstance(message, AssistantMessage):
        calls = ((call.name, str(call.arguments)) for call in message.tool_calls)
        texts = (message.text, *(text for call in calls for text in call))
    has_image = isinstance(message, ToolMessage) and message.image is not None
    size = _BYTES_OF_MESSAGE + (_BYTES_OF_IMAGE if has_image else 0)
    return size + sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
