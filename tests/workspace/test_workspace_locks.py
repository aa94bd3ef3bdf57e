"""One process at a time; a dead one is in nobody's way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from workspace_rig import folder, made, reopened

from wink_workspace.errors import LedgerBusyError

HOLDER = """
import sys, time
from pathlib import Path
from wink_workspace.workspace import Workspace, WorkspaceFolder
workspace = Workspace(WorkspaceFolder(Path(sys.argv[1])))
print("open", flush=True)
time.sleep(600)
"""


def holder(directory: Path) -> subprocess.Popen[str]:
    """A process that has the workspace open."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder(directory).path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "open\n"
    return process


@pytest.mark.behaviour(40)
def test_second_process_is_told_who_has_it_open_and_a_dead_ones_lock_is_taken_over(
    tmp_path: Path,
) -> None:
    made(tmp_path, {"a.txt": b"x"}).close()
    with holder(tmp_path) as process:
        with pytest.raises(LedgerBusyError, match=f"process {process.pid}") as caught:
            reopened(tmp_path)
        assert caught.value.hint
        process.send_signal(signal.SIGKILL)
        process.wait()
        stale = folder(tmp_path).ledger / "refs/heads/main.lock"
        stale.write_bytes(b"")
        with reopened(tmp_path) as workspace:
            workspace.restore(1)
        assert not stale.exists()


def test_workspace_can_be_opened_once_in_one_process(tmp_path: Path) -> None:
    with made(tmp_path), pytest.raises(LedgerBusyError, match=str(os.getpid())):
        reopened(tmp_path)
