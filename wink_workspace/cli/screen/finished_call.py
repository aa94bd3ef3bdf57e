"""A finished call on the screen."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.text import Text

from wink_workspace.session import Outcome
from wink_workspace.workspace.runs.live_runs import CallEnded

from .display import MARKS, printable
from .live_area import plain_lines

__all__ = ["print_call"]

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
