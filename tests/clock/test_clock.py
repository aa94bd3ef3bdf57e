"""Clocks, deadlines, budgets, cancellation and heartbeats."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from wink_workspace.clock import (
    SYSTEM_CLOCK,
    Budget,
    BudgetTracker,
    Cancellation,
    Deadline,
    Heartbeat,
    ManualClock,
    TokenUsage,
)
from wink_workspace.errors import (
    BudgetExceededError,
    CallCancelledError,
    DeadlineExceededError,
    UsageError,
)


def test_the_system_clock_is_aware_and_its_monotonic_part_never_goes_back() -> None:
    assert SYSTEM_CLOCK.now().utcoffset() == timedelta(0)
    readings = [SYSTEM_CLOCK.monotonic_s() for _ in range(100)]
    assert readings == sorted(readings)


def test_a_manual_clock_moves_only_on_request() -> None:
    clock = ManualClock()
    start = clock.now()
    assert (clock.now(), clock.monotonic_s()) == (start, 0.0)
    clock.advance(90)
    assert (clock.now(), clock.monotonic_s()) == (start + timedelta(seconds=90), 90.0)


def test_a_manual_clock_set_to_another_date_keeps_its_monotonic_part() -> None:
    clock = ManualClock()
    clock.advance(5)
    clock.moment = datetime(1999, 1, 1, tzinfo=UTC)
    assert clock.monotonic_s() == 5.0


def test_a_manual_clock_cannot_move_back() -> None:
    clock = ManualClock()
    with pytest.raises(UsageError, match="cannot go back 3 s"):
        clock.advance(-3)
    assert clock.monotonic_s() == 0.0


def test_a_deadline_gives_the_remaining_time_and_then_passes() -> None:
    clock = ManualClock()
    deadline = Deadline.after(10, clock=clock)
    clock.advance(9.5)
    assert (deadline.remaining_s(), deadline.expired) == (0.5, False)
    deadline.check()
    clock.advance(0.5)
    assert (deadline.remaining_s(), deadline.expired) == (0.0, True)
    clock.advance(1)
    assert deadline.remaining_s() == 0.0
    with pytest.raises(DeadlineExceededError, match="has passed") as caught:
        deadline.check()
    assert caught.value.hint


def test_cancellation_is_permanent_and_check_raises() -> None:
    cancellation = Cancellation()
    cancellation.check()
    assert not cancellation.cancelled
    for _ in range(2):
        cancellation.cancel()
        assert cancellation.cancelled
        with pytest.raises(CallCancelledError, match="cancelled"):
            cancellation.check()


def test_a_deadline_in_another_time_zone_passes_at_the_same_instant() -> None:
    clock = ManualClock(datetime(2025, 1, 1, 12, tzinfo=UTC))
    tokyo = timezone(timedelta(hours=9))
    assert Deadline(datetime(2025, 1, 1, 21, 1, tzinfo=tokyo), clock).remaining_s() == 60.0


def test_a_deadline_without_a_time_zone_is_refused() -> None:
    with pytest.raises(UsageError, match="2025-01-01T00:00:00 has no time zone") as caught:
        Deadline(datetime(2025, 1, 1))  # noqa: DTZ001 - the mistake under test
    assert "UTC" in caught.value.hint


def test_usage_adds_up() -> None:
    used = TokenUsage(1, 2, 3) + TokenUsage(10, 20, 30)
    assert (used, used.total_tokens) == (TokenUsage(11, 22, 33), 33)


@pytest.mark.parametrize(
    ("budget", "named"),
    [
        (Budget(max_total_tokens=11), "12 total tokens used, 11 allowed"),
        (Budget(max_input_tokens=9), "10 input tokens used, 9 allowed"),
        (Budget(max_output_tokens=1), "2 output tokens used, 1 allowed"),
    ],
)
def test_a_budget_is_exceeded_by_one_token_above_the_limit(budget: Budget, named: str) -> None:
    tracker = BudgetTracker(budget)
    tracker.check()
    tracker.record(TokenUsage(10, 2))
    with pytest.raises(BudgetExceededError, match=named) as caught:
        tracker.check()
    assert caught.value.hint
    assert tracker.used == TokenUsage(10, 2)


def test_a_budget_spent_to_the_last_token_is_not_exceeded() -> None:
    tracker = BudgetTracker(Budget(max_total_tokens=12, max_input_tokens=10, max_output_tokens=2))
    tracker.record(TokenUsage(10, 2))
    tracker.check()
    assert tracker.used == TokenUsage(10, 2)


@pytest.mark.parametrize("name", ["max_total_tokens", "max_input_tokens", "max_output_tokens"])
@pytest.mark.parametrize("limit", [0, -1])
def test_a_budget_without_a_limit_above_zero_is_refused(name: str, limit: int) -> None:
    with pytest.raises(UsageError, match=f"{name} is {limit}"):
        Budget(**{name: limit})


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Make the interpreter switch threads as often as it can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("frequent_switches")
def test_threads_that_share_a_tracker_lose_no_token() -> None:
    tracker = BudgetTracker(Budget())

    def spend() -> None:
        for _ in range(2_000):
            tracker.record(TokenUsage(1, 1))

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tracker.used == TokenUsage(8_000, 8_000)


def test_each_beat_reaches_every_observer() -> None:
    heartbeat, beats = Heartbeat(), []
    heartbeat.observe(lambda: beats.append("a"))
    heartbeat.observe(lambda: beats.append("b"))
    heartbeat.beat()
    heartbeat.beat()
    assert beats == ["a", "b", "a", "b"]


def test_an_observer_that_raises_is_logged_and_the_others_are_notified(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> None:
        raise ValueError("boom")

    heartbeat, beats = Heartbeat(), []
    heartbeat.observe(broken)
    heartbeat.observe(lambda: beats.append("notified"))
    with caplog.at_level(logging.ERROR):
        heartbeat.beat()
    assert beats == ["notified"]
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_an_observer_added_twice_is_removed_once_by_each_stop() -> None:
    heartbeat, beats = Heartbeat(), []

    def observer() -> None:
        beats.append("beat")

    end_first, end_second = heartbeat.observe(observer), heartbeat.observe(observer)
    end_first()
    end_first()
    heartbeat.beat()
    assert beats == ["beat"]
    end_second()
    heartbeat.beat()
    assert beats == ["beat"]


def test_silence_is_counted_from_the_last_beat() -> None:
    clock = ManualClock()
    heartbeat = Heartbeat(clock)
    assert heartbeat.silent_s() is None
    heartbeat.beat()
    clock.advance(4)
    assert heartbeat.silent_s() == 4.0
    heartbeat.beat()
    assert heartbeat.silent_s() == 0.0
