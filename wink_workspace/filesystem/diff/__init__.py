"""Changes as a diff that git and patch accept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .diff_input import DEFAULT_DIFF_LIMITS, Content, DiffChange, DiffLimits, Side, in_memory
    from .lines import ChangedLines, changed_lines, differing_part, spans_in_pieces
    from .rendering import Diff, LineCounts, render_diff

__all__ = [
    "DEFAULT_DIFF_LIMITS",
    "ChangedLines",
    "Content",
    "Diff",
    "DiffChange",
    "DiffLimits",
    "LineCounts",
    "Side",
    "changed_lines",
    "differing_part",
    "in_memory",
    "render_diff",
    "spans_in_pieces",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
