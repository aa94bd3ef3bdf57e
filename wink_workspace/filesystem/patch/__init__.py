"""Patches: parse them, locate their hunks, and plan the resulting changes.

``patch_plan`` has the entry points; ``placing`` locates hunks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .parsed_patch import FilePatch
    from .patch_plan import PatchPlan, parse_patch, plan_patch, touched_paths

__all__ = ["FilePatch", "PatchPlan", "parse_patch", "plan_patch", "touched_paths"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
