"""Failed requests, how many times they are retried, and the waits before retries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wink_workspace.errors import PromptEvaluationError, UsageError


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed request.

    ``is_transient`` means that a retry may succeed. ``retry_after_s`` is the wait that the
    provider asked for.
    """

    reason: str
    hint: str
    phase: str = "request"
    is_transient: bool = False
    retry_after_s: float | None = None

    def as_error(self, *, attempts: int = 1) -> PromptEvaluationError:
        """Return the error that ends the run."""
        times = f", {attempts} times" if attempts > 1 else ""
        return PromptEvaluationError(f"{self.reason}{times}", phase=self.phase, hint=self.hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLimits:
    """Limits on retries after transient failures.

    Attributes:
        max_attempts: Requests for one turn, including the first.
        first_wait_s: The wait before the second request; it doubles each time.
        max_wait_s: The upper bound of the doubled wait.
        max_retry_after_s: The longest wait that a provider may ask for; a longer one ends the
            run.
    """

    max_attempts: int = 6
    first_wait_s: float = 1.0
    max_wait_s: float = 60.0
    max_retry_after_s: float = 300.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.first_wait_s < 0 or self.max_wait_s < 0:
            raise UsageError(
                f"invalid limits: {self}", hint="Use max_attempts >= 1 and waits >= 0."
            )


def back_off_s(
    attempt: int, *, retry_after_s: float | None, limits: RetryLimits, jitter: Callable[[], float]
) -> float:
    """Return the seconds to wait before *attempt* (2 is the first retry).

    The wait is half of the back-off, but at least ``retry_after_s``, plus a random part of the
    other half. So many clients do not retry at the same moment.
    """
    doubled_s = min(limits.max_wait_s, limits.first_wait_s * 2 ** (attempt - 2))
    half_s = doubled_s / 2
    return max(half_s, retry_after_s or 0.0) + half_s * jitter()
