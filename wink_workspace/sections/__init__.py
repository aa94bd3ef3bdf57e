"""Ready-made sections: files, plans and commands, each with its tools, guidance and policies.

Importing this package loads nothing: each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .asteval import AstevalParams as AstevalParams
    from .asteval import AstevalResult as AstevalResult
    from .asteval import AstevalSection as AstevalSection
    from .command_results import CommandOutput as CommandOutput
    from .command_results import CommandStream as CommandStream
    from .file_operations import file_tools as file_tools
    from .file_params import ApplyPatchParams as ApplyPatchParams
    from .file_params import EditFileParams as EditFileParams
    from .file_params import GlobParams as GlobParams
    from .file_params import GrepParams as GrepParams
    from .file_params import ListParams as ListParams
    from .file_params import MoveParams as MoveParams
    from .file_params import ReadFileParams as ReadFileParams
    from .file_params import RemoveParams as RemoveParams
    from .file_params import WriteFileParams as WriteFileParams
    from .file_results import AppliedPatch as AppliedPatch
    from .file_results import ChangedPath as ChangedPath
    from .file_results import DeletedPath as DeletedPath
    from .file_results import DirectoryEntry as DirectoryEntry
    from .file_results import DirectoryListing as DirectoryListing
    from .file_results import EditedFile as EditedFile
    from .file_results import FileToolLimits as FileToolLimits
    from .file_results import FileWindow as FileWindow
    from .file_results import FoundLine as FoundLine
    from .file_results import FoundLines as FoundLines
    from .file_results import FoundPaths as FoundPaths
    from .file_results import MovedPath as MovedPath
    from .file_results import WrittenFile as WrittenFile
    from .notes import ProjectNotes as ProjectNotes
    from .notes import notes_section as notes_section
    from .notes import project_notes as project_notes
    from .plan_tools import PlanningStrategy as PlanningStrategy
    from .plan_tools import PlanningToolsSection as PlanningToolsSection
    from .plans import AddStep as AddStep
    from .plans import Plan as Plan
    from .plans import PlanEvent as PlanEvent
    from .plans import PlanStatus as PlanStatus
    from .plans import PlanStep as PlanStep
    from .plans import ReadPlan as ReadPlan
    from .plans import SetupPlan as SetupPlan
    from .plans import StepStatus as StepStatus
    from .plans import UpdateStep as UpdateStep
    from .plans import register_plans as register_plans
    from .podman import BubblewrapSandboxSection as BubblewrapSandboxSection
    from .podman import PodmanSandboxSection as PodmanSandboxSection
    from .sandbox_section import CommandLimits as CommandLimits
    from .sandbox_section import EvaluatePythonParams as EvaluatePythonParams
    from .sandbox_section import SandboxSection as SandboxSection
    from .sandbox_section import ServiceShellParams as ServiceShellParams
    from .sandbox_section import ShellExecuteParams as ShellExecuteParams
    from .sandbox_section import command_tools as command_tools
    from .service_section import ServiceLogsParams as ServiceLogsParams
    from .service_section import ServiceOutput as ServiceOutput
    from .service_section import StartServiceParams as StartServiceParams
    from .service_section import StopServiceParams as StopServiceParams
    from .service_section import service_tools as service_tools
    from .vfs import VfsToolsSection as VfsToolsSection

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
