"""A request that failed, how often it is repeated, and how long to wait before that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wink_workspace.errors import PromptEvaluationError, UsageError

__all__ = ["Failure", "RetryLimits", "wait_before"]


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that failed.

    ``passes`` means that repeating it makes sense, ``asked_wait_s`` is how long the provider
    asked to wait first.
    """

    reason: str
    hint: str
    phase: str = "request"
    passes: bool = False
    asked_wait_s: float | None = None

    def as_error(self, *, attempts: int = 1) -> PromptEvaluationError:
        """The error that ends the run."""
        tries = f", {attempts} times" if attempts > 1 else ""
        return PromptEvaluationError(f"{self.reason}{tries}", phase=self.phase, hint=self.hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLimits:
    """Bounds on repeating a request that failed for a reason that may pass.

    Attributes:
        max_attempts: Requests for one turn, the first included.
        first_wait_s: Waited before the second; doubled each time.
        max_wait_s: The longest that doubling leads to.
        max_asked_wait_s: The longest that a provider may ask for; if it asks for more, the run
            ends and says so.
    """

    max_attempts: int = 6
    first_wait_s: float = 1.0
    max_wait_s: float = 60.0
    max_asked_wait_s: float = 300.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.first_wait_s < 0 or self.max_wait_s < 0:
            raise UsageError(f"{self} cannot work", hint="Use max_attempts >= 1 and no wait < 0.")


def wait_before(
    attempt: int, *, asked_s: float | None, limits: RetryLimits, chance: Callable[[], float]
) -> float:
    """Seconds to wait before *attempt* (2 for the first repetition).

    What the provider asked for is the least. To it, or to half of the back-off, comes a random
    part of the other half, so that many clients do not return at one moment.
    """
    back_off_s = min(limits.max_wait_s, limits.first_wait_s * 2 ** (attempt - 2))
    half_s = back_off_s / 2
    return max(half_s, asked_s or 0.0) + half_s * chance()
