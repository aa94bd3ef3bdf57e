"""The runs of a workspace: the task of each, and the turns of its model.

::

    runs/<number>/
        about.json      the task, the model, the sandbox, the entry after which it began
        turns.jsonl     a script: every turn, on disk before its calls run
        natives.jsonl   turns in the provider's own format, by number, if there is one
        spent.jsonl     time and cost up to a turn; the last line counts
        messages.jsonl  messages of the user, each with the number of turns before it
        summaries.jsonl summaries of old turns: how many, the text, its tokens
        problem.txt     why it ended without an answer; missing while it runs, or if it was killed
        live/           while it runs; see ``live_runs``

Turns are stored here, and answers in the ledger: a call and its answer belong to one commit, and
only committed calls count. The conversation of an interrupted run is built from both. A turn that
was half written when the process died was never acted on, so it is left out.
"""

from __future__ import annotations

import json
import logging
import textwrap
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final, Self, cast

from wink_workspace import serde
from wink_workspace.adapters import (
    AssistantMessage,
    Message,
    ModelTurn,
    SummaryMessage,
    ToolMessage,
    UserMessage,
)
from wink_workspace.adapters.context_window import SUMMARY_HEAD
from wink_workspace.clock import TokenUsage
from wink_workspace.errors import ParseError, UsageError
from wink_workspace.ledger import EntryKind
from wink_workspace.prompt import ToolImage
from wink_workspace.runtime import ToolCall
from wink_workspace.session import Outcome, ToolInvoked
from wink_workspace.workspace.history.workspace_reader import ReadableHistory
from wink_workspace.workspace.place.storage import WorkspaceFolder

_log = logging.getLogger(__name__)

_VERSION: Final = 1
_SUBJECT_CHARS: Final = 72
_NATIVES: Final = "natives.jsonl"
_SPENT: Final = "spent.jsonl"
_MESSAGES: Final = "messages.jsonl"
_SUMMARIES: Final = "summaries.jsonl"
_PROBLEM: Final = "problem.txt"

_RESUMED: Final = (
    "The run was interrupted here and continues now. Files may have changed meanwhile: read again "
    "what you rely on."
)


@dataclass(frozen=True, slots=True)
class RunAbout:
    """The start of a run.

    Attributes:
        task: What the user asked for.
        model: The model, ``""`` for a script, or the name of an agent program.
        sandbox: The sandbox of its commands.
        after_entry: The number of the newest entry at that time.
        max_tokens: The limits with which it is resumed; ``None`` if none is recorded.
        max_turns: As before.
        deadline_s: As before.
        max_cost_usd: As before.
        follows: The number of the run that this one continues, if it does.
        message: The message of the user that continues it.
        is_agent: Whether an agent program works, whose turns are not known.
        model_settings: Settings of the model by name, such as ``temperature``.
    """

    task: str
    model: str
    sandbox: str
    after_entry: int
    max_tokens: int | None = None
    max_turns: int | None = None
    deadline_s: float | None = None
    max_cost_usd: Decimal | None = None
    follows: int | None = None
    message: str = ""
    is_agent: bool = False
    model_settings: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def commit_message(self) -> str:
        """A message for a commit of what it did: its first line has at most 72 characters."""
        text = (self.message or self.task).strip()
        subject = textwrap.shorten(text.partition("\n")[0], _SUBJECT_CHARS, placeholder="…")
        return subject if subject == text else f"{subject}\n\n{textwrap.fill(text, _SUBJECT_CHARS)}"


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run used so far; ``cost_usd`` is ``None`` if the price of a turn is not known."""

    elapsed_s: float
    cost_usd: Decimal | None


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
        run.keep_about()  # only this makes the folder a run
        return run

    @classmethod
    def newest(cls, workspace: WorkspaceFolder) -> Self | None:
        """The run that was started last; ``None`` if there is none."""
        return next(cls.all(workspace), None)

    @classmethod
    def all(cls, workspace: WorkspaceFolder) -> Iterator[Self]:
        """All runs of a workspace, or of a fork, newest first."""
        found = (cls._in(folder) for folder in _folders(workspace))
        return (run for run in found if run is not None)

    @property
    def number(self) -> int:
        """Its number in the workspace, from 1."""
        return int(self.folder.name)

    @property
    def previous(self) -> RecordedRun | None:
        """The run that this one continues; ``None`` if there is none."""
        follows = self.about.follows
        return None if follows is None else self._in(self.folder.with_name(str(follows)))

    @classmethod
    def _in(cls, folder: Path) -> Self | None:
        """The run in *folder*; ``None`` if its creation was interrupted."""
        try:
            fields: dict[str, Any] = json.loads((folder / "about.json").read_bytes())
            if fields.pop("version") == _VERSION:
                cost = fields.pop("max_cost_usd", None)
                limit = None if cost is None else Decimal(cost)
                return cls(folder, RunAbout(**fields, max_cost_usd=limit))
        except (OSError, ValueError, KeyError, TypeError, InvalidOperation):
            pass
        return None

    def keep_about(self) -> None:
        """Store ``about``."""
        fields = {**asdict(self.about), "version": _VERSION}
        temporary = self.folder / "about.json.new"
        text = json.dumps(fields, indent=2, default=str) + "\n"
        temporary.write_text(text, encoding="utf-8")
        temporary.rename(self.folder / "about.json")

    @property
    def script(self) -> Path:
        """The file with its turns; ``ScriptRecorder`` writes it."""
        return self.folder / "turns.jsonl"

    def turns(self) -> tuple[ModelTurn, ...]:
        """The turns taken so far.

        Raises:
            ScriptError: If they cannot be read.
        """
        from wink_workspace.adapters import load_script  # here: it loads the evaluation loop

        return load_script(self.script)

    def drop_half_turn(self) -> None:
        """Cut off a turn that was half written when the process died."""
        content = self.script.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            self.script.write_bytes(whole)

    def keep_native(self, number: int, native: str | None) -> None:
        """Store the *number*-th turn in its provider's own format, as JSON."""
        self._add(_NATIVES, [number, native])

    def keep_spent(self, n_turns: int, elapsed_s: float, cost_usd: Decimal | None) -> None:
        """Store the time of the run so far, and the cost of its first *n_turns* turns."""
        cost = None if cost_usd is None else str(cost_usd)
        self._add(_SPENT, [n_turns, round(elapsed_s, 3), cost])

    def keep_answer(self, text: str) -> None:
        """Finish the run of a program that does not show its turns: one turn has its answer."""
        self.script.write_text(json.dumps({"text": text}) + "\n", encoding="utf-8")

    def keep_message(self, text: str) -> None:
        """Store a message of the user that the model gets after its newest turn."""
        self._add(_MESSAGES, [len(self.turns()), text])

    def keep_summary(self, n_turns: int, turn: ModelTurn) -> None:
        """Store a summary of the first *n_turns* turns, those of earlier runs included."""
        self._add(_SUMMARIES, [n_turns, turn.text, asdict(turn.usage)])

    def _summaries(self) -> Iterator[tuple[int, str, TokenUsage]]:
        for _, line in self._lines(_SUMMARIES):
            match line:
                case [int(n_turns), str(text), dict()]:
                    usage = cast("list[Any]", line)[2]
                    yield n_turns, text, TokenUsage(**usage)
                case _:
                    continue  # half written, so the model did not get it

    def _summarised(self, messages: Sequence[Message]) -> Iterator[Message]:
        """*messages* of the whole conversation, with each summary behind what it replaces."""
        by_turn, run = dict[int, str](), self
        while run is not None:
            by_turn = {n: text for n, text, _ in run._summaries()} | by_turn
            run = run.previous
        n_turns = 0
        for message in messages:
            if isinstance(message, AssistantMessage):
                if n_turns in by_turn:
                    yield SummaryMessage(SUMMARY_HEAD + by_turn[n_turns])
                n_turns += 1
            yield message

    def keep_problem(self, text: str) -> None:
        """Store why it ended without an answer; ``""`` deletes what an earlier process stored."""
        if text:
            (self.folder / _PROBLEM).write_text(text, encoding="utf-8", errors="replace")
        else:
            (self.folder / _PROBLEM).unlink(missing_ok=True)

    @property
    def problem(self) -> str:
        """Why it ended without an answer; ``""`` if that is not known, or it did not."""
        try:
            return (self.folder / _PROBLEM).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    @property
    def revision(self) -> str:
        """Identifies the run and its last start; each process that continues it changes this."""
        return f"{self.number}.{(self.folder / 'about.json').stat().st_mtime_ns}"

    def _messages(self) -> dict[int, list[UserMessage]]:
        """The messages of the user, by the number of turns before them."""
        found: defaultdict[int, list[UserMessage]] = defaultdict(list)
        for _, line in self._lines(_MESSAGES):
            match line:
                case [int(n_turns), str(text)]:
                    found[n_turns].append(UserMessage(text))
                case _:
                    continue  # half written, so the model did not get it
        return found

    def _add(self, name: str, value: object) -> None:
        """Add a line of JSON to a file, on a new line: the last one may be half written."""
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps(value))

    def _lines(self, name: str) -> list[tuple[int, object]]:
        """The numbers and values of the lines of a file; ``None`` for one that is half written."""
        try:
            text = (self.folder / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        found: list[tuple[int, object]] = []
        for number, line in enumerate(text.split("\n"), start=1):
            if line:
                try:
                    found.append((number, json.loads(line)))
                except ValueError:
                    found.append((number, None))
        return found

    def spent(self, price: Callable[[TokenUsage], Decimal | None]) -> Spent:
        """What the run used so far, together with the runs that it continues.

        *price* gives the cost of a turn whose cost is not stored.
        """
        n_turns, elapsed_s, cost = self._newest_spent() or (0, *self._spent_before(price))
        for turn in self.turns()[n_turns:]:
            added = price(turn.usage)
            cost = None if cost is None or added is None else cost + added
        return Spent(elapsed_s, cost)

    def _spent_before(
        self, price: Callable[[TokenUsage], Decimal | None]
    ) -> tuple[float, Decimal | None]:
        if self.previous is None:
            return 0.0, Decimal(0)
        earlier = self.previous.spent(price)
        return earlier.elapsed_s, earlier.cost_usd

    def _newest_spent(self) -> tuple[int, float, Decimal | None] | None:
        for _, found in reversed(self._lines(_SPENT)):
            match found:
                case [int(n_turns), (int() | float()) as elapsed_s, None]:
                    return n_turns, elapsed_s, None
                case [int(n_turns), (int() | float()) as elapsed_s, str(cost)]:
                    return n_turns, elapsed_s, Decimal(cost)
                case _:
                    continue
        return None

    def with_natives(
        self, conversation: Sequence[Message], load: Callable[[str], object]
    ) -> tuple[Message, ...]:
        """*conversation* with turns in their provider's format, where one is stored.

        *load* makes it from its text: ``load_native`` of the adapter.
        """
        natives = self.all_natives()
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

    def all_natives(self) -> dict[int, str | None]:
        """The stored turns by their number in the conversation, earlier runs included."""
        n_earlier, natives, earlier = 0, dict[int, str | None](), self.previous
        if earlier is not None:
            natives, n_earlier = earlier.all_natives(), earlier.n_turns
        return natives | {n_earlier + number: native for number, native in self._natives()}

    @property
    def n_turns(self) -> int:
        """The number of turns, earlier runs included."""
        return len(self.turns()) + (self.previous.n_turns if self.previous is not None else 0)

    def _natives(self) -> Iterator[tuple[int, str | None]]:
        """The stored turns, oldest first; a later one for the same number counts."""
        for n, found in self._lines(_NATIVES):
            match found:
                case [int(number), (str() | None) as native]:
                    yield number, native
                case _:
                    path = self.folder / _NATIVES
                    _log.warning("cannot read line %d of %s; the run continues without it", n, path)

    @property
    def is_finished(self) -> bool:
        """Whether the last turn of the model made no calls, and no message of the user follows."""
        turns = [line for line in self.script.read_bytes().splitlines() if line.strip()]
        if not turns:
            return False
        try:
            last: dict[str, object] = json.loads(turns[-1])
        except ValueError:
            return False  # half written, so it was never acted on
        return not last.get("tool_calls") and len(turns) not in self._messages()

    @property
    def usage(self) -> TokenUsage:
        """The tokens spent so far, also by the runs that this one continues."""
        earlier = TokenUsage() if self.previous is None else self.previous.usage
        summaries = sum((usage for _, _, usage in self._summaries()), earlier)
        return sum((turn.usage for turn in self.turns()), summaries)

    def conversation(self, history: ReadableHistory) -> tuple[Message, ...]:
        """The messages so far, to continue from, with those of the runs that this one continues.

        A call of the last turn is left open if it has no answer or was interrupted: its effects
        were undone, so it can be made again.

        Raises:
            UsageError: If the run is finished.
            ScriptError: If its turns cannot be read.
        """
        if self.is_finished:
            raise UsageError(
                "the run is finished",
                hint="Continue it with --message TEXT, or start another run with a task.",
            )
        messages, is_open = self.own_messages(history)
        if messages and not is_open:
            messages.append(UserMessage(_RESUMED))
        return tuple(self._summarised([*self.earlier_messages(history), *messages]))

    def earlier_messages(self, history: ReadableHistory) -> tuple[Message, ...]:
        """The messages before the first turn of this run."""
        earlier = self.previous
        if earlier is None:
            return ()
        messages, _ = earlier.own_messages(history)
        before = earlier.earlier_messages(history)
        return (*before, *messages, UserMessage(self.about.message))

    def own_messages(self, history: ReadableHistory) -> tuple[list[Message], bool]:
        """The messages of this run, and whether its last call has no answer."""
        answers, turns, sent = self._answers(history), self.turns(), self._messages()
        messages: list[Message] = [*sent.get(0, ())]
        is_open = False
        for number, turn in enumerate(turns, start=1):
            messages.append(
                AssistantMessage(
                    turn.text, tuple(turn.tool_calls), input_tokens=turn.usage.input_tokens
                )
            )
            for call in turn.tool_calls:
                answer = answers[call.id].popleft() if answers[call.id] else None
                is_open = answer is None and number == len(turns)
                if is_open:
                    break
                messages.append(_answer(call, answer))
            messages += sent.get(number, ())
        return messages, is_open

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
    value = event.value
    image = ToolImage.of(value)
    if isinstance(value, dict):  # as JSON, from the ledger
        with suppress(ParseError):
            image = serde.parse(ToolImage, cast("dict[str, object]", value).get("image"))
    return ToolMessage(call.id, call.name, event.text, event.success, image)


def _was_interrupted(event: ToolInvoked) -> bool:
    """Whether the end of the process or Ctrl-C interrupted the call, and it can be repeated."""
    if event.outside_effects:
        return False
    last_line = (event.error or "").rstrip().rpartition("\n")[2]
    return event.outcome is Outcome.UNKNOWN or last_line.startswith("KeyboardInterrupt")


def _folders(workspace: WorkspaceFolder) -> Iterator[Path]:
    """The folders of all runs, newest first."""
    numbered = list[Path]()
    with suppress(FileNotFoundError):
        numbered = [path for path in workspace.runs.iterdir() if path.name.isdecimal()]
    return iter(sorted(numbered, key=lambda path: int(path.name), reverse=True))
