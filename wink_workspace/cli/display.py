"""What people see: calls as they happen, histories as tables, diffs in colours.

A terminal gets tables that fit, colours, a spinner, and no control character of a file or a
model; anything else gets the plain text, of diffs every byte.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from wink_workspace.environment import Environment
from wink_workspace.session import Outcome, ToolInvoked
from wink_workspace.wording import counted

__all__ = [
    "consoles",
    "counting",
    "diff_line",
    "print_call",
    "print_diff",
    "print_table",
    "printable",
    "waiting",
    "warn_of_left_out",
]

_LEAST_LAST_CELLS = 8
"""What the last column of a table must have; with less, the rows are lines."""
_MOST_CHARS = 400
_MOST_LINES = 8
_MOST_PATHS = 5
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan", "d": "bold"}
_COLOUR_SYSTEMS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
    "windows": ColorSystem.WINDOWS,
}
_STYLES = {
    Outcome.COMMITTED: ("✓", "green"),
    Outcome.ROLLED_BACK: ("↩", "yellow"),
    Outcome.UNKNOWN: ("✗", "red"),
}

_T = TypeVar("_T")


class _SafeConsole(Console):
    """Prints no control character but those of its own styles, whatever it is given.

    Names of tools, paths and models' words may hold escape sequences. ``render`` is where all
    that is printed passes, so no call of ``print`` can forget to filter.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """The segments of *renderable* with control characters replaced."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable(text), style)


def consoles(environment: Environment) -> tuple[Console, Console]:
    """A console for results and one for progress and errors."""
    return (
        _SafeConsole(no_color=not environment.stdout_color, highlight=False, soft_wrap=True),
        _SafeConsole(
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
    """Rows of text: a table for a terminal, its last column cut to fit; else lines of tabs.

    A terminal that is too narrow for the other columns gets lines without tabs, to wrap.
    """
    shown = [[" ".join(printable(cell).splitlines()) for cell in row] for row in rows]
    if not console.is_terminal:
        for row in shown:  # the console would make spaces of tabs
            console.file.write("\t".join(cell.replace("\t", " ") for cell in row) + "\n")
        return
    widths = [max(cell_len(row[n]) for row in [heads, *shown]) for n in range(len(heads))]
    if sum(widths[:-1]) + len(widths) + _LEAST_LAST_CELLS > console.width:
        for row in shown:
            console.print(" ".join(row), markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for n, head in enumerate(heads):
        is_last = n == len(heads) - 1
        table.add_column(
            head, no_wrap=True, overflow="ellipsis", min_width=None if is_last else widths[n]
        )
    for row in shown:
        table.add_row(*map(Text, row))
    console.print(table, soft_wrap=False)


def print_diff(console: Console, write_to: Callable[[Callable[[bytes], object]], _T]) -> _T:
    """A diff as it comes from *write_to*: in colours for a terminal, else byte for byte."""
    if console.is_terminal:
        lines = _DiffLines(console)
        done = write_to(lines.write)
        lines.end()
        return done
    sys.stdout.flush()
    done = write_to(sys.stdout.buffer.write)
    sys.stdout.buffer.flush()
    return done


def warn_of_left_out(console: Console, paths: Sequence[str], *, hint: str = "--full") -> None:
    """Name the paths that a diff does not show, and with which option it does."""
    if not paths:
        return
    named = ", ".join(paths[:_MOST_PATHS]) + (", …" if len(paths) > _MOST_PATHS else "")
    console.print(
        f"{counted(len(paths), 'path')} too large to be shown: {printable(named)}; use {hint}",
        markup=False,
    )


class _DiffLines:
    """Prints a diff that comes in pieces.

    A console takes 0.1 ms for each line that it prints, which is a minute for 50 MB, so what
    it would write is written here.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        name = console.color_system
        self._colours = None if name is None else _COLOUR_SYSTEMS[name]
        self._styles = {mark: Style.parse(style) for mark, style in _DIFF_STYLES.items()}
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._begun: list[str] = []

    def write(self, piece: bytes) -> None:
        """Print the lines that *piece* ends, and keep the beginning of the next."""
        first, *others = self._decoder.decode(piece).split("\n")
        self._begun.append(first)
        if others:
            lines = ["".join(self._begun), *others[:-1]]
            self._begun = [others[-1]]
            self._console.file.write("".join(map(self._styled, lines)))

    def end(self) -> None:
        """Print the last line, if it has no end of its own."""
        if last := "".join(self._begun) + self._decoder.decode(b"", final=True):
            self._console.file.write(self._styled(last))
        self._console.file.flush()

    def _styled(self, line: str) -> str:
        line = line.removesuffix("\r")
        text = line if line.isprintable() else printable(line)
        style = self._styles.get(line[:1])
        if style is not None and self._colours is not None:
            text = style.render(text, color_system=self._colours)
        return f"{text}\n"


def diff_line(line: str) -> Text:
    """A line of a diff, in its colour."""
    return Text(printable(line), style=_DIFF_STYLES.get(line[:1], ""))


def print_call(console: Console, event: ToolInvoked) -> None:
    """A call: what it was, what became of it, the command that it ran, and why it failed.

    A terminal gets on lines of their own, wrapped and indented, what does not fit on the first.
    """
    mark, style = _STYLES[event.outcome]
    indent = "  " * event.depth
    head = Text(indent)
    head.append(f"{mark} ", style=style)
    head.append(f"{event.tool:<21}", style="bold")
    head.append(f"{event.outcome.replace('_', ' '):<12}", style=style)
    head.append(f"{event.duration_s * 1e3:7.1f} ms", style="dim")
    text = event.text.partition("\n")[0] if event.success else event.text
    one_line = Text(f"  {_one_line(text)}")
    if not console.is_terminal or head.cell_len + one_line.cell_len <= console.width:
        console.print(head + one_line)
    else:
        console.print(head)
        _print_below(console, Text("\n".join(_lines(text))), len(indent))
    command = getattr(event.params, "command", None)  # whose result does not repeat it
    if isinstance(command, str):
        _print_below(console, Text(f"$ {_one_line(command)}", style="dim"), len(indent))


def _print_below(console: Console, text: Text, indent: int) -> None:
    margin = " " * (indent + 4)
    lines = text.wrap(console, console.width - len(margin)) if console.is_terminal else [text]
    for line in lines:
        console.print(Text(margin) + line)


def _one_line(text: str) -> str:
    return " ".join(" ".join(_lines(text)).split())


def _lines(text: str) -> list[str]:
    """The lines of a long text that matter: the first ones, and the last, which is the hint."""
    lines = [line[:_MOST_CHARS] for line in printable(text).strip().splitlines()]
    return lines if len(lines) <= _MOST_LINES else [*lines[: _MOST_LINES - 2], "…", lines[-1]]
