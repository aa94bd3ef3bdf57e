"""What a page shows of a history: redacted and bounded text, without markup.

Rule 1: every text is redacted first and cut afterwards, so that a cut cannot hide a secret from the
redactor and show its beginning.
Rule 2: characters that a reader cannot see, or that change how other text is shown, are written as
escapes: control characters, terminal sequences, and marks that reverse the direction of text.
Rule 3: long lines and long texts are cut, and the cut says how much is missing. So a page stays
readable, and its size follows the number of entries.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from wink_workspace import serde
from wink_workspace.adapters import ModelTurn
from wink_workspace.clock import TokenUsage
from wink_workspace.ledger import LogEntry
from wink_workspace.workspace import RecordedRun
from wink_workspace.workspace.history.workspace_reader import ReadableHistory

_MAX_TEXT_CHARS: Final = 100_000
_MAX_LINE_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Text:
    """A text for the page; ``n_more`` characters at its end are left out."""

    lines: tuple[str, ...]
    n_more: int = 0

    def __bool__(self) -> bool:
        return bool(self.lines)

    @property
    def whole(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedEntry:
    """One entry: a call, or another change of the history.

    ``thought`` is the text of the model before its first call of a turn, and ``tokens`` are those
    of that turn; other calls of the turn have none.
    """

    number: int
    kind: str
    outcome: str
    subject: str
    at: str
    duration: str
    tokens: str
    thought: Text
    arguments: Text
    output: Text
    error: Text
    diff: Text
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """A task with the entries since it began; without a task, entries that belong to no run."""

    task: Text
    model: str
    tokens: str
    entries: Sequence[ReportedEntry]
    answer: Text


class ReportedHistory:
    """The history of one branch, for a page.

    Args:
        history: The history.
        runs: The recorded runs of the branch, in any order.
        redact: Applied to every text.
        title: The name of the workspace.
    """

    def __init__(
        self,
        history: ReadableHistory,
        runs: Sequence[RecordedRun],
        *,
        redact: Callable[[str], str],
        title: str,
    ) -> None:
        self._history = history
        self._redact = redact
        self._runs = sorted(runs, key=lambda run: run.about.after_entry)
        self.title: Final = title
        self.source: Final = self.line(history.info.source)

    @property
    def diff(self) -> Text:
        """The differences from the source at the newest entry."""
        return self.text(*self._history.changeset().review().head(_MAX_TEXT_CHARS))

    def runs(self) -> Iterator[ReportedRun]:
        """The runs, oldest first; before them, the entries that belong to none."""
        entries = deque(sorted(self._history.log(), key=lambda entry: entry.number))
        starts = [run.about.after_entry for run in self._runs]
        before = _up_to(entries, starts[0] if starts else None)
        if before:
            yield ReportedRun(
                Text(()), "", "", [self.entry(each, None) for each in before], Text(())
            )
        for n, run in enumerate(self._runs):
            own = _up_to(entries, starts[n + 1] if n + 1 < len(starts) else None)
            turns = run.turns()
            of_call = turns_by_call(turns)
            yield ReportedRun(
                self.text(run.about.task),
                self.line(run.about.model),
                tokens_text(sum((turn.usage for turn in turns), TokenUsage())),
                [self.entry(each, _next(of_call[each.call_id])) for each in own],
                self.text("" if not turns or turns[-1].tool_calls else turns[-1].text),
            )

    def entry(self, entry: LogEntry, turn: ModelTurn | None = None) -> ReportedEntry:
        """One entry, and what the model said before it, if *turn* is its turn."""
        found = self._history.record(entry).data
        data: dict[str, Any] = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        # The first entry adds every file, so its diff would be the whole source.
        has_diff = entry.parent is not None
        diff = self._history.review_of(entry).head(_MAX_TEXT_CHARS) if has_diff else ("", 0)
        params = serde.map_strings(data.get("params"), self._redact)
        seconds = data.get("duration_s")
        return ReportedEntry(
            number=entry.number,
            kind=entry.kind.value,
            outcome="" if entry.outcome is None else entry.outcome.value.replace("_", " "),
            subject=self.line(entry.subject),
            at=f"{entry.at:%Y-%m-%d %H:%M:%S} UTC",
            duration="" if not isinstance(seconds, int | float) else f"{seconds:,.3f} s",
            tokens="" if turn is None else tokens_text(turn.usage),
            thought=self.text("" if turn is None else turn.text),
            arguments=self.text(_as_json(params)),
            output=self.text(str(data.get("text") or data.get("reason") or "")),
            error=self.text(str(data.get("error") or "")),
            diff=self.text(*diff),
            notes=tuple(filter(None, (self._history.lost_changes(entry),)))
            + tuple(
                self.line(str(note))
                for name in ("notes", "outside_effects")
                for note in cast("list[object]", data.get(name) or ())
            ),
        )

    def line(self, text: str) -> str:
        """*text* in one line."""
        return visible(" ".join(self._redact(text).splitlines()))

    def text(self, text: str, n_more: int = 0) -> Text:
        """*text*, which lacks *n_more* characters at its end."""
        redacted = self._redact(text)
        kept = redacted[:_MAX_TEXT_CHARS]
        if n_more:  # the text was cut before it was redacted, perhaps in the middle of a secret
            kept, _, cut = kept.rpartition("\n")
            n_more += len(cut)
        n_more += len(redacted) - min(len(redacted), _MAX_TEXT_CHARS)
        lines = kept.removesuffix("\n").split("\n") if kept else ()
        return Text(tuple(map(visible, lines)), n_more)


def _up_to(entries: deque[LogEntry], number: int | None) -> list[LogEntry]:
    """Remove and return the entries up to *number*; all of them without one."""
    found: list[LogEntry] = []
    while entries and (number is None or entries[0].number <= number):
        found.append(entries.popleft())
    return found


def turns_by_call(turns: Sequence[ModelTurn]) -> defaultdict[str, deque[ModelTurn | None]]:
    """For each id of a call the turns with it, oldest first; ``None`` for later calls of a turn."""
    found: defaultdict[str, deque[ModelTurn | None]] = defaultdict(deque)
    for turn in turns:
        for n, call in enumerate(turn.tool_calls):
            found[call.id].append(turn if n == 0 else None)
    return found


def _next(turns: deque[ModelTurn | None]) -> ModelTurn | None:
    return turns.popleft() if turns else None


def tokens_text(usage: TokenUsage) -> str:
    """The tokens in words; ``""`` without any."""
    if not usage.total_tokens:
        return ""
    return f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"


def _as_json(params: object) -> str:
    """*params* as indented JSON, in which line ends of strings are line ends."""
    if params is None or params == {}:
        return ""
    if isinstance(params, dict):
        items = cast("dict[str, object]", params).items()
        return "\n".join(f"{name}: {_value(value)}" for name, value in items)
    return _value(params)


def _value(value: object) -> str:
    if isinstance(value, str):
        return value if "\n" not in value else "\n  " + value.replace("\n", "\n  ")
    return json.dumps(value, ensure_ascii=False, indent=2)


def visible(line: str) -> str:
    """*line* with escapes for characters that cannot be seen, and cut if it is very long."""
    n_more = len(line) - _MAX_LINE_CHARS
    if n_more > 0:
        line = f"{line[:_MAX_LINE_CHARS]} … ({n_more:,} more characters in this line)"
    if line.isprintable():
        return line
    return "".join(
        char if char.isprintable() or char == "\t" else f"\\u{ord(char):04x}" for char in line
    )


# ------------------------------------------------------------------------------------------- page

# The page: a template with escaped values.
#
# Jinja escapes every value; the templates mark none as safe. A policy in the page forbids scripts
# and requests, so that even a mistake there could not run or load anything.


_TEMPLATES = Path(__file__).with_name("templates")


def write_page(history: ReportedHistory, write: Callable[[str], object]) -> None:
    """Call *write* with the page of *history* in pieces; entries are read one run at a time."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for piece in environment.get_template("report.html").generate(report=history):
        write(piece)
