"""Workspaces on disk, where every tool call is one commit of a private history.

Importing this package loads nothing: what a name needs is loaded when it is first used, so
that a command which only lists workspaces starts at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .apply.applying import Applied, ApplyTarget
    from .bisecting import Bisection, Verdict, bisect
    from .changes.changeset import ChangeSet, LeftOut, PathChange
    from .changes.selection import FileHunks, Hunk, Selection
    from .create.importing import Imported
    from .history.blame import BlamedLine
    from .history.workspace_reader import ReadableHistory, TimelineRow, WorkspaceReader
    from .moves.branch_moves import Branches, Fork
    from .moves.branch_source import BranchSource
    from .moves.moves import MovePreview
    from .place.path_rules import ImportConfig
    from .place.storage import WorkspaceFolder, WorkspaceInfo, WorkspaceMode, WorkspaceStorage
    from .place.workspace_config import WorkspaceConfig
    from .program_calls import WorkspaceCall
    from .repairing import Repaired, repair_workspace
    from .runs.recorded_runs import RecordedRun, RunAbout
    from .runs.task_run import RunReport
    from .transfer.bundle_files import export_workspace, import_workspace
    from .workspace import Workspace

__all__ = [
    "Applied",
    "ApplyTarget",
    "Bisection",
    "BlamedLine",
    "BranchSource",
    "Branches",
    "ChangeSet",
    "FileHunks",
    "Fork",
    "Hunk",
    "ImportConfig",
    "Imported",
    "LeftOut",
    "MovePreview",
    "PathChange",
    "ReadableHistory",
    "RecordedRun",
    "Repaired",
    "RunAbout",
    "RunReport",
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
    "repair_workspace",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
