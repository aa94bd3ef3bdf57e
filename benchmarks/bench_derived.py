"""A source with a large ``node_modules``, and a sparse file, beside git and ``cp``.

Run by ``make bench``. ``WINK_BENCH_DERIVED_BYTES`` sets the size of ``node_modules``: 200 MB by
default, 5 GB for the shape of a monorepo. The reference of an import is ``git clone --local`` of
the recorded files with ``cp -a`` of ``node_modules``; that of a call is the same call in a source
without ``node_modules``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from wink_workspace.workspace import Workspace, WorkspaceStorage

N_FILES = 1_000
FILES_A_PACKAGE = 50
DERIVED_BYTES = int(os.environ.get("WINK_BENCH_DERIVED_BYTES", "200_000_000"))
DERIVED_FILE_BYTES = 50_000
IMPORT_ROUNDS = 3 if DERIVED_BYTES < 1_000_000_000 else 1
SPARSE_BYTES = 4 * 1_073_741_824
GIT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "bench",
    "GIT_AUTHOR_EMAIL": "bench@localhost",
    "GIT_COMMITTER_NAME": "bench",
    "GIT_COMMITTER_EMAIL": "bench@localhost",
}
_numbers = count()


def git(directory: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", directory, *arguments], env=GIT, check=True, capture_output=True)


def delete_all_in(folder: Path) -> None:
    """Delete the copies of the last round: the disk may not have room for all."""
    for path in folder.iterdir():
        shutil.rmtree(path)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The same source with and without ``node_modules``."""
    top = tmp_path_factory.mktemp("derived")
    for name in ("plain", "with_node_modules"):
        for n in range(N_FILES):
            path = top / name / f"d{n // 100}/f{n}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"file {n}\n" * 20)
        git(top / name, "init", "-q", "-b", "main")
        git(top / name, "add", "-A")
        git(top / name, "commit", "-qm", "one")
    content = os.urandom(DERIVED_FILE_BYTES)
    for n in range(DERIVED_BYTES // DERIVED_FILE_BYTES):
        path = top / f"with_node_modules/node_modules/p{n // FILES_A_PACKAGE}/lib/{n}.js"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    yield {path.name: path for path in top.iterdir()}
    shutil.rmtree(top)


@pytest.mark.parametrize("name", ["plain", "with_node_modules"])
def bench_derived_import(benchmark, sources: dict[str, Path], name: str, tmp_path: Path) -> None:
    def create() -> None:
        storage = WorkspaceStorage(tmp_path / str(next(_numbers)))
        Workspace.create(sources[name], storage=storage).close()

    benchmark.pedantic(create, setup=lambda: delete_all_in(tmp_path), rounds=IMPORT_ROUNDS)


def bench_derived_import_reference(benchmark, sources: dict[str, Path], tmp_path: Path) -> None:
    source = sources["with_node_modules"]

    def clone() -> None:
        target = tmp_path / str(next(_numbers))
        subprocess.run(
            ["git", "clone", "-q", "--local", "--no-hardlinks", source, target], env=GIT, check=True
        )
        subprocess.run(["cp", "-a", source / "node_modules", target], check=True)

    benchmark.pedantic(clone, setup=lambda: delete_all_in(tmp_path), rounds=IMPORT_ROUNDS)


@pytest.mark.parametrize("name", ["plain", "with_node_modules"])
def bench_derived_call(benchmark, sources: dict[str, Path], name: str, tmp_path: Path) -> None:
    with Workspace.create(sources[name], storage=WorkspaceStorage(tmp_path)) as workspace:

        def edit() -> None:
            with workspace.call("edit") as call:
                call.files.write_text("d0/f0.txt", f"{next(_numbers)}\n")

        benchmark.pedantic(edit, rounds=100, warmup_rounds=5)


def bench_derived_rollback_that_looks(benchmark, sources: dict[str, Path], tmp_path: Path) -> None:
    """A failed call that changed a derived path: the status of every derived file is read."""
    source = sources["with_node_modules"]
    with Workspace.create(source, storage=WorkspaceStorage(tmp_path)) as workspace:

        def fail() -> None:
            with workspace.call("install") as call:
                call.files.write_text("node_modules/new.js", "1\n")
                call.fail("no")

        benchmark.pedantic(fail, rounds=5)
        benchmark.extra_info["n_derived_files"] = DERIVED_BYTES // DERIVED_FILE_BYTES


def bench_derived_sparse_import(benchmark, tmp_path: Path) -> None:
    """4 GiB with 2 MiB of data; the disk that the workspace takes is in ``extra_info``."""
    source = tmp_path / "source"
    source.mkdir()
    with (source / "disk.img").open("wb") as file:
        file.write(os.urandom(1_048_576))
        file.seek(SPARSE_BYTES // 2)
        file.write(os.urandom(1_048_576))
        file.truncate(SPARSE_BYTES)
    state = tmp_path / "state"

    def create() -> None:
        Workspace.create(source, storage=WorkspaceStorage(state)).close()

    benchmark.pedantic(create, rounds=1)
    used = sum(path.lstat().st_blocks * 512 for path in state.rglob("*"))
    benchmark.extra_info["disk_bytes"] = used


def bench_derived_sparse_sha1_reference(benchmark) -> None:
    """What git's object name of 4 GiB costs by itself."""
    import hashlib

    zeros = bytes(1_048_576)

    def digest() -> None:
        found = hashlib.sha1(usedforsecurity=False)
        for _ in range(SPARSE_BYTES // len(zeros)):
            found.update(zeros)

    benchmark.pedantic(digest, rounds=1)
