"""What a client shows of a session: its calls as they run, its plan, and changes as diffs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from wink_workspace.filesystem import FileChange, FileKind
from wink_workspace.integrations.frameworks import importing
from wink_workspace.sections import Plan
from wink_workspace.session import ToolInvoked
from wink_workspace.session.progress import ToolOutput, ToolStarted
from wink_workspace.workspace import Workspace

with importing("acp"):
    from acp.helpers import (
        plan_entry,
        start_tool_call,
        text_block,
        tool_content,
        tool_diff_content,
        update_plan,
        update_tool_call,
    )


Send = Callable[[Any], None]

TEXT_CHARS: Final = 10_000
_MOST_DIFFS: Final = 20
_DIFF_BYTES: Final = 65_536
KINDS: Final = {
    "read_file": "read",
    "ls": "read",
    "glob": "search",
    "grep": "search",
    "write_file": "edit",
    "edit_file": "edit",
    "apply_patch": "edit",
    "mv": "move",
    "rm": "delete",
    "shell_execute": "execute",
    "evaluate_python": "execute",
}
"""The kind of a tool in the protocol, by its name."""
_STATUS: Final = {"pending": "pending", "in_progress": "in_progress", "done": "completed"}


@dataclass(slots=True)
class Watching:
    """Sends what happens in a session while a run lasts."""

    workspace: Workspace
    send: Send
    _stops: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    _started: set[str] = field(default_factory=set[str])
    _plan: Plan | None = None

    def __enter__(self) -> None:
        session = self.workspace.session
        self._plan = session[Plan].latest()
        subscribe = session.dispatcher.subscribe
        self._stops += [
            subscribe(ToolStarted, self._on_start),
            subscribe(ToolOutput, self._on_output),
            subscribe(ToolInvoked, self._on_end),
        ]

    def __exit__(self, *_: object) -> None:
        for stop in self._stops:
            stop()

    def _on_start(self, event: ToolStarted) -> None:
        if not event.depth:
            self._start(event.call_id, event.tool, event.subject)

    def _start(self, call_id: str, tool: str, subject: str) -> None:
        self._started.add(call_id)
        kind = cast("Any", KINDS.get(tool, "other"))
        self.send(
            start_tool_call(call_id, f"{tool} {subject}".strip(), kind=kind, status="in_progress")
        )

    def _on_output(self, event: ToolOutput) -> None:
        content = [tool_content(text_block("\n".join(event.lines)))]
        self.send(update_tool_call(event.call_id, content=content))

    def _on_end(self, event: ToolInvoked) -> None:
        if event.depth:
            return
        if event.call_id not in self._started:
            self._start(event.call_id, event.tool, "")
        content: list[Any] = [tool_content(text_block(event.text[:TEXT_CHARS]))]
        head = self.workspace.head
        if event.success and head.call_id == event.call_id:
            content += diffs(self.workspace.info.source, self.workspace.changes_of(head))
        status = "completed" if event.success else "failed"
        self.send(update_tool_call(event.call_id, status=status, content=content))
        plan = self.workspace.session[Plan].latest()
        if plan is not None and plan != self._plan:
            steps = [plan_entry(s.title, status=cast("Any", _STATUS[s.status])) for s in plan.steps]
            self.send(update_plan(steps))
        self._plan = plan


def diffs(source: str, changes: Sequence[FileChange]) -> list[Any]:
    """The changes of text files as diffs of the client's paths."""
    found: list[Any] = []
    for change in changes:
        texts = [
            None if state is None or state.kind is not FileKind.FILE else _text(state.data)
            for state in (change.before, change.after)
        ]
        if any(texts) and len(found) < _MOST_DIFFS:
            path = str(Path(source, *change.path.parts))
            found.append(tool_diff_content(path, texts[1] or "", texts[0]))
    return found


def _text(data: bytes) -> str | None:
    if len(data) > _DIFF_BYTES:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
