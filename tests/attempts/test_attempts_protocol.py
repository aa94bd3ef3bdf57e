"""Late, doubled and lost results, with an engine that the test drives."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Sequence

import attempt_functions as do
import pytest

from wink_workspace.attempts import (
    AttemptEvent,
    AttemptPlan,
    AttemptResult,
    Attempts,
    AttemptTask,
    BudgetPool,
    CommandScore,
    EventKind,
    LogLine,
)
from wink_workspace.attempts.attempt_context import run_task
from wink_workspace.attempts.budget import Grant, Spending
from wink_workspace.clock import Budget, ManualClock, TokenUsage
from wink_workspace.errors import LedgerMovedError
from wink_workspace.sandbox.podman import PodmanConfig
from wink_workspace.workspace import Workspace


class NoLink:
    should_stop = False

    def request(self, wanted: Spending) -> str:
        return Grant.GRANTED

    def end_turn(self, spent: Spending) -> None:
        pass

    def log(self, line: LogLine) -> None:
        pass


class DrivenEngine:
    """Calls ``on_poll`` with the tasks that were submitted."""

    def __init__(self, on_poll: Callable[[DrivenEngine], Sequence[AttemptEvent]]) -> None:
        self.on_poll = on_poll
        self.tasks: list[AttemptTask] = []
        self.is_closed = False

    def prepare(self, plan: AttemptPlan, budget: BudgetPool) -> int:
        self.plan = plan
        return 4

    def submit(self, task: AttemptTask) -> None:
        self.tasks.append(task)

    def poll(self, timeout_s: float) -> Sequence[AttemptEvent]:
        return () if self.is_closed else self.on_poll(self)

    def close(self) -> None:
        self.is_closed = True

    def ended(self, task: AttemptTask) -> AttemptEvent:
        result = pickle.loads(pickle.dumps(run_task(self.plan, task, NoLink())))
        assert isinstance(result, AttemptResult)
        return AttemptEvent(EventKind.ENDED, task.number, task.epoch, result=result)


@pytest.mark.behaviour(167)
def test_a_worker_that_wakes_after_its_lease_is_refused_and_its_work_is_a_discard(
    workspace: Workspace,
) -> None:
    clock = ManualClock()

    def on_poll(engine: DrivenEngine) -> Sequence[AttemptEvent]:
        if len(engine.tasks) == 1:
            clock.advance(61)  # no sign of life: the lease expires
            engine.late = Workspace(workspace.folder, branch=engine.tasks[0].branch)
            return ()
        late, new = engine.tasks
        if not engine.late_ended:
            with engine.late as fork, fork.call("late") as call:
                fork.files.write_bytes("late.txt", b"late")
                call.result("")
            engine.late_ended = True
            return [engine.ended(late)]
        return [engine.ended(new), engine.ended(new)]

    engine = DrivenEngine(on_poll)
    engine.late_ended = False
    attempts = Attempts(workspace, n=1, engine=engine, lease_s=60, clock=clock)
    (result,) = attempts.run(do.solve)
    assert (result.epoch, result.branch) == (2, engine.tasks[1].branch)
    assert workspace.forks() == (result.branch,)
    assert [found.reason for found in workspace.discarded()] == ["late attempt"]
    attempts.keep(result)
    assert not workspace.files.exists("late.txt")
    workspace.restore_discarded(workspace.discarded()[0].discard)
    assert workspace.files.read_bytes("late.txt") == b"late"


def test_a_result_that_is_delivered_twice_is_accepted_once(workspace: Workspace) -> None:
    def on_poll(engine: DrivenEngine) -> Sequence[AttemptEvent]:
        events = [engine.ended(task) for task in engine.tasks]
        engine.tasks = []
        return [*events, *events]

    attempts = Attempts(workspace, n=2, engine=DrivenEngine(on_poll))
    assert [result.number for result in attempts.run(do.solve)] == [1, 2]
    assert len(workspace.forks()) == 2


def test_a_cancelled_task_ends_when_the_engine_is_closed_and_is_not_polled_again(
    workspace: Workspace,
) -> None:
    async def main() -> None:
        loop, is_polled, may_return = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def on_poll(engine: DrivenEngine) -> Sequence[AttemptEvent]:
            loop.call_soon_threadsafe(is_polled.set)
            may_return.wait()
            return [engine.ended(task) for task in engine.tasks]

        async def consume() -> None:
            async for _ in attempts.run_async(do.solve):
                pass

        engine = DrivenEngine(on_poll)
        attempts = Attempts(workspace, n=1, engine=engine)
        task = asyncio.create_task(consume())
        await is_polled.wait()
        task.cancel()
        await asyncio.sleep(0)  # the task gets the cancellation while the engine is polled
        assert not engine.is_closed
        may_return.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.is_closed
        assert [result.number for result in attempts.results] == [1]

    asyncio.run(main())


def test_an_asynchronous_run_closes_its_engine_outside_of_the_event_loop(
    workspace: Workspace,
) -> None:
    class Engine(DrivenEngine):
        def close(self) -> None:  # it may wait for attempts
            super().close()
            self.closed_by = threading.get_ident()

    async def main() -> None:
        running = Attempts(workspace, n=1, engine=engine).run_async(do.solve)
        await anext(running)
        await running.aclose()

    engine = Engine(lambda engine: [engine.ended(task) for task in engine.tasks])
    asyncio.run(main())
    assert engine.is_closed
    assert engine.closed_by != threading.get_ident()


def test_a_scorer_with_the_default_settings_of_a_sandbox_reaches_the_worker(
    workspace: Workspace,
) -> None:
    score = CommandScore("pytest -q", sandbox=PodmanConfig())  # its variables are read-only
    with pytest.raises(TypeError):
        pickle.dumps(score)
    engine = DrivenEngine(lambda engine: [])
    running = Attempts(workspace, n=1, engine=engine).run(
        do.solve, score=score, stop=lambda results: True
    )
    assert list(running) == []
    assert pickle.loads(engine.plan.functions)[1] == score


def test_a_document_is_changed_by_compare_and_swap_and_survives_maintenance(
    workspace: Workspace,
) -> None:
    documents = workspace.documents("test")
    at = workspace.head.at
    first = documents.write("a", {"n": 1}, expected=None, at=at)
    second = documents.write("a", {"n": 1}, expected=first, at=at)
    assert first != second
    for expected in (None, first):
        with pytest.raises(LedgerMovedError):
            documents.write("a", {"n": 2}, expected=expected, at=at)
    workspace.maintain()
    assert documents.read_all()["a"].content == {"n": 1}
    documents.delete("a")
    assert documents.read_all() == {}


@pytest.mark.behaviour(168)
def test_turns_wait_for_what_others_reserved() -> None:
    pool = BudgetPool(Budget(max_total_tokens=100))
    turn = Spending(TokenUsage(60))
    assert pool.request(1, 1, turn) == Grant.GRANTED
    assert pool.request(2, 1, turn) == Grant.WAIT
    pool.end_turn(1, 1, Spending(TokenUsage(30)))
    assert pool.request(2, 1, turn) == Grant.GRANTED
    assert pool.request(1, 1, Spending()) == Grant.WAIT
    pool.forfeit(2, 1)
    assert pool.spent.usage.total_tokens == 90
    assert pool.request(1, 1, turn) == Grant.GRANTED
    pool.end_turn(1, 1, turn)
    assert pool.request(1, 1, turn) == Grant.SPENT
