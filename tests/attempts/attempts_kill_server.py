"""Run the attempts of a workspace, each time in a new coordinator of which a part is killed.

``python attempts_kill_server.py`` reads one JSON request a line and answers each with how many
processes it killed, after all processes of the coordinator have ended::

    {"state": "/tmp/x", "n": 32, "spawn": false, "kill": ["coordinator", 40]}
    {"state": "/tmp/x", "n": 32, "spawn": false, "kill": ["worker", 0.05]}
    {"state": "/tmp/x", "n": 32, "spawn": false, "kill": ["worker", [7, 12]]}

Each is a run of 32 attempts. The first kills the coordinator at its 40th kill point, the second a worker after 0.05 seconds, the
third the worker of attempt 7 at the 12th kill point of the attempt. ``kill`` may be ``null``.

With ``spawn`` the engine starts its workers as always. Otherwise they are forked by a process that
the coordinator forks before it does anything else, which takes a tenth of the time.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import attempt_functions as do  # noqa: E402 - needs the path above

from wink_workspace._kill_points import KillPoint, calling  # noqa: E402 - as above
from wink_workspace.attempts import AttemptContext, Attempts, LocalEngine  # noqa: E402 - as above
from wink_workspace.attempts.local_engine import work  # noqa: E402 - as above
from wink_workspace.workspace import Workspace, WorkspaceStorage  # noqa: E402 - as above

_PR_SET_CHILD_SUBREAPER = 36


class Forker:
    """A process that forks the workers of one coordinator; it ends with the coordinator."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork():
            theirs.close()
            return
        self.socket.close()
        while (request := socket.recv_fds(theirs, 1 << 20, 1))[0]:
            plan, (fd,), _, _ = request
            if os.fork() == 0:  # it waits for the worker, which is then never a zombie
                if worker := os.fork():
                    socket.send_fds(
                        theirs, [b"_"], [os.pidfd_open(os.getpid()), os.pidfd_open(worker)]
                    )
                    theirs.close()
                    os.close(fd)
                    os.waitpid(worker, 0)
                    os._exit(0)
                theirs.close()
                as_child(partial(work, Connection(fd), pickle.loads(plan)))
            os.close(fd)
        os._exit(0)


class ForkedWorker:
    """What the engine uses of a process; its exit code is not known."""

    exitcode = None

    def __init__(self, sentinel: int, pidfd: int) -> None:
        self.sentinel, self._pidfd = sentinel, pidfd

    def is_alive(self) -> bool:
        return not select.select([self.sentinel], [], [], 0)[0]

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def join(self) -> None:
        select.select([self.sentinel], [], [])

    def close(self) -> None:
        os.close(self.sentinel)
        os.close(self._pidfd)


class ForkingEngine(LocalEngine):
    """Its workers come from a forker."""

    forker: Forker

    def _start_process(self, connection: Connection, plan: Any) -> Any:
        socket.send_fds(self.forker.socket, [pickle.dumps(plan)], [connection.fileno()])
        return ForkedWorker(*socket.recv_fds(self.forker.socket, 1, 2)[1])


def as_child(function: Callable[[], object]) -> None:
    """Run *function*, and end this process, which must not continue what its parent does."""
    try:
        function()
    except BaseException:  # noqa: BLE001 - as above
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def kill_at(nth: int, note: Path) -> Callable[[KillPoint], None]:
    """A hook that kills this process at the n-th kill point, and writes *note* before."""
    passed = 0

    def hook(_: KillPoint) -> None:
        nonlocal passed
        passed += 1
        if passed == nth and not note.exists():
            note.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def solve_or_die(number: int, nth: int, note: str, context: AttemptContext) -> None:
    """``solve``; the worker of one attempt is killed once."""
    if context.number != number:
        do.solve(context)
        return
    with calling(kill_at(nth, Path(note))):
        do.solve(context)


def coordinate(request: dict[str, Any], note: Path, engine: LocalEngine) -> None:
    """Begin the run of a workspace, or continue it."""
    storage = WorkspaceStorage(Path(request["state"]))
    who, when = request["kill"] or ("", 0)
    attempt = do.solve
    if isinstance(when, list):
        attempt = partial(solve_or_die, *when, str(note))
    dies_at = when if who == "coordinator" and isinstance(when, int) else 0
    (info,) = storage.all()
    with calling(kill_at(dies_at, note)), Workspace.open(info.id, storage=storage) as workspace:
        runs = Attempts.run_ids(workspace)
        if runs:
            attempts = Attempts.open(workspace, runs[0], engine=engine)
        else:
            attempts = Attempts(workspace, n=request["n"], seed=7, engine=engine)
        for _ in attempts.run(attempt, score=do.tests_pass):
            pass


def start(request: dict[str, Any], note: Path) -> None:
    """What a new coordinator does first."""
    os.dup2(2, 1)
    if request["spawn"]:
        engine = LocalEngine()
    else:
        engine = ForkingEngine()
        engine.forker = Forker()
    coordinate(request, note, engine)


def workers_of(coordinator: int) -> list[int]:
    """The workers that exist, of whichever kind."""
    spawned = [pid for pid in children_of(coordinator) if b"spawn_main" in title_of(pid)]
    waiting = [pid for forker in children_of(coordinator) for pid in children_of(forker)]
    return spawned or [worker for pid in waiting for worker in children_of(pid)]


def children_of(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def title_of(pid: int) -> bytes:
    """The arguments of a process; empty if it is dead."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def serve(request: dict[str, Any]) -> int:
    """Run a coordinator; how many processes were killed."""
    note = Path(request["state"], "killed")
    note.unlink(missing_ok=True)
    who, when = request["kill"] or ("", 0)
    coordinator = os.fork()
    if coordinator == 0:
        as_child(partial(start, request, note))
    ended = os.pidfd_open(coordinator)
    n_killed = 0
    if isinstance(when, float) and not select.select([ended], [], [], when)[0]:
        pids = [coordinator] if who == "coordinator" else workers_of(coordinator)[:1]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                n_killed += 1
    os.close(ended)
    _, status = os.waitpid(coordinator, 0)
    with suppress(ChildProcessError):
        while True:  # the workers of a killed coordinator end by themselves
            os.wait()
    assert os.WTERMSIG(status) == signal.SIGKILL if os.WIFSIGNALED(status) else status == 0
    return n_killed + note.exists()


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        answers.write(f"{serve(json.loads(line))}\n")
        answers.flush()
