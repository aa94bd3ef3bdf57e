"""A fork and its opening, by the number of files; no container.

Run by ``make bench``; without overlays these are skipped. The references in the same run are a fork
of a plain copy and ``git worktree add``. Beside them are figures that BranchFS and DeltaBox
published of their own machines.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from bench_waiting import source_of

from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.workspace import Workspace, WorkspaceMode, WorkspaceStorage

SIZES = [1_000, 10_000, 100_000]
N_CHANGED = 20
PUBLISHED_US = {
    "branchfs_create": 350,  # at most, at any number of files; https://arxiv.org/abs/2602.08199
    "deltabox_checkpoint": 10_830,  # with processes; https://arxiv.org/abs/2605.22781v2
    "deltabox_rollback": 1_860,
}
"""Not measured here."""
_numbers = count()


@dataclass
class Forks:
    """A workspace whose forks are opened."""

    workspace: Workspace
    storage: WorkspaceStorage
    fork: Workspace | None = None

    def fork_and_open(self) -> None:
        """Fork the workspace, and open the fork."""
        name = f"fork-{next(_numbers)}"
        self.workspace.fork(name)
        self.open(name)

    def open(self, name: str) -> None:
        self.fork = Workspace.open(self.workspace.info.id, storage=self.storage, branch=name)

    def close(self) -> None:
        if self.fork is not None:
            self.fork.close()

    def change(self) -> None:
        """Change files of the main branch, so that its forks differ from the base."""
        with self.workspace.call("change") as call:
            for n in range(N_CHANGED):
                call.files.write_text(f"d0/e{n}/f{n * 10}.txt", f"changed {next(_numbers)}\n")


@pytest.fixture(scope="module", params=SIZES, ids=lambda n: f"{n}_files")
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source_of(tmp_path_factory.mktemp("source"), request.param)


def forks_of(source: Path, folder: Path, mode: WorkspaceMode) -> Iterator[Forks]:
    if mode == "overlay" and not (support := overlay_support(folder)).available:
        pytest.skip(support.reason)
    storage = WorkspaceStorage(folder)
    with Workspace.create(source, storage=storage, mode=mode) as workspace:
        forks = Forks(workspace, storage)
        yield forks
        forks.close()


@pytest.fixture(scope="module")
def overlay(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    yield from forks_of(source, tmp_path_factory.mktemp("overlay"), "overlay")


@pytest.fixture(scope="module")
def plain(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    yield from forks_of(source, tmp_path_factory.mktemp("plain"), "copy")


def bench_fork_and_open(benchmark, overlay: Forks) -> None:
    benchmark.pedantic(overlay.fork_and_open, setup=overlay.close, rounds=30, warmup_rounds=3)
    benchmark.extra_info.update({f"published_us_{name}": us for name, us in PUBLISHED_US.items()})


def bench_open_a_closed_branch(benchmark, overlay: Forks) -> None:
    name = f"fork-{next(_numbers)}"
    overlay.workspace.fork(name)
    overlay.close()
    overlay.open(name)

    benchmark.pedantic(lambda: overlay.open(name), setup=overlay.close, rounds=30, warmup_rounds=3)


def bench_fork_and_open_with_changed_files(benchmark, overlay: Forks) -> None:
    """The fork differs from its base in 20 files."""
    overlay.change()
    benchmark.pedantic(overlay.fork_and_open, setup=overlay.close, rounds=30, warmup_rounds=3)


def bench_fork_and_open_with_installed_dependencies(benchmark, overlay: Forks) -> None:
    """A call changed them since the last fork, so each fork makes a layer that it shares."""
    root = overlay.workspace.files.tree.root / "node_modules"

    def install() -> None:
        overlay.close()
        with overlay.workspace.call("install"):
            for n in range(N_CHANGED):
                (root / f"package-{n}").mkdir(parents=True, exist_ok=True)
                (root / f"package-{n}/index.js").write_bytes(b"x" * 100_000)

    benchmark.pedantic(overlay.fork_and_open, setup=install, rounds=30, warmup_rounds=3)


def bench_fork_and_open_a_plain_copy(benchmark, plain: Forks) -> None:
    benchmark.pedantic(plain.fork_and_open, setup=plain.close, rounds=1)


def bench_git_worktree_add(benchmark, source: Path) -> None:
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

    benchmark.pedantic(once, rounds=1)
