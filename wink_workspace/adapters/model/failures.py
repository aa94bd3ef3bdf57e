"""Classification of provider errors: which to retry, and the message for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic_ai import exceptions
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

from .retrying import Failure

_MAX_MESSAGE_CHARS = 500

_TRY_LATER = "Try again later; the work so far is kept."


def incomplete_answer(response: ModelResponse, model: str) -> Failure | None:
    """Return the ``Failure`` for a *response* that is cut or empty; ``None`` if it is complete.

    A proxy may end a stream properly before the last event, which has the reason for the end.
    """
    reason = response.finish_reason or (response.provider_details or {}).get("finish_reason")
    has_content = any(
        isinstance(part, ToolCallPart) or (isinstance(part, TextPart) and part.content.strip())
        for part in response.parts
    )
    if reason and (has_content or reason in ("content_filter", "length")):
        return None
    what = (
        f"the answer of {model} is empty"
        if reason
        else f"the answer of {model} ended before its last event"
    )
    return Failure(what, _TRY_LATER, phase="response", is_transient=True)


def classify_error(error: Exception, model: str, redact: Callable[[str], str]) -> Failure:
    """Return the ``Failure`` for *error*, its text redacted with *redact*."""
    reason, hint, is_transient = _describe(error, model)
    message = _provider_message(error)
    is_response = isinstance(error, exceptions.UnexpectedModelBehavior)
    return Failure(
        reason=redact(f"{reason}: {message}" if message else reason),
        hint=hint,
        phase="response" if is_response else "request",
        is_transient=is_transient,
        retry_after_s=error.retry_after if isinstance(error, exceptions.ModelAPIError) else None,
    )


def _describe(error: Exception, model: str) -> tuple[str, str, bool]:
    """Return reason, hint, and whether a retry may succeed. Subclasses come first."""
    match error:
        case exceptions.ModelContextWindowExceededError():
            return (
                f"the conversation is too long for {model}",
                "Give a smaller task or use another model; the work so far is kept.",
                False,
            )
        case exceptions.ModelAuthenticationError():
            return (
                f"{model} did not accept the key",
                "Check the provider's key in the environment, and that it may use this model.",
                False,
            )
        case exceptions.ModelNotFoundError():
            return f"{model} was not found", "Check the model's name and the base URL.", False
        case exceptions.ModelQuotaExceededError():
            return (
                f"the account has no credit left for {model}",
                "Add credit or use another provider.",
                False,
            )
        case exceptions.ModelRateLimitError():
            return f"{model} limits the rate of requests", _TRY_LATER, True
        case exceptions.ModelOverloadedError():
            return f"{model} is overloaded", _TRY_LATER, True
        case exceptions.ModelUnavailableError() | exceptions.ModelServerError():
            return f"{model} failed", _TRY_LATER, True
        case exceptions.ModelTimeoutError():
            return f"{model} did not answer in time", _TRY_LATER, True
        case exceptions.ModelConnectionError():
            return f"the connection to {model} broke", "Check the network.", True
        case exceptions.ContentFilterError():
            return f"{model} refused to answer", "Rephrase the task.", False
        case exceptions.ModelRequestRejectedError():
            return (
                f"{model} rejected the request",
                "Correct the request as the message says.",
                False,
            )
        case exceptions.UnexpectedModelBehavior():
            return f"the answer of {model} is malformed", _TRY_LATER, True
        case exceptions.ModelAPIError():
            return f"{model} failed", _TRY_LATER, True
        case _:
            return (
                f"the request to {model} failed with {type(error).__name__}",
                "This is a bug in the library or in wink_workspace; report it.",
                False,
            )


def _provider_message(error: Exception) -> str:
    """Return the provider's message in one line."""
    body = getattr(error, "body", None)
    text = _message_in(body) or getattr(error, "message", None) or str(error)
    return " ".join(str(text).split())[:_MAX_MESSAGE_CHARS].rstrip(".")


def _message_in(body: object) -> str | None:
    """Return the message in an error body: ``{"error": {"message": …}}`` or the inner object."""
    if not isinstance(body, Mapping):
        return None
    fields = cast("Mapping[str, Any]", body)
    found = _message_in(fields.get("error")) or fields.get("message")
    return found if isinstance(found, str) else None
