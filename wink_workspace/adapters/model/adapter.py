"""The adapter for models that pydantic-ai supports."""

from __future__ import annotations

import asyncio
import logging
import queue
import random
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import TypeVar

from wink_workspace._descriptors import ClosedAfterBlock
from wink_workspace.adapters.core import ProviderAdapter
from wink_workspace.adapters.messages import ModelRequest, ModelTurn, ToolMessage
from wink_workspace.clock import SYSTEM_CLOCK, Deadline, WaitingClock
from wink_workspace.environment import Environment
from wink_workspace.errors import MissingExtraError, PromptEvaluationError

from .retrying import Failure, RetryLimits, back_off_s

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse


# --------------------------------------------------------------------------------- request thread

# The thread on which requests run.
#
# The first request starts it, and ``close`` ends it. The caller waits for a request on a queue, so
# an exception can end the wait at any time. The request is then cancelled, which closes its
# connection.


ResultT = TypeVar("ResultT")


class RequestThread:
    """An event loop on a separate thread, which enters *resource*.

    Args:
        resource: Entered when the thread starts and exited when it ends, such as a model with
            its HTTP connections.
    """

    def __init__(self, resource: AbstractAsyncContextManager[Any]) -> None:
        self._resource = resource
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    def submit(self, work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        """Run *work* on the thread. An exception from entering the resource is raised here."""
        with self._lock:
            try:
                loop, _ = self._ensure_running()
            except BaseException:
                self._thread = None
                work.close()
                raise
        return asyncio.run_coroutine_threadsafe(work, loop)

    def close(self) -> None:
        """Cancel requests, exit the resource, end the thread; the next request starts a new one.

        Called on that thread, it does not wait: the garbage collector may call finalizers there.
        """
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            loop, stop = self._started.result()
            loop.call_soon_threadsafe(stop.set)
            if thread is not threading.current_thread():
                thread.join()

    def _ensure_running(self) -> tuple[asyncio.AbstractEventLoop, asyncio.Event]:
        """Return the thread's loop and its stop event; start the thread if necessary."""
        if self._thread is None:
            self._started = Future()
            self._thread = threading.Thread(
                target=self._run, name="wink-workspace-model", daemon=True
            )
            self._thread.start()
        return self._started.result()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # noqa: BLE001 - raised in the thread that called submit
            if self._started.done():
                _log.exception("The connection to the model did not close")
            else:
                self._started.set_exception(error)

    async def _serve(self) -> None:
        async with self._resource:
            stop = asyncio.Event()
            self._started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()


# ---------------------------------------------------------------------------------------- adapter


_ASSUMED_CONTEXT_TOKENS = 128_000

_log = logging.getLogger(__name__)

OutputT = TypeVar("OutputT", default=Any)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the turn's text, as received."""

    text: str


@dataclass(frozen=True, slots=True)
class Retrying:
    """The turn is requested again in ``wait_s``; discard the text received so far."""

    attempt: int
    wait_s: float
    reason: str


ModelEvent = TextDelta | Retrying
"""What the adapter reports while a turn is requested."""


class ModelAdapter(ProviderAdapter[OutputT], ClosedAfterBlock):
    """Evaluates prompts with a model. Use it in a ``with`` block, or call ``close``.

    Args:
        model: Its pydantic-ai name, such as ``anthropic:NAME`` or ``openai:NAME``.
        environment: Source of the provider's key and address; default: the process's.
        settings: pydantic-ai's ``ModelSettings``: ``max_tokens``, ``temperature``, ``thinking``
            and so on. ``cache`` is on by default; it caches prompts if the provider can.
        retries: Limits on repeating a request.
        on_event: Called with each ``ModelEvent``, on the evaluating thread.
        clock: Waits between attempts.
        jitter: Returns a number from 0 up to 1 for each wait, to spread the waits.
        options: See ``ProviderAdapter``.

    Raises:
        UsageError: If the provider is unknown or its key is not set; ``MissingExtraError`` if the
            extra ``models`` is not installed.
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
        jitter: Callable[[], float] = random.random,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        environment = environment or Environment.from_os()
        self._redact_secrets = environment.redactor()
        self._settings = {"cache": True, **(settings or {}), "max_retries": 0}
        self._retries = retries or RetryLimits()
        self._on_event = on_event
        self._clock = clock
        self._jitter = jitter
        self.model_name = model
        try:
            from .providers import resolve_model
        except ImportError as error:
            raise MissingExtraError.of("a model", "models", error.name) from error
        self._model = resolve_model(model, environment)
        self.provider_name = self._model.system
        self._images = bool(self._model.profile.get("supports_image_input", True))
        self._connection = RequestThread(self._model)
        self._end = weakref.finalize(self, self._connection.close)

    def close(self) -> None:
        """Close the connections. May be repeated; a later request opens them again."""
        self._connection.close()

    def complete(self, request: ModelRequest) -> ModelTurn:
        """Return the model's next turn, with retries within the limits.

        Raises:
            PromptEvaluationError: If no attempt succeeds. ``phase`` is ``"response"`` if the
                model refused, or its answer was truncated or malformed.
        """
        from .conversation import turn_of

        attempt = 1
        while True:
            outcome = self._attempt(request)
            if not isinstance(outcome, Failure):
                self._check_finished(outcome)
                return turn_of(outcome)
            if self._images and not outcome.is_transient and _has_image(request):
                _log.warning("No more images are sent: %s", outcome.reason)
                self._images = False  # one that the provider refuses would end each later request
                continue
            attempt += 1
            self._wait(outcome, attempt, request.deadline)

    def context_tokens(self) -> int | None:
        """Return the size of the model's context window; a common one if it is not known."""
        from wink_workspace.adapters.prices import context_tokens_of

        return context_tokens_of(self.model_name) or _ASSUMED_CONTEXT_TOKENS

    def dump_native(self, native: object) -> str | None:
        """Return the response as JSON; see ``ProviderAdapter``."""
        from .conversation import dump_response

        return dump_response(native)

    def load_native(self, text: str) -> object:
        """Return the response from its JSON; see ``ProviderAdapter``."""
        from .conversation import load_response

        return load_response(text)

    def _attempt(self, request: ModelRequest) -> ModelResponse | Failure:
        """Make one request; convert a library's exception or a cut answer to a ``Failure``."""
        from .failures import classify_error, incomplete_answer

        try:
            response = self._request(request)
            return incomplete_answer(response, self.model_name) or response
        except PromptEvaluationError:
            raise
        except Exception as error:  # noqa: BLE001 - libraries may raise anything, with keys in it
            return classify_error(error, self.model_name, self._redact_secrets)

    def _request(self, request: ModelRequest) -> ModelResponse:
        """Start a request, report its text as it arrives, and wait for the response."""
        texts: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        response = self._connection.submit(self._stream(request, texts.put))
        response.add_done_callback(lambda _: texts.put(None))
        try:
            while (text := self._next(texts, request.deadline)) is not None:
                if not request.n_summarised:
                    self._notify(TextDelta(text))
        except BaseException:
            response.cancel()
            raise
        return response.result()

    def _next(self, texts: queue.SimpleQueue[str | None], deadline: Deadline | None) -> str | None:
        """Return the next piece of text, or ``None`` at the end."""
        if deadline is None:
            return texts.get()
        try:
            return texts.get(timeout=deadline.remaining_s())
        except queue.Empty:
            raise PromptEvaluationError(
                f"the deadline passed while {self.model_name} was answering",
                phase="request",
                hint="Allow more time, or do less in one run.",
            ) from None

    async def _stream(self, request: ModelRequest, on_text: Callable[[str], None]) -> ModelResponse:
        """Request a response, report its text, and return it. Runs on the connection's thread."""
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

        from .conversation import model_messages, request_parameters

        streaming = model_request_stream(
            self._model,
            model_messages(request.messages, images=self._images),
            model_settings=self._settings,  # type: ignore[arg-type] - the caller's mapping
            model_request_parameters=request_parameters(request, self._model),
            instrument=False,  # ``Traces`` makes the spans
        )
        async with streaming as stream:
            async for event in stream:
                match event:
                    case PartStartEvent(part=TextPart(content=text)):
                        on_text(text)
                    case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                        on_text(text)
                    case _:
                        pass
            return stream.get()

    def _wait(self, failure: Failure, attempt: int, deadline: Deadline | None) -> None:
        """Wait before *attempt*; raise if no further attempt is allowed."""
        retry_after_s, limits = failure.retry_after_s, self._retries
        if not failure.is_transient or attempt > limits.max_attempts:
            raise failure.as_error(attempts=attempt - 1)
        if retry_after_s is not None and retry_after_s > limits.max_retry_after_s:
            raise PromptEvaluationError(
                f"{failure.reason}; the provider asks to wait {retry_after_s:.0f} s",
                phase=failure.phase,
                hint="Try again after that time; the work so far is kept.",
            )
        wait_s = back_off_s(
            attempt, retry_after_s=retry_after_s, limits=limits, jitter=self._jitter
        )
        if deadline is not None and wait_s >= deadline.remaining_s():
            raise PromptEvaluationError(
                f"{failure.reason}; the deadline passes before the next attempt",
                phase=failure.phase,
                hint="Allow more time.",
            )
        _log.info("Attempt %d in %.1f s: %s", attempt, wait_s, failure.reason)
        self._notify(Retrying(attempt, wait_s, failure.reason))
        self.heartbeat.beat()
        self._clock.wait(wait_s)

    def _notify(self, event: ModelEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def _check_finished(self, response: ModelResponse) -> None:
        """Raise if the model refused, or its answer was truncated."""
        if response.finish_reason == "content_filter":
            details = response.provider_details or {}
            refusal = self._redact_secrets(str(details.get("refusal") or "")).strip()
            raise PromptEvaluationError(
                f"{self.model_name} refused to answer" + (f": {refusal}" if refusal else ""),
                phase="response",
                hint="Rephrase the task, or use another model.",
            )
        if response.finish_reason == "length" and not response.tool_calls:
            raise PromptEvaluationError(
                f"the answer of {self.model_name} was cut off at the limit of output tokens",
                phase="response",
                hint="Raise max_tokens in the settings, or request less at once.",
            )


def _has_image(request: ModelRequest) -> bool:
    return any(isinstance(each, ToolMessage) and each.image for each in request.messages)
