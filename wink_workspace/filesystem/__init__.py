"""Files in a workspace: the ``Filesystem`` protocol, its backends, and confined paths.

``MemoryFilesystem`` keeps the files in memory, ``DiskFilesystem`` in a host directory.
Importing this package loads neither fsspec nor regex.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .changes import ChangeTracker as ChangeTracker
    from .changes import Dirty as Dirty
    from .changes import FileIndex as FileIndex
    from .changes import ScanTracker as ScanTracker
    from .changes import open_tracker as open_tracker
    from .diff import Diff as Diff
    from .diff import DiffLimits as DiffLimits
    from .diff import LineCounts as LineCounts
    from .diff import in_memory as in_memory
    from .diff import render_diff as render_diff
    from .disk import DiskFilesystem as DiskFilesystem
    from .disk import DiskHistory as DiskHistory
    from .disk.tree import DiskEntry as DiskEntry
    from .disk.tree import DiskTree as DiskTree
    from .edits import Replacement as Replacement
    from .edits import replace_text as replace_text
    from .memory import MemoryFilesystem as MemoryFilesystem
    from .model import Change as Change
    from .model import EditResult as EditResult
    from .model import FileChange as FileChange
    from .model import FileKind as FileKind
    from .model import FileStat as FileStat
    from .model import FileState as FileState
    from .model import FilesystemLimits as FilesystemLimits
    from .model import GlobResult as GlobResult
    from .model import GrepMatch as GrepMatch
    from .model import GrepResult as GrepResult
    from .model import LineRange as LineRange
    from .model import PatchedFile as PatchedFile
    from .model import PatchResult as PatchResult
    from .model import TextWindow as TextWindow
    from .model import WriteMode as WriteMode
    from .model import WriteResult as WriteResult
    from .mounts import HostMount as HostMount
    from .mounts import Mount as Mount
    from .mounts import MountedTree as MountedTree
    from .mounts import MountReport as MountReport
    from .mounts import SkippedFile as SkippedFile
    from .mounts import UrlMount as UrlMount
    from .patch import FilePatch as FilePatch
    from .patch import PatchPlan as PatchPlan
    from .patch import parse_patch as parse_patch
    from .patch import plan_patch as plan_patch
    from .patch import touched_paths as touched_paths
    from .paths import MAX_PATH_DEPTH as MAX_PATH_DEPTH
    from .paths import MAX_SEGMENT_BYTES as MAX_SEGMENT_BYTES
    from .paths import ROOT as ROOT
    from .paths import WorkspacePath as WorkspacePath
    from .paths import parse_path as parse_path
    from .protocol import Filesystem as Filesystem

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
