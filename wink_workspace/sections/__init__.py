"""Ready-made sections: files, plans and commands, each with its tools, guidance and policies.

Importing this package loads nothing: each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .asteval import AstevalParams, AstevalResult, AstevalSection
    from .command_results import CommandOutput, CommandStream
    from .file_operations import file_tools
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
    from .notes import ProjectNotes, notes_section, project_notes
    from .plan_tools import PlanningStrategy, PlanningToolsSection
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
    from .podman import PodmanSandboxSection
    from .sandbox_section import (
        CommandLimits,
        EvaluatePythonParams,
        SandboxSection,
        ServiceShellParams,
        ShellExecuteParams,
        command_tools,
    )
    from .service_section import (
        ServiceLogsParams,
        ServiceOutput,
        StartServiceParams,
        StopServiceParams,
        service_tools,
    )
    from .vfs import VfsToolsSection

__all__ = [
    "AddStep",
    "AppliedPatch",
    "ApplyPatchParams",
    "AstevalParams",
    "AstevalResult",
    "AstevalSection",
    "ChangedPath",
    "CommandLimits",
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
    "ProjectNotes",
    "ReadFileParams",
    "ReadPlan",
    "RemoveParams",
    "SandboxSection",
    "ServiceLogsParams",
    "ServiceOutput",
    "ServiceShellParams",
    "SetupPlan",
    "ShellExecuteParams",
    "StartServiceParams",
    "StepStatus",
    "StopServiceParams",
    "UpdateStep",
    "VfsToolsSection",
    "WriteFileParams",
    "WrittenFile",
    "command_tools",
    "file_tools",
    "notes_section",
    "project_notes",
    "register_plans",
    "service_tools",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
