"""The runs of a workspace: the task of each, and the turns of its model.

::

    runs/<number>/
        about.json      the task, the model, the sandbox, the entry after which it began
        turns.jsonl     a script: every turn, on disk before its calls run
        natives.jsonl   turns in the provider's own format, by number, if there is one

Turns are stored here, and answers in the ledger: a call and its answer belong to one commit, and
only committed calls count. The conversation of an interrupted run is built from both. A turn that
was half written when the process died was never acted on, so it is left out.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from wink_workspace.adapters import (
    AssistantMessage,
    Message,
    ModelTurn,
    ToolMessage,
    UserMessage,
    load_script,
)
from wink_workspace.clock import TokenUsage
from wink_workspace.errors import UsageError
from wink_workspace.ledger import EntryKind
from wink_workspace.runtime import ToolCall
from wink_workspace.session import Outcome, ToolInvoked

from .reading import ReadableHistory
from .storage import WorkspaceFolder

__all__ = ["RecordedRun", "RunAbout"]

_log = logging.getLogger(__name__)

_VERSION: Final = 1
_NATIVES: Final = "natives.jsonl"

_RESUMED: Final = (
    "The run was interrupted here and continues now. Files may have changed meanwhile: read again "
    "what you rely on."
)


@dataclass(frozen=True, slots=True)
class RunAbout:
    """The start of a run; ``after_entry`` is the number of the newest entry at that time."""

    task: str
    model: str
    sandbox: str
    after_entry: int


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One run in its folder."""

    folder: Path
    about: RunAbout

    @classmethod
    def begin(cls, workspace: WorkspaceFolder, about: RunAbout) -> Self:
        """Start a new run of a workspace, or of a fork."""
        number = max((int(path.name) for path in _folders(workspace)), default=0) + 1
        folder = workspace.runs / str(number)
        folder.mkdir(parents=True, mode=0o700)
        run = cls(folder, about)
        run.script.touch()
        fields = {**asdict(about), "version": _VERSION}
        temporary = folder / "about.json.new"
        temporary.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
        temporary.rename(folder / "about.json")  # only this makes the folder a run
        return run

    @classmethod
    def newest(cls, workspace: WorkspaceFolder) -> Self | None:
        """The run that was started last; ``None`` if there is none."""
        return next(cls.all(workspace), None)

    @classmethod
    def all(cls, workspace: WorkspaceFolder) -> Iterator[Self]:
        """All runs of a workspace, or of a fork, newest first."""
        for folder in _folders(workspace):
            try:
                fields: dict[str, Any] = json.loads((folder / "about.json").read_bytes())
                if fields.pop("version") == _VERSION:
                    yield cls(folder, RunAbout(**fields))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # its creation was interrupted

    @property
    def script(self) -> Path:
        """The file with its turns; ``ScriptRecorder`` writes it."""
        return self.folder / "turns.jsonl"

    def turns(self) -> tuple[ModelTurn, ...]:
        """The turns taken so far.

        Raises:
            ScriptError: If they cannot be read.
        """
        return load_script(self.script)

    def drop_half_turn(self) -> None:
        """Cut off a turn that was half written when the process died."""
        content = self.script.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            self.script.write_bytes(whole)

    def keep_native(self, number: int, native: str | None) -> None:
        """Store the *number*-th turn in its provider's own format, as JSON."""
        line = "\n" + json.dumps([number, native])  # a new line: the last may be half written
        with (self.folder / _NATIVES).open("a", encoding="utf-8") as file:
            file.write(line)

    def with_natives(
        self, conversation: Sequence[Message], load: Callable[[str], object]
    ) -> tuple[Message, ...]:
        """*conversation* with turns in their provider's format, where one is stored."""
        natives = dict(self._natives())
        messages: list[Message] = []
        number = 0
        for message in conversation:
            if isinstance(message, AssistantMessage):
                number += 1
                native = natives.get(number)
                if native is not None:
                    messages.append(replace(message, native=load(native)))
                    continue
            messages.append(message)
        return tuple(messages)

    def _natives(self) -> Iterator[tuple[int, str | None]]:
        """The stored turns, oldest first; a later one for the same number counts."""
        path = self.folder / _NATIVES
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return
        for n, line in enumerate(lines, start=1):
            if not line:
                continue
            try:
                found: object = json.loads(line)
            except ValueError:
                found = None  # it was half written when the process died
            match found:
                case [int(number), (str() | None) as native]:
                    yield number, native
                case _:
                    _log.warning("cannot read line %d of %s; the run continues without it", n, path)

    @property
    def is_finished(self) -> bool:
        """Whether the last turn of the model made no calls."""
        turns = self.turns()
        return bool(turns) and not turns[-1].tool_calls

    @property
    def usage(self) -> TokenUsage:
        """The tokens spent so far."""
        return sum((turn.usage for turn in self.turns()), TokenUsage())

    def conversation(self, history: ReadableHistory) -> tuple[Message, ...]:
        """The messages so far, to continue from.

        A call of the last turn is left open if it has no answer or was interrupted: its effects
        were undone, so it can be made again.

        Raises:
            UsageError: If the run is finished.
            ScriptError: If its turns cannot be read.
        """
        if self.is_finished:
            raise UsageError("the run is finished", hint="Start another run with a task.")
        answers, turns = self._answers(history), self.turns()
        messages: list[Message] = []
        is_open = False
        for number, turn in enumerate(turns, start=1):
            messages.append(AssistantMessage(turn.text, tuple(turn.tool_calls)))
            for call in turn.tool_calls:
                answer = answers[call.id].popleft() if answers[call.id] else None
                is_open = answer is None and number == len(turns)
                if is_open:
                    break
                messages.append(_answer(call, answer))
        if messages and not is_open:
            messages.append(UserMessage(_RESUMED))
        return tuple(messages)

    def _answers(self, history: ReadableHistory) -> dict[str, deque[ToolInvoked]]:
        """The records of calls that were not interrupted, in order; an id may occur twice."""
        answers: defaultdict[str, deque[ToolInvoked]] = defaultdict(deque)
        for entry in history.log():
            if entry.number <= self.about.after_entry:
                break
            if entry.kind is EntryKind.CALL:
                event = history.record(entry).event
                if isinstance(event, ToolInvoked) and not _was_interrupted(event):
                    answers[event.call_id].appendleft(event)
        return answers


def _answer(call: ToolCall, event: ToolInvoked | None) -> ToolMessage:
    if event is None:  # retention removed it; later calls were answered, so this one was, too
        return ToolMessage(call.id, call.name, "(The answer is no longer kept.)", success=True)
    return ToolMessage(call.id, call.name, event.text, event.success)


def _was_interrupted(event: ToolInvoked) -> bool:
    """Whether the end of the process or Ctrl-C interrupted the call."""
    last_line = (event.error or "").rstrip().rpartition("\n")[2]
    return event.outcome is Outcome.UNKNOWN or last_line.startswith("KeyboardInterrupt")


def _folders(workspace: WorkspaceFolder) -> Iterator[Path]:
    """The folders of all runs, newest first."""
    found = workspace.runs.iterdir() if workspace.runs.is_dir() else ()
    numbered = [path for path in found if path.name.isdecimal()]
    return iter(sorted(numbered, key=lambda path: int(path.name), reverse=True))
