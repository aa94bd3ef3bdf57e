"""What the page of attempts shows: a table, and a scatter plot of score against cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from wink_workspace.attempts import AttemptPhase, AttemptStatus, RunStatus

WIDTH: Final = 640
HEIGHT: Final = 320
_LEFT: Final = 64
_RIGHT: Final = 24
_TOP: Final = 28
_BOTTOM: Final = 40
_MOST_TICKS: Final = 5
_LARGEST: Final = 1e300
_LEAST_RANGE: Final = 1e-9
"""Values whose range is smaller, in parts of their size, are shown at one place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptItem:
    """A row of the table."""

    number: int
    branch: str
    phase: str
    is_best: bool
    can_keep: bool
    score: str
    n_calls: str
    tokens: str
    usd: str
    duration: str
    note: str


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the plot, in pixels."""

    x: float
    y: float
    label: str
    number: int
    is_best: bool
    passed: bool


@dataclass(frozen=True, slots=True)
class Plot:
    """A scatter plot; ticks are their place in pixels and their label."""

    points: Sequence[Point]
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    x_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunItem:
    """One run of attempts; ``plot`` is ``None`` before an attempt has a score."""

    run_id: str
    branch: str
    begun: str
    summary: str
    attempts: Sequence[AttemptItem]
    plot: Plot | None


def run_item(run: RunStatus, line: Callable[[str], str]) -> RunItem:
    """What the page shows of a run; *line* redacts a text and makes it one visible line."""
    phases = [each.phase for each in run.attempts]
    counts = [f"{phases.count(phase)} {phase}" for phase in AttemptPhase if phase in phases]
    task = str(run.about.get("task", ""))
    summary = f"{task}: {', '.join(counts)}" if task else ", ".join(counts)
    return RunItem(
        run_id=run.run_id,
        branch=line(run.branch),
        begun=f"{run.begun_at:%Y-%m-%d %H:%M:%S} UTC",
        summary=line(summary),
        attempts=[_attempt_item(each, run.best, line) for each in run.attempts],
        plot=_plot(run),
    )


def _attempt_item(
    each: AttemptStatus, best: AttemptStatus | None, line: Callable[[str], str]
) -> AttemptItem:
    score, cost = each.score, each.cost
    verdict = "" if score is None else ", passed" if score.passed else ", not passed"
    return AttemptItem(
        number=each.number,
        branch=each.branch,
        phase=each.phase.value,
        is_best=best is not None and best.number == each.number,
        can_keep=each.phase is AttemptPhase.FINISHED,
        score="" if score is None else f"{score.value:g}{verdict}",
        n_calls=f"{each.n_calls:,}" if each.branch else "",
        tokens=f"{cost.usage.total_tokens:,}" if cost.usage.total_tokens else "",
        usd=f"${cost.usd:.4f}" if cost.usd else "",
        duration=f"{cost.duration_s:,.1f} s" if cost.duration_s else "",
        note=line(each.error or ("" if score is None else score.detail)),
    )


def _plot(run: RunStatus) -> Plot | None:
    """Score against US dollars, or tokens or seconds if no attempt has a price."""
    scored = [(each, each.score) for each in run.attempts if each.score is not None]
    if not scored:
        return None
    kinds: list[tuple[str, Callable[[AttemptStatus], float]]] = [
        ("cost in US dollars", lambda each: float(each.cost.usd)),
        ("tokens", lambda each: float(each.cost.usage.total_tokens)),
        ("seconds", lambda each: each.cost.duration_s),
    ]
    used = (kind for kind in kinds if any(kind[1](each) for each, _ in scored))
    name, cost_of = next(used, kinds[-1])
    x_axis = _Axis([0.0, *(cost_of(each) for each, _ in scored)], _LEFT, WIDTH - _RIGHT)
    y_axis = _Axis([score.value for _, score in scored], HEIGHT - _BOTTOM, _TOP)
    best = run.best
    return Plot(
        [
            Point(
                x_axis.place(cost_of(each)),
                y_axis.place(score.value),
                f"Attempt {each.number}: score {score.value:g}, {cost_of(each):g} {name}",
                each.number,
                best is not None and best.number == each.number,
                score.passed,
            )
            for each, score in scored
        ],
        x_axis.ticks,
        y_axis.ticks,
        name,
    )


class _Axis:
    """Maps values to pixels from *first* to *last*, with ticks at round values."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        low, high = _bounded(min(values)), _bounded(max(values))
        size = max(abs(low), abs(high))
        if high - low <= size * _LEAST_RANGE:
            low, high = low - max(1.0, size / 10), high + max(1.0, size / 10)
        step = 10 ** math.floor(math.log10((high - low) / _MOST_TICKS))
        step *= next(each for each in (1, 2, 5, 10) if (high - low) / (step * each) <= _MOST_TICKS)
        self._low = math.floor(low / step) * step
        self._high = math.ceil(high / step) * step
        self._first, self._last = first, last
        n_steps = round((self._high - self._low) / step)
        at = [self._low + n * step for n in range(n_steps + 1)]
        self.ticks = [(self.place(value), f"{value:.6g}") for value in at]

    def place(self, value: float) -> float:
        """The pixel of *value*."""
        value = max(self._low, min(self._high, value))
        share = (value - self._low) / (self._high - self._low)
        return round(self._first + share * (self._last - self._first), 1)


def _bounded(value: float) -> float:
    return max(-_LARGEST, min(_LARGEST, value))
