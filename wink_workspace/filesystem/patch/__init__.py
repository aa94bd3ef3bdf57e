"""Patches: how they are read, where their hunks belong, and what they make of files.

``planning`` is the door; ``unified`` and ``envelope`` read the two forms, ``placing`` finds the
places.
"""

from .parts import FilePatch
from .planning import PatchPlan, parse_patch, plan_patch, touched_paths

__all__ = ["FilePatch", "PatchPlan", "parse_patch", "plan_patch", "touched_paths"]
