"""Patches: parse them, locate their hunks, and plan the resulting changes.

``patch_plan`` has the entry points; ``placing`` locates hunks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .parsed_patch import FilePatch as FilePatch
    from .patch_plan import PatchPlan as PatchPlan
    from .patch_plan import parse_patch as parse_patch
    from .patch_plan import plan_patch as plan_patch
    from .patch_plan import touched_paths as touched_paths

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
