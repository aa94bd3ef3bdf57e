"""Ready-made sections: files, plans and commands, each with its tools, its words and its guard."""

from __future__ import annotations

from .asteval import AstevalParams, AstevalResult, AstevalSection
from .commands import CommandOutput, CommandStream
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
    register_plans,
)
from .podman import EvaluatePythonParams, PodmanSandboxSection, ShellExecuteParams
from .vfs import VfsToolsSection

__all__ = [
    "AddStep",
    "AppliedPatch",
    "ApplyPatchParams",
    "AstevalParams",
    "AstevalResult",
    "AstevalSection",
    "ChangedPath",
    "CommandOutput",
    "CommandStream",
    "DeletedPath",
    "DirectoryEntry",
    "DirectoryListing",
    "EditFileParams",
    "EditedFile",
    "EvaluatePythonParams",
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
    "PodmanSandboxSection",
    "ReadFileParams",
    "ReadPlan",
    "RemoveParams",
    "SetupPlan",
    "ShellExecuteParams",
    "StepStatus",
    "UpdateStep",
    "VfsToolsSection",
    "WriteFileParams",
    "WrittenFile",
    "file_tools",
    "register_plans",
]
