"""The adapter for models."""

from __future__ import annotations

import logging
import queue
import random
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from typing_extensions import TypeVar

from wink_workspace.adapters.core import ProviderAdapter
from wink_workspace.adapters.messages import ModelRequest, ModelTurn
from wink_workspace.clock import SYSTEM_CLOCK, Deadline, WaitingClock
from wink_workspace.environment import Environment
from wink_workspace.errors import PromptEvaluationError, UsageError

from .connection import Connection
from .retrying import Failure, RetryLimits, wait_before

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

__all__ = ["ModelAdapter", "ModelEvent", "Retrying", "TextDelta"]

_log = logging.getLogger(__name__)

OutputT = TypeVar("OutputT", default=Any)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the turn's text, as it came."""

    text: str


@dataclass(frozen=True, slots=True)
class Retrying:
    """The turn is requested again in ``wait_s``; the text received so far is void."""

    attempt: int
    wait_s: float
    reason: str


ModelEvent = TextDelta | Retrying
"""What an adapter reports while it waits for a turn."""


class ModelAdapter(ProviderAdapter[OutputT]):
    """Evaluates prompts with a model; used in a ``with`` block, or ended with ``close``.

    Args:
        model: Its name as pydantic-ai has it, such as ``anthropic:NAME`` or ``openai:NAME``.
        environment: Where key and address of the provider come from; the process's when omitted.
        settings: As pydantic-ai's ``ModelSettings``: ``max_tokens``, ``temperature``,
            ``thinking`` and so on. Prompts are cached where the provider can, unless ``cache``
            is given.
        retries: How often a request is repeated.
        on_event: Told text as it comes, and what is waited for; on the thread that evaluates.
        clock: Waits between repetitions.
        chance: A number from 0 up to 1 for each wait, to spread it.
        options: As for ``ProviderAdapter``.

    Raises:
        UsageError: If the model cannot be used: no such provider, no key, or the extra
            ``models`` is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        environment: Environment | None = None,
        settings: Mapping[str, object] | None = None,
        retries: RetryLimits | None = None,
        on_event: Callable[[ModelEvent], None] | None = None,
        clock: WaitingClock = SYSTEM_CLOCK,
        chance: Callable[[], float] = random.random,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        environment = environment or Environment.from_os()
        self._without_secrets = environment.redactor()
        self._settings = {"cache": True, **(settings or {}), "max_retries": 0}
        self._retries = retries or RetryLimits()
        self._on_event = on_event
        self._clock = clock
        self._chance = chance
        self.model_name = model
        try:
            from .providers import model_named
        except ImportError as error:
            raise UsageError(
                f"the library for models is not installed: {error.name}",
                hint="Install it: pip install 'wink-workspace[models]'",
            ) from error
        self._model = model_named(model, environment)
        self.provider_name = self._model.system
        self._connection = Connection(self._model)
        self._end = weakref.finalize(self, self._connection.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Once is enough; another request would open them again."""
        self._connection.close()

    def complete(self, request: ModelRequest) -> ModelTurn:
        """The model's next turn, asked for as often as the limits allow.

        Raises:
            PromptEvaluationError: If it cannot be had; ``phase`` is ``"response"`` if the model
                answered, but refused, or gave an answer that was cut off or makes no sense.
        """
        from .conversation import turn_of

        attempt = 1
        while True:
            found = self._attempt(request)
            if not isinstance(found, Failure):
                self._check_ending(found)
                return turn_of(found)
            attempt += 1
            self._wait(found, attempt, request.deadline)

    def dump_native(self, native: object) -> str | None:
        """As ``ProviderAdapter``."""
        from .conversation import text_of

        return text_of(native)

    def load_native(self, text: str) -> object:
        """As ``ProviderAdapter``."""
        from .conversation import response_in

        return response_in(text)

    def _attempt(self, request: ModelRequest) -> ModelResponse | Failure:
        """One request; whatever the libraries raise is told, and none of it is kept."""
        from .failures import failure_of

        try:
            return self._ask(request)
        except PromptEvaluationError:
            raise
        except Exception as error:  # noqa: BLE001 - foreign libraries may raise anything, keys in it
            return failure_of(error, self.model_name, self._without_secrets)

    def _ask(self, request: ModelRequest) -> ModelResponse:
        """Start a request, hand on its text as it comes, and wait for its end."""
        told: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        response = self._connection.submit(self._stream(request, told.put))
        response.add_done_callback(lambda _: told.put(None))
        try:
            while (text := self._next(told, request.deadline)) is not None:
                self._tell(TextDelta(text))
        except BaseException:
            response.cancel()
            raise
        return response.result()

    def _next(self, told: queue.SimpleQueue[str | None], deadline: Deadline | None) -> str | None:
        """The next piece of text, ``None`` at the end."""
        if deadline is None:
            return told.get()
        try:
            return told.get(timeout=deadline.remaining_s())
        except queue.Empty:
            raise PromptEvaluationError(
                f"the deadline passed while {self.model_name} was answering",
                phase="request",
                hint="Allow more time, or do less in one run.",
            ) from None

    async def _stream(self, request: ModelRequest, tell: Callable[[str], None]) -> ModelResponse:
        """On the connection's thread: ask, tell the text, give the whole."""
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

        from .conversation import model_messages, request_parameters

        streaming = model_request_stream(
            self._model,
            model_messages(request.messages),
            model_settings=self._settings,  # type: ignore[arg-type] - a mapping of the caller's
            model_request_parameters=request_parameters(request, self._model),
            instrument=False,  # we have spans of our own
        )
        async with streaming as stream:
            async for event in stream:
                match event:
                    case PartStartEvent(part=TextPart(content=text)):
                        tell(text)
                    case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                        tell(text)
                    case _:
                        pass
            return stream.get()

    def _wait(self, failure: Failure, attempt: int, deadline: Deadline | None) -> None:
        """Wait before *attempt*; raise if there is none to be made."""
        asked_s, limits = failure.asked_wait_s, self._retries
        if not failure.passes or attempt > limits.max_attempts:
            raise failure.as_error(attempts=attempt - 1)
        if asked_s is not None and asked_s > limits.max_asked_wait_s:
            raise PromptEvaluationError(
                f"{failure.reason}; it asks to wait {asked_s:.0f} s",
                phase=failure.phase,
                hint="Try again after that time; what was done so far is kept.",
            )
        wait_s = wait_before(attempt, asked_s=asked_s, limits=limits, chance=self._chance)
        if deadline is not None and wait_s >= deadline.remaining_s():
            raise PromptEvaluationError(
                f"{failure.reason}; the deadline passes before it can be asked again",
                phase=failure.phase,
                hint="Allow more time.",
            )
        _log.info("Attempt %d in %.1f s: %s", attempt, wait_s, failure.reason)
        self._tell(Retrying(attempt, wait_s, failure.reason))
        self.heartbeat.beat()
        self._clock.wait(wait_s)

    def _tell(self, event: ModelEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def _check_ending(self, response: ModelResponse) -> None:
        """Refuse an answer that the model or its provider did not finish."""
        if response.finish_reason == "content_filter":
            details = response.provider_details or {}
            said = self._without_secrets(str(details.get("refusal") or "")).strip()
            raise PromptEvaluationError(
                f"{self.model_name} refused to answer" + (f": {said}" if said else ""),
                phase="response",
                hint="Put the task in other words, or use another model.",
            )
        if response.finish_reason == "length" and not response.tool_calls:
            raise PromptEvaluationError(
                f"the answer of {self.model_name} was cut off at its limit of output tokens",
                phase="response",
                hint="Raise max_tokens in the settings, or ask for less at once.",
            )
