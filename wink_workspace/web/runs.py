"""What the page of a run in progress shows: its events as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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

__all__ = ["RunLine", "run_line"]

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
