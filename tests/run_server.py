"""Runs commands in child processes, sends each a signal at a given moment, and reports its end.

``python run_server.py`` reads one JSON request per line and answers each with one line::

    {"arguments": ["run", ...], "variables": {...}, "output": "/tmp/x", "signal": 2,
     "moment": 4711, "loads": false}
    {"code": 130, "begun": 3000, "calls": 4711}

A moment is a number of function calls in the child's main thread, so a seed means the same moments
on every machine. Counting starts in ``logged``, when the command can report its end; before, Python
starts. ``null`` sends no signal. A negative code is the signal that ended the child. ``begun`` is
the count at the start of the evaluation, ``calls`` at the end; a killed child reports neither.
The child's output goes to the file ``output``. The answer is sent when all processes that the child
started have ended. With ``"loads": true`` the server runs the command itself, so that modules are
loaded once and not by each child.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from wink_workspace.adapters import ProviderAdapter
from wink_workspace.cli import main
from wink_workspace.cli.app import logged

PR_SET_CHILD_SUBREAPER = 36


class SignalSender:
    """Counts function calls of this thread; sends the process signal *number* at call *moment*."""

    def __init__(self, number: int, moment: int | None) -> None:
        self._number, self._moment = number, moment
        self._is_counting = False
        self.calls = self.begun = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if frame.f_code is logged.__wrapped__.__code__:
            self._is_counting = True
        if event != "call" or not self._is_counting:
            return
        self.calls += 1
        if frame.f_code is ProviderAdapter.evaluate.__code__:
            self.begun = self.calls
        if self.calls == self._moment:
            sys.setprofile(None)  # the rest runs at normal speed; the counts end here
            os.kill(os.getpid(), self._number)


def run(request: dict[str, Any]) -> int:
    os.environ.update(request["variables"])
    with Path(request["output"]).open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    return main(request["arguments"])


def run_in_child(request: dict[str, Any], answer: int) -> None:
    """Run the request in the forked child; never return."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sender = SignalSender(request["signal"], request["moment"])
    sys.setprofile(sender)
    try:
        code = run(request)
        sys.setprofile(None)
    except BaseException:  # noqa: BLE001 - a forked child must not continue its parent's work
        sys.setprofile(None)
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()  # os._exit skips these
    sys.stdout.flush()
    sys.stderr.flush()
    counts = {"code": code, "begun": sender.begun, "calls": sender.calls}
    os.write(answer, json.dumps(counts).encode())
    os._exit(0)


def serve(request: dict[str, Any]) -> dict[str, int]:
    answer, to_answer = os.pipe()
    child = os.fork()
    if child == 0:
        run_in_child(request, to_answer)
    os.close(to_answer)
    with os.fdopen(answer, "rb") as answered:
        counts = answered.read()
    _, status = os.waitpid(child, 0)
    with suppress(ChildProcessError):
        while True:
            os.wait()  # processes that outlived their parent and so became our children
    return json.loads(counts) if counts else {"code": -os.WTERMSIG(status)}


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"code": run(request)} if request["loads"] else serve(request)
        print(json.dumps(answer), file=answers, flush=True)
