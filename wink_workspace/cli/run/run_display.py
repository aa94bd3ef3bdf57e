"""A run as it happens: the model's words, one line for each call, its diff, and the plan.

``RunFeed`` turns what happens in a run of this process into events, and publishes them for others.
``RunDisplay`` shows events: those of the feed, or those of a run of another process.

Everything goes to standard error, so that standard output holds results only. A terminal gets the
model's words as they arrive, and a live area with the running command and its output. Any other
output gets whole lines only, and the first lines of the output of each command.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from wink_workspace.adapters.model import ModelEvent, Retrying
from wink_workspace.cli.screen.command_context import CommandContext, split_name
from wink_workspace.cli.screen.display import diff_line, printable, stat_lines
from wink_workspace.cli.screen.live_area import LiveArea, plain_lines, print_call
from wink_workspace.clock import SYSTEM_CLOCK, Clock, WaitingClock
from wink_workspace.counts import lasted
from wink_workspace.errors import UsageError
from wink_workspace.filesystem import Diff
from wink_workspace.sections import Plan, StepStatus
from wink_workspace.session import Outcome, Session, ToolInvoked, ToolOutput, ToolStarted
from wink_workspace.workspace import WorkspaceReader
from wink_workspace.workspace.runs.live_runs import (
    CallBegan,
    CallEnded,
    CallOutput,
    EventsMissed,
    MessageReceived,
    ModelRetries,
    ModelSpoke,
    PlanChanged,
    PublishedRun,
    RunEnded,
    RunEvent,
    RunInProgress,
    ShownStep,
)

from .run_options import RunOptions, RunPlace
from .typed_messages import TypedMessages

if TYPE_CHECKING:
    from wink_workspace.workspace import RecordedRun, WorkspaceStorage


_MAX_DIFF_LINES = 60
_MAX_DIFF_BYTES = 65_536
_MAX_WORD_CHARS = 500
_MAX_OUTPUT_LINES = 20
_STEP_MARKS = {StepStatus.PENDING: "·", StepStatus.IN_PROGRESS: "▸", StepStatus.DONE: "✓"}


class RunDisplay:
    """Shows one run on *console*.

    Args:
        console: Where to show it.
        live: Whether to show words as they arrive, and a spinner.
        redact: Applied to words as they arrive, one by one, because a secret may arrive in several
            pieces. The text of events is redacted already.
        diff_of: The diff of an entry; no diffs are shown when omitted.
        clock: For elapsed times.
        typed: What the user types meanwhile, if it is read.
    """

    def __init__(
        self,
        console: Console,
        *,
        live: bool,
        redact: Callable[[str], str] = str,
        diff_of: Callable[[int], Diff] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        typed: TypedMessages | None = None,
    ) -> None:
        self._console = console
        self._live = live
        self._redact = redact
        self.diff_of = diff_of
        self._unprinted = ""
        self._has_printed_words = False
        self.typed = typed
        self._area = LiveArea(console, clock, self._typed_lines) if live else None
        self._n_output_lines = 0
        self._running: list[str] = []

    def add_words(self, words: str) -> None:
        """Show words of the model as they arrive, on a terminal; ``ModelSpoke`` follows."""
        if self._live:
            self._hide_area()
            self._unprinted += words
            self._print_words()

    def show(self, event: RunEvent) -> None:
        """Show an event."""
        if isinstance(event, CallOutput):
            self._show_output(event.lines)
            return
        self._hide_area()
        has_printed_words = self._end_words()
        match event:
            case ModelSpoke():
                if event.text.strip() and not has_printed_words:
                    self._console.print(printable(event.text.rstrip()), markup=False)
            case ModelRetries():
                wait = f"attempt {event.attempt} in {lasted(event.wait_s)}"
                self._note(f"… {event.reason}; {wait}", style="yellow")
            case MessageReceived():
                self._note(f"> {event.text}", style="bold")
            case CallBegan():
                self._n_output_lines = 0
                what = f"{event.tool}: {event.subject}" if event.subject else event.tool
                self._running.append(printable(what))
            case CallEnded():
                del self._running[event.depth :]
                print_call(self._console, event)
                if self.diff_of is not None and event.entry is not None:
                    self._print_diff(self.diff_of(event.entry))
            case PlanChanged():
                self._print_plan(event)
            case EventsMissed():
                self._note("… earlier events are no longer kept", style="dim")
            case RunEnded():
                return
        self.show_activity()

    def show_activity(self) -> None:
        """Show the innermost running call, or that the model is asked."""
        if self._area is not None and not self._area.is_shown:
            self._area.show(self._running[-1] if self._running else "asking the model")

    def end(self) -> None:
        """Remove what is shown of the present activity."""
        self._hide_area()

    @property
    def shows_edits(self) -> bool:
        """Whether a person has seen the diff of each edit."""
        return self.diff_of is not None and self._console.is_terminal

    def _typed_lines(self) -> Iterator[str]:
        if self.typed is not None:
            yield from (f"> {line} (sent at the next turn)" for line in tuple(self.typed.queued))
            yield f"> {self.typed.line}" if self.typed.line else "> (type a message; Enter sends)"

    def _note(self, text: str, *, style: str) -> None:
        self._console.print(printable(text), style=style, markup=False)

    def _print_diff(self, diff: Diff) -> None:
        """Print the diff, or of one that is longer than the screen the paths and line counts."""
        kept, n_lines = b"", 0

        def take(piece: bytes) -> None:
            nonlocal kept, n_lines
            kept += piece[: _MAX_DIFF_BYTES - len(kept)]
            n_lines += piece.count(b"\n")

        diff.write_to(take)
        if n_lines > (self._console.height if self._console.is_terminal else _MAX_DIFF_LINES):
            for line in stat_lines(diff):
                self._note(f"  {line}", style="dim")
            return
        for line in kept.decode("utf-8", "surrogateescape").splitlines():
            self._console.print(diff_line(line))

    def _print_plan(self, plan: PlanChanged) -> None:
        self._console.print(f"  {printable(plan.objective)}", style="bold", markup=False)
        for step in plan.steps:
            status = StepStatus(step.status)
            self._console.print(
                f"  {_STEP_MARKS[status]} {step.number}. {printable(step.title)}",
                style="dim" if status is StepStatus.DONE else None,
                markup=False,
            )

    def _print_words(self, *, complete: bool = False) -> None:
        """Print the words that arrived; the last may continue, unless *complete* or very long."""
        end = max(self._unprinted.rfind(" "), self._unprinted.rfind("\n")) + 1
        if complete or len(self._unprinted) - end > _MAX_WORD_CHARS:
            end = len(self._unprinted)
        words, self._unprinted = self._unprinted[:end], self._unprinted[end:]
        if words:
            self._has_printed_words = True
            self._console.print(printable(self._redact(words)), end="", markup=False)

    def _end_words(self) -> bool:
        """End the line of the words that were shown as they arrived; whether there were any."""
        self._print_words(complete=True)
        has_printed, self._has_printed_words = self._has_printed_words, False
        if has_printed:
            self._console.print()
        return has_printed

    def _show_output(self, printed: tuple[str, ...]) -> None:
        """Show lines that the running command printed."""
        lines = list(plain_lines(printed))
        if self._area is not None:
            self._area.add(lines)
            return
        room = max(0, _MAX_OUTPUT_LINES - self._n_output_lines)
        for line in lines[:room]:
            self._console.print(f"    {line}", markup=False)
        if self._n_output_lines <= _MAX_OUTPUT_LINES < self._n_output_lines + len(lines):
            self._console.print("    … the last lines follow at the end")
        self._n_output_lines += len(lines)

    def _hide_area(self) -> None:
        if self._area is not None:
            self._area.end()


class RunFeed:
    """Turns what happens in a run of this process into events.

    Args:
        display: Shows the events, and words of the model as they arrive.
        redact: Applied to the model's words.

    Attributes:
        display: Shows the events.
        publish: Shows an event, and publishes it.
        last_words: What the model wrote last.
    """

    def __init__(self, display: RunDisplay, *, redact: Callable[[str], str] = str) -> None:
        self.display = display
        self._redact = redact
        self._received: list[str] = []
        self.publish: Callable[[RunEvent], None] = display.show
        self.last_words = ""

    def on_model_event(self, event: ModelEvent) -> None:
        """Take what the model adapter reports."""
        if isinstance(event, Retrying):
            self._received = []  # the next attempt repeats it
            self.publish(
                ModelRetries(reason=event.reason, attempt=event.attempt, wait_s=event.wait_s)
            )
            return
        self._received.append(event.text)
        self.display.add_words(event.text)

    @contextmanager
    def of(
        self,
        session: Session,
        publish: Callable[[RunEvent], None] | None = None,
        newest_entry: Callable[[], int] | None = None,
    ) -> Generator[None]:
        """Show and *publish* what happens in *session* inside the block.

        Args:
            session: Where the calls are recorded.
            publish: Gets the events, too.
            newest_entry: The number of the newest entry, if calls are entries.
        """
        plan = session[Plan].latest()

        def publish_and_show(event: RunEvent) -> None:
            self.display.show(event)
            if publish is not None:
                publish(event)

        def begin(event: ToolStarted) -> None:
            self._end_words()
            began = CallBegan(tool=event.tool, subject=event.subject, depth=event.depth)
            publish_and_show(began)

        def end(event: ToolInvoked) -> None:
            nonlocal plan
            self._end_words()
            is_entry = event.outcome is Outcome.COMMITTED and not event.depth
            entry = newest_entry() if newest_entry is not None and is_entry else None
            publish_and_show(CallEnded.of(event, entry=entry))
            now = session[Plan].latest()
            if now is not None and now != plan:
                publish_and_show(_plan_changed(now))
            plan = now

        def add_output(event: ToolOutput) -> None:
            publish_and_show(CallOutput(lines=event.lines))

        self.publish = publish_and_show
        subscribe = session.dispatcher.subscribe
        stops = (
            subscribe(ToolStarted, begin),
            subscribe(ToolOutput, add_output),
            subscribe(ToolInvoked, end),
        )
        self.display.show_activity()
        try:
            yield
        finally:
            for stop in stops:
                stop()
            self._end_words()
            self.display.end()

    def _end_words(self) -> None:
        """Publish the words of a turn, which is complete."""
        text, self._received = "".join(self._received), []
        self.last_words = text or self.last_words
        if text:
            self.publish(ModelSpoke(text=self._redact(text)))


def _plan_changed(plan: Plan) -> PlanChanged:
    steps = tuple(
        ShownStep(number=step.step_id, title=step.title, status=step.status) for step in plan.steps
    )
    return PlanChanged(objective=plan.objective, steps=steps)


# --------------------------------------------------------------------------------- run publishing


def diff_of(
    context: CommandContext, options: RunOptions, place: RunPlace
) -> Callable[[int], Diff] | None:
    """The diff of an entry, if each call is shown with its diff.

    A pipe gets the whole diff at the end, so the diffs of calls would be a repetition; those of a
    temporary workspace are not shown.
    """
    workspace = place.workspace
    if place.name and (context.out.is_terminal or options.json or options.patch is not None):
        return lambda number: workspace.review_of(workspace.entry(number))
    return None


def print_place(context: CommandContext, place: RunPlace) -> None:
    """Print which workspace the run works in, unless it is temporary."""
    info = place.workspace.info
    if place.name:
        what = f"workspace {place.name}: {info.mode.replace('_', ' ')} of {printable(info.source)}"
        context.err.print(what, markup=False)


@contextmanager
def published(
    place: RunPlace, record: RecordedRun, feed: RunFeed, redact: Callable[[str], str]
) -> Generator[Callable[[], Sequence[str]]]:
    """Show the run in the block, and let others watch it; yields how it gets their messages."""
    run, typed = PublishedRun(record), feed.display.typed

    def messages() -> list[str]:
        texts = [redact(text) for text in (*run.messages(), *(typed.take() if typed else ()))]
        for text in texts:
            record.keep_message(text)
            feed.publish(MessageReceived(text=text))
        return texts

    try:
        with (
            nullcontext() if typed is None else typed.reading(),
            feed.of(place.workspace.session, run.publish, lambda: place.workspace.head.number),
        ):
            yield messages
    except BaseException as error:
        run.end("interrupted" if isinstance(error, KeyboardInterrupt) else str(error))
        raise
    run.end()


# -------------------------------------------------------------------------------------- attaching


_LOOK_S: Final = 0.1
_KILLED: Final = "its process ended without an answer"


def attach(
    context: CommandContext,
    *,
    repo: Path | None = None,
    workspace: str | None = None,
    clock: WaitingClock = SYSTEM_CLOCK,
) -> None:
    """Show a run in progress until it ends.

    Args:
        context: Where to show it.
        repo: Watch the run over this directory.
        workspace: Watch the run in this workspace. Without both, the only one in progress.
        clock: Waits between two looks.

    Raises:
        UsageError: If no such run is in progress, or if there are several.
    """
    err, run = context.err, _chosen(context, repo, workspace)
    workspace, branch = split_name(run.name)
    with (
        closing(run),
        WorkspaceReader(context.storage.folder(workspace), branch=branch) as reader,
    ):
        err.print(f"workspace {run.name}, {run.owner}", markup=False, style="dim")
        err.print(printable(run.record.about.task), markup=False, style="bold")
        live = context.shows_progress
        display = RunDisplay(err, live=live, diff_of=_diff_of(reader), clock=clock)
        display.show_activity()
        try:
            problem = _watch(run, display, clock)
        finally:
            display.end()
    err.print(f"the run has ended{f': {printable(problem)}' if problem else ''}", markup=False)


def _chosen(context: CommandContext, repo: Path | None, workspace: str | None) -> RunInProgress:
    storage = context.storage
    if workspace is not None:
        found = RunInProgress.of(context.folder(workspace))
        runs, where = [] if found is None else [found], f" in {workspace}"
    else:
        runs, where = list(RunInProgress.all(storage)), ""
    if repo is not None:
        runs = [run for run in runs if _source(storage, run) == repo.resolve()]
        where = f" over {repo}"
    if not runs:
        raise UsageError(
            f"no run is in progress{where}",
            hint="Start one with a task, or continue the last one with --resume.",
        )
    if len(runs) > 1:
        names = ", ".join(run.name for run in runs)
        raise UsageError(
            f"{len(runs)} runs are in progress{where}: {names}", hint="Name one with --workspace."
        )
    return runs[0]


def _source(storage: WorkspaceStorage, run: RunInProgress) -> Path:
    return Path(storage.folder(split_name(run.name)[0]).info().source).resolve()


def _watch(run: RunInProgress, display: RunDisplay, clock: WaitingClock) -> str:
    """Show events until the run is over; returns its problem, or ``""``."""
    while True:
        is_over = run.is_over  # before the events are read, which are then the last ones
        for event in run.new_events():
            display.show(event)
            if isinstance(event, RunEnded):
                return event.problem
        if is_over:
            return _KILLED
        clock.wait(_LOOK_S)


def _diff_of(reader: WorkspaceReader) -> Callable[[int], Diff]:
    def diff_of(number: int) -> Diff:
        reader.refresh()
        return reader.review_of(reader.entry(number))

    return diff_of
