"""The time of a command in the sandbox, beside the same command without a sandbox.

Run by ``make bench``; without Podman or the images these are skipped. The ids have the number of
files, at most 1,000 a directory. ``shell_of_true`` is a whole tool call: parse, check policies,
run, kill remaining processes, commit. Compare it with ``bare_shell``, the command alone, and with
``podman_exec`` and ``podman_run``, Podman's own commands.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from differences import report

from wink_workspace import PodmanSandboxSection, Prompt, ScriptedAdapter, ToolCall, ToolExecutor
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxError
from wink_workspace.runtime import CallOutcome
from wink_workspace.sandbox import ExecRequest, PythonRequest, Sandbox, SandboxContext
from wink_workspace.sandbox.podman import DEFAULT_IMAGE, PodmanSandbox
from wink_workspace.sandbox.podman.engine.containers import Host
from wink_workspace.sandbox.podman.engine.engine_conf import EngineSettings
from wink_workspace.sandbox.podman.engine.service import shared_service
from wink_workspace.workspace import Workspace, WorkspaceStorage

SIZES = [100, 10_000, 50_000]
ROUNDS = 50
SLOW_ROUNDS = 5


@dataclass
class Bench:
    """A workspace with a warm container, and calls by name."""

    workspace: Workspace
    executor: ToolExecutor
    numbers: Iterator[int]

    def call(self, name: str, **arguments: object) -> CallOutcome:
        outcome = self.executor.execute(ToolCall.of(name, arguments, id=f"c{next(self.numbers)}"))
        assert outcome.result.success, outcome.text
        return outcome

    def shell(self, command: str) -> None:
        self.call("shell_execute", command=command)

    @property
    def sandbox(self) -> Sandbox:
        return self.workspace.sandbox()


@pytest.fixture(scope="module", params=SIZES, ids=lambda n: f"{n}_files")
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    root = tmp_path_factory.mktemp("source")
    for n in range(request.param):
        folder = root / f"d{n // 1_000}"
        folder.mkdir(exist_ok=True)
        (folder / f"f{n % 1_000}.txt").write_text(f"file {n}\n" * 20)
    with ExitStack() as opened:
        workspace = opened.enter_context(Workspace.temporary(root))
        prompt = Prompt(ns="bench", key="podman", sections=[PodmanSandboxSection()])
        prompt.bind(resources=workspace.resources)
        opened.enter_context(prompt.resources)
        prompt.install(workspace.session)
        executor = ToolExecutor(
            prompt=prompt,
            rendered_prompt=prompt.render(session=workspace.session),
            adapter=ScriptedAdapter(()),
            session=workspace.session,
        )
        try:
            assert workspace.sandbox().report.holes == ()
        except SandboxError as error:
            pytest.skip(str(error))
        yield Bench(workspace, executor, count())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> SandboxContext:
    root = tmp_path_factory.mktemp("place")
    (root / "files").mkdir()
    (root / "notes").mkdir()
    return SandboxContext(files=root / "files", notes=root / "notes")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A ``podman`` command line that works on this machine."""
    program = shutil.which("podman")
    if program is None:
        pytest.skip("there is no podman")
    path = Environment.from_os().variables["PATH"]
    conf = EngineSettings.for_this_machine(path=path).write(tmp_path_factory.mktemp("conf"))
    return ["env", f"CONTAINERS_CONF={conf}", program]


# A call


def bench_shell_of_true(benchmark, bench: Bench) -> None:
    benchmark.pedantic(bench.shell, ("true",), rounds=ROUNDS, warmup_rounds=5)


def bench_shell_that_changes_one_file(benchmark, bench: Bench) -> None:
    numbers = count()
    benchmark.pedantic(
        lambda: bench.shell(f"echo {next(numbers)} > d0/f0.txt"), rounds=ROUNDS, warmup_rounds=5
    )


def bench_shell_that_changes_a_thousand_files(benchmark, bench: Bench) -> None:
    numbers = count()
    benchmark.pedantic(
        lambda: bench.shell(
            f"mkdir -p m; for i in $(seq 1000); do echo {next(numbers)} > m/$i; done"
        ),
        rounds=SLOW_ROUNDS,
        warmup_rounds=1,
    )


def bench_evaluate_python_warm(benchmark, bench: Bench) -> None:
    benchmark.pedantic(
        lambda: bench.call("evaluate_python", code="1 + 1"), rounds=ROUNDS, warmup_rounds=5
    )


def bench_evaluate_python_cold(benchmark, bench: Bench) -> None:
    """The same code in an interpreter that must be started."""
    benchmark.pedantic(bench.shell, ("python3 -c 'print(1 + 1)'",), rounds=ROUNDS, warmup_rounds=5)


# Without a transaction


def bench_run_of_true(benchmark, bench: Bench) -> None:
    """The sandbox alone, without the transaction."""
    request = ExecRequest(argv=(*bench.sandbox.shell, "true"))
    benchmark.pedantic(bench.sandbox.run, (request,), rounds=ROUNDS, warmup_rounds=5)


def bench_evaluate(benchmark, bench: Bench) -> None:
    request = PythonRequest(code="1 + 1")
    benchmark.pedantic(bench.sandbox.evaluate, (request,), rounds=ROUNDS, warmup_rounds=5)


def bench_bare_shell(benchmark) -> None:
    """The command itself, without isolation."""
    command = [shutil.which("bash") or "/bin/sh", "-c", "true"]
    benchmark.pedantic(
        subprocess.run,
        (command,),
        {"check": True, "stdin": subprocess.DEVNULL, "capture_output": True},
        rounds=ROUNDS,
        warmup_rounds=5,
    )


def bench_podman_exec(benchmark, bench: Bench, engine: list[str]) -> None:
    """A process in a running container, by Podman's own command."""
    note = (bench.workspace._folder.sandbox / "container.json").read_text()
    name = note.split('"name": "')[1].split('"')[0]
    benchmark.pedantic(
        subprocess.run,
        ([*engine, "exec", name, "/bin/bash", "-c", "true"],),
        {"check": True, "capture_output": True},
        rounds=SLOW_ROUNDS,
    )


def bench_podman_run(benchmark, engine: list[str], place: SandboxContext) -> None:
    """A new container for the command, by Podman's own command."""
    limits = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=256:256"]
    options = ["--rm", "--network", "none", *limits, "-v"]
    mount = f"{place.files}:/workspace"
    benchmark.pedantic(
        subprocess.run,
        ([*engine, "run", *options, mount, DEFAULT_IMAGE, "/bin/bash", "-c", "true"],),
        {"check": True, "capture_output": True},
        rounds=SLOW_ROUNDS,
    )


# Beginning and end


def bench_cold_start(benchmark, place: SandboxContext) -> None:
    """Create, start and probe a container, run one command, end it; the engine already runs."""
    service = shared_service(Environment.from_os())
    request = ExecRequest(argv=("true",))

    def once() -> None:
        sandbox = PodmanSandbox(place, service=service)
        try:
            sandbox.run(request)
        finally:
            sandbox.close()

    benchmark.pedantic(once, rounds=SLOW_ROUNDS, warmup_rounds=1)
    benchmark.extra_info["is_root"] = Host.of(service).is_root


def bench_exec_of_true_from_a_cold_shell(benchmark, engine: list[str], tmp_path: Path) -> None:
    """``wink-workspace exec ID -- true`` as a process, less ``podman run`` of the same image.

    Both run in turns, so that both have the same noise, and both wait until their container has
    been removed. The run has the same user, runtime and no network, but no isolation beyond
    Podman's.
    """
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.txt").write_text("a file\n")
    variables = {
        **Environment.from_os().variables,
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
    with Workspace.create(
        tmp_path / "source", storage=WorkspaceStorage(tmp_path / "state" / "wink-workspace")
    ) as workspace:
        name = workspace.info.id
    limits = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=256:256"]
    options = ["--rm", "--user", "1000:1000", "--network", "none", *limits]
    main = "import sys; from wink_workspace.cli import main; sys.exit(main())"
    commands = {
        "ours": [sys.executable, "-c", main, "exec", name, "--", "true"],
        "podman": [*engine, "run", *options, DEFAULT_IMAGE, "true"],
    }
    seconds: dict[str, list[float]] = {each: [] for each in commands}
    for n in range(-1, SLOW_ROUNDS):
        for each, command in commands.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, env=variables, capture_output=True)
            if n >= 0:
                seconds[each].append(time.perf_counter() - began)
    report(benchmark, seconds, less="podman")
