"""The runs of a workspace and their attempts, read without running anything.

What is read may be of a moment ago: another process may hold the workspace and run the attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from wink_workspace.clock import Budget
from wink_workspace.errors import EntryMissingError, LedgerError, UsageError
from wink_workspace.ledger import Document, EntryKind
from wink_workspace.workspace import ReadableHistory

from .budget import Spending
from .engine_protocol import Cost, Score
from .run_state import AttemptState, RunState, parse_state
from .strategies import rank

RUNS_KIND: Final = "attempts"


class AttemptPhase(StrEnum):
    """Where an attempt is; the last three are its ``AttemptOutcome``."""

    WAITING = "waiting"
    """It was not started, or will be started again."""
    RUNNING = "running"
    """A worker has it, or had it when the coordinator was killed."""
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStatus:
    """One attempt, ended or not.

    Attributes:
        number: Counted from 1.
        phase: Where it is.
        epoch: How often it was started.
        round: Its last round, counted from 0.
        parent: The number of the attempt that branched into this one; 0 for none.
        branch: The fork with its entries; empty before it was started.
        n_calls: The calls on its branch that it made, failed ones included.
        cost: What it spent so far; while it runs, without its time.
        score: ``None`` without a scorer, and before it finished.
        error: Why it failed or stopped, in one line.
    """

    number: int
    phase: AttemptPhase = AttemptPhase.WAITING
    epoch: int = 0
    round: int = 0
    parent: int = 0
    branch: str = ""
    n_calls: int = 0
    cost: Cost = Cost()  # noqa: RUF009 - frozen, so it may be shared
    score: Score | None = None
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether its scorer says that it solves the task."""
        return self.score is not None and self.score.passed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One run of attempts.

    Attributes:
        run_id: Names the run; see ``Attempts.open``.
        begun_at: When it began.
        branch: The branch on which it began, and into which attempts are merged.
        origin: The id of the entry at which the attempts begin; empty if none was started.
        budget: Its limits.
        about: The JSON object that the program stored with the run, such as its task.
        attempts: All of them, by number.
    """

    run_id: str
    begun_at: datetime
    branch: str
    origin: str
    budget: Budget
    about: Mapping[str, Any]  # Any: JSON of the program that began the run
    attempts: tuple[AttemptStatus, ...]

    @property
    def best(self) -> AttemptStatus | None:
        """The best one that finished: passed before not passed, then by score and number."""
        finished = [each for each in self.attempts if each.phase is AttemptPhase.FINISHED]
        return max(finished, key=rank, default=None)

    @property
    def spent(self) -> Spending:
        """What all attempts together spent."""
        return sum((Spending(e.cost.usage, e.cost.usd) for e in self.attempts), Spending())

    @property
    def is_complete(self) -> bool:
        """Whether every attempt finished or failed."""
        ends = (AttemptPhase.FINISHED, AttemptPhase.FAILED)
        return all(each.phase in ends for each in self.attempts)

    def attempt(self, number: int) -> AttemptStatus:
        """The attempt with this number, or ``UsageError``."""
        for each in self.attempts:
            if each.number == number:
                return each
        raise UsageError(
            f"run {self.run_id} has no attempt {number}",
            hint=f"Choose from 1 to {len(self.attempts)}.",
        )


def read_runs(history: ReadableHistory) -> tuple[RunStatus, ...]:
    """The runs of a workspace that were not removed, newest first.

    Args:
        history: A ``WorkspaceReader`` or an open workspace, of any branch.

    Raises:
        LedgerDamagedError: If the state of a run cannot be read.
    """
    found: dict[str, dict[str, Document]] = {}
    for name, document in history.documents(RUNS_KIND).read_all().items():
        run_id, _, rest = name.partition("/")
        found.setdefault(run_id, {})[rest] = document
    runs = [_run_of(history, run_id, parts) for run_id, parts in found.items() if "run" in parts]
    return tuple(sorted(runs, key=lambda run: (run.begun_at, run.run_id), reverse=True))


def read_run(history: ReadableHistory, run_id: str) -> RunStatus:
    """One run of a workspace; raises as ``read_runs``, and ``UsageError`` if there is none."""
    found = history.documents(f"{RUNS_KIND}/{run_id}").read_all() if run_id.isalnum() else {}
    if "run" not in found:
        raise UsageError(f"there is no run {run_id!r}", hint="List the runs of the workspace.")
    return _run_of(history, run_id, found)


def _run_of(history: ReadableHistory, run_id: str, documents: Mapping[str, Document]) -> RunStatus:
    run = parse_state(RunState, documents["run"].content)
    states = {
        int(name): parse_state(AttemptState, document.content)
        for name, document in documents.items()
        if name != "run"
    }
    return run_status(run_id, run, states, lambda state: count_calls(history, state))


def run_status(
    run_id: str,
    run: RunState,
    states: Mapping[int, AttemptState],
    count: Callable[[AttemptState], int],
) -> RunStatus:
    """The status of a run; *count* gives the calls of an attempt that has not ended."""
    numbers = sorted({*range(1, run.n + 1), *states, *(number for number, _ in run.chosen)})
    return RunStatus(
        run_id=run_id,
        begun_at=run.begun_at,
        branch=run.branch,
        origin=run.origin,
        budget=run.budget,
        about=run.about,
        attempts=tuple(_statuses(numbers, states, count)),
    )


def _statuses(
    numbers: Sequence[int],
    states: Mapping[int, AttemptState],
    count: Callable[[AttemptState], int],
) -> Iterator[AttemptStatus]:
    for number in numbers:
        state = states.get(number, AttemptState())
        spent = state.spent + state.reserved
        status = AttemptStatus(
            number=number,
            phase=AttemptPhase.WAITING,
            epoch=state.epoch,
            round=state.round,
            parent=state.parent,
            branch=state.branch,
            cost=Cost(spent.usage, spent.usd),
        )
        result = state.as_result() if state.phase == "ended" else None
        if result is not None:
            status = replace(
                status,
                phase=AttemptPhase(result.outcome),
                n_calls=state.n_calls,
                cost=result.cost,
                score=result.score,
                error=result.error,
            )
        elif state.branch:
            status = replace(status, phase=AttemptPhase(state.phase), n_calls=count(state))
        yield status


def count_calls(history: ReadableHistory, state: AttemptState) -> int:
    """The calls on the branch of an attempt since it began; 0 if the branch is gone."""
    n_calls = 0
    try:
        for entry in history.log_of(state.branch):
            if entry.number <= state.begins_at:
                break
            n_calls += entry.kind is EntryKind.CALL
    except (EntryMissingError, LedgerError):  # it was replaced meanwhile, or retention shortened it
        return n_calls
    return n_calls
