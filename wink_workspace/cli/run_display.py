"""A run as it happens: the model's words, one line for each call, its diff, and the plan.

Everything goes to standard error, so that standard output holds results only. A terminal gets the
model's words as they arrive. Any other output gets them whole, before the next call or at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from wink_workspace.adapters.model import ModelEvent, Retrying
from wink_workspace.filesystem import Diff
from wink_workspace.sections import Plan, StepStatus
from wink_workspace.session import Outcome, Session, ToolInvoked
from wink_workspace.wording import counted

from .display import diff_line, print_call, printable

if TYPE_CHECKING:
    from rich.status import Status

__all__ = ["RunDisplay"]

_MAX_DIFF_LINES = 60
_MAX_DIFF_BYTES = 65_536
_MAX_WORD_CHARS = 500
_STEP_MARKS = {StepStatus.PENDING: "·", StepStatus.IN_PROGRESS: "▸", StepStatus.DONE: "✓"}


class RunDisplay:
    """Shows one run on *console*.

    Args:
        console: Where to show it.
        live: Whether to show words as they arrive, and a spinner.
        redact: Applied to the model's words. Live words are redacted one by one, because a secret
            may arrive in several pieces.
    """

    def __init__(self, console: Console, *, live: bool, redact: Callable[[str], str] = str) -> None:
        self._console = console
        self._live = live
        self._redact = redact
        self._received: list[str] = []
        self._unprinted = ""
        self._status: Status | None = None
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
            self._start_spinner()
            return
        self._received.append(event.text)
        if self._live:
            self._stop_spinner()
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
            self._end_line()
            print_call(self._console, event)
            if changes is not None and event.outcome is Outcome.COMMITTED and not event.depth:
                self._print_diff(changes())
            self._print_plan(session[Plan].latest())
            self._start_spinner()

        stop = session.dispatcher.subscribe(ToolInvoked, show)
        self._start_spinner()
        try:
            yield
        finally:
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
        self._stop_spinner()
        self._print_words(complete=True)
        text, self._received = "".join(self._received), []
        if text.strip():
            whole = "" if self._live else printable(self._redact(text.rstrip()))
            self._console.print(whole, markup=False)

    def _start_spinner(self) -> None:
        if self._live and self._status is None:
            self._status = self._console.status("asking the model")
            self._status.start()

    def _stop_spinner(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
