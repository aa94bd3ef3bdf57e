"""Commands over the programs of this machine, beside the same command elsewhere in one run.

Run by ``make bench``, as root or as an ordinary user; without bubblewrap these are skipped. A whole
call runs ``true``, ends every process that is left, and commits. ``bwrap`` alone is the least that
an isolated process takes. sandlock, which has no transaction, is compared if it is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

import pytest
from bench_waiting import Forks, source_of
from differences import report

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxError
from wink_workspace.sandbox import ExecRequest
from wink_workspace.sandbox.bubblewrap import BubblewrapConfig
from wink_workspace.sandbox.bubblewrap.bubblewrap_runner import find_bwrap
from wink_workspace.sandbox.podman import DEFAULT_IMAGE
from wink_workspace.workspace import Workspace, WorkspaceStorage

SIZES = [100, 50_000]
ROUNDS = 50
N_FORKS = 100
COLD = 10
REQUEST = ExecRequest(argv=("true",))


class HostForks(Forks):
    """Forks whose commands run over the programs of this machine."""

    def command(self, workspace: Workspace) -> None:
        with workspace.call("true"):
            assert workspace.sandbox(BubblewrapConfig()).run(REQUEST).exit_code == 0

    def fork_and_run(self) -> None:
        """Fork the workspace, open the fork, and run one command in it as one call."""
        self.fork = self.workspace.fork(f"fork-{next(_numbers)}").open()
        self.command(self.fork)


_numbers = iter(range(1_000_000))


@pytest.fixture(scope="module", params=SIZES, ids=lambda n: f"{n}_files")
def forks(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HostForks]:
    source = source_of(tmp_path_factory.mktemp("source"), request.param)
    storage = WorkspaceStorage(tmp_path_factory.mktemp("state"))
    with Workspace.create(source, storage=storage) as workspace:
        found = HostForks(workspace, storage, source)
        try:
            found.command(workspace)
        except SandboxError as error:
            pytest.skip(str(error))
        yield found


def bench_call_of_true(benchmark, forks: HostForks) -> None:
    benchmark.pedantic(lambda: forks.command(forks.workspace), rounds=ROUNDS, warmup_rounds=3)


def bench_first_command_of_a_fork(benchmark, forks: HostForks) -> None:
    """Nothing was started before for the fork."""

    def close() -> None:
        if forks.fork is not None:
            forks.fork.close()

    benchmark.pedantic(forks.fork_and_run, setup=close, rounds=ROUNDS, warmup_rounds=3)
    close()


def bench_a_command_in_each_of_100_forks(benchmark, forks: HostForks) -> None:
    with ExitStack() as opened:

        def each() -> None:
            for _ in range(N_FORKS):
                fork = opened.enter_context(forks.workspace.fork(f"f-{next(_numbers)}").open())
                forks.command(fork)

        benchmark.pedantic(each, rounds=1)


def bench_bwrap_alone(benchmark, forks: HostForks) -> None:
    """The program itself, with the directories of the system and no workspace."""
    command = [
        find_bwrap(Environment.from_os()),
        "--unshare-all",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "true",
    ]
    benchmark.pedantic(lambda: subprocess.run(command, check=True), rounds=ROUNDS, warmup_rounds=3)


def bench_sandlock(benchmark, forks: HostForks) -> None:
    sandlock = shutil.which("sandlock", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if sandlock is None:
        pytest.skip("sandlock is not installed")
    command = [sandlock, "run", "-r", "/", "-w", str(forks.source), "--", "true"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("sandlock does not run here")
    benchmark.pedantic(lambda: subprocess.run(command, check=True), rounds=ROUNDS, warmup_rounds=3)


def bench_exec_from_a_cold_shell(benchmark, tmp_path: Path) -> None:
    """``exec -- true`` and ``podman run`` in turns; the goal is 0.7 of the latter's time."""
    source = source_of(tmp_path / "source", 100)
    variables = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    ours = [
        *(sys.executable, "-m", "wink_workspace.cli"),
        *("exec", "--sandbox", "bubblewrap", "--", "true"),
    ]
    engine = ["podman", "run", "--rm", "--network=none", DEFAULT_IMAGE, "true"]
    if subprocess.run(engine, capture_output=True, check=False).returncode:
        pytest.skip("podman cannot run the default image; build it with `make images`")
    subprocess.run(ours, cwd=source, env=variables, check=True, capture_output=True)
    taken: dict[str, list[float]] = {"ours": [], "podman_run": []}
    for _ in range(COLD):
        for name, command in (("ours", ours), ("podman_run", engine)):
            start = perf_counter()
            subprocess.run(command, cwd=source, env=variables, check=True, capture_output=True)
            taken[name].append(perf_counter() - start)
    report(benchmark, taken, less="podman_run")
