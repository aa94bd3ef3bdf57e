"""A run as it happens: what the model says, each call in a line, the diff it made, the plan.

Everything goes to standard error, so that results have the other stream to themselves. A
terminal gets the model's words as they come; anything else gets them when the next call, or the
end, shows that they are all there.
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

__all__ = ["Follower"]

_MOST_DIFF_LINES = 60
_MOST_DIFF_BYTES = 65_536
_LONGEST_WORD_CHARS = 500
_STEP_MARKS = {StepStatus.PENDING: "·", StepStatus.IN_PROGRESS: "▸", StepStatus.DONE: "✓"}


class Follower:
    """Shows one run on *console*; with *live*, as it comes and with a spinner.

    What the model says goes through *redact*, word by word if it is shown as it comes: a secret
    may come in several pieces.
    """

    def __init__(self, console: Console, *, live: bool, redact: Callable[[str], str] = str) -> None:
        self._console = console
        self._live = live
        self._redact = redact
        self._said: list[str] = []
        self._held = ""
        self._status: Status | None = None
        self._plan: Plan | None = None

    def tell(self, event: ModelEvent) -> None:
        """What the adapter tells."""
        if isinstance(event, Retrying):
            if not self._live:
                self._said = []  # it will be said again, and nobody has seen it
            self._end_line()
            self._console.print(
                f"… {event.reason}; attempt {event.attempt} in {event.wait_s:.0f} s",
                style="yellow",
                markup=False,
            )
            self._wait()
        elif self._live:
            self._stop_waiting()
            self._said.append(event.text)
            self._held += event.text
            self._show_words()
        else:
            self._said.append(event.text)

    @contextmanager
    def following(
        self, session: Session, changes: Callable[[], Diff] | None = None
    ) -> Generator[None]:
        """Show the calls of *session* inside the block.

        Args:
            session: Where the calls are recorded.
            changes: What the newest call did to files; nothing of that is shown when omitted.
        """
        self._plan = session[Plan].latest()

        def show(event: ToolInvoked) -> None:
            self._end_line()
            print_call(self._console, event)
            if changes is not None and event.outcome is Outcome.COMMITTED and not event.depth:
                self._show_diff(changes())
            self._show_plan(session[Plan].latest())
            self._wait()

        stop = session.dispatcher.subscribe(ToolInvoked, show)
        self._wait()
        try:
            yield
        finally:
            stop()
            self._end_line()
            self._stop_waiting()

    def _show_diff(self, diff: Diff) -> None:
        """Show its first lines, and count the others without keeping them."""
        kept, n_lines = b"", 0

        def take(piece: bytes) -> None:
            nonlocal kept, n_lines
            kept += piece[: _MOST_DIFF_BYTES - len(kept)]
            n_lines += piece.count(b"\n")

        diff.write_to(take)
        lines = kept.decode("utf-8", "surrogateescape").splitlines()
        for line in lines[:_MOST_DIFF_LINES]:
            self._console.print(diff_line(line))
        if n_lines > _MOST_DIFF_LINES:
            n_more = n_lines - _MOST_DIFF_LINES
            self._console.print(f"… {counted(n_more, 'more line')}", style="dim")

    def _show_plan(self, plan: Plan | None) -> None:
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

    def _show_words(self, *, all_of_them: bool = False) -> None:
        """Show what is held, but for a word that may go on; a very long one is no word."""
        end = max(self._held.rfind(" "), self._held.rfind("\n")) + 1
        if all_of_them or len(self._held) - end > _LONGEST_WORD_CHARS:
            end = len(self._held)
        shown, self._held = self._held[:end], self._held[end:]
        if shown:
            self._console.print(printable(self._redact(shown)), end="", markup=False)

    def _end_line(self) -> None:
        """Bring what the model has said to its end."""
        self._stop_waiting()
        self._show_words(all_of_them=True)
        said, self._said = "".join(self._said), []
        if said.strip():
            whole = "" if self._live else printable(self._redact(said.rstrip()))
            self._console.print(whole, markup=False)

    def _wait(self) -> None:
        if self._live and self._status is None:
            self._status = self._console.status("asking the model")
            self._status.start()

    def _stop_waiting(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
