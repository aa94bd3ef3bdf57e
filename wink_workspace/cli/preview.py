"""Changes as they are shown before they are brought: paths, lines, what can run, what stays.

A name is printed as git quotes it, so that one with a line break cannot pass for two lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

from wink_workspace.wording import counted

from .display import printable

if TYPE_CHECKING:
    from wink_workspace.workspace import ChangeSet, FileChanges, LeftOut, PathChange

__all__ = ["preview_fields", "print_left_out", "print_not_kept", "print_preview"]

_LETTERS: Final = {"added": ("A", "green"), "changed": ("M", "yellow"), "removed": ("D", "red")}
_MOST_PATHS: Final = 200
_MOST_LEFT_OUT: Final = 20
_KIB: Final = 1024
_INDENT: Final = 17


def print_preview(
    console: Console,
    brought: ChangeSet | FileChanges,
    *,
    most_paths: int | None = _MOST_PATHS,
) -> None:
    """Print one line for each path, a summary, and what is left out.

    Args:
        console: Where to.
        brought: The changes.
        most_paths: Beyond so many paths, those that can run something come first, then those
            that are removed, and the others are counted. No limit for ``None``.
    """
    changes = brought.changes()
    shown = _most_important(changes, most_paths)
    for change in shown:
        console.print(_line(change))
        if change.risks:
            console.print(Text(f"{'':{_INDENT}}! {', '.join(change.risks)}", style="bold yellow"))
    if len(shown) < len(changes):
        n_more = len(changes) - len(shown)
        console.print(Text(f"… and {counted(n_more, 'more path')}: see diff --stat"))
    if changes:
        console.print(Text(_summary(changes), style="bold"))
    n_marked = sum(bool(change.risks) for change in changes)
    if n_marked:
        console.print(
            Text(f"{n_marked:,} can run something on your machine (!)", style="bold yellow")
        )
    print_left_out(console, brought.left_out)


def print_left_out(console: Console, left_out: Sequence[LeftOut]) -> None:
    """Print what stays behind and why."""
    _print_lines(
        console,
        [
            f"left out: {_name(str(each.path))}"
            + (f" ({counted(each.n_files, 'file')})" if each.n_files != 1 else "")
            + f": {each.reason}"
            for each in left_out
        ],
    )


def print_not_kept(
    console: Console, paths: Sequence[str], brought: ChangeSet | FileChanges
) -> None:
    """Print which of the *paths* that were left out ``print_preview`` has not named."""
    named = {str(each.path) for each in brought.left_out}
    reason = "not kept by git, or ignored and in no commit"
    lines = [f"left out: {_name(path)}: {reason}" for path in paths if path not in named]
    _print_lines(console, lines)


def _print_lines(console: Console, lines: Sequence[str]) -> None:
    for line in lines[:_MOST_LEFT_OUT]:
        console.print(Text(line))
    if len(lines) > _MOST_LEFT_OUT:
        console.print(Text(f"left out: {counted(len(lines) - _MOST_LEFT_OUT, 'more path')}"))


def preview_fields(brought: ChangeSet | FileChanges) -> Mapping[str, object]:
    """The same for programs."""
    return {
        "changes": [
            {
                "path": str(change.path),
                "status": change.status,
                "detail": change.detail,
                "lines_added": None if change.lines is None else change.lines.n_added,
                "lines_removed": None if change.lines is None else change.lines.n_removed,
                "is_binary": None if change.lines is None else change.lines.is_binary,
                "n_bytes": change.n_bytes,
                "risks": list(change.risks),
            }
            for change in brought.changes()
        ],
        "left_out": [
            {"path": str(each.path), "reason": each.reason.value, "n_files": each.n_files}
            for each in brought.left_out
        ],
    }


def _most_important(changes: Sequence[PathChange], most: int | None) -> Sequence[PathChange]:
    if most is None or len(changes) <= most:
        return changes
    by_weight = sorted(changes, key=lambda each: (not each.risks, each.status != "removed"))
    return sorted(by_weight[:most], key=lambda each: each.path)


def _line(change: PathChange) -> Text:
    letter, style = _LETTERS[change.status]
    line = Text(letter, style=style)
    lines, details = change.lines, [change.detail] if change.detail else []
    if lines is None or lines.is_binary:
        line.append(f"{'binary' if lines else 'large':>14}")
        details.append(_size(change.n_bytes))
    else:
        line.append(f"{f'+{lines.n_added:,}' if lines.n_added else '':>7}", style="green")
        line.append(f"{f'-{lines.n_removed:,}' if lines.n_removed else '':>7}", style="red")
    line.pad_right(_INDENT - line.cell_len)
    line.append(_name(str(change.path)))
    if details:
        line.append(f" ({', '.join(details)})", style="dim")
    return line


def _summary(changes: Sequence[PathChange]) -> str:
    by_status = Counter(change.status for change in changes)
    parts = [f"{by_status[status]:,} {status}" for status in _LETTERS if by_status[status]]
    lines = [change.lines for change in changes if change.lines is not None]
    n_added, n_removed = sum(each.n_added for each in lines), sum(each.n_removed for each in lines)
    return f"{counted(len(changes), 'path')}: {', '.join(parts)}; +{n_added:,} -{n_removed:,} lines"


def _size(n_bytes: int | None) -> str:
    if n_bytes is None:
        return "unknown size"
    for unit in ("bytes", "KiB", "MiB"):
        if n_bytes < _KIB or unit == "MiB":
            return f"{n_bytes:,} {unit}"
        n_bytes //= _KIB
    return ""


def _name(path: str) -> str:
    from wink_workspace.filesystem.git_names import quote_name

    return printable(quote_name(path))
