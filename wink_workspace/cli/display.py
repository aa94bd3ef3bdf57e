"""What people see: calls as they happen, histories as tables, diffs in colours.

A terminal gets tables that fit, colours, a spinner, and no control character of a file or a
model; anything else gets the plain text, of diffs every byte.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from wink_workspace.environment import Environment
from wink_workspace.session import Outcome, ToolInvoked

__all__ = [
    "called",
    "consoles",
    "counting",
    "diff_line",
    "print_diff",
    "print_table",
    "printable",
    "waiting",
]

_SHORT = 96
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan", "d": "bold"}
_STYLES = {
    Outcome.COMMITTED: ("✓", "green"),
    Outcome.ROLLED_BACK: ("↩", "yellow"),
    Outcome.UNKNOWN: ("✗", "red"),
}


def consoles(environment: Environment) -> tuple[Console, Console]:
    """A console for results and one for progress and errors."""
    return (
        Console(no_color=not environment.stdout_color, highlight=False, soft_wrap=True),
        Console(
            stderr=True, no_color=not environment.stderr_color, highlight=False, soft_wrap=True
        ),
    )


@contextmanager
def waiting(environment: Environment, what: str) -> Generator[None]:
    """Show on a terminal that something takes its time."""
    _, err = consoles(environment)
    if not environment.shows_progress:
        yield
        return
    with err.status(what):
        yield


@contextmanager
def counting(environment: Environment, what: str) -> Generator[Callable[[int, int], None]]:
    """Show on a terminal how many files and bytes are done, as the function given is told."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    _, err = consoles(environment)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[n_files]:,} files, {task.fields[n_bytes]:,} bytes"),
        TimeElapsedColumn(),
    )
    shown = environment.shows_progress
    with Progress(*columns, console=err, transient=True, disable=not shown) as progress:
        task = progress.add_task(what, total=None, n_files=0, n_bytes=0)

        def tell(n_files: int, n_bytes: int) -> None:
            progress.update(task, n_files=n_files, n_bytes=n_bytes)

        yield tell


def printable(text: str) -> str:
    """*text* without what would steer a terminal; lines and tabs stay."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)


def print_table(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows of text: a table for a terminal, its last column cut to fit; else lines of tabs."""
    shown = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
    if not console.is_terminal:
        for row in shown:
            console.print("\t".join(row), markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for n, head in enumerate(heads):
        width = max(cell_len(row[n]) for row in [heads, *shown])
        is_last = n == len(heads) - 1
        table.add_column(
            head, no_wrap=True, overflow="ellipsis", min_width=None if is_last else width
        )
    for row in shown:
        table.add_row(*map(Text, row))
    console.print(table, soft_wrap=False)


def print_diff(console: Console, diff: str) -> None:
    """A diff: in colours for a terminal, else byte for byte."""
    if not console.is_terminal:
        sys.stdout.flush()
        sys.stdout.buffer.write(diff.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()
        return
    for line in diff.splitlines():
        console.print(diff_line(line))


def diff_line(line: str) -> Text:
    """A line of a diff, in its colour."""
    return Text(printable(line), style=_DIFF_STYLES.get(line[:1], ""))


def called(event: ToolInvoked) -> Text:
    """One line for a call: what it was, what became of it, and why if it failed."""
    mark, style = _STYLES[event.outcome]
    line = Text("  " * event.depth)
    line.append(f"{mark} ", style=style)
    line.append(f"{event.tool:<22}", style="bold")
    line.append(f"{event.outcome.replace('_', ' '):<12}", style=style)
    line.append(f"{event.duration_s * 1e3:8.1f} ms  ", style="dim")
    line.append(_short(event.text.partition("\n")[0] if event.success else event.text))
    return line


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHORT else line[: _SHORT - 1] + "…"
