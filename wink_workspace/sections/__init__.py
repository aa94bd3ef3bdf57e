"""Ready-made sections: files and plans, each with its tools, its words and its guard."""

from __future__ import annotations

from .file_params import (
    ApplyPatchParams,
    EditFileParams,
    GlobParams,
    GrepParams,
    ListParams,
    MoveParams,
    ReadFileParams,
    RemoveParams,
    WriteFileParams,
)
from .file_results import (
    AppliedPatch,
    ChangedPath,
    DeletedPath,
    DirectoryEntry,
    DirectoryListing,
    EditedFile,
    FileToolLimits,
    FileWindow,
    FoundLine,
    FoundLines,
    FoundPaths,
    MovedPath,
    WrittenFile,
)
from .file_tools import file_tools
from .planning import PlanningStrategy, PlanningToolsSection
from .plans import (
    AddStep,
    Plan,
    PlanEvent,
    PlanStatus,
    PlanStep,
    ReadPlan,
    SetupPlan,
    StepStatus,
    UpdateStep,
)
from .vfs import VfsToolsSection

__all__ = [
    "AddStep",
    "AppliedPatch",
    "ApplyPatchParams",
    "ChangedPath",
    "DeletedPath",
    "DirectoryEntry",
    "DirectoryListing",
    "EditFileParams",
    "EditedFile",
    "FileToolLimits",
    "FileWindow",
    "FoundLine",
    "FoundLines",
    "FoundPaths",
    "GlobParams",
    "GrepParams",
    "ListParams",
    "MoveParams",
    "MovedPath",
    "Plan",
    "PlanEvent",
    "PlanStatus",
    "PlanStep",
    "PlanningStrategy",
    "PlanningToolsSection",
    "ReadFileParams",
    "ReadPlan",
    "RemoveParams",
    "SetupPlan",
    "StepStatus",
    "UpdateStep",
    "VfsToolsSection",
    "WriteFileParams",
    "WrittenFile",
    "file_tools",
]
