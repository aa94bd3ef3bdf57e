"""Notice that a workspace changed, at a cost that does not grow with the number of open pages.

Rule 1: all pages of a workspace share one look, five times a second at most.
Rule 2: a look that finds nothing reads the times of a few directories: each move of a ref replaces
a file in one of them. Only after a difference the refs are read. They are read once more at the
next look, since two moves within the resolution of these times look like one.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from wink_workspace.errors import WinkError
from wink_workspace.workspace.runs.live_runs import (
    CallBegan,
    CallEnded,
    CallOutput,
    EventsMissed,
    MessageReceived,
    ModelRetries,
    ModelSpoke,
    PlanChanged,
    RunEnded,
    RunEvent,
)

LOOK_S: Final = 0.2
"""How often a watched workspace is looked at; a call appears after at most this time."""

_MOST_WATCHES: Final = 100
_Stamps = tuple[tuple[str, int], ...]


class Watch:
    """Looks at one workspace; used from one event loop.

    Args:
        ledger: The directory of its ledger.
        read: Reads everything that the pages show live: the ids of branches and documents. Called
            in a thread; raises ``WinkError`` if the workspace was deleted.

    Attributes:
        version: Increased with each change that was found.
        state: Identifies what was found, also for another server.
        n_reads: How often *read* was called.
    """

    def __init__(self, ledger: Path, read: Callable[[], object]) -> None:
        self._refs = ledger / "refs"
        self._packed = ledger / "packed-refs"
        self._read = read
        self._looking = anyio.Lock()
        self._looked_at_s = float("-inf")
        self._stamps: _Stamps | None = None
        self._is_recent = True
        self._known: object = None
        self.version = 0
        self.state = ""
        self.n_reads = 0

    async def look(self) -> int:
        """The version, at most ``LOOK_S`` old.

        Raises:
            WinkError: If the workspace was deleted or cannot be read.
        """
        async with self._looking:
            if anyio.current_time() - self._looked_at_s >= LOOK_S:
                await anyio.to_thread.run_sync(self._look)
                self._looked_at_s = anyio.current_time()
            return self.version

    def _look(self) -> None:
        stamps = self._present()
        was_recent, self._is_recent = self._is_recent, stamps != self._stamps
        self._stamps = stamps
        if not (self._is_recent or was_recent):
            return
        try:
            self.n_reads += 1
            found = self._read()
        except WinkError:
            self._stamps = None  # read again at the next look
            raise
        if found != self._known:
            self._known = found
            self.state = state_of(found)
            self.version += 1

    def _present(self) -> _Stamps:
        found: list[tuple[str, int]] = []
        for below in ("heads", "wink/documents"):
            for directory, _, _ in os.walk(self._refs / below):
                found.append((directory, _time_ns(directory)))
        return (*found, ("packed-refs", _time_ns(self._packed)))


def state_of(found: object) -> str:
    """A short name of what ``Watch`` reads, the same wherever it is read."""
    return hashlib.sha256(repr(found).encode()).hexdigest()[:32]


def _time_ns(path: str | Path) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - done often
    except OSError:
        return 0


class Watches:
    """The watches of the workspaces that pages show.

    Args:
        ledger: The directory of the ledger of a workspace.
        read: As for ``Watch``, given the workspace.
    """

    def __init__(self, ledger: Callable[[str], Path], read: Callable[[str], object]) -> None:
        self._ledger = ledger
        self._read = read
        self._watches: OrderedDict[str, Watch] = OrderedDict()

    def of(self, workspace: str) -> Watch:
        """The watch of a workspace; those of the most recently used ones are kept.

        Raises:
            UsageError: If there is no such workspace.
        """
        watch = self._watches.get(workspace)
        if watch is None:
            watch = Watch(self._ledger(workspace), partial(self._read, workspace))
            self._watches[workspace] = watch
            if len(self._watches) > _MOST_WATCHES:
                self._watches.popitem(last=False)
        self._watches.move_to_end(workspace)
        return watch


# ------------------------------------------------------------------------------------------- runs


_MARKS = {"done": "✓", "in_progress": "▸"}


@dataclass(frozen=True, slots=True)
class RunLine:
    """One event: a heading, and lines below it; ``kind`` is a class of its style."""

    kind: str
    heading: str
    lines: Sequence[str] = ()
    entry: int | None = None


def run_line(event: RunEvent, line: Callable[[str], str]) -> RunLine:
    """What is shown of *event*; *line* redacts a text and makes every character visible."""
    match event:
        case ModelSpoke(text=text):
            return RunLine("words", "Model", [line(each) for each in text.splitlines()])
        case ModelRetries(reason=reason, attempt=attempt, wait_s=wait_s):
            return RunLine(
                "note", f"Request {attempt} failed; again in {wait_s:.0f} s", [line(reason)]
            )
        case MessageReceived(text=text):
            return RunLine("words", "You", [line(each) for each in text.splitlines()])
        case CallBegan(tool=tool, subject=subject, depth=depth):
            return RunLine("call", line(f"{'  ' * depth}{tool} {subject}"))
        case CallOutput(lines=lines):
            return RunLine("output", "", [line(each) for each in lines])
        case CallEnded():
            return _ended_call(event, line)
        case PlanChanged(objective=objective, steps=steps):
            shown = [f"{_MARKS.get(step.status, '·')} {line(step.title)}" for step in steps]
            return RunLine("words", line(f"Plan: {objective}"), shown)
        case EventsMissed():
            return RunLine("note", "Older events are no longer stored; the timeline has the calls.")
        case RunEnded(problem=problem):
            ended = line(f"The run has ended: {problem}") if problem else "The run has ended."
            return RunLine("end", ended)


def _ended_call(event: CallEnded, line: Callable[[str], str]) -> RunLine:
    outcome = event.outcome.value.replace("_", " ")
    details = [line(event.ending), f"{event.duration_s:.2f} s"] if event.ending else []
    heading = ", ".join([outcome, *(details or [f"{event.duration_s:.2f} s"])])
    text = () if event.success or event.is_command else event.text.splitlines()
    kind = "committed" if event.success else "rolled-back"
    return RunLine(kind, heading, [line(each) for each in text], event.entry)
