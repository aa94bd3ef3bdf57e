"""How many lines a change adds and removes, in bounded time and memory.

Rule 1: contents above ``COUNTED_BYTES`` or ``_MOST_LINES`` are not compared.
Rule 2: libgit2 compares bytes that were read here; no attribute and no configuration counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["COUNTED_BYTES", "LineCounts", "count_lines"]

COUNTED_BYTES: Final = 1_048_576
_MOST_LINES: Final = 50_000


@dataclass(frozen=True, slots=True)
class LineCounts:
    """Lines that came and went; both are 0 where *is_binary*, or where only the mode differs."""

    n_added: int = 0
    n_removed: int = 0
    is_binary: bool = False


def count_lines(before: bytes, after: bytes) -> LineCounts | None:
    """What differs between two contents, an absent one being empty; ``None`` if it is too much.

    A content with a NUL byte is binary, as in a diff of ours.
    """
    if max(len(before), len(after)) > COUNTED_BYTES:
        return None
    if b"\0" in before or b"\0" in after:
        return LineCounts(is_binary=True)
    n_before, n_after = _n_lines(before), _n_lines(after)
    if not before or not after:
        return LineCounts(n_after, n_before)
    if max(n_before, n_after) > _MOST_LINES:
        return None
    import pygit2
    from pygit2.enums import DiffOption

    patch = pygit2.Patch.create_from(before, after, flag=DiffOption.FORCE_TEXT, context_lines=0)
    _, n_added, n_removed = patch.line_stats
    return LineCounts(n_added, n_removed)


def _n_lines(content: bytes) -> int:
    return content.count(b"\n") + (bool(content) and not content.endswith(b"\n"))
