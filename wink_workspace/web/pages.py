"""What the pages show, as values for the templates: redacted and bounded text, without markup.

Only ``highlighted`` returns markup: that of a library which escapes the text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final, cast

from wink_workspace.adapters import ModelTurn
from wink_workspace.attempts import read_runs
from wink_workspace.attempts.attempt_reader import RUNS_KIND
from wink_workspace.counts import sized
from wink_workspace.errors import EntryMissingError, WinkError
from wink_workspace.ledger import MAIN_BRANCH, EntryKind, LogEntry
from wink_workspace.report import ReportedHistory
from wink_workspace.report.reported import ReportedEntry, Text, turns_by_call, visible
from wink_workspace.session import ToolInvoked
from wink_workspace.workspace import (
    RecordedRun,
    TimelineRow,
    WorkspaceFolder,
    WorkspaceReader,
    WorkspaceStorage,
)
from wink_workspace.workspace.history.workspace_reader import ReadableHistory
from wink_workspace.workspace.runs.live_runs import ModelSpoke, RunInProgress
from wink_workspace.workspace.summaries import summaries_of

from .attempts_page import RunItem, run_item
from .highlighting import highlighted
from .watching import RunLine, run_line

# ------------------------------------------------------------------------------------------ turns


_MAX_BYTES = 4 * 1_048_576


class Turns:
    """The turns of the newest runs of some branches, up to 4 MiB.

    A call whose id several runs use at the same place of the history has no turn.

    Args:
        folders: The workspace, or its forks.
    """

    def __init__(self, folders: Iterable[WorkspaceFolder]) -> None:
        self._found: dict[str, list[tuple[int, ModelTurn | None]]] = {}
        n_bytes = 0
        for folder in folders:
            for run in RecordedRun.all(folder):
                try:
                    n_bytes += run.script.stat().st_size
                    turns = run.turns() if n_bytes <= _MAX_BYTES else ()
                except (OSError, WinkError):  # deleted or half written: shown without turns
                    continue
                for call_id, made in turns_by_call(turns).items():
                    if len(made) == 1:
                        self._found.setdefault(call_id, []).append((run.about.after_entry, made[0]))

    def of(self, entry: LogEntry) -> ModelTurn | None:
        """The turn whose first call is *entry*."""
        found = [each for each in self._found.get(entry.call_id, ()) if each[0] < entry.number]
        newest = max((after for after, _ in found), default=0)
        turns = [turn for after, turn in found if after == newest]
        return turns[0] if len(turns) == 1 else None


# ------------------------------------------------------------------------------------------ pages


ROWS_PER_PAGE: Final = 200
NEW_ROWS: Final = 50
"""How many rows an open page asks for after a change; it keeps the others that it has."""
_MOST_SEARCHED: Final = 20_000
_MOST_READ: Final = 2_000
_MOST_CACHED: Final = 20_000
_MOST_BLAMED: Final = 500
_MAX_RECORD_BYTES: Final = 65_536
_MAX_FILE_BYTES: Final = 1_048_576
_MAX_IMAGE_BYTES: Final = 16 * 1_048_576
_MAX_DIFF_CHARS: Final = 200_000
_MAX_ANSWER_CHARS: Final = 20_000
_IMAGES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_WEBP: Final = re.compile(rb"RIFF....WEBP", re.DOTALL)
_ID: Final = re.compile("[0-9a-f]{40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceItem:
    """A row of the list of workspaces."""

    id: str
    task: str
    source: str
    state: str
    changes: str
    size: str
    used: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineItem:
    """A row of a timeline, with ``n_folded`` older external edits below it in the same row."""

    id: str
    number: int
    lanes: str
    branches: tuple[str, ...]
    at: str
    kind: str
    subject: str
    outcome: str
    duration: str
    tokens: str
    marks: tuple[str, ...]
    n_folded: int = 0


@dataclass(frozen=True, slots=True)
class _CallNotes:
    duration: str = ""
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """Some rows; ``after`` is the cursor of the next page, ``""`` after the last one."""

    items: Sequence[TimelineItem]
    after: str


@dataclass(frozen=True, slots=True)
class FileLine:
    """A line of a file: its entry, whether the line before has another one, and its markup."""

    number: int
    entry: LogEntry | None
    is_first: bool
    markup: str


@dataclass(frozen=True, slots=True)
class DiffRow:
    """A row of a diff: ``kind`` is ``head``, ``same``, ``add``, ``del`` or ``both``."""

    kind: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """The newest run of a branch.

    Attributes:
        name: The workspace or fork, as the commands call it.
        revision: As in ``RecordedRun``.
        task: What the user asked for.
        message: The message with which the user continued it; ``""`` if there is none.
        model: The model, or the agent program.
        is_agent: Whether it is one of an agent program.
        owner: Its process; ``""`` if it has ended.
        lines: What it did so far; its answer, if it has ended.
        is_finished: Whether it has answered.
    """

    name: str
    revision: str
    task: str
    message: str
    model: str
    is_agent: bool
    owner: str
    lines: Sequence[RunLine]
    is_finished: bool


class Pages:
    """The data of the pages. Each call opens the history that it reads.

    Args:
        storage: The workspaces.
        redact: Applied to every text.
    """

    def __init__(self, storage: WorkspaceStorage, redact: Callable[[str], str]) -> None:
        self._storage = storage
        self._redact = redact

    def workspaces(self, query: str = "") -> list[WorkspaceItem]:
        """The workspaces in which *query* occurs, newest first."""
        found = summaries_of(self._storage, is_quick=True)
        items = [
            WorkspaceItem(
                id=each.info.id,
                task=self.line(each.task),
                source=self.line(each.info.source),
                state=each.state,
                changes=_number(each.n_changes) + "+" * each.has_more_changes,
                size=sized(each.size_bytes) + "+" * each.has_more_bytes,
                used=f"{each.last_used:%Y-%m-%d %H:%M}",
            )
            for each in sorted(found, key=lambda each: each.last_used, reverse=True)
        ]
        wanted = query.casefold()
        return [
            each for each in items if wanted in f"{each.id} {each.task} {each.source}".casefold()
        ]

    def line(self, text: str) -> str:
        """*text* redacted, in one line, in which every character can be seen."""
        return visible(" ".join(self._redact(text).split()))

    def reader(self, workspace: str, branch: str = MAIN_BRANCH) -> WorkspaceReader:
        """The history of a workspace.

        Raises:
            UsageError: If there is none of this id.
            LedgerError: If it cannot be read.
        """
        folder = self._storage.folder(workspace)
        return WorkspaceReader(folder, branch=branch, most_cached=_MOST_CACHED)

    def reported(self, reader: ReadableHistory) -> ReportedHistory:
        """What reports say of the history."""
        return ReportedHistory(reader, (), redact=self._redact, title=reader.info.id)

    def task(self, workspace: str) -> str:
        """The task of the newest run of a workspace; ``""`` if there was none."""
        run = RecordedRun.newest(self._storage.folder(workspace).of_branch(MAIN_BRANCH))
        return "" if run is None else self.line(run.about.message or run.about.task)

    def ledger(self, workspace: str) -> Path:
        """The directory of the ledger of a workspace; raises ``UsageError`` if there is none."""
        return self._storage.folder(workspace).ledger

    def live_state(self, workspace: str) -> object:
        """What changes when something of a workspace changes that a page shows live."""
        with self.reader(workspace) as reader:
            return self.live_state_in(reader)

    def live_state_in(self, reader: WorkspaceReader) -> object:
        """As ``live_state``."""
        return reader.heads(), reader.documents(RUNS_KIND).versions()

    def runs(self, reader: WorkspaceReader) -> list[RunItem]:
        """The runs of attempts, newest first.

        Raises:
            LedgerDamagedError: If the state of a run cannot be read.
        """
        return [run_item(run, self.line) for run in read_runs(reader)]

    def run_in_progress(self, workspace: str, branch: str) -> RunInProgress | None:
        """The run of a branch that another process runs now; close it after use.

        Raises:
            EntryMissingError: If there is no such branch.
        """
        return RunInProgress.of(self._branch_folder(workspace, branch))

    def _branch_folder(self, workspace: str, branch: str) -> WorkspaceFolder:
        with self.reader(workspace) as reader:
            if branch not in reader.heads():  # it may be any text, such as a path
                raise EntryMissingError(f"there is no branch {branch!r}")
        return self._storage.folder(workspace).of_branch(branch)

    def running(self, reader: WorkspaceReader) -> list[str]:
        """The branches with a run in progress."""
        found: list[str] = []
        folder = self._storage.folder(reader.info.id)
        for branch in reader.heads():
            run = RunInProgress.of(folder.of_branch(branch))
            if run is not None:
                run.close()
                found.append(branch)
        return found

    def ending(self, workspace: str, branch: str) -> str:
        """How the newest run of a branch ended, and the command that continues it."""
        run = RecordedRun.newest(self._branch_folder(workspace, branch))
        if run is None:
            return "There was no run on this branch."
        name, about, how = _name(workspace, branch), run.about, "has ended."
        options = "--resume --message TEXT" if run.is_finished else "--resume"
        if about.is_agent:
            more = "TASK" if run.is_finished else "--resume"
            options = f"--agent {shlex.quote(about.model)} {more}"
        if run.problem:
            how = f"ended without an answer: {run.problem.rstrip('.')}."
        elif not run.is_finished:
            how = "was interrupted, and its running call was or will be rolled back."
        command = f"wink-workspace run --workspace {name} {options}"
        return self.line(f"No run is in progress; the newest one {how} Continue it: {command}")

    def newest_run(self, workspace: str, branch: str) -> RunPage | None:
        """The newest run of a branch; ``None`` if there is none.

        Raises:
            EntryMissingError: If there is no such branch.
        """
        folder, owner = self._branch_folder(workspace, branch), ""
        lines: list[RunLine] = []
        run = RecordedRun.newest(folder)
        if run is None:
            return None
        watched = RunInProgress.of(folder)
        if watched is not None:
            with closing(watched):
                run, owner = watched.record, self.line(str(watched.owner))
                lines = [run_line(event, self.line) for event in watched.new_events()]
        elif answer := _answer(run):
            lines = [run_line(ModelSpoke(text=answer), self.line)]
        return RunPage(
            name=_name(workspace, branch),
            revision=run.revision,
            task=self.line(run.about.task),
            message=self.line(run.about.message),
            model=self.line(run.about.model),
            is_agent=run.about.is_agent,
            owner=owner,
            lines=lines,
            is_finished=run.is_finished,
        )

    def timeline(
        self,
        reader: WorkspaceReader,
        *,
        after: str = "",
        query: str = "",
        folds: bool = True,
        n_rows: int | None = None,
    ) -> TimelinePage:
        """The rows after a cursor; with *query*, of those whose subject contains it.

        With *folds*, external edits that follow each other are one row.
        """
        reported, wanted = self.reported(reader), query.casefold()
        turns = self._turns(reader)
        items: list[TimelineItem] = []
        cursor = after
        last: TimelineRow | None = None
        for row in islice(reader.timeline(after=after), _MOST_SEARCHED if wanted else _MOST_READ):
            subject = reported.line(row.entry.subject)
            is_shown = wanted in subject.casefold()
            is_folded = folds and is_shown and last is not None and _continues(last, row)
            if len(items) == (n_rows or ROWS_PER_PAGE) and is_shown and not is_folded:
                break
            cursor = row.after
            if is_folded:
                items[-1] = replace(items[-1], n_folded=items[-1].n_folded + 1)
            elif is_shown:
                turn = turns.of(row.entry)
                tokens = 0 if turn is None else turn.usage.total_tokens
                items.append(_item(row, subject, self._about(reader, row.entry), tokens))
            last = row
        width = max((len(item.lanes) for item in items), default=0)
        return TimelinePage(
            [replace(each, lanes=each.lanes.ljust(width)) for each in items], cursor
        )

    def _turns(self, reader: WorkspaceReader) -> Turns:
        folder = self._storage.folder(reader.info.id)
        return Turns(folder.of_branch(branch) for branch in reader.heads())

    def _about(self, reader: WorkspaceReader, entry: LogEntry) -> _CallNotes:
        """What a row says of the record of a call; nothing if that is large."""
        record = (
            None if not entry.tool else reader.small_record(entry, limit_bytes=_MAX_RECORD_BYTES)
        )
        event = None if record is None else record.event
        if not isinstance(event, ToolInvoked):
            return _CallNotes()
        params = event.params
        given = cast("dict[str, object]", params) if isinstance(params, dict) else {}
        has_code = any(isinstance(given.get(name), str) for name in ("command", "code"))
        return _CallNotes(
            duration=f"{event.duration_s:,.2f} s",
            marks=(
                *(("sandbox",) if has_code else ()),
                *(("network",) if event.outside_effects else ()),
            ),
        )

    def entry(self, reader: WorkspaceReader, which: str) -> tuple[LogEntry, ReportedEntry]:
        """An entry of any branch by its id, or of the main branch by its number.

        Raises:
            EntryMissingError: If there is none.
        """
        found = self.find(reader, which)
        return found, self.reported(reader).entry(found, self._turns(reader).of(found))

    def find(self, reader: WorkspaceReader, which: str) -> LogEntry:
        """The entry with an id, or a number on the main branch, or the newest one of a branch."""
        if _ID.fullmatch(which):
            return reader.entry_of_any_branch(which)
        heads = reader.heads()
        if which in heads:
            return reader.entry_of_any_branch(heads[which])
        return reader.entry(which)

    def images(self, reader: WorkspaceReader, entry: LogEntry) -> tuple[str, ...]:
        """The paths with the name of an image that *entry* changed; 20 at most."""
        if entry.parent is None:
            return ()
        names = (path for path in reader.review_of(entry).paths if _has_image_name(path))
        return tuple(islice(names, 20))

    def image(self, reader: WorkspaceReader, which: str, path: str) -> tuple[bytes, str]:
        """The content and the type of an image.

        Raises:
            WinkError: If there is none, or it is too large.
        """
        content = reader.content(self.find(reader, which), path, limit_bytes=_MAX_IMAGE_BYTES)
        return content, image_type(content)

    def compared(self, reader: WorkspaceReader, before: str, after: str) -> Text:
        """The differences between the files after two entries."""
        review = reader.review_between(self.find(reader, before), self.find(reader, after))
        return self.reported(reader).text(*review.head(_MAX_DIFF_CHARS))

    def file(self, reader: WorkspaceReader, entry: LogEntry, path: str) -> list[FileLine]:
        """The lines of a file, each with the entry that wrote it if that is not too old.

        Raises:
            WinkError: If it is not a file, or too large.
        """
        reported = self.reported(reader)
        text = reader.content(entry, path, limit_bytes=_MAX_FILE_BYTES).decode("utf-8", "replace")
        shown = reported.text(text)
        writers: Sequence[LogEntry | None]
        try:
            found = reader.blame(path, at=entry, limit=_MOST_BLAMED)
            writers = [None if line.is_older else line.entry for line in found]
        except WinkError:  # a link, or too long: shown without writers
            writers = ()
        if len(writers) < len(shown.lines):
            writers = [*writers, *[None] * (len(shown.lines) - len(writers))]
        lines: list[FileLine] = []
        last = ""
        for n, markup in enumerate(highlighted(path, shown.lines)):
            writer = writers[n]
            mine = "" if writer is None else writer.id
            lines.append(FileLine(n + 1, writer, mine != last, markup))
            last = mine
        return lines


def _name(workspace: str, branch: str) -> str:
    return workspace if branch == MAIN_BRANCH else f"{workspace}/{branch}"


def _answer(run: RecordedRun) -> str:
    try:
        return run.turns()[-1].text[:_MAX_ANSWER_CHARS] if run.is_finished else ""
    except (OSError, WinkError):  # deleted or damaged
        return ""


def _number(n: int | None) -> str:
    return "" if n is None else f"{n:,}"


def _continues(last: TimelineRow, row: TimelineRow) -> bool:
    """Whether *row* is an external edit below another one in the same lane."""
    is_external = last.entry.kind is row.entry.kind is EntryKind.EXTERNAL
    return is_external and last.entry.parent == row.entry.id and not row.branches


def _item(row: TimelineRow, subject: str, about: _CallNotes, tokens: int) -> TimelineItem:
    entry = row.entry
    return TimelineItem(
        id=entry.id,
        number=entry.number,
        lanes=row.lanes,
        branches=row.branches,
        at=f"{entry.at:%m-%d %H:%M:%S}",
        kind=entry.tool or entry.kind.value,
        subject=subject,
        outcome="" if entry.outcome is None else entry.outcome.value.replace("_", " "),
        duration=about.duration,
        tokens=f"{tokens:,} tokens" if tokens else "",
        marks=about.marks,
    )


def diff_rows(lines: Sequence[str], *, side_by_side: bool) -> Iterator[DiffRow]:
    """The rows of a unified diff; side by side, a removed line is beside the added one."""
    old: list[str] = []
    new: list[str] = []
    in_hunk = False
    for line in (*lines, ""):
        sign = line[:1]
        if in_hunk and sign == "-":
            old.append(line[1:])
            continue
        if in_hunk and sign == "+":
            new.append(line[1:])
            continue
        yield from _changed_rows(old, new, side_by_side=side_by_side)
        old, new = [], []
        is_context = in_hunk and sign == " "
        in_hunk = is_context or sign == "@" or (in_hunk and sign == "\\")
        if line:
            text = line[1:] if is_context else line
            yield DiffRow("same" if is_context else "head", text, text)


def _changed_rows(
    old: Sequence[str], new: Sequence[str], *, side_by_side: bool
) -> Iterator[DiffRow]:
    n_beside = min(len(old), len(new)) if side_by_side else 0
    for left, right in zip(old[:n_beside], new[:n_beside], strict=True):
        yield DiffRow("both", left, right)
    yield from (DiffRow("del", line, "") for line in old[n_beside:])
    yield from (DiffRow("add", "", line) for line in new[n_beside:])


def image_type(content: bytes) -> str:
    """The media type of an image by its first bytes; ``""`` if it is none that is shown."""
    if _WEBP.match(content):
        return "image/webp"
    return next((kind for start, kind in _IMAGES.items() if content.startswith(start)), "")


def _has_image_name(path: str) -> bool:
    return path.lower().endswith((".png", ".jpg", ".jpeg", ".gif", ".webp"))
