"""The lines at the end of a terminal that change while the model or a tool works.

They show what is running, for how long, and the last lines of its output. Text of programs appears
without escape sequences: ``plain_lines`` removes them, and the console replaces what is left.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from wink_workspace.clock import Clock

from .display import printable

if TYPE_CHECKING:
    from rich.live import Live

__all__ = ["LiveArea", "elapsed", "plain_lines"]

_ESCAPES: Final = re.compile(
    "\x1b(?:\\[[0-?]*[ -/]*[@-~]|[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[ -/]*[0-~])"
)
_TAB: Final = 8
_N_LINES: Final = 5
_PER_SECOND: Final = 4


def plain_lines(lines: Iterable[str]) -> Iterator[str]:
    """*lines* of a program without escape sequences and control characters."""
    for line in lines:
        plain = printable(_ESCAPES.sub("", line)).expandtabs(_TAB).rstrip()
        if plain:
            yield plain


def elapsed(seconds: float) -> str:
    """A duration for people: ``0.3 s``, ``42 s``, ``3 min 5 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class LiveArea:
    """Shows one activity at a time.

    Args:
        console: The terminal.
        clock: For the elapsed time.
    """

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
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
        time = elapsed(self._clock.monotonic_s() - self._started_s)
        head = Text(self._what, style="bold", no_wrap=True, overflow="ellipsis")
        head.truncate(max(1, options.max_width - len(time) - 3), overflow="ellipsis")
        yield Text("… ", style="dim") + head + Text(f" {time}", style="dim")
        for line in tuple(self._lines):
            text = Text(f"  {line}", style="dim", no_wrap=True)
            text.truncate(max(1, options.max_width), overflow="ellipsis")
            yield text
