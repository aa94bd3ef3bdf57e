"""What a coordinator and an engine exchange.

Rule 1: an engine delivers at least once. It may run a task twice, lose it, or report it late; the
coordinator accepts one result for each number, of the newest epoch only.
Rule 2: an engine writes nothing but the branch of its task. Only the coordinator writes the state
of a run.
Rule 3: all types here can be pickled; what the user's functions return need not be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from wink_workspace.clock import TokenUsage
from wink_workspace.workspace import WorkspaceConfig

from .budget import BudgetPool
from .forwarded_logs import LogLine


class AttemptOutcome(StrEnum):
    """How an attempt ended."""

    FINISHED = "finished"
    """The function returned, and the attempt has a score if there is a scorer."""
    FAILED = "failed"
    """The function or the scorer raised; what was committed before stays on the branch."""
    STOPPED = "stopped"
    """It ended between two calls, because the run was stopped or the budget is spent."""


@dataclass(frozen=True, slots=True)
class Score:
    """The result of a scorer.

    Attributes:
        value: A finite number without a unit; higher is better.
        passed: Whether the attempt solves the task.
        detail: One line for people.
    """

    value: float
    passed: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Cost:
    """What an attempt spent.

    Attributes:
        usage: Tokens.
        usd: US dollars; 0 if no turn reported a price.
        duration_s: Seconds of the accepted rounds, scoring included.
    """

    usage: TokenUsage = TokenUsage()  # noqa: RUF009 - frozen, so it may be shared
    usd: Decimal = Decimal(0)
    duration_s: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.usage + other.usage, self.usd + other.usd, self.duration_s + other.duration_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """One attempt that ended.

    Attributes:
        number: Counted from 1.
        outcome: How it ended.
        score: ``None`` without a scorer, and if it failed or was stopped.
        cost: What all its rounds spent.
        branch: The fork with its entries; open, diff or continue it by this name.
        epoch: Which start of it was accepted, counted from 1.
        round: The last round that ended, counted from 0; see ``successive_halving``.
        parent: The number of the attempt that branched into this one; 0 for none.
        n_children: How many attempts it asked for with ``context.branch``.
        error: Why it failed or stopped, in one line.
    """

    number: int
    outcome: AttemptOutcome
    score: Score | None
    cost: Cost
    branch: str
    epoch: int
    round: int = 0
    parent: int = 0
    n_children: int = 0
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether its scorer says that it solves the task."""
        return self.score is not None and self.score.passed


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPlan:
    """What is the same for every attempt of a run.

    Attributes:
        run_id: The run.
        folder: The directory of the workspace on this machine.
        config: The settings of the workspace.
        functions: The attempt and the scorer (or ``None``), pickled as a tuple.
        seed: The seed of the run.
        heartbeat_s: A worker reports a sign of life at least this often.
        origin: The id of the entry at which the attempts begin.
        log_level: The lowest level of the log lines that workers send.
    """

    run_id: str
    folder: Path
    config: WorkspaceConfig
    functions: bytes
    seed: int
    heartbeat_s: float
    origin: str
    log_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTask:
    """One attempt to run, once.

    Attributes:
        number: Counted from 1.
        epoch: Which start of this attempt it is; a later one makes this one invalid.
        round: Counted from 0.
        branch: The fork to work in. It exists, and no other task has it.
        path: Names the attempt in the tree of attempts, such as ``3.1``; its random numbers
            follow from it and do not depend on the order in which attempts end.
    """

    number: int
    epoch: int
    round: int
    branch: str
    path: str


class EventKind(StrEnum):
    """What an engine reports about a task."""

    BEGUN = "begun"
    """A worker took it. The lease begins."""
    ALIVE = "alive"
    """A sign of life. The lease is renewed."""
    ENDED = "ended"
    """The attempt ended and ``result`` is set; the worker has closed the branch."""
    LOGGED = "logged"
    """Its worker logged ``line``."""
    LOST = "lost"
    """It will not end: its worker died, or no worker can be started. ``reason`` says why."""


@dataclass(frozen=True, slots=True)
class AttemptEvent:
    """What an engine reports about the task with this number and epoch."""

    kind: EventKind
    number: int
    epoch: int
    result: AttemptResult | None = None
    reason: str = ""
    line: LogLine | None = None


class Engine(Protocol):
    """Runs attempts. It may deliver twice, late or never; it must not block for long."""

    def prepare(self, plan: AttemptPlan, budget: BudgetPool) -> int:
        """Get ready to run tasks of *plan*; how many may run at the same time, at least 1.

        Workers reserve their turns from *budget*, which ``poll`` serves on the caller's thread.
        It may be called again after ``close``.

        Raises:
            UsageError: If the engine cannot run *plan*; nothing was started.
        """
        ...

    def submit(self, task: AttemptTask) -> None:
        """Run *task* when a worker is free; returns at once."""
        ...

    def poll(self, timeout_s: float) -> Sequence[AttemptEvent]:
        """What happened since the last call; waits up to *timeout_s* for something."""
        ...

    def close(self) -> None:
        """Ask the attempts to stop between two calls, wait a bounded time, then end all workers.

        Tasks that did not end are not reported. May be called again.
        """
        ...
