"""A file of 400 MB that grows by a line in each call: each call beside the file's SHA-1.

Run by ``make bench``. ``--basetemp`` chooses the filesystem, which needs 4 GB. The calls, their
undo, ``gc`` and ``git fsck`` are timed; the ledger must stay within its budget. There are 40 calls,
or ``BENCH_CALLS``; ``git fsck`` reads the whole file for each of them. ``BENCH_MB`` is the size.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest
from bench_bulk import GIT_ENVIRONMENT

from wink_workspace.ledger import Retention
from wink_workspace.workspace import Workspace, WorkspaceStorage

N_CALLS = int(os.environ.get("BENCH_CALLS", "40"))
N_LINES = int(os.environ.get("BENCH_MB", "400")) * 50_000


@pytest.mark.timeout(3_600)
def bench_large_file_that_grows(
    benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The medians of a call and of an undo, as ratios to the SHA-1 of the file."""
    source = tmp_path / "source"
    source.mkdir()
    with (source / "log").open("wb") as file:
        file.writelines(b"%012d a line\n" % n for n in range(N_LINES))
    seconds: dict[str, list[float]] = {"sha1": [], "call": [], "undo": [], "gc": [], "fsck": []}

    def timed(name: str, act: Callable[..., object], *arguments: object) -> None:
        start = perf_counter()
        act(*arguments)
        seconds[name].append(perf_counter() - start)

    storage = WorkspaceStorage(tmp_path / "state")
    with Workspace.create(source, storage=storage, mode="copy") as workspace:
        log, ledger = workspace._opened.tree.root / "log", workspace._folder.ledger

        def sha1() -> None:
            with log.open("rb") as file:
                hashlib.file_digest(file, "sha1")

        def grow() -> None:
            with workspace.call("grow"), log.open("ab") as file:
                file.write(b"one more line\n")

        def turn() -> None:
            timed("sha1", sha1)
            timed("call", grow)

        n_bytes = log.stat().st_size
        benchmark.pedantic(turn, rounds=N_CALLS)
        timed("gc", workspace.maintain)
        used = sum(path.stat().st_size for path in ledger.rglob("*") if path.is_file())
        assert used < Retention().budget_bytes
        timed("fsck", fsck, ledger)
        for _ in range(N_CALLS):
            timed("undo", workspace.undo)
        assert log.stat().st_size == n_bytes
    medians = {name: median(taken) for name, taken in seconds.items()}
    benchmark.extra_info.update({f"median_s_{name}": s for name, s in medians.items()})
    benchmark.extra_info["ledger_bytes"] = used
    shown = "  ".join(
        f"{name} {s:.2f} s ({s / medians['sha1']:.2f})" for name, s in medians.items()
    )
    with capsys.disabled():
        print(f"\n{benchmark.name}: {shown}  ledger {used / 1e6:.0f} MB")


def fsck(ledger: Path) -> None:
    command = ["git", "--git-dir", str(ledger), "fsck", "--full", "--strict"]
    subprocess.run(command, env=GIT_ENVIRONMENT, check=True, capture_output=True)
