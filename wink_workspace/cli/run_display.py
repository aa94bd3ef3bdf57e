"""A run as it happens: the model's words, one line for each call, its diff, and the plan.

Everything goes to standard error, so that standard output holds results only. A terminal gets the
model's words as they arrive, and a live area with the running command and its output. Any other
output gets whole lines only, and the first lines of the output of each command.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console

from wink_workspace.adapters.model import ModelEvent, Retrying
from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.filesystem import Diff
from wink_workspace.sections import Plan, StepStatus
from wink_workspace.session import Outcome, Session, ToolInvoked, ToolOutput, ToolStarted
from wink_workspace.wording import counted

from .calls import ShownCall, print_call
from .display import diff_line, printable
from .live_area import LiveArea, plain_lines

__all__ = ["RunDisplay"]

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
        redact: Applied to the model's words. Live words are redacted one by one, because a secret
            may arrive in several pieces.
        clock: For elapsed times.

    Attributes:
        last_words: What the model wrote last, as it is shown.
    """

    def __init__(
        self,
        console: Console,
        *,
        live: bool,
        redact: Callable[[str], str] = str,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._console = console
        self._live = live
        self._redact = redact
        self._received: list[str] = []
        self._unprinted = ""
        self.last_words = ""
        self._area = LiveArea(console, clock) if live else None
        self._n_output_lines = 0
        self._running: list[str] = []
        self._plan: Plan | None = None

    def on_model_event(self, event: ModelEvent) -> None:
        """Show what the model adapter reports."""
        if isinstance(event, Retrying):
            if not self._live:
                self._received = []  # not printed yet, and the next attempt repeats it
            self._end_line()
            self._console.print(
                f"… {event.reason}; attempt {event.attempt} in {event.wait_s:.0f} s",
                style="yellow",
                markup=False,
            )
            self._show_activity()
            return
        self._received.append(event.text)
        if self._live:
            self._hide_area()
            self._unprinted += event.text
            self._print_words()

    @contextmanager
    def showing(
        self, session: Session, changes: Callable[[], Diff] | None = None
    ) -> Generator[None]:
        """Show the calls of *session* inside the block.

        Args:
            session: Where the calls are recorded.
            changes: The diff of the newest call; no diff is shown when omitted.
        """
        self._plan = session[Plan].latest()

        def show(event: ToolInvoked) -> None:
            self.on_end(ShownCall.of(event))
            if changes is not None and event.outcome is Outcome.COMMITTED and not event.depth:
                self._print_diff(changes())
            self._print_plan(session[Plan].latest())
            self._show_activity()

        subscribe = session.dispatcher.subscribe
        stops = (
            subscribe(ToolStarted, self.on_start),
            subscribe(ToolOutput, self.on_output),
            subscribe(ToolInvoked, show),
        )
        self._show_activity()
        try:
            yield
        finally:
            for stop in stops:
                stop()
            self._end_line()

    def _print_diff(self, diff: Diff) -> None:
        """Print the first lines, and count the others without keeping them in memory."""
        kept, n_lines = b"", 0

        def take(piece: bytes) -> None:
            nonlocal kept, n_lines
            kept += piece[: _MAX_DIFF_BYTES - len(kept)]
            n_lines += piece.count(b"\n")

        diff.write_to(take)
        lines = kept.decode("utf-8", "surrogateescape").splitlines()
        for line in lines[:_MAX_DIFF_LINES]:
            self._console.print(diff_line(line))
        if n_lines > _MAX_DIFF_LINES:
            n_more = n_lines - _MAX_DIFF_LINES
            self._console.print(f"… {counted(n_more, 'more line')}", style="dim")

    def _print_plan(self, plan: Plan | None) -> None:
        if plan is None or plan == self._plan:
            return
        self._plan = plan
        self._console.print(f"  {printable(plan.objective)}", style="bold", markup=False)
        for step in plan.steps:
            self._console.print(
                f"  {_STEP_MARKS[step.status]} {step.step_id}. {printable(step.title)}",
                style="dim" if step.status is StepStatus.DONE else None,
                markup=False,
            )

    def _print_words(self, *, complete: bool = False) -> None:
        """Print the received words; the last one may continue, unless *complete* or very long."""
        end = max(self._unprinted.rfind(" "), self._unprinted.rfind("\n")) + 1
        if complete or len(self._unprinted) - end > _MAX_WORD_CHARS:
            end = len(self._unprinted)
        words, self._unprinted = self._unprinted[:end], self._unprinted[end:]
        if words:
            self._console.print(printable(self._redact(words)), end="", markup=False)

    def _end_line(self) -> None:
        """Stop the spinner, print the rest of the model's words, and end their line."""
        self._hide_area()
        self._print_words(complete=True)
        text, self._received = "".join(self._received), []
        self.last_words = text or self.last_words
        if text.strip():
            whole = "" if self._live else printable(self._redact(text.rstrip()))
            self._console.print(whole, markup=False)

    def on_start(self, event: ToolStarted) -> None:
        """Show a call that has begun."""
        self._end_line()
        self._n_output_lines = 0
        what = f"{event.tool}: {event.subject}" if event.subject else event.tool
        self._running.append(printable(what))
        self._show_activity()

    def on_output(self, event: ToolOutput) -> None:
        """Show lines that the running command printed."""
        lines = list(plain_lines(event.lines))
        if self._area is not None:
            self._area.add(lines)
            return
        room = max(0, _MAX_OUTPUT_LINES - self._n_output_lines)
        for line in lines[:room]:
            self._console.print(f"    {line}", markup=False)
        if self._n_output_lines <= _MAX_OUTPUT_LINES < self._n_output_lines + len(lines):
            self._console.print("    … the last lines follow at the end")
        self._n_output_lines += len(lines)

    def on_end(self, call: ShownCall) -> None:
        """Show a call that has ended."""
        self._end_line()
        del self._running[call.depth :]
        print_call(self._console, call)

    def _show_activity(self) -> None:
        """Show the innermost running call, or that the model is asked."""
        if self._area is not None and not self._area.is_shown:
            self._area.show(self._running[-1] if self._running else "asking the model")

    def _hide_area(self) -> None:
        if self._area is not None:
            self._area.end()
