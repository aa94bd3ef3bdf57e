"""Runs one attempt in the process that an engine gives it."""

from __future__ import annotations

import pickle
import random
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final, Protocol

from wink_workspace.clock import SYSTEM_CLOCK
from wink_workspace.errors import (
    AttemptStoppedError,
    BudgetExceededError,
    DeadlineExceededError,
    UsageError,
)
from wink_workspace.workspace import Workspace, WorkspaceFolder

from .budget import Spending, TurnBudget
from .engine_protocol import AttemptOutcome, AttemptPlan, AttemptResult, AttemptTask, Cost, Score
from .forwarded_logs import LogLine, forwarding_logs

_OF_SCORER: Final = "the scorer: "
_OF_ATTEMPT: Final = "the attempt made its scorer fail, which it does not on the unchanged files: "


class Link(Protocol):
    """Connects a worker to its coordinator."""

    @property
    def should_stop(self) -> bool:
        """Whether the attempt should end between two calls."""
        ...

    def request(self, wanted: Spending) -> str:
        """Reserve a turn; waits for the answer, see ``BudgetPool.request``."""
        ...

    def end_turn(self, spent: Spending) -> None:
        """Report what a turn spent."""
        ...

    def log(self, line: LogLine) -> None:
        """Report what was logged; from any thread."""
        ...


class AttemptWorkspace(Workspace):
    """A workspace in which no call begins after the run was stopped.

    ``before_call`` is called before each call, and by no other thread.
    """

    link: Link | None = None
    before_call: Callable[[], object] = staticmethod(lambda: None)

    def check(self) -> None:
        """Raise ``AttemptStoppedError`` if the run was stopped."""
        if self.link is not None and self.link.should_stop:
            raise AttemptStoppedError("the run of this attempt was stopped")
        self.before_call()

    def _check_may_begin(self) -> None:
        self.check()
        super()._check_may_begin()

    def commit_edits(self) -> None:
        """Commit what was edited outside of calls."""
        with self._moves.block(needs_room=False):
            pass


class AttemptContext:
    """What an attempt gets.

    Attributes:
        workspace: A fork of its own. Its calls are entries; no call begins after a stop.
        number: The number of the attempt, from 1.
        round: How often it was continued, from 0; see ``successive_halving``.
        path: Its place in the tree of attempts, such as ``3.1``.
        random: Random numbers that depend on the seed, the path and the round only.
        budget: Reserve each turn of a model from it: ``with context.budget.turn() as turn``.
    """

    def __init__(self, workspace: Workspace, task: AttemptTask, *, seed: int, link: Link) -> None:
        self.workspace = workspace
        self.number = task.number
        self.round = task.round
        self.path = task.path
        self.random = random.Random(f"{seed}/{task.path}/{task.round}")  # noqa: S311 - not for secrets
        self.budget = TurnBudget(link.request, link.end_turn)
        self.n_children = 0
        self._link = link

    @property
    def should_stop(self) -> bool:
        """Whether the attempt should return soon: the run was stopped."""
        return self._link.should_stop

    def check(self) -> None:
        """Raise ``AttemptStoppedError`` if the run was stopped."""
        if self.should_stop:
            raise AttemptStoppedError("the run of this attempt was stopped")

    def branch(self, n: int) -> None:
        """Begin *n* more attempts at the newest entry of this one, when it has ended.

        Raises:
            UsageError: If *n* is not from 1 to 100.
        """
        if not 1 <= n <= 100:
            raise UsageError(f"{n} attempts were asked for", hint="Use from 1 to 100.")
        self.n_children += n


def run_task(plan: AttemptPlan, task: AttemptTask, link: Link) -> AttemptResult:
    """Run and score one attempt in its branch, which is closed when this returns.

    Every error of the attempt and its scorer becomes part of the result.
    """

    def opened() -> AttemptWorkspace:
        folder = WorkspaceFolder(plan.folder)
        return AttemptWorkspace(folder, config=plan.config, branch=task.branch)

    return run_attempt(plan, task, link, opened)


def run_attempt(
    plan: AttemptPlan,
    task: AttemptTask,
    link: Link,
    opened: Callable[[], AbstractContextManager[AttemptWorkspace]],
) -> AttemptResult:
    """As ``run_task``, in the workspace that *opened* opens."""
    with forwarding_logs(link.log, plan.log_level):
        return _run_attempt(plan, task, link, opened)


def _run_attempt(
    plan: AttemptPlan,
    task: AttemptTask,
    link: Link,
    opened: Callable[[], AbstractContextManager[AttemptWorkspace]],
) -> AttemptResult:
    started_s = SYSTEM_CLOCK.monotonic_s()
    score: Score | None = None
    outcome, error, n_children = AttemptOutcome.FAILED, "", 0
    try:
        attempt, scorer, score_timeout_s = pickle.loads(plan.functions)  # noqa: S301 - ours
        with opened() as workspace:
            workspace.link = link
            context = AttemptContext(workspace, task, seed=plan.seed, link=link)
            try:
                attempt(context)
            finally:
                workspace.commit_edits()
                n_children = context.n_children
            if scorer is not None:
                score = _scored(workspace, scorer, score_timeout_s, plan)
        outcome = AttemptOutcome.FINISHED
    except (AttemptStoppedError, BudgetExceededError) as stop:
        outcome, error = AttemptOutcome.STOPPED, one_line(stop)
    except Exception as failure:  # noqa: BLE001 - the boundary to the user's functions
        error = one_line(failure)
    return AttemptResult(
        number=task.number,
        outcome=outcome,
        score=score,
        cost=Cost(duration_s=SYSTEM_CLOCK.monotonic_s() - started_s),
        branch=task.branch,
        epoch=task.epoch,
        round=task.round,
        n_children=n_children if outcome is AttemptOutcome.FINISHED else 0,
        error=error,
    )


_Scorer = Callable[[Workspace], object]
_failures_at_start: dict[tuple[str, bytes], object] = {}
"""How the scorer of a run, with its functions, fails on the files at which the run began."""


def _scored(workspace: Workspace, scorer: _Scorer, limit_s: float, plan: AttemptPlan) -> Score:
    """The score; an exception has a note that says whether the attempt is its cause."""
    try:
        return _score_at(workspace, scorer, limit_s)
    except (AttemptStoppedError, BudgetExceededError):
        raise
    except Exception as error:
        key = plan.run_id, plan.functions
        if key not in _failures_at_start:
            _failures_at_start[key] = None
            try:
                _score_at(workspace, scorer, limit_s, at=plan.origin)
            except Exception as failure:  # noqa: BLE001 - as of the attempt, any kind is compared
                _failures_at_start[key] = _kind_of(failure)
        error.add_note(_OF_SCORER if _failures_at_start[key] == _kind_of(error) else _OF_ATTEMPT)
        raise


def _score_at(
    workspace: Workspace, scorer: _Scorer, limit_s: float, *, at: str | None = None
) -> Score:
    with workspace.branches.temporary(at=at) as fork, _time_limit(limit_s):
        return _score_of(scorer(fork))


def _kind_of(error: Exception) -> object:
    return type(error), getattr(error, "kind", "")


def _score_of(returned: object) -> Score:
    if isinstance(returned, Score):
        score = returned
    elif isinstance(returned, bool):
        score = Score(float(returned), passed=returned)
    elif isinstance(returned, int | float):
        score = Score(float(returned), passed=False)
    else:
        raise UsageError(
            f"the scorer returned {type(returned).__name__}",
            hint="Return a Score, a number, or whether the attempt passed.",
        )
    if not -1e300 < score.value < 1e300:
        raise UsageError(f"the score {score.value} is not finite", hint="Return a finite number.")
    return score


@contextmanager
def _time_limit(seconds: float) -> Generator[None]:
    """Raise ``DeadlineExceededError`` in the block after *seconds*; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(_signal: int, _frame: object) -> None:
        raise DeadlineExceededError(f"the scorer did not end within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def one_line(error: BaseException) -> str:
    """The type of an error, and its text, as one bounded line."""
    notes = getattr(error, "__notes__", ())
    where = next((note for note in (_OF_SCORER, _OF_ATTEMPT) if note in notes), "")
    text = ""
    with suppress(Exception):  # the user's exception may fail to format itself
        text = " ".join(str(error).split())[:500]
    return f"{where}{type(error).__name__}: {text}" if text else f"{where}{type(error).__name__}"
