"""Changes as they are shown before they are applied: paths, line counts, risks, what is left out.

A name is quoted as git does it, so that a name with a line break cannot look like two lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from wink_workspace.counts import counted, listed, sized

from .display import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from wink_workspace.filesystem import WorkspacePath
    from wink_workspace.workspace import ChangeSet, LeftOut, PathChange


_LETTERS: Final = {"added": ("A", "green"), "changed": ("M", "yellow"), "removed": ("D", "red")}
_MAX_PATHS: Final = 200
_MAX_LEFT_OUT: Final = 20
_INDENT: Final = 17


def print_preview(
    console: Console,
    preview: ChangeSet,
    *,
    max_paths: int | None = _MAX_PATHS,
) -> None:
    """Print one line for each path, a summary, and what is left out.

    Args:
        console: Where to print.
        preview: The changes.
        max_paths: Of more paths, those that can run something are printed first, then those that
            are removed; the others are counted. ``None`` for no limit.
    """
    from rich.text import Text  # here and below: most commands print no changes

    changes = preview.changes()
    shown = changes
    if max_paths is not None and len(changes) > max_paths:
        by_weight = sorted(changes, key=lambda each: (not each.risks, each.status != "removed"))
        shown = sorted(by_weight[:max_paths], key=lambda each: each.path)
    for change in shown:
        console.print(change_line(change))
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
    print_left_out(console, preview.left_out)
    print_derived(console, preview.derived)


def print_derived(console: Console, paths: Sequence[WorkspacePath]) -> None:
    """Print which derived paths changed; they are in no diff, and neither applied nor undone."""
    if paths:
        names = listed([_name(str(path)) for path in paths], _MAX_LEFT_OUT)
        console.print(f"derived paths changed and are not part of this: {names}", markup=False)


def print_left_out(console: Console, left_out: Sequence[LeftOut]) -> None:
    """Print what is left out, and why."""
    _print_limited(
        console,
        [
            f"left out: {_name(str(each.path))}"
            + (f" ({counted(each.n_files, 'file')})" if each.n_files != 1 else "")
            + f": {each.reason}"
            for each in left_out
        ],
    )


def print_not_kept(console: Console, paths: Sequence[str], preview: ChangeSet) -> None:
    """Print those left-out *paths* that ``print_preview`` did not print."""
    printed = {str(each.path) for each in preview.left_out}
    reason = "not kept by git, converted by a filter of git, or ignored and in no commit"
    lines = [f"left out: {_name(path)}: {reason}" for path in paths if path not in printed]
    _print_limited(console, lines)


def _print_limited(console: Console, lines: Sequence[str]) -> None:
    for line in lines[:_MAX_LEFT_OUT]:
        console.print(line, markup=False)
    if len(lines) > _MAX_LEFT_OUT:
        console.print(f"left out: {counted(len(lines) - _MAX_LEFT_OUT, 'more path')}")


def preview_fields(preview: ChangeSet) -> Mapping[str, object]:
    """The JSON form of the changes."""
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
            for change in preview.changes()
        ],
        "left_out": [
            {"path": str(each.path), "reason": each.reason.value, "n_files": each.n_files}
            for each in preview.left_out
        ],
        "derived": [str(path) for path in preview.derived],
    }


def change_line(change: PathChange) -> Text:
    """One line with what happens to a path."""
    from rich.text import Text

    letter, style = _LETTERS[change.status]
    line = Text(letter, style=style)
    lines, details = change.lines, [change.detail] if change.detail else []
    if lines is None or lines.is_binary:
        line.append(f"{'binary' if lines else 'large':>14}")
        details.append("unknown size" if change.n_bytes is None else sized(change.n_bytes))
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


def _name(path: str) -> str:
    from wink_workspace.filesystem.git_names import quote_name

    return printable(quote_name(path))
