"""Branches that several processes write at the same time share one budget."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from branch_writer import NOISE_BYTES
from workspace_rig import assert_fsck_clean, folder, made, reopened

from wink_workspace.ledger import Ledger, Retention
from wink_workspace.workspace import WorkspaceConfig

SMALL_BYTES, LARGE_BYTES = 8_000_000, 100_000_000
SOAK_S = float(os.environ.get("SOAK_SECONDS", "3600"))
SCRIPT = Path(__file__).with_name("branch_writer.py")


def disk_bytes(directory: Path) -> int:
    """The size of all objects of the history, those that nothing refers to included."""
    with Ledger(folder(directory).ledger) as ledger:
        return ledger.disk_bytes()


def write_in_processes(
    directory: Path, n_branches: int, budget_bytes: int, *, n_calls: int, seconds: float
) -> int:
    """Let each branch be written by a process of its own; return the largest size of the history.

    Without a number of calls they write for some *seconds*.
    """
    with made(directory, {"f": b"1"}) as workspace:
        names = [f"b{n}" for n in range(n_branches)]
        for name in names:
            workspace.fork(name)
        arguments = [str(directory / "state"), workspace.info.id]
    writers = [
        subprocess.Popen(
            [sys.executable, SCRIPT, *arguments, name, str(budget_bytes), str(n_calls)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for name in names
    ]
    most, ends = 0, time.monotonic() + seconds
    running = [writer.stdout for writer in writers]  # each prints its number of calls at its end
    while running and time.monotonic() < ends:
        most = max(most, disk_bytes(directory))
        ended, _, _ = select.select(running, [], [], 0.05)
        running = [output for output in running if output not in ended]
    for writer in writers:
        written, _ = writer.communicate()
        assert writer.returncode == 0
        assert int(written) >= n_calls
    return most


def assert_bounded(directory: Path, most: int, n_branches: int, budget_bytes: int) -> None:
    # Each writer may add one call before it looks at the size, and one while another deletes
    assert most <= budget_bytes * 9 / 8 + n_branches * 2 * NOISE_BYTES
    config = WorkspaceConfig(retention=Retention(budget_bytes=budget_bytes))
    with reopened(directory, config=config) as workspace:
        assert workspace.maintain().disk_bytes <= budget_bytes
    assert_fsck_clean(folder(directory).ledger)


@pytest.mark.behaviour(37)
def test_branches_that_are_written_by_several_processes_stay_within_the_budget(
    tmp_path: Path,
) -> None:
    most = write_in_processes(tmp_path, 2, SMALL_BYTES, n_calls=40, seconds=120)
    assert_bounded(tmp_path, most, 2, SMALL_BYTES)


@pytest.mark.soak
def test_32_branches_that_are_written_for_an_hour_stay_within_the_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``SOAK_SECONDS`` is another time."""
    most = write_in_processes(tmp_path, 32, LARGE_BYTES, n_calls=0, seconds=SOAK_S)
    with capsys.disabled():
        print(f"\n32 branches, {SOAK_S:g} s: at most {most / 1e6:.0f} MB of {LARGE_BYTES / 1e6:g}")
    assert_bounded(tmp_path, most, 32, LARGE_BYTES)
