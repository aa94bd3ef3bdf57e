"""Attempts on a Ray cluster of two nodes on this machine."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import attempt_functions as do
import pytest
from ray_cluster import RayCluster

from wink_workspace.attempts import AttemptOutcome, Attempts, RayEngine
from wink_workspace.clock import Budget
from wink_workspace.workspace import Workspace, WorkspaceStorage

if not os.environ.get("CI"):
    pytest.importorskip("ray", reason="ray has no wheel for this Python; see the extra `ray`")

pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own, in this process
        started = RayCluster()
        try:
            started.add_node(podman=1)
            started.add_node()
            yield started
        finally:
            started.close()
            gc.collect()


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    source = tmp_path / "source"
    for name, text in do.PACKAGE.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    with Workspace.temporary(source) as opened:
        yield opened


@pytest.fixture
def engine(cluster: RayCluster, tmp_path: Path) -> RayEngine:
    return RayEngine(address=cluster.address, cache=f"{tmp_path}/node-{{node}}")


def assert_nothing_is_left(tmp_path: Path) -> None:
    """The caches of the nodes have bases without forks."""
    caches = list(tmp_path.glob("node-*"))
    assert caches
    for cache in caches:
        storage = WorkspaceStorage(cache)
        for info in storage.all():
            with Workspace.open(info.id, storage=storage) as base:
                assert base.forks() == ()


def test_the_best_of_attempts_on_two_nodes_is_kept(
    workspace: Workspace, engine: RayEngine, tmp_path: Path
) -> None:
    attempts = Attempts(workspace, n=8, seed=7, engine=engine)
    results = list(attempts.run(do.solve, score=do.tests_pass))
    assert sorted(result.number for result in results) == list(range(1, 9))
    assert {result.outcome for result in results} == {AttemptOutcome.FINISHED}
    assert [result.number for result in results if result.passed] == [5]
    assert attempts.spent.usage.total_tokens == 8 * 11
    attempts.keep(attempts.best)
    assert b"a + b" in workspace.files.read_bytes("calc/core.py")
    assert workspace.files.read_bytes("notes.md") == b"5\n"
    assert not workspace.files.exists("scored.txt")
    assert len(list(tmp_path.glob("node-*"))) == 2
    assert_nothing_is_left(tmp_path)


def test_a_budget_ends_attempts_on_nodes_after_at_most_one_turn_more(
    workspace: Workspace, engine: RayEngine
) -> None:
    attempts = Attempts(workspace, n=4, budget=Budget(max_total_tokens=1_050), engine=engine)
    results = list(attempts.run(do.spend))
    assert {result.outcome for result in results} == {AttemptOutcome.STOPPED}
    assert 1_050 <= attempts.spent.usage.total_tokens <= 1_150
