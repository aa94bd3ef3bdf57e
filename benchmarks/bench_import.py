"""The time to create a workspace and to open it again, beside plain git.

Run by ``make bench``. The first import is measured without the rest of ``new``. Each
benchmark has its reference in the same run: ``git clone --local`` for the first import, ``git
status`` for everything that only looks for changes.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from itertools import count
from pathlib import Path
from time import sleep

import pytest
from bench_workspace import GIT_ENVIRONMENT, RACILY_CLEAN_S, WIDTH

from wink_workspace.ledger import Ledger
from wink_workspace.workspace import Workspace, WorkspaceStorage
from wink_workspace.workspace.create.bases import BaseStore

SIZES = [1_000, 50_000]
ROUNDS = 5


class Source:
    """A repository, and a state directory in which it was imported."""

    def __init__(self, top: Path, n_files: int) -> None:
        self.top = top
        self.files = top / "source"
        for n in range(n_files):
            folder = self.files / f"d{n // WIDTH}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"f{n % WIDTH}.txt").write_text(f"file {n}\n" * 20)
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-qm", "all")
        self._numbers = count(1)
        sleep(RACILY_CLEAN_S)
        self.storage = WorkspaceStorage(top / "workspaces")
        for _ in range(2):
            with Workspace.create(self.files, storage=self.storage) as workspace:
                self.id = workspace.info.id
        sleep(RACILY_CLEAN_S)
        self.open()

    def git(self, *arguments: str) -> None:
        subprocess.run(
            ["git", *arguments],
            cwd=self.files,
            env=GIT_ENVIRONMENT,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def first_import(self) -> None:
        number = next(self._numbers)
        ledger = self.top / f"{number}.git"
        Ledger.create(ledger)
        bases = BaseStore(self.top / f"state-{number}")
        bases.import_source(self.files, ledger).base.release()

    def second_new(self) -> None:
        Workspace.create(self.files, storage=self.storage, mode="overlay").close()

    def clone(self) -> None:
        target = self.top / f"clone-{next(self._numbers)}"
        self.git("clone", "-q", "--local", str(self.files), str(target))

    def status(self) -> None:
        self.git("status", "--porcelain")

    def open(self) -> None:
        Workspace.open(self.id, storage=self.storage).close()

    def delete_last(self) -> None:
        """Delete what the last round made."""
        for path in (*self.top.glob("state-*"), *self.top.glob("clone-*")):
            shutil.rmtree(path)


@pytest.fixture(scope="module", params=SIZES, ids=lambda n: f"{n}_files")
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Source:
    return Source(tmp_path_factory.mktemp("import"), request.param)


def measured(benchmark: Callable[..., object], source: Source, act: Callable[[], None]) -> None:
    benchmark.pedantic(act, setup=source.delete_last, rounds=ROUNDS, warmup_rounds=1)


def bench_first_import(benchmark, source: Source) -> None:
    measured(benchmark, source, source.first_import)


def bench_git_clone_local(benchmark, source: Source) -> None:
    measured(benchmark, source, source.clone)


def bench_second_new_of_an_unchanged_source(benchmark, source: Source) -> None:
    measured(benchmark, source, source.second_new)


def bench_open_a_closed_copy(benchmark, source: Source) -> None:
    measured(benchmark, source, source.open)


def bench_git_status(benchmark, source: Source) -> None:
    measured(benchmark, source, source.status)
