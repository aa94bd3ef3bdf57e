"""Patches: parse them, locate their hunks, and plan the resulting changes.

``planning`` is the entry point; ``unified`` and ``envelope`` parse the two formats, ``placing``
locates hunks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .parts import FilePatch
    from .planning import PatchPlan, parse_patch, plan_patch, touched_paths

__all__ = ["FilePatch", "PatchPlan", "parse_patch", "plan_patch", "touched_paths"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
