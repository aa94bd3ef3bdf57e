"""The lines at the end of a terminal that change while the model or a tool works.

They show what is running, for how long, and the last lines of its output. Text of programs appears
without escape sequences: ``plain_lines`` removes them, and the console replaces what is left.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from wink_workspace.clock import Clock
from wink_workspace.counts import lasted
from wink_workspace.session import Outcome
from wink_workspace.workspace.runs.live_runs import CallEnded

from .display import MARKS, printable

if TYPE_CHECKING:
    from rich.live import Live


_ESCAPES: Final = re.compile(
    "\x1b(?:\\[[0-?]*[ -/]*[@-~]|[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[ -/]*[0-~])"
)
_TAB: Final = 8
_N_LINES: Final = 5
_PER_SECOND: Final = 8


def plain_lines(lines: Iterable[str]) -> Iterator[str]:
    """*lines* of a program without escape sequences and control characters."""
    for line in lines:
        plain = printable(_ESCAPES.sub("", line)).expandtabs(_TAB).rstrip()
        if plain:
            yield plain


class LiveArea:
    """Shows one activity at a time.

    Args:
        console: The terminal.
        clock: For the elapsed time.
        footer: The last lines, which may change: those that the user types.
    """

    def __init__(
        self, console: Console, clock: Clock, footer: Callable[[], Iterable[str]] = tuple
    ) -> None:
        self._console = console
        self._footer = footer
        self._clock = clock
        self._live: Live | None = None
        self._what = ""
        self._started_s = 0.0
        self._lines: deque[str] = deque(maxlen=_N_LINES)

    @property
    def is_shown(self) -> bool:
        """Whether an activity is shown."""
        return self._live is not None

    def show(self, what: str) -> None:
        """Begin to show *what*, with its time from now."""
        from rich.live import Live

        self.end()
        self._what, self._started_s = what, self._clock.monotonic_s()
        self._lines.clear()
        self._live = Live(
            self, console=self._console, transient=True, refresh_per_second=_PER_SECOND
        )
        self._live.start(refresh=True)

    def add(self, lines: Iterable[str]) -> None:
        """Add lines of output; the last ones are shown."""
        self._lines.extend(lines)

    def end(self) -> None:
        """Remove the area from the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The area as it is now, one terminal line for each of its lines."""
        time = lasted(self._clock.monotonic_s() - self._started_s)
        head = Text(self._what, style="bold", no_wrap=True, overflow="ellipsis")
        head.truncate(max(1, options.max_width - len(time) - 3), overflow="ellipsis")
        yield Text("… ", style="dim") + head + Text(f" {time}", style="dim")
        for line in tuple(self._lines):
            text = Text(f"  {line}", style="dim", no_wrap=True)
            text.truncate(max(1, options.max_width), overflow="ellipsis")
            yield text
        for line in self._footer():
            text = Text(printable(line), no_wrap=True)
            text.truncate(max(1, options.max_width), overflow="ellipsis")
            yield text


# ---------------------------------------------------------------------------------- finished call


_MAX_LINE_CHARS: Final = 400
_MAX_LINES: Final = 8
_STYLES = {Outcome.COMMITTED: "green", Outcome.ROLLED_BACK: "yellow", Outcome.UNKNOWN: "red"}


def print_call(console: Console, call: CallEnded) -> None:
    """Print a call: its outcome, tool and duration, how a command ended, and why a call failed.

    On a terminal, text that does not fit on the first line follows on lines of its own.
    """
    style = _STYLES[call.outcome]
    indent = "  " * call.depth
    head = Text(indent)
    head.append(f"{MARKS[call.outcome]} ", style=style)
    head.append(f"{call.tool:<21}", style="bold")
    head.append(f"{call.outcome.replace('_', ' '):<12}", style=style)
    head.append(f"{call.duration_s * 1e3:7.1f} ms", style="dim")
    text = call.text if not call.success else call.ending or call.text.partition("\n")[0]
    if not call.success and call.ending:
        text = call.ending
    one_line = Text(f"  {_one_line(text)}")
    if not console.is_terminal or head.cell_len + one_line.cell_len <= console.width:
        console.print(head + one_line)
    else:
        console.print(head)
        _print_below(console, Text("\n".join(_lines(text))), len(indent))
    if call.is_command:
        if call.subject:  # the result does not repeat it
            _print_below(console, Text(f"$ {_one_line(call.subject)}", style="dim"), len(indent))
        if output := list(plain_lines(call.output)):
            _print_below(console, Text("\n".join(output), style="dim"), len(indent))


def _print_below(console: Console, text: Text, indent: int) -> None:
    margin = " " * (indent + 4)
    width = max(1, console.width - len(margin))
    lines = text.wrap(console, width) if console.is_terminal else text.split("\n")
    for line in lines:
        console.print(Text(margin) + line)


def _one_line(text: str) -> str:
    return " ".join(" ".join(_lines(text)).split())


def _lines(text: str) -> list[str]:
    """The first lines of a text, and the last one, which is the hint."""
    lines = [line[:_MAX_LINE_CHARS] for line in printable(text).strip().splitlines()]
    return lines if len(lines) <= _MAX_LINES else [*lines[: _MAX_LINES - 2], "…", lines[-1]]
