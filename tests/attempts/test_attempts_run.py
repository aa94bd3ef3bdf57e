"""Attempts through worker processes."""

from __future__ import annotations

import asyncio

import attempt_functions as do
import pytest

from wink_workspace.attempts import (
    AttemptOutcome,
    Attempts,
    CommandScore,
    LocalEngine,
    first_passing,
    successive_halving,
    tree_search,
)
from wink_workspace.clock import Budget
from wink_workspace.errors import ConflictError, UsageError
from wink_workspace.workspace import Workspace


@pytest.mark.behaviour(158)
def test_the_best_of_20_attempts_is_kept_as_one_entry_that_undo_takes_back(
    workspace: Workspace,
) -> None:
    attempts = Attempts(workspace, n=20, seed=7)
    results = list(attempts.run(do.solve, score=do.tests_pass))
    assert sorted(result.number for result in results) == list(range(1, 21))
    assert sorted(result.number for result in results if result.passed) == [5, 17]
    assert attempts.best is not None
    assert attempts.best.number == do.PASSING[0]
    before = workspace.head.number
    attempts.keep(attempts.best)
    assert workspace.head.number == before + 1
    assert b"a + b" in workspace.files.read_bytes("calc/core.py")
    assert not workspace.files.exists("scored.txt")
    workspace.undo()
    assert b"a - b" in workspace.files.read_bytes("calc/core.py")
    attempts.remove()
    assert workspace.forks() == ()
    assert Attempts.run_ids(workspace) == ()


@pytest.mark.behaviour(159)
def test_an_attempt_whose_worker_dies_continues_from_its_last_entry(workspace: Workspace) -> None:
    attempts = Attempts(workspace, n=1, engine=LocalEngine(workers=1))
    (result,) = attempts.run(do.die_once)
    assert (result.outcome, result.epoch) == (AttemptOutcome.FINISHED, 2)
    attempts.keep(result)
    assert workspace.files.exists("first")
    assert workspace.files.exists("second")
    assert not workspace.files.exists("lost")
    assert workspace.forks() == (result.branch,)
    assert workspace.discarded()


@pytest.mark.behaviour(160)
def test_an_attempt_whose_worker_always_dies_fails(workspace: Workspace) -> None:
    attempts = Attempts(workspace, n=1, engine=LocalEngine(workers=1))
    (result,) = attempts.run(do.always_die)
    assert result.outcome is AttemptOutcome.FAILED
    assert "exit code -9" in result.error


@pytest.mark.behaviour(161)
def test_a_budget_ends_all_attempts_after_at_most_one_turn_more(workspace: Workspace) -> None:
    attempts = Attempts(workspace, n=4, budget=Budget(max_total_tokens=1_050))
    results = list(attempts.run(do.spend))
    assert {result.outcome for result in results} == {AttemptOutcome.STOPPED}
    assert 1_050 <= attempts.spent.usage.total_tokens <= 1_150
    again = Attempts.open(workspace, attempts.run_id, budget=Budget(max_total_tokens=1_500))
    list(again.run(do.spend))
    assert 1_500 <= again.spent.usage.total_tokens <= 1_600


@pytest.mark.behaviour(162)
def test_a_stopped_attempt_ends_between_two_calls(workspace: Workspace) -> None:
    attempts = Attempts(workspace, n=2, engine=LocalEngine(workers=2))
    results = {r.number: r for r in attempts.run(do.call_forever, stop=lambda found: bool(found))}
    assert results[1].outcome is AttemptOutcome.FINISHED
    assert results[2].outcome is AttemptOutcome.STOPPED
    with Workspace(workspace.folder, branch=results[2].branch) as stopped:
        if stopped.files.exists("n"):
            assert stopped.files.read_bytes("n") == stopped.files.read_bytes("same")


@pytest.mark.behaviour(163)
def test_keeping_two_attempts_merges_or_shows_the_conflict_and_changes_nothing(
    workspace: Workspace,
) -> None:
    attempts = Attempts(workspace, n=3)
    list(attempts.run(do.edit_readme))
    attempts.keep(1)
    attempts.keep(2)
    both = workspace.files.read_bytes("README.md")
    assert both == b"one by 1\ntwo\nthree by 2\n"
    head = workspace.head
    with pytest.raises(ConflictError) as caught:
        attempts.keep(3)
    assert caught.value.conflicts
    assert workspace.head == head
    assert workspace.files.read_bytes("README.md") == both
    assert "+three by 2" in attempts.diff(1, 2).review().text()


@pytest.mark.behaviour(164)
def test_only_the_chosen_paths_of_an_attempt_are_kept(workspace: Workspace) -> None:
    attempts = Attempts(workspace, n=1)
    list(attempts.run(do.solve))
    attempts.keep(1, paths=["notes.md"])
    assert workspace.files.read_bytes("notes.md") == b"1\n"
    assert b"a - b" in workspace.files.read_bytes("calc/core.py")
    attempts.keep(1)
    assert b"a - b" not in workspace.files.read_bytes("calc/core.py")


def test_successive_halving_continues_the_better_half(workspace: Workspace) -> None:
    attempts = Attempts(workspace, n=4, strategy=successive_halving)
    list(attempts.run(do.continue_each_round, score=do.score_number))
    assert [result.round for result in attempts.results] == [2, 1, 0, 0]
    attempts.keep(1)
    assert workspace.files.read_bytes("README.md").endswith(b"round 0\nround 1\nround 2\n")


def test_the_children_of_an_attempt_begin_at_its_last_entry(workspace: Workspace) -> None:
    attempts = Attempts(workspace, n=2, strategy=tree_search)
    list(attempts.run(do.branch_twice, score=do.score_number))
    assert [result.parent for result in attempts.results] == [0, 0, 1, 1]
    attempts.keep(4)
    assert workspace.files.read_bytes("README.md").endswith(b"three\n1\n1.2\n")


def test_a_run_can_be_awaited(workspace: Workspace) -> None:
    async def main() -> list[int]:
        attempts = Attempts(workspace, n=8)
        running = attempts.run_async(do.solve, score=do.tests_pass, stop=first_passing)
        return [result.number async for result in running if result.passed]

    assert set(asyncio.run(main())) & set(do.PASSING)


@pytest.mark.behaviour(165)
@pytest.mark.parametrize(
    ("scorer", "error"),
    [
        (do.score_raises, "the scorer: RuntimeError: no score here"),
        (do.score_hangs, "the scorer: DeadlineExceededError"),
        (do.score_logs, "the scorer: DeadlineExceededError"),
    ],
)
def test_a_broken_scorer_fails_the_attempt_and_loses_nothing(
    workspace: Workspace, scorer: object, error: str
) -> None:
    attempts = Attempts(workspace, n=1, score_timeout_s=0.2)
    (result,) = attempts.run(do.solve, score=scorer)  # type: ignore[arg-type]
    assert result.outcome is AttemptOutcome.FAILED
    assert result.error.startswith(error)
    attempts.keep(result)
    assert workspace.files.exists("notes.md")


def test_a_scorer_that_prints_a_gibibyte_scores(workspace: Workspace) -> None:
    (result,) = Attempts(workspace, n=1).run(do.solve, score=do.score_prints)
    assert result.score is not None


@pytest.mark.behaviour(205)
def test_what_an_attempt_logs_is_logged_by_the_coordinator(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    list(Attempts(workspace, n=1).run(do.log_lines))
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("program", "attempt 1: line 1  [31m"),
        ("wink_workspace.x", "attempt 1: failed"),
    ]
    caplog.clear()
    list(Attempts(workspace, n=1).run(do.log_much))
    assert len(caplog.records) == 1_001
    assert max(len(record.getMessage()) for record in caplog.records) < 2_100
    assert "the others are not shown" in caplog.messages[-1]


@pytest.mark.behaviour(166)
def test_bad_arguments_are_one_clear_error(workspace: Workspace) -> None:
    for n in (0, -1, 10_001):
        with pytest.raises(UsageError, match="attempts were asked for"):
            Attempts(workspace, n=n)
    with pytest.raises(UsageError, match="workers"):
        LocalEngine(workers=0)
    with pytest.raises(UsageError, match="empty"):
        CommandScore("")
    attempts = Attempts(workspace, n=1)
    with pytest.raises(UsageError, match="cannot be sent"):
        list(attempts.run(lambda context: None))
    with pytest.raises(UsageError, match="no run"):
        Attempts.open(workspace, "none")
    with pytest.raises(UsageError, match="has not ended"):
        attempts.keep(1)
    assert workspace.forks() == ()
