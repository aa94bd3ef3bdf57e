"""A fork, its opening and its first command, in a container that waits, by the number of files.

Run by ``make bench``; without Podman, the images or overlays these are skipped. The references in
the same run are a fork of a plain copy with a new container, and ``git worktree add`` with the same
command, which has no isolation.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest

from wink_workspace.errors import SandboxError
from wink_workspace.sandbox import ExecRequest
from wink_workspace.sandbox.podman.commands.waiting import WaitingContainers
from wink_workspace.workspace import Workspace, WorkspaceMode, WorkspaceStorage

SIZES = [1_000, 10_000, 100_000]
ROUNDS = 10
REQUEST = ExecRequest(argv=("true",))
_numbers = count()


@dataclass
class Forks:
    """A workspace whose forks are opened, with the source that it was made of."""

    workspace: Workspace
    storage: WorkspaceStorage
    source: Path
    fork: Workspace | None = None

    def fork_and_run(self) -> None:
        """Fork the workspace, open the fork, and run one command in it as one call."""
        name = f"fork-{next(_numbers)}"
        self.workspace.fork(name)
        self.fork = Workspace.open(self.workspace.info.id, storage=self.storage, branch=name)
        with self.fork.call("first"):
            self.fork.sandbox().run(REQUEST)

    def prepare(self) -> None:
        """Close the last fork, and wait until a container waits."""
        if self.fork is not None:
            self.fork.close()
        WaitingContainers.shared().wait()


def source_of(folder: Path, n_files: int) -> Path:
    for number in range(n_files):
        directory = folder / f"d{number // 10_000}" / f"e{number // 10}"
        if number % 10 == 0:
            directory.mkdir(parents=True)
        (directory / f"f{number}.txt").write_text(f"file {number}\n")
    return folder


@pytest.fixture(scope="module", params=SIZES, ids=lambda n: f"{n}_files")
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source_of(tmp_path_factory.mktemp("source"), request.param)


def forks_of(source: Path, folder: Path, mode: WorkspaceMode, opened: ExitStack) -> Forks:
    storage = WorkspaceStorage(folder)
    workspace = opened.enter_context(Workspace.create(source, storage=storage, mode=mode))
    try:
        for _ in range(2):  # the second command starts a container that waits
            with workspace.call("warm"):
                workspace.sandbox().run(REQUEST)
    except SandboxError as error:
        pytest.skip(str(error))
    return Forks(workspace, storage, source)


@pytest.fixture(scope="module")
def overlay(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with ExitStack() as opened:
        forks = forks_of(source, tmp_path_factory.mktemp("overlay"), "overlay", opened)
        opened.callback(forks.prepare)
        yield forks


@pytest.fixture(scope="module")
def plain(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with ExitStack() as opened:
        forks = forks_of(source, tmp_path_factory.mktemp("plain"), "copy", opened)
        opened.callback(forks.prepare)
        yield forks


def bench_first_command_of_a_fork_in_a_waiting_container(benchmark, overlay: Forks) -> None:
    benchmark.pedantic(overlay.fork_and_run, setup=overlay.prepare, rounds=ROUNDS, warmup_rounds=2)


def bench_first_command_of_a_fork_by_copy_in_a_new_container(benchmark, plain: Forks) -> None:
    benchmark.pedantic(plain.fork_and_run, setup=plain.prepare, rounds=2)


def bench_first_command_in_a_git_worktree(benchmark, source: Path) -> None:
    """``git worktree add`` and the command itself, without isolation."""
    git = ("git", "-C", str(source), "-c", "user.name=b", "-c", "user.email=b@example.invalid")
    if not (source / ".git").exists():
        for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
            subprocess.run([*git, *arguments], check=True, stdout=subprocess.DEVNULL)

    def once() -> None:
        target = source.parent / f"worktree-{next(_numbers)}"
        subprocess.run(
            [*git, "worktree", "add", "-q", "--detach", str(target)],
            check=True,
            capture_output=True,
        )
        subprocess.run(["true"], cwd=target, check=True)

    benchmark.pedantic(once, rounds=2)


def bench_command_in_a_mounted_branch(benchmark, overlay: Forks) -> None:
    """A command in a container that has served the branch before, as one call."""

    def once() -> None:
        with overlay.workspace.call("next"):
            overlay.workspace.sandbox().run(REQUEST)

    benchmark.pedantic(once, rounds=30, warmup_rounds=3)


def bench_commands_at_100_and_at_100_000_files(benchmark, tmp_path: Path) -> None:
    """The same command in two workspaces, in turns; the goal is a difference of at most 3 ms."""
    taken: dict[int, list[float]] = {100: [], 100_000: []}
    with ExitStack() as opened:
        forks = {
            n: forks_of(source_of(tmp_path / f"{n}", n), tmp_path / f"w{n}", "overlay", opened)
            for n in taken
        }

        def turn() -> None:
            for n, each in forks.items():
                start = perf_counter()
                with each.workspace.call("next"):
                    each.workspace.sandbox().run(REQUEST)
                taken[n].append(1e3 * (perf_counter() - start))

        benchmark.pedantic(turn, rounds=60, warmup_rounds=5)
    for n, each in taken.items():
        benchmark.extra_info[f"ms_at_{n}"] = median(each)
    pairs = zip(taken[100], taken[100_000], strict=True)
    benchmark.extra_info["ms_slower"] = median(large - small for small, large in pairs)
