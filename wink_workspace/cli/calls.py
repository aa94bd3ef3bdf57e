"""A finished call on the screen.

``ShownCall`` is a plain value, so that ``run --attach`` can read it from a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.text import Text

from wink_workspace.session import Outcome, ToolInvoked, call_subject

from .display import MARKS, printable
from .live_area import plain_lines

__all__ = ["ShownCall", "print_call"]

_N_LAST: Final = 3
_N_LAST_OF_FAILED: Final = 15
_MAX_CHARS: Final = 16_384
_MAX_LINE_CHARS: Final = 400
_MAX_LINES: Final = 8
_STYLES = {Outcome.COMMITTED: "green", Outcome.ROLLED_BACK: "yellow", Outcome.UNKNOWN: "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCall:
    """What is shown of a call.

    Attributes:
        tool: The tool.
        outcome: How it ended.
        success: Whether it succeeded.
        duration_s: The time that it took.
        depth: In how many other calls it ran.
        text: The answer that the model got, or its beginning.
        subject: The command or file that it worked on.
        ending: For a command, its exit code or signal; ``""`` otherwise.
        output: For a command, the last lines of its output.
        is_command: Whether it ran a command or code in a sandbox.
    """

    tool: str
    outcome: Outcome
    success: bool
    duration_s: float
    depth: int = 0
    text: str = ""
    subject: str = ""
    ending: str = ""
    output: tuple[str, ...] = ()
    is_command: bool = False

    @classmethod
    def of(cls, event: ToolInvoked) -> ShownCall:
        """What is shown of *event*."""
        value = event.value
        summary = getattr(value, "summary", None)
        is_command = isinstance(getattr(event.params, "command", None), str)
        ending, output = "", ()
        if hasattr(value, "exit_code") and callable(summary):
            is_command = True
            ending = str(summary()) if event.success else event.message
            has_failed = not event.success or getattr(value, "exit_code", None) != 0
            output = _last_lines(value, _N_LAST_OF_FAILED if has_failed else _N_LAST)
        return cls(
            tool=event.tool,
            outcome=event.outcome,
            success=event.success,
            duration_s=event.duration_s,
            depth=event.depth,
            text=event.text[:_MAX_CHARS],
            subject=call_subject(event.params),
            ending=ending,
            output=output,
            is_command=is_command,
        )


def _last_lines(value: object, limit: int) -> tuple[str, ...]:
    """The last lines of both streams of a command, standard error after standard output."""
    lines: list[str] = []
    for name in ("stdout", "stderr"):
        stream = getattr(value, name, None)
        text = getattr(stream, "tail", "") or getattr(stream, "text", "")
        lines += plain_lines(str(text)[-_MAX_CHARS:].splitlines())
    return tuple(lines[-limit:])


def print_call(console: Console, call: ShownCall) -> None:
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
        if call.output:
            _print_below(console, Text("\n".join(call.output), style="dim"), len(indent))


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
