"""Workspaces on disk, where every tool call is one commit of a private history.

Importing this package loads nothing: what a name needs is loaded when it is first used, so
that a command which only lists workspaces starts at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .apply.applying import Applied as Applied
    from .apply.applying import ApplyTarget as ApplyTarget
    from .bisecting import Bisection as Bisection
    from .bisecting import Verdict as Verdict
    from .bisecting import bisect as bisect
    from .changes.changeset import ChangeSet as ChangeSet
    from .changes.changeset import LeftOut as LeftOut
    from .changes.changeset import PathChange as PathChange
    from .changes.selection import FileHunks as FileHunks
    from .changes.selection import Hunk as Hunk
    from .changes.selection import Selection as Selection
    from .create.importing import Imported as Imported
    from .history.blame import BlamedLine as BlamedLine
    from .history.workspace_reader import ReadableHistory as ReadableHistory
    from .history.workspace_reader import TimelineRow as TimelineRow
    from .history.workspace_reader import WorkspaceReader as WorkspaceReader
    from .moves.branch_moves import Branches as Branches
    from .moves.branch_moves import Fork as Fork
    from .moves.branch_source import BranchSource as BranchSource
    from .moves.moves import MovePreview as MovePreview
    from .place.path_rules import ImportConfig as ImportConfig
    from .place.storage import WorkspaceFolder as WorkspaceFolder
    from .place.storage import WorkspaceInfo as WorkspaceInfo
    from .place.storage import WorkspaceMode as WorkspaceMode
    from .place.storage import WorkspaceStorage as WorkspaceStorage
    from .place.workspace_config import WorkspaceConfig as WorkspaceConfig
    from .program_calls import WorkspaceCall as WorkspaceCall
    from .repairing import Repaired as Repaired
    from .repairing import repair_workspace as repair_workspace
    from .runs.recorded_runs import RecordedRun as RecordedRun
    from .runs.recorded_runs import RunAbout as RunAbout
    from .runs.task_run import RunReport as RunReport
    from .transfer.bundle_files import export_workspace as export_workspace
    from .transfer.bundle_files import import_workspace as import_workspace
    from .workspace import Workspace as Workspace

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
