"""A run on a Ray cluster of which parts are killed at random times, and which continues."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import attempt_functions as do
import pytest
from ray_cluster import RayCluster

from wink_workspace.attempts import AttemptOutcome, Attempts
from wink_workspace.workspace import Workspace, WorkspaceStorage

if not os.environ.get("CI"):
    pytest.importorskip("ray", reason="ray has no wheel for this Python; see the extra `ray`")

pytestmark = pytest.mark.xdist_group("ray")

COORDINATOR = Path(__file__).with_name("ray_coordinator.py")
SOAK = 7 * ("coordinator", "worker", "node", "coordinator", "worker", "node", "cluster") + ("node",)


@dataclass
class Deployment:
    """A cluster that can be replaced, and the folder of a test."""

    tmp_path: Path
    cluster: RayCluster

    def start_cluster(self) -> None:
        self.cluster = RayCluster()
        self.cluster.add_node()
        self.cluster.add_node()

    def kill(self, what: str, coordinator: subprocess.Popen[str]) -> None:
        match what:
            case "coordinator":
                coordinator.kill()
            case "worker":
                for pid in self.cluster.worker_pids()[:1]:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            case "node":
                self.cluster.kill_node(self.cluster.nodes[-1])
                self.cluster.add_node()
            case _:  # the head, with everything
                self.cluster.kill()
                coordinator.kill()  # Ray would end it after a minute
                self.start_cluster()

    def coordinator(self, state: Path) -> subprocess.Popen[str]:
        cache = f"{self.tmp_path}/node-{{node}}"
        return subprocess.Popen(
            [sys.executable, str(COORDINATOR), str(state), self.cluster.address, cache],
            stdout=subprocess.PIPE,
            text=True,
        )

    def run_until_killed(self, state: Path, what: str, rng: random.Random) -> bool:
        """Run a coordinator and kill *what*; whether the run was completed."""
        with self.coordinator(state) as process:
            assert process.stdout is not None
            process.stdout.readline()
            for _ in range(rng.randrange(0, 5)):
                process.stdout.readline()
            self.kill(what, process)
            process.stdout.read()
            return process.wait() == 0


@pytest.mark.behaviour(199)
@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
def test_a_run_of_which_50_parts_are_killed_has_the_same_result(tmp_path: Path, seed: int) -> None:
    deployment = Deployment(tmp_path, RayCluster())  # one to which this process is not connected
    deployment.cluster.add_node()
    deployment.cluster.add_node()
    try:
        kill_and_continue(deployment, list(SOAK), random.Random(seed))
    finally:
        deployment.cluster.close()


def kill_and_continue(deployment: Deployment, left: list[str], rng: random.Random) -> None:
    """Run attempts, kill what *left* says one after the other, and check each run."""
    tmp_path = deployment.tmp_path
    source = tmp_path / "source"
    for name, text in do.PACKAGE.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    n_runs = 0
    while left:
        n_runs += 1
        state = tmp_path / f"state-{n_runs}"
        Workspace.create(source, storage=WorkspaceStorage(state)).close()
        n_kills, is_complete = 0, False
        while left and not is_complete:
            n_kills += 1
            is_complete = deployment.run_until_killed(state, left.pop(0), rng)
        if not is_complete:
            with deployment.coordinator(state) as process:
                process.communicate()
            assert process.returncode == 0
        assert_complete(WorkspaceStorage(state), n_kills)


def assert_complete(storage: WorkspaceStorage, n_kills: int) -> None:
    """All attempts ended once, with what follows from their numbers, and the budget was held."""
    (info,) = storage.all()
    with Workspace.open(info.id, storage=storage) as workspace:
        (run_id,) = Attempts.run_ids(workspace)
        attempts = Attempts.open(workspace, run_id)
        assert [result.number for result in attempts.results] == list(range(1, 9))
        assert {result.outcome for result in attempts.results} == {AttemptOutcome.FINISHED}
        assert [result.number for result in attempts.results if result.passed] == [5]
        assert sorted(workspace.forks()) == sorted(each.branch for each in attempts.results)
        for result in attempts.results:
            with Workspace(workspace.folder, branch=result.branch) as fork:
                calls = [entry.tool for entry in fork.log() if entry.outcome == "committed"]
                assert calls == ["note", "edit"]
        # Each kill ends at most the turns of the two attempts that run
        assert 8 * 11 <= attempts.spent.usage.total_tokens <= (8 + 2 * n_kills) * 11
        attempts.keep(attempts.best)
        assert b"a + b" in workspace.files.read_bytes("calc/core.py")
