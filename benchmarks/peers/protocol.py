"""What ``run.py`` asks of each tool, as JSON lines over a pipe.

A request is ``{"do": name, ...}``, and its answer ``{"answer": ...}`` or ``{"error": text}``. Each
tool has a process and an interpreter of its own, and only the one that was asked is at work.
Times are seconds.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

FILE = "d0/f0.txt"  # the one that every call writes
GONE = "d0/f1.txt"
MADE = "d0/made.txt"
TAKEN_BACK = "to be taken back\n"
BEFORE = "alpha\nmiddle\nbeta\n"
EDITS = (("alpha", "ALPHA"), ("beta", "BETA"))
COMMAND = f"echo changed > {FILE} && rm {GONE} && echo made > {MADE}"


class Peer(Protocol):
    """One tool at work in a directory; each method is what its documentation offers for it."""

    def start(self, root: Path) -> None:
        """Take over *root*, or a copy of it."""
        ...

    def path(self, name: str) -> Path:
        """Where a file of the workspace is on disk."""
        ...

    def write(self, text: str) -> float:
        """Seconds for a call that writes ``FILE`` and succeeds."""
        ...

    def write_and_fail(self) -> float:
        """Seconds for a call that writes ``TAKEN_BACK``, then fails, and for what undoes it."""
        ...

    def edit_twice(self) -> int:
        """How many of ``EDITS``, made at the same time, said that they succeeded."""
        ...

    def undo_command(self) -> float | str:
        """Seconds for taking back ``COMMAND``, run by a call; or why there is no such thing."""
        ...


def timed(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def n_succeeded(calls: list[Callable[[], bool]]) -> int:
    """How many of *calls*, each on a thread, all let go at once, neither raised nor said no."""
    ready = threading.Barrier(len(calls))
    succeeded: list[bool] = []

    def run(call: Callable[[], bool]) -> None:
        ready.wait()
        try:
            succeeded.append(call())
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its refusal
            print(f"an edit failed: {error!r}", file=sys.stderr)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(succeeded)


class _Server:
    """The requests, in terms of a peer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.n_writes = 0

    def start(self, root: str) -> None:
        self.peer.start(Path(root))
        self._write()

    def write(self) -> float:
        return self._write()

    def repeat(self, times: int, limit_s: float) -> int:
        """Make earlier calls; how many there was time for."""
        start = perf_counter()
        for n in range(times):
            if perf_counter() - start > limit_s:
                return n
            self._write()
        return times

    def fail(self) -> dict[str, object]:
        before = self._content()
        seconds = self.peer.write_and_fail()
        as_before = self._content() == before
        if not as_before:
            self._write()
        return {"seconds": seconds, "as_before": as_before}

    def edit_twice(self) -> str:
        self.peer.write(BEFORE)
        n_said = self.peer.edit_twice()
        content = self._content()
        if "middle" not in content:
            return "torn"
        n_there = sum(new in content for _, new in EDITS)
        if n_said > n_there:
            return "lost"
        return "both" if n_said == len(EDITS) else "refused"

    def undo_command(self) -> dict[str, object]:
        """Take back a command; which of the changed, the deleted and the new file came right."""
        before = {name: self._content(name) for name in (FILE, GONE, MADE)}
        seconds = self.peer.undo_command()
        if isinstance(seconds, str):
            return {"none": seconds}
        names = {"changed": FILE, "deleted": GONE, "new": MADE}
        right = [what for what, name in names.items() if self._content(name) == before[name]]
        for name, content in before.items():
            self._put(name, content)
        return {"seconds": seconds, "right": right}

    def _write(self) -> float:
        self.n_writes += 1
        return self.peer.write(f"written {self.n_writes}\n")

    def _content(self, name: str = FILE) -> str:
        path = self.peer.path(name)
        return path.read_text() if path.exists() else ""

    def _put(self, name: str, content: str) -> None:
        """Put right what the tool did not, for the next round."""
        if self._content(name) == content:
            return
        if content:
            self.peer.path(name).write_text(content)
        else:
            self.peer.path(name).unlink()


def serve(peer: Peer) -> None:
    """Answer requests until there are no more.

    What libraries print goes to standard error, so that it cannot be taken for an answer.
    """
    server = _Server(peer)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        try:
            answer = {"answer": getattr(server, request.pop("do"))(**request)}
        except Exception as error:  # noqa: BLE001 - told in the table, and the others go on
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), file=answers)
