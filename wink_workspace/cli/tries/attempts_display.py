"""Attempts as tables: while they run, when they have ended, and as lists of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from wink_workspace.attempts import AttemptPhase, AttemptStatus, RunStatus
from wink_workspace.cli.screen.display import printable, table_of
from wink_workspace.cli.screen.live_area import plain_lines
from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.counts import counted, lasted

RUN_HEADS: Final = ("RUN", "WORKSPACE", "BEGUN", "ENDED", "PASSED", "TOKENS", "COST", "TASK")
HEADS: Final = ("NO", "STATE", "SCORE", "CALLS", "TOKENS", "COST", "TIME", "NOTES")
_PER_SECOND: Final = 4
_OTHER_LINES: Final = 4
"""Lines of the terminal that the live table leaves free."""


def _model_of(run: RunStatus, number: int) -> str:
    """The model or script of an attempt; empty if all have the same one."""
    scripts = [Path(script).name for script in run.about.get("scripts", ())]
    choices = [*run.about.get("models", ()), *scripts]
    return str(choices[(number - 1) % len(choices)]) if len(choices) > 1 else ""


def attempt_row(run: RunStatus, status: AttemptStatus, *, now_s: float = 0.0) -> tuple[str, ...]:
    """The cells of an attempt below ``HEADS``; *now_s* is how long it runs, if it does."""
    score, cost = status.score, status.cost
    notes = (_model_of(run, status.number), status.error or (score.detail if score else ""))
    seconds = cost.duration_s or now_s
    return (
        str(status.number),
        status.phase.value,
        "" if score is None else f"{score.value:.4g}{' ✓' if score.passed else ''}",
        f"{status.n_calls:,}" if status.branch else "",
        f"{cost.usage.total_tokens:,}" if status.branch else "",
        f"${cost.usd:.2f}" if cost.usd else "",
        lasted(seconds) if seconds else "",
        "; ".join(line for note in notes for line in plain_lines([note])),
    )


def summary_line(run: RunStatus) -> str:
    """How many attempts there are of each kind, and what they spent."""
    phases = Counter(status.phase for status in run.attempts)
    parts = [f"{phases[phase]:,} {phase}" for phase in AttemptPhase if phases[phase]]
    n_passed = sum(status.passed for status in run.attempts)
    spent = run.spent
    line = f"{counted(len(run.attempts), 'attempt')}: {', '.join(parts)}; {n_passed:,} passed"
    line += f"; {spent.usage.total_tokens:,} tokens"
    return line + (f", ${spent.usd:.2f}" if spent.usd else "")


def run_row(workspace: str, run: RunStatus) -> tuple[str, ...]:
    """The cells of a run below ``RUN_HEADS``."""
    waiting = (AttemptPhase.WAITING, AttemptPhase.RUNNING)
    n_ended = sum(status.phase not in waiting for status in run.attempts)
    spent = run.spent
    return (
        run.run_id,
        workspace,
        f"{run.begun_at.astimezone():%m-%d %H:%M}",
        f"{n_ended}/{len(run.attempts)}",
        str(sum(status.passed for status in run.attempts)),
        f"{spent.usage.total_tokens:,}",
        f"${spent.usd:.2f}" if spent.usd else "",
        str(run.about.get("task", "")),
    )


class AttemptsDisplay:
    """Shows attempts on *console* while they run.

    A terminal gets a table that changes, any other output one line for each attempt that ends.

    Args:
        console: Where to show them.
        live: Whether the console is a terminal that can be redrawn.
        read: The present status. It is called on the caller's thread only.
        clock: For elapsed times.
    """

    def __init__(
        self,
        console: Console,
        *,
        live: bool,
        read: Callable[[], RunStatus],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._console, self._live, self._read, self._clock = console, live, read, clock
        self._run: RunStatus | None = None
        self._begun_s: dict[tuple[int, int], float] = {}
        self._started_s = clock.monotonic_s()
        self._next_s = 0.0

    @contextmanager
    def showing(self) -> Generator[None]:
        """Show the table in the block, if the console can be redrawn."""
        if not self._live:
            yield
            return
        from rich.live import Live

        with Live(self, console=self._console, transient=True, refresh_per_second=_PER_SECOND):
            yield

    def watch(self) -> None:
        """Read the status, if the last time was a moment ago."""
        now_s = self._clock.monotonic_s()
        if not self._live or now_s < self._next_s:
            return
        self._run = self._read()
        self._next_s = self._clock.monotonic_s() + 1 / _PER_SECOND
        for status in self._run.attempts:
            if status.phase is AttemptPhase.RUNNING:
                self._begun_s.setdefault((status.number, status.epoch), now_s)

    def ended(self, number: int) -> None:
        """Print the line of an attempt that ended, if there is no table."""
        if self._live:
            return
        run = self._read()
        status = run.attempt(number)
        _, phase, score, calls, tokens, cost, time, notes = attempt_row(run, status)
        parts = [phase, score and f"score {score}", f"{calls} calls", f"{tokens} tokens"]
        line = ", ".join(part for part in (*parts, cost, time) if part)
        self._console.print(
            printable(f"attempt {number}: {line}{'; ' if notes else ''}{notes}"), markup=False
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table as it is now."""
        run, now_s = self._run, self._clock.monotonic_s()
        if run is None:
            yield Text("… starting", style="dim")
            return
        shown = _chosen(run, options.max_height - _OTHER_LINES)
        rows = [
            attempt_row(
                run, each, now_s=now_s - self._begun_s.get((each.number, each.epoch), now_s)
            )
            for each in shown
        ]
        table: RenderableType = table_of(console, HEADS, rows) or Text(
            "\n".join(" ".join(row) for row in rows)
        )
        foot = f"{summary_line(run)}; {lasted(now_s - self._started_s)}"
        yield Group(table, Text(foot, style="dim", no_wrap=True, overflow="ellipsis"))


def _chosen(run: RunStatus, n_rows: int) -> Sequence[AttemptStatus]:
    """At most *n_rows* attempts, by number: the running ones before those that ended, or wait."""
    order = (AttemptPhase.RUNNING, AttemptPhase.FINISHED, AttemptPhase.FAILED)

    def weight(status: AttemptStatus) -> tuple[int, bool, float, int]:
        place = order.index(status.phase) if status.phase in order else len(order)
        value = status.score.value if status.score else 0.0
        return place, not status.passed, -value, status.number

    chosen = sorted(run.attempts, key=weight)[: max(1, n_rows)]
    return sorted(chosen, key=lambda status: status.number)
