"""What the provider's failures mean: which are worth a repetition, and how each is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic_ai import exceptions as theirs

from .retrying import Failure

__all__ = ["failure_of"]

_MOST_SAID_CHARS = 500

_TRY_LATER = "Try again later; what was done so far is kept."


def failure_of(error: Exception, model: str, redact: Callable[[str], str]) -> Failure:
    """What *error* means; its text is *redact*ed."""
    reason, hint, passes = _told(error, model)
    said = _said(error)
    response = isinstance(error, theirs.UnexpectedModelBehavior)
    return Failure(
        reason=redact(f"{reason}: {said}" if said else reason),
        hint=hint,
        phase="response" if response else "request",
        passes=passes,
        asked_wait_s=error.retry_after if isinstance(error, theirs.ModelAPIError) else None,
    )


def _told(error: Exception, model: str) -> tuple[str, str, bool]:
    """Reason, hint, and whether it may pass. Narrower classes come first."""
    match error:
        case theirs.ModelContextWindowExceededError():
            return (
                f"the conversation is too long for {model}",
                "Give a smaller task or use another model; what was done so far is kept.",
                False,
            )
        case theirs.ModelAuthenticationError():
            return (
                f"{model} did not accept the key",
                "Check the provider's key in the environment, and that it may use this model.",
                False,
            )
        case theirs.ModelNotFoundError():
            return f"there is no {model}", "Check the model's name and the base URL.", False
        case theirs.ModelQuotaExceededError():
            return (
                f"the account has no credit left for {model}",
                "Add credit or use another provider.",
                False,
            )
        case theirs.ModelRateLimitError():
            return f"{model} limits the rate of requests", _TRY_LATER, True
        case theirs.ModelOverloadedError():
            return f"{model} is overloaded", _TRY_LATER, True
        case theirs.ModelUnavailableError() | theirs.ModelServerError():
            return f"{model} failed", _TRY_LATER, True
        case theirs.ModelTimeoutError():
            return f"{model} did not answer in time", _TRY_LATER, True
        case theirs.ModelConnectionError():
            return f"the connection to {model} broke", "Check the network.", True
        case theirs.ContentFilterError():
            return f"{model} refused to answer", "Put the task in other words.", False
        case theirs.ModelRequestRejectedError():
            return f"{model} rejected the request", "See what it says; correct the request.", False
        case theirs.UnexpectedModelBehavior():
            return f"the answer of {model} makes no sense", _TRY_LATER, True
        case theirs.ModelAPIError():
            return f"{model} failed", _TRY_LATER, True
        case _:
            return (
                f"the request to {model} failed with {type(error).__name__}",
                "This is a fault of the library or of ours; report it.",
                False,
            )


def _said(error: Exception) -> str:
    """What the provider says of it, in one line."""
    body = getattr(error, "body", None)
    text = _message_in(body) or getattr(error, "message", None) or str(error)
    return " ".join(str(text).split())[:_MOST_SAID_CHARS].rstrip(".")


def _message_in(body: object) -> str | None:
    """The sentence in an error body: ``{"error": {"message": …}}`` or the inner part alone."""
    if not isinstance(body, Mapping):
        return None
    fields = cast("Mapping[str, Any]", body)
    found = _message_in(fields.get("error")) or fields.get("message")
    return found if isinstance(found, str) else None
