"""Commands over the programs of this machine, beside the same command elsewhere in one run.

Run by ``make bench``, as root or as an ordinary user; without bubblewrap these are skipped. A whole
call runs ``true``, ends every process that is left, and commits. ``bwrap`` alone is the least that
an isolated process takes. sandlock, which has no transaction, is compared if the variable
``SANDLOCK_PYTHON`` names the Python of a virtual environment with it: its dependencies are not
ours. ``python3 -m venv DIR && DIR/bin/pip install sandlock`` makes one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
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
from wink_workspace.sandbox.podman.engine.engine_conf import EngineSettings
from wink_workspace.workspace import Workspace, WorkspaceStorage

SIZES = [100, 50_000]
ROUNDS = 50
N_FORKS = 100
COLD = 10
REQUEST = ExecRequest(argv=("true",))
SANDLOCK = """
import sys
from sandlock import Sandbox
sandbox = Sandbox(fs_readable=["/"], fs_writable=[sys.argv[1]])
for _ in sys.stdin:
    print(sandbox.run(["true"]).exit_code, flush=True)
"""


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
    """A whole call, in turns with ``bwrap`` alone and with sandlock."""
    bwrap = find_bwrap(Environment.from_os())[0]
    alone = [bwrap, "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "true"]
    commands: dict[str, Callable[[], object]] = {
        "ours": lambda: forks.command(forks.workspace),
        "bwrap": lambda: subprocess.run(alone, check=True),
    }
    with ExitStack() as opened:
        if python := os.environ.get("SANDLOCK_PYTHON"):
            sandlock = [python, "-c", SANDLOCK, str(forks.source)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            process = opened.enter_context(
                subprocess.Popen(sandlock, text=True, bufsize=1, **pipes)
            )

            def run_in_sandlock() -> None:
                process.stdin.write("\n")
                assert process.stdout.readline() == "0\n"

            commands["sandlock"] = run_in_sandlock
        report(benchmark, in_turns(commands, ROUNDS, warmup=3))


def in_turns(
    commands: dict[str, Callable[[], object]], rounds: int, *, warmup: int
) -> dict[str, list[float]]:
    """The seconds of each command in each round."""
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(warmup + rounds):
        for name, command in commands.items():
            start = perf_counter()
            command()
            if number >= warmup:
                taken[name].append(perf_counter() - start)
    return taken


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


def bench_exec_from_a_cold_shell(benchmark, tmp_path: Path) -> None:
    """``exec -- true`` and ``podman run`` in turns; the goal is 0.7 of the latter's time."""
    source = source_of(tmp_path / "source", 100)
    settings = EngineSettings.for_this_machine(path=os.environ["PATH"]).write(tmp_path)
    variables = {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "CONTAINERS_CONF": str(settings),
    }
    ours = [
        *(sys.executable, "-m", "wink_workspace.cli"),
        *("exec", "--sandbox", "bubblewrap", "--", "true"),
    ]
    engine = ["podman", "run", "--rm", "--network=none", DEFAULT_IMAGE, "true"]

    def run(command: list[str]) -> None:
        subprocess.run(command, cwd=source, env=variables, check=True, capture_output=True)

    try:
        run(engine)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("podman cannot run the default image; build it with `make images`")
    run(ours)
    commands = {"ours": lambda: run(ours), "podman_run": lambda: run(engine)}
    report(benchmark, in_turns(commands, COLD, warmup=1), less="podman_run")
