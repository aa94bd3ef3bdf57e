"""The requests of ``run.py`` to each tool, as JSON lines over a pipe.

A request is ``{"do": name, ...}``, and its answer ``{"answer": ...}`` or ``{"error": text}``. Each
tool has its own process and interpreter; only one works at a time. Times are seconds.
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
    """One tool in a directory; each method uses the tool as its documentation says."""

    def start(self, root: Path) -> None:
        """Start to work in *root*, or in a copy of it."""
        ...

    def path(self, name: str) -> Path:
        """The path of a file of the workspace on disk."""
        ...

    def write(self, text: str) -> float:
        """Seconds for a call that writes ``FILE`` and succeeds."""
        ...

    def write_and_fail(self) -> float:
        """Seconds for a call that writes ``TAKEN_BACK`` and then fails, with its rollback."""
        ...

    def edit_twice(self) -> int:
        """The number of ``EDITS``, made at the same time, that were reported as successful."""
        ...

    def undo_command(self) -> float | str:
        """Seconds for the undo of ``COMMAND``, run by a call; or why the tool has no undo."""
        ...


def timed(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def n_succeeded(calls: list[Callable[[], bool]]) -> int:
    """Run *calls* on threads at the same time; returns the number of those that succeeded."""
    ready = threading.Barrier(len(calls))
    succeeded: list[bool] = []

    def run(call: Callable[[], bool]) -> None:
        ready.wait()
        try:
            succeeded.append(call())
        except Exception as error:  # noqa: BLE001 - any exception of a tool is its refusal
            print(f"an edit failed: {error!r}", file=sys.stderr)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(succeeded)


class _Server:
    """Answers the requests with the methods of a peer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.n_writes = 0

    def start(self, root: str) -> None:
        self.peer.start(Path(root))
        self._write()

    def write(self) -> float:
        return self._write()

    def repeat(self, times: int, limit_s: float) -> int:
        """Make earlier calls until the time limit; returns their number."""
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
        n_reported = self.peer.edit_twice()
        content = self._content()
        if "middle" not in content:
            return "torn"
        n_there = sum(new in content for _, new in EDITS)
        if n_reported > n_there:
            return "lost"
        return "both" if n_reported == len(EDITS) else "refused"

    def undo_command(self) -> dict[str, object]:
        """Undo a command; which of the changed, the deleted and the new file were restored."""
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
        text = f"written {self.n_writes}\n"
        seconds = self.peer.write(text)
        if self._content() != text:
            raise RuntimeError(f"{self.peer.path(FILE)} has not what the tool wrote")
        return seconds

    def _content(self, name: str = FILE) -> str:
        path = self.peer.path(name)
        return path.read_text() if path.exists() else ""

    def _put(self, name: str, content: str) -> None:
        """Restore a file that the tool did not restore, for the next round."""
        if self._content(name) == content:
            return
        if content:
            self.peer.path(name).write_text(content)
        else:
            self.peer.path(name).unlink()


def serve(peer: Peer) -> None:
    """Answer requests until the end of the input.

    Output of libraries goes to standard error, so that it is not read as an answer.
    """
    server = _Server(peer)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        try:
            answer = {"answer": getattr(server, request.pop("do"))(**request)}
        except Exception as error:  # noqa: BLE001 - shown in the table; the other tools continue
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), file=answers)
