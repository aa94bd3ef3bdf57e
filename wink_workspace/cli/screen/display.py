"""Output for people: calls as they happen, histories as tables, coloured diffs, progress.

A terminal gets tables that fit, colours, progress bars, and no control character of a file or a
model. Anything else gets plain text, and every byte of a diff. Rich is imported on use: many
commands print nothing.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from wink_workspace.counts import counted, listed

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console
    from rich.progress import ProgressColumn
    from rich.table import Table
    from rich.text import Text

    from wink_workspace.filesystem import Diff


_MIN_LAST_COLUMN_CELLS = 8
"""The least width of a table's last column; a narrower terminal gets lines instead of a table."""
_MAX_PATHS = 5
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan", "d": "bold"}
_COLOUR_SYSTEMS = {
    "standard": "STANDARD",
    "256": "EIGHT_BIT",
    "truecolor": "TRUECOLOR",
    "windows": "WINDOWS",
}
"""The name of each colour system of a console in ``rich.color.ColorSystem``."""
MARKS = {"committed": "✓", "rolled_back": "↩", "unknown": "✗"}
"""By the value of an ``Outcome``, which is not imported: most commands do without sessions."""

_T = TypeVar("_T")


class ProgressUpdate(Protocol):
    """Changes the fields of a progress bar."""

    def __call__(self, **fields: Any) -> None:  # Any: rich's own fields and ours
        """Change *fields*, such as ``completed`` and ``description``."""
        ...


@contextmanager
def progress_bar(
    console: Console, what: str, column: ProgressColumn, *, is_shown: bool, **fields: Any
) -> Generator[ProgressUpdate]:
    """Show the progress of some work, and remove it at the end of the block.

    Args:
        console: Where to show it.
        what: What is done.
        column: What is shown beside the bar and the time.
        is_shown: Whether to show anything; no for an output that cannot redraw.
        fields: What *column* shows at first.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        column,
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not is_shown) as progress:
        task = progress.add_task(what, total=None, **fields)

        def update(**changed: Any) -> None:
            progress.update(task, **changed)

        yield update


def printable(text: str) -> str:
    """*text* with every control character replaced, except line breaks and tabs."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)


def local_time(at: datetime, *, short: bool = False) -> str:
    """A time of this machine; *short* for a terminal, so that a subject has room."""
    at = at.astimezone()
    return f"{at:%m-%d %H:%M:%S}" if short else f"{at:%Y-%m-%d %H:%M:%S}"


def stat_lines(diff: Diff) -> tuple[str, ...]:
    """A line for each path of *diff*, with the number of its added and removed lines."""
    counts = (
        "large"
        if each is None
        else "binary"
        if each.is_binary
        else f"+{each.n_added:,} -{each.n_removed:,}"
        for each in diff.line_counts()
    )
    return tuple(f"{path} | {count}" for path, count in zip(diff.paths, counts, strict=True))


def print_table(
    console: Console,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    below: Sequence[Sequence[str]] = (),
) -> None:
    """Print a table on a terminal, its last column cut to fit; else lines with tabs.

    *below* has further lines for the last column, below each row.

    A terminal that is too narrow for the other columns gets two lines for each row, which wrap.
    """
    shown = [[" ".join(printable(cell).splitlines()) for cell in row] for row in rows]
    if not console.is_terminal:
        for n, row in enumerate(shown):  # the console would replace tabs by spaces
            more = [("", printable(line)) for line in (below[n] if n < len(below) else ())]
            for cells in (row, *more):
                console.file.write("\t".join(cell.replace("\t", " ") for cell in cells) + "\n")
        return
    table = table_of(console, heads, rows, below=below)
    if table is None:
        for *cells, last in shown:
            console.print("  ".join(filter(None, cells)), markup=False)
            console.print(f"    {last}", markup=False)
        return
    console.print(table, soft_wrap=False)


def table_of(
    console: Console,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    below: Sequence[Sequence[str]] = (),
) -> Table | None:
    """The table of ``print_table``; ``None`` if the terminal is too narrow for it."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    shown = [[" ".join(printable(cell).splitlines()) for cell in row] for row in rows]
    widths = [max(cell_len(row[n]) for row in [heads, *shown]) for n in range(len(heads))]
    # A gap of two cells between columns. The last column gets the rest: if the table were wider,
    # rich would narrow the other columns, and a column of one cell would disappear.
    rest = console.width - sum(widths[:-1]) - 2 * (len(widths) - 1)
    if rest < _MIN_LAST_COLUMN_CELLS:
        return None
    table = Table(box=None, pad_edge=False, header_style="bold")
    for n, head in enumerate(heads):
        is_last = n == len(heads) - 1
        table.add_column(
            head,
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if is_last else widths[n],
            max_width=rest if is_last else None,
        )
    for n, row in enumerate(shown):
        table.add_row(*map(Text, row))
        for line in below[n] if n < len(below) else ():
            table.add_row(*[""] * (len(heads) - 1), Text(printable(line), style="dim"))
    return table


def print_diff(console: Console, write_to: Callable[[Callable[[bytes], object]], _T]) -> _T:
    """Print the diff that *write_to* writes: coloured on a terminal, else byte for byte."""
    if console.is_terminal:
        lines = _DiffLines(console)
        result = write_to(lines.write)
        lines.end()
        return result
    sys.stdout.flush()
    result = write_to(sys.stdout.buffer.write)
    sys.stdout.buffer.flush()
    return result


def diff_text(diff: Diff, *, full: bool = False) -> tuple[str, tuple[str, ...]]:
    """*diff* in memory, and the paths that it does not show."""
    pieces: list[bytes] = []
    not_shown = diff.write_to(pieces.append, full=full)
    return b"".join(pieces).decode("utf-8", "surrogateescape"), not_shown


def warn_of_left_out(console: Console, paths: Sequence[str], *, hint: str = "--full") -> None:
    """Name the paths that a diff does not show, and the option that shows them."""
    if not paths:
        return
    named = printable(listed(paths, _MAX_PATHS))
    console.print(
        f"{counted(len(paths), 'path')} too large to be shown: {named}; use {hint}", markup=False
    )


class _DiffLines:
    """Prints a diff that is written in pieces.

    A console needs 0.1 ms for each line that it prints, which is a minute for 50 MB. So this
    class writes to the console's file directly.
    """

    def __init__(self, console: Console) -> None:
        from rich.color import ColorSystem
        from rich.style import Style

        self._console = console
        name = console.color_system
        self._colours = None if name is None else ColorSystem[_COLOUR_SYSTEMS[name]]
        self._styles = {mark: Style.parse(style) for mark, style in _DIFF_STYLES.items()}
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._partial: list[str] = []

    def write(self, piece: bytes) -> None:
        """Print the lines that *piece* completes, and keep the partial line after them."""
        first, *others = self._decoder.decode(piece).split("\n")
        self._partial.append(first)
        if others:
            lines = ["".join(self._partial), *others[:-1]]
            self._partial = [others[-1]]
            self._console.file.write("".join(map(self._styled, lines)))

    def end(self) -> None:
        """Print the last line if it has no line break."""
        if last := "".join(self._partial) + self._decoder.decode(b"", final=True):
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
    from rich.text import Text

    return Text(printable(line), style=_DIFF_STYLES.get(line[:1], ""))
