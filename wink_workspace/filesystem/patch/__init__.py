"""Patches: parse them, locate their hunks, and plan the resulting changes.

``planning`` is the entry point; ``unified`` and ``envelope`` parse the two formats, ``placing``
locates hunks.
"""

from .parts import FilePatch
from .planning import PatchPlan, parse_patch, plan_patch, touched_paths

__all__ = ["FilePatch", "PatchPlan", "parse_patch", "plan_patch", "touched_paths"]
