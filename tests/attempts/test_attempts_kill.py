"""Coordinators and workers that are killed at random times, and a run that continues."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import attempt_functions as do
import pytest

from wink_workspace.attempts import AttemptOutcome, Attempts
from wink_workspace.workspace import Workspace, WorkspaceStorage

COORDINATOR = Path(__file__).with_name("coordinator.py")


def run_until_killed(state: Path, rng: random.Random, *, kills_worker: bool) -> bool:
    """Run a coordinator and kill it, or one of its workers; whether the run was completed."""
    with subprocess.Popen(
        [sys.executable, str(COORDINATOR), str(state)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(rng.randrange(0, 4)):
            process.stdout.readline()
        if kills_worker:
            for child in workers_of(process.pid)[:1]:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            return process.wait() == 0
        process.kill()
        return process.wait() == 0


def workers_of(pid: int) -> list[int]:
    """The worker processes of a coordinator that runs."""
    with suppress(FileNotFoundError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [
            int(child)
            for child in children
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
        ]
    return []


@pytest.mark.behaviour(169)
@pytest.mark.parametrize("n_kills", [8, pytest.param(300, marks=pytest.mark.soak)])
def test_a_run_that_is_killed_at_random_times_has_the_same_result(
    tmp_path: Path, n_kills: int
) -> None:
    source = tmp_path / "source"
    for name, text in do.PACKAGE.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    rng = random.Random(17)
    runs, left = 0, n_kills
    while left:
        runs += 1
        state = tmp_path / f"state-{runs}"
        storage = WorkspaceStorage(state)
        Workspace.create(source, storage=storage).close()
        is_complete = False
        while left and not is_complete:
            left -= 1
            is_complete = run_until_killed(state, rng, kills_worker=rng.random() < 0.4)
        subprocess.run([sys.executable, str(COORDINATOR), str(state)], check=True, stdout=-3)
        assert_complete(storage)


def assert_complete(storage: WorkspaceStorage) -> None:
    """All attempts ended once, with the content that follows from their numbers."""
    (info,) = storage.all()
    with Workspace.open(info.id, storage=storage) as workspace:
        (run_id,) = Attempts.run_ids(workspace)
        attempts = Attempts.open(workspace, run_id)
        assert [result.number for result in attempts.results] == list(range(1, 9))
        others = [each for each in attempts.results if each.outcome is not AttemptOutcome.FINISHED]
        assert others == []
        assert [result.number for result in attempts.results if result.passed] == [5]
        wait_for_orphans(workspace)
        assert sorted(workspace.forks()) == sorted(each.branch for each in attempts.results)
        assert attempts.best is not None
        for result in attempts.results:
            with Workspace(workspace.folder, branch=result.branch) as fork:
                calls = [entry.tool for entry in fork.log() if entry.outcome == "committed"]
                assert calls == ["note", "edit"]
        attempts.keep(attempts.best)
        assert b"a + b" in workspace.files.read_bytes("calc/core.py")


def wait_for_orphans(workspace: Workspace) -> None:
    """Wait until the workers of killed coordinators, which end by themselves, left no fork."""
    for _ in range(300):
        workspace.delete_leftover_forks()
        if not any(name.startswith("temporary-") for name in workspace.forks()):
            return
        time.sleep(0.1)
    pytest.fail("a worker whose coordinator was killed did not end within 30 s")
