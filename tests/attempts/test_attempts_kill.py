"""Coordinators and workers that are killed at random steps and times, and a run that continues."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attempt_functions as do
import pytest

from wink_workspace.attempts import AttemptOutcome, Attempts
from wink_workspace.workspace import Workspace, WorkspaceStorage

SERVER = Path(__file__).with_name("attempts_kill_server.py")
STEPS = 16
"""Of a coordinator for each attempt."""
WORKER_STEPS = 15
SECONDS = 0.025
"""Of a run for each attempt."""
TURN_TOKENS = 11


class Server:
    """The process that runs coordinators and kills them."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, state: Path, n: int, kill: object, *, spawn: bool) -> int:
        """Run a coordinator until it ends; how many processes were killed."""
        assert self._process.stdin
        assert self._process.stdout
        request = {"state": str(state), "n": n, "spawn": spawn, "kill": kill}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, text in do.PACKAGE.items():
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_text(text)
    return tmp_path / "source"


def random_kill(rng: random.Random, n: int, ended: dict[int, str]) -> object:
    """Whom to kill, and at which step or time."""
    number = rng.choice([each for each in range(1, n + 1) if each not in ended])
    n_left = n - len(ended)
    return rng.choice(
        [
            ["coordinator", rng.randrange(1, STEPS * n_left)],
            ["coordinator", rng.uniform(0.0, SECONDS * n_left)],
            ["worker", [number, rng.randrange(1, WORKER_STEPS)]],
            ["worker", rng.uniform(0.0, SECONDS * n_left)],
        ]
    )


def ended_heads(storage: WorkspaceStorage) -> dict[int, str]:
    """The newest entry of each attempt that ended."""
    (info,) = storage.all()
    with Workspace.open(info.id, storage=storage) as workspace:
        runs = Attempts.run_ids(workspace)
        results = Attempts.open(workspace, runs[0]).results if runs else ()
        return {each.number: workspace.head_of(each.branch).id for each in results}


@pytest.mark.behaviour(169)
@pytest.mark.parametrize(
    ("n", "n_kills", "spawn", "seed"),
    [
        (5, 4, False, 17),
        (5, 2, True, 18),
        *(pytest.param(32, 50, seed == 0, seed, marks=pytest.mark.soak) for seed in range(6)),
    ],
)
def test_a_run_that_is_killed_at_random_steps_and_times_has_the_same_result(
    server: Server, source: Path, tmp_path: Path, n: int, n_kills: int, spawn: bool, seed: int
) -> None:
    rng = random.Random(seed)
    left, runs = n_kills, 0
    while left:
        runs += 1
        state = tmp_path / f"state-{runs}"
        storage = WorkspaceStorage(state)
        Workspace.create(source, storage=storage).close()
        ended = dict[int, str]()
        n_killed = 0
        while len(ended) < n:
            kill = random_kill(rng, n, ended) if left else None
            killed = server.run(state, n, kill, spawn=spawn)
            left -= killed
            n_killed += killed
            now = ended_heads(storage)
            assert {number: now[number] for number in ended} == ended  # none runs twice
            ended = now
        assert_complete(storage, n, n_killed)


def assert_complete(storage: WorkspaceStorage, n: int, n_killed: int) -> None:
    """All attempts ended once, with what follows from their numbers, and the budget was held."""
    (info,) = storage.all()
    with Workspace.open(info.id, storage=storage) as workspace:
        (run_id,) = Attempts.run_ids(workspace)
        attempts = Attempts.open(workspace, run_id)
        assert [result.number for result in attempts.results] == list(range(1, n + 1))
        assert {result.outcome for result in attempts.results} == {AttemptOutcome.FINISHED}
        passed = [result.number for result in attempts.results if result.passed]
        assert passed == [number for number in do.PASSING if number <= n]
        assert sorted(workspace.forks()) == sorted(each.branch for each in attempts.results)
        for result in attempts.results:
            with Workspace(workspace.folder, branch=result.branch) as fork:
                calls = [entry.tool for entry in fork.log() if entry.outcome == "committed"]
                assert calls == ["note", "edit"]
        # A kill ends the turns of at most two attempts, which count as spent
        spent = attempts.spent.usage.total_tokens
        assert n * TURN_TOKENS <= spent <= (n + 2 * n_killed) * TURN_TOKENS
        attempts.keep(attempts.best)
        assert b"a + b" in workspace.files.read_bytes("calc/core.py")
