"""One process at a time; the lock of a dead process is taken over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from workspace_rig import assert_fsck_clean, folder, made, reopened, storage

from wink_workspace.errors import LedgerBusyError
from wink_workspace.workspace import Workspace

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
def test_second_process_gets_the_owner_named_and_takes_over_the_lock_of_a_dead_one(
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


def test_threads_that_close_at_once_close_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a thread could truncate the lock file by a descriptor number that was reused."""
    workspace, both_inside = made(tmp_path), threading.Barrier(2)
    met: list[int] = []

    def meet() -> None:
        with suppress(threading.BrokenBarrierError):  # no other thread arrived
            met.append(both_inside.wait(0.3))

    monkeypatch.setattr(workspace._sandbox, "close", meet)
    closers = [threading.Thread(target=workspace.close) for _ in range(2)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join()
    assert met == []
    with reopened(tmp_path) as again:
        assert again.head.number == 1


WORKER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[4:]
from workspace_rig import calls
from wink_workspace.workspace import Workspace, WorkspaceStorage
storage, which, line = WorkspaceStorage(Path(sys.argv[1])), sys.argv[2], sys.argv[3]
with Workspace.open(which, storage=storage, branch=line) as workspace, calls(workspace) as call:
    print("open", flush=True)
    sys.stdin.readline()  # both are open now
    for n in range(30):
        call("write_file", file_path=f"{line}/{n}.txt", content=f"{line} {n}")
        if n % 3 == 0:
            workspace.undo()
    workspace.maintain()  # the other one is at work
    print("done", flush=True)
    sys.stdin.readline()
    print(len(list(workspace.log())))
"""


APPLIER = """
import sys
from pathlib import Path
from wink_workspace.workspace import Workspace, WorkspaceStorage
from wink_workspace.workspace.in_place.guarded_checkout import Checkout
real = Checkout.make
def held(mover, root):
    real(mover, root)
    print("in the middle", flush=True)
    sys.stdin.readline()
Checkout.make = held
storage = WorkspaceStorage(Path(sys.argv[1]))
with Workspace.open(sys.argv[2], storage=storage, branch="one") as fork:
    fork.files.write_text("one.txt", "of one")
    fork.apply()
"""


def test_two_forks_are_applied_one_after_the_other(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"x"}) as workspace:
        for line in ("one", "two"):
            workspace.fork(line)
        which = workspace.info.id
    with (
        subprocess.Popen(
            [sys.executable, "-c", APPLIER, tmp_path / "state", which],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
        Workspace.open(which, storage=storage(tmp_path), branch="two") as fork,
    ):
        assert process.stdout
        assert process.stdout.readline() == "in the middle\n"
        fork.files.write_text("a.txt", "of two")
        with pytest.raises(LedgerBusyError, match=f"process {process.pid}"):
            fork.apply()
        assert (tmp_path / "source/a.txt").read_bytes() == b"x"
        process.communicate("go on\n")
        assert process.returncode == 0
        fork.apply()
        assert (tmp_path / "source/a.txt").read_bytes() == b"of two"


def test_two_forks_work_at_the_same_time_in_two_processes(tmp_path: Path) -> None:
    with made(tmp_path, {"a.txt": b"x"}) as workspace:
        for line in ("one", "two"):
            workspace.fork(line)
        which = workspace.info.id
    here = Path(__file__).parent
    workers = {
        line: subprocess.Popen(
            [sys.executable, "-c", WORKER, tmp_path / "state", which, line, here, here.parent],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for line in ("one", "two")
    }
    for expected in ("open", "done"):
        for worker in workers.values():
            assert worker.stdout
            assert worker.stdout.readline() == f"{expected}\n"
        for worker in workers.values():
            assert worker.stdin
            worker.stdin.write("go on\n")
            worker.stdin.flush()
    for worker in workers.values():
        out, _ = worker.communicate()
        assert (worker.returncode, out) == (0, f"{1 + 30 + 10}\n")
    for line in ("one", "two"):
        with Workspace.open(which, storage=storage(tmp_path), branch=line) as fork:
            names = {str(found.path) for found in fork.files.list(line)}
            assert names == {f"{line}/{n}.txt" for n in range(30) if n % 3}
            assert len(list(fork.files.list("."))) == 2
    with reopened(tmp_path) as workspace:
        assert len(list(workspace.log())) == 1
        assert workspace.maintain().ran
    assert_fsck_clean(folder(tmp_path).ledger)
