"""Shapes of large repositories: a fork, its opening, and a call that edits one file.

Run by ``make bench``; skipped without overlays. ``bench_derived.py`` has a large ``node_modules``.
The reference of an edit is ``git add`` and ``git commit`` of the same file. Files that a fork
changes for the first time are copied by the kernel (copy-up); this is reported for 1,000 files and
for one of 400 MB, beside writing the same files again.

The counts are asserted: an open fork uses at most 1 MiB of disk and 3 MiB of memory, opening visits
only changed files, and an edit adds the content, one tree for each level, and a fixed number of
other objects.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest
from bench_bulk import git, in_one_directory, thirty_deep

from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.workspace import Workspace, WorkspaceStorage

N_FORKS = 100
N_EDITS = 10
MOST_DISK_BYTES = 1_048_576
MOST_MEMORY_BYTES = 3 * 1_048_576
N_COPIED_UP = 1_000
LARGE_BYTES = 400_000_000
OTHER_OBJECTS = 8
"""The trees and documents of an entry, and the entry."""

SHAPES: dict[str, tuple[int, Callable[[str, int], str]]] = {
    "10_000_directories": (100_000, lambda top, n: f"{top}/d{n // 1_000}/e{n // 10}/f{n}"),
    "one_directory": (20_000, in_one_directory),
    "thirty_deep": (20_000, thirty_deep),
}
_numbers = count()


class Shape:
    """A workspace, and the repository that it was made from."""

    def __init__(self, folder: Path, name: str, opened: ExitStack) -> None:
        n_files, path_of = SHAPES[name]
        self.paths = [path_of("src", n) for n in range(n_files)]
        self.source, self.state = folder / "source", folder / "state"
        self.storage = WorkspaceStorage(self.state)
        for path in self.paths:
            file = self.source / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{path}\n")
        for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
            git(self.source, *arguments)
        self.workspace = opened.enter_context(
            Workspace.create(self.source, storage=self.storage, mode="overlay")
        )

    def fork_and_open(self) -> Workspace:
        name = f"fork-{next(_numbers)}"
        self.workspace.fork(name)
        return Workspace.open(self.workspace.info.id, storage=self.storage, branch=name)

    def edit(self, path: str) -> int:
        """Edit a file in one call; how many objects that adds."""
        store = self.workspace._ledger.store
        before = store.n_written
        with self.workspace.call("edit") as call:
            call.files.write_text(path, f"edited {next(_numbers)}\n")
        return store.n_written - before

    def commit_with_git(self, path: str) -> None:
        (self.source / path).write_text(f"edited {next(_numbers)}\n")
        git(self.source, "add", path)
        git(self.source, "commit", "-qm", "edit")


@pytest.fixture(scope="module", params=SHAPES)
def shape(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shape]:
    folder = tmp_path_factory.mktemp("shape")
    if not (support := overlay_support(folder)).available:
        pytest.skip(support.reason)
    with ExitStack() as opened:
        yield Shape(folder, request.param, opened)


def disk_bytes(folder: Path) -> int:
    entries = (Path(top, name) for top, _, names in os.walk(folder) for name in (".", *names))
    return sum(entry.lstat().st_blocks * 512 for entry in entries)


def memory_bytes() -> int:
    """The memory of this process, of shared pages its part."""
    found = Path("/proc/self/smaps_rollup").read_text().split("\nPss:")[1]
    return int(found.split()[0]) * 1_024


def bench_shape_open_100_forks(benchmark, shape: Shape) -> None:
    with ExitStack() as forks:
        forks.enter_context(shape.fork_and_open())  # loads what all forks need once
        disk, memory = disk_bytes(shape.state), memory_bytes()
        benchmark.pedantic(lambda: forks.enter_context(shape.fork_and_open()), rounds=N_FORKS)
        each = {
            "disk_bytes": (disk_bytes(shape.state) - disk) // N_FORKS,
            "memory_bytes": (memory_bytes() - memory) // N_FORKS,
        }
        benchmark.extra_info.update(each)
        assert each["disk_bytes"] <= MOST_DISK_BYTES
        assert each["memory_bytes"] <= MOST_MEMORY_BYTES


def bench_shape_edit(benchmark, shape: Shape) -> None:
    path = max(shape.paths, key=lambda each: each.count("/"))
    shape.edit(path)
    ours: list[float] = []
    theirs: list[float] = []
    most = 0

    def turns() -> None:
        nonlocal most
        start = perf_counter()
        most = max(most, shape.edit(path))
        between = perf_counter()
        shape.commit_with_git(path)
        ours.append(between - start)
        theirs.append(perf_counter() - between)

    benchmark.pedantic(turns, rounds=N_EDITS)
    benchmark.extra_info.update(ms=1e3 * median(ours), ms_git=1e3 * median(theirs), n_objects=most)
    assert most <= 1 + path.count("/") + OTHER_OBJECTS


def bench_shape_open_closed(benchmark, shape: Shape) -> None:
    """A closed fork is opened, in turns with ``git status``."""
    name = f"fork-{next(_numbers)}"
    shape.workspace.fork(name)
    ours: list[float] = []
    theirs: list[float] = []

    def turns() -> None:
        start = perf_counter()
        fork = Workspace.open(shape.workspace.info.id, storage=shape.storage, branch=name)
        ours.append(perf_counter() - start)
        # Only the changed file, its directories, and the layer itself
        assert fork._opened.tracker.n_visited <= 2 + max(each.count("/") for each in shape.paths)
        fork.close()
        start = perf_counter()
        subprocess.run(["git", "status", "--short"], cwd=shape.source, check=True)
        theirs.append(perf_counter() - start)

    turns()
    benchmark.pedantic(turns, rounds=N_EDITS)
    benchmark.extra_info.update(
        ms=1e3 * median(ours), ms_git=1e3 * median(theirs), ratio=median(ours) / median(theirs)
    )


def bench_shape_copy_up_of_1000_files(benchmark, shape: Shape) -> None:
    append_to_each(benchmark, shape.fork_and_open, shape.paths[:N_COPIED_UP])


def bench_copy_up_of_a_large_file(benchmark, tmp_path: Path) -> None:
    if not (support := overlay_support(tmp_path)).available:
        pytest.skip(support.reason)
    (tmp_path / "source").mkdir()
    with (tmp_path / "source/large").open("wb") as large:
        for _ in range(LARGE_BYTES // 1_000_000):
            large.write(os.urandom(1_000_000))
    storage = WorkspaceStorage(tmp_path / "state")
    with Workspace.create(tmp_path / "source", storage=storage, mode="overlay") as workspace:

        def fork_and_open() -> Workspace:
            name = f"fork-{next(_numbers)}"
            workspace.fork(name)
            return Workspace.open(workspace.info.id, storage=storage, branch=name)

        append_to_each(benchmark, fork_and_open, ["large"])


def append_to_each(benchmark, fork_and_open: Callable[[], Workspace], paths: list[str]) -> None:
    """Append to files of a new fork, twice: only the first time copies them."""
    again: list[float] = []

    def append(fork: Workspace) -> None:
        for path in paths:
            with (fork._opened.tree.root / path).open("a") as file:
                file.write("one more line\n")

    def turns() -> None:
        with fork_and_open() as fork:
            benchmark.pedantic(append, args=(fork,), rounds=1)
            start = perf_counter()
            append(fork)
            again.append(perf_counter() - start)

    turns()
    benchmark.extra_info["ms_again"] = 1e3 * again[0]
