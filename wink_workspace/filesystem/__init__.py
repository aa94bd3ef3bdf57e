"""Files in a workspace: the ``Filesystem`` protocol, its backends, and confined paths.

``MemoryFilesystem`` keeps the files in memory, ``DiskFilesystem`` in a host directory.
Importing this package loads neither fsspec nor regex.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .changes import ChangeTracker, Dirty, FileIndex, ScanTracker, open_tracker
    from .diff import Diff, DiffLimits, LineCounts, in_memory, render_diff
    from .disk import DiskFilesystem, DiskHistory
    from .disk.tree import DiskEntry, DiskTree
    from .edits import Replacement, replace_text
    from .memory import MemoryFilesystem
    from .model import (
        Change,
        EditResult,
        FileChange,
        FileKind,
        FileStat,
        FileState,
        FilesystemLimits,
        GlobResult,
        GrepMatch,
        GrepResult,
        LineRange,
        PatchedFile,
        PatchResult,
        TextWindow,
        WriteMode,
        WriteResult,
    )
    from .mounts import HostMount, Mount, MountedTree, MountReport, SkippedFile, UrlMount
    from .patch import FilePatch, PatchPlan, parse_patch, plan_patch, touched_paths
    from .paths import MAX_PATH_DEPTH, MAX_SEGMENT_BYTES, ROOT, WorkspacePath, parse_path
    from .protocol import Filesystem

__all__ = [
    "MAX_PATH_DEPTH",
    "MAX_SEGMENT_BYTES",
    "ROOT",
    "Change",
    "ChangeTracker",
    "Diff",
    "DiffLimits",
    "Dirty",
    "DiskEntry",
    "DiskFilesystem",
    "DiskHistory",
    "DiskTree",
    "EditResult",
    "FileChange",
    "FileIndex",
    "FileKind",
    "FilePatch",
    "FileStat",
    "FileState",
    "Filesystem",
    "FilesystemLimits",
    "GlobResult",
    "GrepMatch",
    "GrepResult",
    "HostMount",
    "LineCounts",
    "LineRange",
    "MemoryFilesystem",
    "Mount",
    "MountReport",
    "MountedTree",
    "PatchPlan",
    "PatchResult",
    "PatchedFile",
    "Replacement",
    "ScanTracker",
    "SkippedFile",
    "TextWindow",
    "UrlMount",
    "WorkspacePath",
    "WriteMode",
    "WriteResult",
    "in_memory",
    "open_tracker",
    "parse_patch",
    "parse_path",
    "plan_patch",
    "render_diff",
    "replace_text",
    "touched_paths",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
