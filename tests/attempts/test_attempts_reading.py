"""Runs and their attempts, read while nothing runs and while something does."""

from __future__ import annotations

import attempt_functions as do
import pytest

from wink_workspace.attempts import AttemptPhase, Attempts, LocalEngine, read_run, read_runs
from wink_workspace.clock import Budget
from wink_workspace.errors import UsageError
from wink_workspace.workspace import Workspace, WorkspaceReader


@pytest.mark.behaviour(170)
def test_a_reader_sees_every_attempt_while_another_has_the_workspace(workspace: Workspace) -> None:
    budget = Budget(max_total_tokens=10_000)
    about = {"task": "add"}
    attempts = Attempts(
        workspace, n=5, seed=7, budget=budget, about=about, engine=LocalEngine(workers=1)
    )
    assert [each.phase for each in attempts.status.attempts] == [AttemptPhase.WAITING] * 5
    running = attempts.run(do.solve, score=do.tests_pass)
    first = next(running)
    with WorkspaceReader(workspace.folder) as reader:
        (run,) = read_runs(reader)
        assert {each.phase for each in run.attempts} >= {AttemptPhase.WAITING}
        status = run.attempt(first.number)
        assert (status.phase, status.score, status.cost) == (
            AttemptPhase.FINISHED,
            first.score,
            first.cost,
        )
        list(running)
        done = read_run(reader, run.run_id)
    assert (done.about, done.budget, done.branch) == (about, budget, "main")
    assert [each.number for each in done.attempts] == [1, 2, 3, 4, 5]
    assert [each.n_calls for each in done.attempts] == [2] * 5
    assert [each.epoch for each in done.attempts] == [1] * 5
    assert done.is_complete
    assert done.best is not None
    assert done.best.number == 5
    assert done.spent == attempts.spent
    assert done == attempts.status
    with pytest.raises(UsageError, match="no attempt 6"):
        done.attempt(6)
    with pytest.raises(UsageError, match="no run"):
        read_run(workspace, "none")


def test_runs_are_listed_newest_first_until_they_are_removed(workspace: Workspace) -> None:
    assert read_runs(workspace) == ()
    first, second = (Attempts(workspace, n=1) for _ in range(2))
    for attempts in (first, second):
        list(attempts.run(do.call_forever))
    assert [run.run_id for run in read_runs(workspace)] == [second.run_id, first.run_id]
    second.remove()
    assert [run.run_id for run in read_runs(workspace)] == [first.run_id]


def test_an_attempt_that_was_continued_counts_the_calls_of_both_workers(
    workspace: Workspace,
) -> None:
    attempts = Attempts(workspace, n=1, engine=LocalEngine(workers=1))
    list(attempts.run(do.die_once))
    (status,) = attempts.status.attempts
    assert (status.epoch, status.n_calls) == (2, 3)  # the second call was begun twice
