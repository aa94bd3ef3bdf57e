"""Workspaces on disk, where every tool call is one commit of a private history.

Importing this package loads nothing: what a name needs is loaded when it is first used, so
that a command which only lists workspaces starts at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .applying import Applied, ApplyTarget
    from .bisecting import Bisection, Verdict, bisect
    from .blame import BlamedLine
    from .bundles import export_workspace, import_workspace
    from .calls import WorkspaceCall
    from .changeset import ChangeSet, FileChanges, LeftOut, PathChange
    from .config import WorkspaceConfig
    from .importing import Imported
    from .moves import MovePreview
    from .path_rules import ImportConfig
    from .reading import ReadableHistory, WorkspaceReader
    from .recorded_runs import RecordedRun, RunAbout
    from .selecting import FileHunks, Hunk, Selection
    from .storage import WorkspaceFolder, WorkspaceInfo, WorkspaceMode, WorkspaceStorage
    from .timeline import TimelineRow
    from .workspace import Workspace

__all__ = [
    "Applied",
    "ApplyTarget",
    "Bisection",
    "BlamedLine",
    "ChangeSet",
    "FileChanges",
    "FileHunks",
    "Hunk",
    "ImportConfig",
    "Imported",
    "LeftOut",
    "MovePreview",
    "PathChange",
    "ReadableHistory",
    "RecordedRun",
    "RunAbout",
    "Selection",
    "TimelineRow",
    "Verdict",
    "Workspace",
    "WorkspaceCall",
    "WorkspaceConfig",
    "WorkspaceFolder",
    "WorkspaceInfo",
    "WorkspaceMode",
    "WorkspaceReader",
    "WorkspaceStorage",
    "bisect",
    "export_workspace",
    "import_workspace",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
