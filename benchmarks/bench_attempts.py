"""The time from one result of a run of attempts to the next, with one worker.

Run by ``make bench``; skipped without Podman and the image, or without Ray, if they need them. An
attempt writes one file in one call, so this is the overhead: fork, start, commit, accept, and what
the engine does. The references are measured between the attempts of the same run:

- ``worktree_us``: ``git worktree add``, a process that writes the file, ``git worktree remove``;
- ``container_us``: a container is created, started, probed and removed, without a workspace.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import loopback
import pytest
from bench_waiting import source_of

from wink_workspace.attempts import AttemptContext, AttemptOutcome, Attempts, Engine, LocalEngine
from wink_workspace.clock import SYSTEM_CLOCK, Cancellation
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxError
from wink_workspace.sandbox import ExecRequest
from wink_workspace.sandbox.podman import PodmanConfig
from wink_workspace.sandbox.podman.commands.runner_container import RunnerContainer
from wink_workspace.sandbox.podman.engine.containers import Host
from wink_workspace.sandbox.podman.engine.service import PodmanService, shared_service
from wink_workspace.workspace import Workspace

SIZES = [1_000, 10_000, 50_000]
N = 200
WARM_UP = 5
FILE = "d0/e0/f0.txt"


def write(context: AttemptContext) -> None:
    """One call that writes one file."""
    with context.workspace.call("write") as call:
        context.workspace.files.write_bytes(FILE, b"%d" % context.number)
        call.result("")


def run_command(context: AttemptContext) -> None:
    """One call that runs one command in a container."""
    with context.workspace.call("run") as call:
        context.workspace.sandbox().run(ExecRequest(argv=("true",)))
        call.result("")


@contextmanager
def running(
    source: Path, engine: Engine, attempt: Callable[[AttemptContext], None] = write
) -> Generator[Callable[[], None]]:
    """A function that waits for the next result of a run."""
    with Workspace.temporary(source) as workspace:
        attempts = Attempts(workspace, n=N + WARM_UP + 1, engine=engine)
        with closing(attempts.run(attempt)) as results:

            def following() -> None:
                result = next(results)
                assert result.outcome is AttemptOutcome.FINISHED, result.error

            yield following


@pytest.fixture(scope="module", params=SIZES, ids=lambda n: f"{n}_files")
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source_of(tmp_path_factory.mktemp("source"), request.param)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10,000 files in a git repository."""
    root = source_of(tmp_path_factory.mktemp("repository"), 10_000)
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
        git(root, *arguments)
    return root


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=b", "-c", "user.email=b@example.invalid")
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


def bench_attempt_without_a_container(benchmark, source: Path) -> None:
    with running(source, LocalEngine(workers=1)) as following:
        benchmark.pedantic(following, rounds=N, warmup_rounds=WARM_UP)


def bench_attempt_beside_a_git_worktree(benchmark, repository: Path) -> None:
    tree = repository.with_name("tree")

    def use_worktree() -> None:
        git(repository, "worktree", "add", "-q", "--detach", str(tree))
        subprocess.run(["sh", "-c", f"echo changed > {FILE}"], cwd=tree, check=True)
        git(repository, "worktree", "remove", "--force", str(tree))

    reference = Reference(use_worktree, every=N // 5)
    with running(repository, LocalEngine(workers=1)) as following:
        benchmark.pedantic(following, setup=reference, rounds=N, warmup_rounds=WARM_UP)
    benchmark.extra_info["worktree_us"] = reference.median_us


def bench_attempt_with_a_container_each(benchmark, repository: Path) -> None:
    environment = Environment.from_os()
    try:
        service = shared_service(environment)
        reference = Reference(
            partial(use_container, service),
            every=N // 5,
            times=5,
        )
        reference.measure()
    except SandboxError as error:
        pytest.skip(str(error))
    with running(repository, LocalEngine(workers=1), run_command) as following:
        benchmark.pedantic(following, setup=reference, rounds=N, warmup_rounds=WARM_UP)
    benchmark.extra_info["container_us"] = reference.median_us


def use_container(service: PodmanService) -> None:
    """Create, start, probe and remove a container."""
    container = RunnerContainer(
        service,
        PodmanConfig(),
        Host.of(service),
        clock=SYSTEM_CLOCK,
        cancellation=Cancellation(),
    )
    container.end()


class Reference:
    """Measures something before each *every*-th round of a benchmark, some *times*."""

    def __init__(self, function: Callable[[], object], *, every: int, times: int = 1) -> None:
        self._function, self._every, self._times = function, every, times
        self._n_rounds = 0
        self._found: list[float] = []

    def __call__(self) -> None:
        if self._n_rounds % self._every == 0:
            self.measure()
        self._n_rounds += 1

    def measure(self) -> None:
        for _ in range(self._times):
            begun_s = time.perf_counter()
            self._function()
            self._found.append(time.perf_counter() - begun_s)

    @property
    def median_us(self) -> float:
        return statistics.median(self._found) * 1e6


@pytest.fixture(scope="module")
def ray_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A cluster of one node, on this machine, in a network that has loopback only."""
    pytest.importorskip("ray")
    if not loopback.enter():
        pytest.skip("a network namespace needs root")
    from attempts.ray_cluster import RayCluster

    from wink_workspace.attempts import RayEngine

    cluster = RayCluster()
    try:
        cluster.add_node(variables={"PYTHONPATH": ":".join(sys.path)})
        cluster.connect()
        yield RayEngine(cache=str(tmp_path_factory.mktemp("nodes")))
    finally:
        cluster.close()


def bench_attempt_on_a_ray_node(benchmark, source: Path, ray_engine: Engine) -> None:
    with running(source, ray_engine) as following:
        benchmark.pedantic(following, rounds=N, warmup_rounds=WARM_UP)
