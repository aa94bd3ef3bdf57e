"""Runs commands, each in a fresh child that is struck at a moment, and says how they ended.

``python run_server.py`` reads one JSON request a line and answers each with one::

    {"arguments": ["run", ...], "variables": {...}, "told": "/tmp/x", "signal": 2, "moment": 4711,
     "loads": false}
    {"code": 130, "begun": 3000, "calls": 4711}

A moment counts calls of functions in the child's main thread, so that a seed means the same moments
everywhere, from where the command can tell of its end; before that it is Python that starts. ``null``
is none. A code below 0 is the signal that ended the child. ``begun`` is the count when the evaluation
began, ``calls`` the last one; a child that is killed says neither. What the child prints goes to the
file ``told``. The answer comes when no process is left that the child started. With ``"loads": true``
the command is run by the server itself and tells nothing: it loads what each child would else load
anew.
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
from wink_workspace.cli.logs import logged

PR_SET_CHILD_SUBREAPER = 36


class Striker:
    """Counts the calls of this thread, and sends itself *number* at the *moment*-th."""

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
            sys.setprofile(None)  # what follows runs at its usual speed; the counts end here
            os.kill(os.getpid(), self._number)


def run(request: dict[str, Any]) -> int:
    os.environ.update(request["variables"])
    with Path(request["told"]).open("wb") as told:
        os.dup2(told.fileno(), 1)
        os.dup2(told.fileno(), 2)
    return main(request["arguments"])


def run_and_strike(request: dict[str, Any], answer: int) -> None:
    """In the child: never comes back."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    striker = Striker(request["signal"], request["moment"])
    sys.setprofile(striker)
    try:
        code = run(request)
        sys.setprofile(None)
    except BaseException:  # noqa: BLE001 - a forked child must not go on with its parent's work
        sys.setprofile(None)
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()  # as Python would at its end, which os._exit leaves out
    sys.stdout.flush()
    sys.stderr.flush()
    counts = {"code": code, "begun": striker.begun, "calls": striker.calls}
    os.write(answer, json.dumps(counts).encode())
    os._exit(0)


def serve(request: dict[str, Any]) -> dict[str, int]:
    answer, to_answer = os.pipe()
    child = os.fork()
    if child == 0:
        run_and_strike(request, to_answer)
    os.close(to_answer)
    with os.fdopen(answer, "rb") as answered:
        counts = answered.read()
    _, status = os.waitpid(child, 0)
    with suppress(ChildProcessError):
        while True:
            os.wait()  # for what outlived its parent and so became our child
    return json.loads(counts) if counts else {"code": -os.WTERMSIG(status)}


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"code": run(request)} if request["loads"] else serve(request)
        print(json.dumps(answer), file=answers, flush=True)
