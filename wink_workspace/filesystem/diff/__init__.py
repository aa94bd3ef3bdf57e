"""Changes as a diff that git and patch accept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .diff_input import DEFAULT_DIFF_LIMITS as DEFAULT_DIFF_LIMITS
    from .diff_input import Content as Content
    from .diff_input import DiffChange as DiffChange
    from .diff_input import DiffLimits as DiffLimits
    from .diff_input import Side as Side
    from .diff_input import in_memory as in_memory
    from .lines import ChangedLines as ChangedLines
    from .lines import changed_lines as changed_lines
    from .lines import differing_part as differing_part
    from .lines import spans_in_pieces as spans_in_pieces
    from .rendering import Diff as Diff
    from .rendering import LineCounts as LineCounts
    from .rendering import render_diff as render_diff

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
