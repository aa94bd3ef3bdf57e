"""What a run looks like to a person: one line a call, as it happens.

Lines go to the console given. While a call is under way a terminal shows which; anything else
gets the lines alone.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from wink_workspace.session import Outcome, Session, ToolInvoked

__all__ = ["called", "consoles", "show_calls"]

_SHORT = 96
_STYLES = {
    Outcome.COMMITTED: ("✓", "green"),
    Outcome.ROLLED_BACK: ("↩", "yellow"),
    Outcome.UNKNOWN: ("✗", "red"),
}


def consoles(*, stdout_color: bool, stderr_color: bool) -> tuple[Console, Console]:
    """A console for results and one for progress and errors."""
    return (
        Console(no_color=not stdout_color, highlight=False, soft_wrap=True),
        Console(stderr=True, no_color=not stderr_color, highlight=False, soft_wrap=True),
    )


def called(event: ToolInvoked) -> Text:
    """One line for a call: what it was, what became of it, and why if it failed."""
    mark, style = _STYLES[event.outcome]
    line = Text("  " * event.depth)
    line.append(f"{mark} ", style=style)
    line.append(f"{event.tool:<22}", style="bold")
    line.append(f"{event.outcome.replace('_', ' '):<12}", style=style)
    line.append(f"{event.duration_s * 1e3:8.1f} ms  ", style="dim")
    line.append(_short(event.text))
    return line


@contextmanager
def show_calls(session: Session, console: Console, *, live: bool) -> Generator[None]:
    """Print a line for each call of *session* inside the block; with *live*, a spinner too."""
    if not live:
        yield
        return
    with console.status("asking the model") as status:

        def show(event: ToolInvoked) -> None:
            console.print(called(event))
            status.update(f"after {escape(event.tool)}: asking the model")

        stop = session.dispatcher.subscribe(ToolInvoked, show)
        try:
            yield
        finally:
            stop()


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHORT else line[: _SHORT - 1] + "…"
