"""Time, and limits on work: the only module that reads a clock.

Everything that needs the time takes a ``Clock``; tests pass a ``ManualClock``.
Deadlines are points in UTC, so they survive being stored. Durations come from the monotonic
clock, so changes of the system's time do not affect them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Protocol

from .errors import (
    BudgetExceededError,
    CallCancelledError,
    DeadlineExceededError,
    UsageError,
)

__all__ = [
    "SYSTEM_CLOCK",
    "Budget",
    "BudgetTracker",
    "Cancellation",
    "Clock",
    "Deadline",
    "Heartbeat",
    "ManualClock",
    "SystemClock",
    "TokenUsage",
    "WaitingClock",
]

_log = logging.getLogger(__name__)


class Clock(Protocol):
    """A source of time."""

    def now(self) -> datetime:
        """The present moment, aware, in UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start; never decreases."""
        ...


class WaitingClock(Clock, Protocol):
    """A source of time that can also wait."""

    def wait(self, seconds: float) -> None:
        """Return when *seconds* have passed; Ctrl-C ends it early."""
        ...


class SystemClock:
    """The system's clock."""

    def now(self) -> datetime:
        """The present moment, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """Seconds since some fixed point, unaffected by changes of the system's time."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Return when *seconds* have passed; Ctrl-C ends it early."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


@dataclass(slots=True)
class ManualClock:
    """A clock that moves only by ``advance`` and ``wait``."""

    moment: datetime = datetime(2025, 1, 1, tzinfo=UTC)
    _elapsed_s: float = 0.0

    def now(self) -> datetime:
        """The moment it was last set or advanced to."""
        return self.moment

    def monotonic_s(self) -> float:
        """The sum of all seconds by which it was advanced."""
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        """Move forward; *seconds* must not be negative."""
        if seconds < 0:
            raise UsageError(f"a clock cannot go back {-seconds} s", hint="Advance by 0 or more.")
        self.moment += timedelta(seconds=seconds)
        self._elapsed_s += seconds

    def wait(self, seconds: float) -> None:
        """Move forward by *seconds* at once."""
        self.advance(seconds)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment by which work must be done.

    ``expires_at`` must carry a time zone; a naive one raises ``UsageError``.
    """

    expires_at: datetime
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        if self.expires_at.utcoffset() is None:
            raise UsageError(
                f"deadline {self.expires_at.isoformat()} has no time zone",
                hint="Pass an aware datetime, such as datetime.now(UTC) + timedelta(minutes=5).",
            )

    @classmethod
    def after(cls, seconds: float, *, clock: Clock = SYSTEM_CLOCK) -> Deadline:
        """The deadline *seconds* from now."""
        return cls(clock.now() + timedelta(seconds=seconds), clock)

    def remaining_s(self) -> float:
        """Seconds left, 0.0 when it has passed."""
        return max(0.0, (self.expires_at - self.clock.now()).total_seconds())

    @property
    def expired(self) -> bool:
        """Whether the moment has come."""
        return self.clock.now() >= self.expires_at

    def check(self) -> None:
        """Raise ``DeadlineExceededError`` if it has passed."""
        if self.expired:
            raise DeadlineExceededError(f"the deadline {self.expires_at.isoformat()} has passed")


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens spent.

    ``cached_tokens`` is the part of the input that a cache served, ``cache_written_tokens`` the
    part that was written to a cache.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_written_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_written_tokens + other.cache_written_tokens,
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """The most to spend; ``None`` sets no limit.

    Attributes:
        max_total_tokens: Input and output tokens together.
        max_input_tokens: Input tokens; those that a cache served count.
        max_output_tokens: Output tokens.
        max_cost_usd: The price of all requests, in US dollars.
    """

    max_total_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_cost_usd: Decimal | None = None

    def __post_init__(self) -> None:
        for name in ("max_total_tokens", "max_input_tokens", "max_output_tokens", "max_cost_usd"):
            limit = getattr(self, name)
            if limit is not None and limit <= 0:
                raise UsageError(f"{name} is {limit}", hint="Use a positive number or None.")


@dataclass(slots=True)
class BudgetTracker:
    """Counts tokens and their cost against a budget; may be shared by nested runs and threads.

    Args:
        budget: The limits.
        price: Returns the cost of one request in US dollars, or ``None`` if it is not known.

    Raises:
        UsageError: If the budget limits the cost, and there is no *price*.
    """

    budget: Budget
    price: Callable[[TokenUsage], Decimal | None] | None = None
    _used: TokenUsage = field(default_factory=TokenUsage)
    _cost_usd: Decimal | None = Decimal(0)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.budget.max_cost_usd is not None and self.price is None:
            raise UsageError(
                "the cost is limited, and there are no prices to compute it", hint="Pass price."
            )

    @property
    def used(self) -> TokenUsage:
        """The sum of everything recorded."""
        return self._used

    @property
    def cost_usd(self) -> Decimal | None:
        """The cost of everything recorded; ``None`` if the price of a request is not known."""
        return None if self.price is None else self._cost_usd

    def record(self, usage: TokenUsage) -> None:
        """Add one request. It never raises, because the tokens are already spent; see ``check``."""
        self.resume(usage, None if self.price is None else self.price(usage))

    def resume(self, usage: TokenUsage, cost_usd: Decimal | None) -> None:
        """Add what was spent earlier, or by one request; *cost_usd* is ``None`` if not known."""
        with self._lock:
            self._used += usage
            if self._cost_usd is not None:
                self._cost_usd = None if cost_usd is None else self._cost_usd + cost_usd

    def check(self) -> None:
        """Raise ``BudgetExceededError`` if a limit is exceeded, or the cost is not known."""
        self._check_cost()
        used = self._used
        for name, spent, limit in (
            ("total", used.total_tokens, self.budget.max_total_tokens),
            ("input", used.input_tokens, self.budget.max_input_tokens),
            ("output", used.output_tokens, self.budget.max_output_tokens),
        ):
            if limit is not None and spent > limit:
                raise BudgetExceededError(f"{spent:,} {name} tokens used, {limit:,} allowed")

    def _check_cost(self) -> None:
        limit, cost = self.budget.max_cost_usd, self._cost_usd
        if limit is None:
            return
        if cost is None:
            raise BudgetExceededError(f"the cost is not known, ${limit} allowed")
        if cost > limit:
            raise BudgetExceededError(f"${cost:.4f} used, ${limit} allowed")


@dataclass(slots=True, eq=False)
class Cancellation:
    """Cancels work from any thread; the work checks it now and then.

    It cannot be reset.
    """

    cancelled: bool = False

    def cancel(self) -> None:
        """Cancel the work."""
        self.cancelled = True

    def check(self) -> None:
        """Raise ``CallCancelledError`` if the work is cancelled."""
        if self.cancelled:
            raise CallCancelledError("the call was cancelled")


@dataclass(slots=True)
class Heartbeat:
    """Notifies observers that work continues.

    Observers run on the thread that beats; one that raises is logged and skipped.
    """

    clock: Clock = SYSTEM_CLOCK
    _observers: dict[object, Callable[[], None]] = field(
        default_factory=dict[object, Callable[[], None]]
    )
    _last_s: float | None = None

    def beat(self) -> None:
        """Record a sign of life and notify every observer."""
        self._last_s = self.clock.monotonic_s()
        for observer in tuple(self._observers.values()):
            try:
                observer()
            except Exception:  # noqa: BLE001 - an observer must not stop the work it watches
                _log.exception("A heartbeat observer raised; the work continues")

    def observe(self, observer: Callable[[], None]) -> Callable[[], None]:
        """Call *observer* at each beat; returns a function that removes it and may be repeated."""
        key = object()
        self._observers[key] = observer

        def stop() -> None:
            self._observers.pop(key, None)

        return stop

    def silent_s(self) -> float | None:
        """Seconds since the last beat, ``None`` before the first."""
        return None if self._last_s is None else self.clock.monotonic_s() - self._last_s
