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
from typing import Protocol

from wink_workspace.errors import (
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
    """Tokens spent; ``cached_tokens`` is the part of the input that a cache served."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """The most tokens to spend; ``None`` sets no limit."""

    max_total_tokens: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_total_tokens", "max_input_tokens", "max_output_tokens"):
            limit = getattr(self, name)
            if limit is not None and limit <= 0:
                raise UsageError(f"{name} is {limit}", hint="Use a positive number or None.")


@dataclass(slots=True)
class BudgetTracker:
    """Counts tokens against a budget; may be shared by nested runs and threads."""

    budget: Budget
    _used: TokenUsage = field(default_factory=TokenUsage)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def used(self) -> TokenUsage:
        """The sum of everything recorded."""
        return self._used

    def record(self, usage: TokenUsage) -> None:
        """Add *usage*. It never raises, because the tokens are already spent; see ``check``."""
        with self._lock:
            self._used += usage

    def check(self) -> None:
        """Raise ``BudgetExceededError`` if a limit is exceeded."""
        used = self._used
        for name, spent, limit in (
            ("total", used.total_tokens, self.budget.max_total_tokens),
            ("input", used.input_tokens, self.budget.max_input_tokens),
            ("output", used.output_tokens, self.budget.max_output_tokens),
        ):
            if limit is not None and spent > limit:
                raise BudgetExceededError(f"{spent} {name} tokens used, {limit} allowed")


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
