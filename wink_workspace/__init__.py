"""A workspace for coding agents in which every tool call is a transaction.

The everyday names, by what they are for:

- what an agent reads and may call: ``Prompt``, ``PromptTemplate``, ``MarkdownSection``; ``Tool``,
  whose handler gets a ``ToolContext`` and returns a ``ToolResult``; ``ToolExample``
- sections that come with tools: ``VfsToolsSection``, ``PlanningToolsSection``, ``AstevalSection``,
  ``PodmanSandboxSection``
- files: ``Workspace``, on disk and with a history, or ``MemoryFilesystem`` with ``HostMount`` and
  ``UrlMount``; a handler sees both as a ``Filesystem``
- state: ``Session``
- models: ``ModelAdapter``, or ``ScriptedAdapter`` without a model; ``PromptResponse``
- limits: ``Deadline``, ``Budget``, ``Cancellation``; ``ReadBeforeWritePolicy``,
  ``SequentialDependencyPolicy``
- errors: ``WinkError``, with a ``code`` and a ``hint``; ``ToolValidationError``, which a handler
  raises

Each name is loaded when it is first used, so importing the package costs almost nothing.
Everything else is in the subpackages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazy

if TYPE_CHECKING:
    from .adapters import ModelTurn as ModelTurn
    from .adapters import PromptResponse as PromptResponse
    from .adapters import ProviderAdapter as ProviderAdapter
    from .adapters import ScriptedAdapter as ScriptedAdapter
    from .adapters import ScriptRecorder as ScriptRecorder
    from .adapters import load_script as load_script
    from .adapters.model import ModelAdapter as ModelAdapter
    from .clock import Budget as Budget
    from .clock import BudgetTracker as BudgetTracker
    from .clock import Cancellation as Cancellation
    from .clock import Deadline as Deadline
    from .clock import Heartbeat as Heartbeat
    from .clock import TokenUsage as TokenUsage
    from .errors import ToolValidationError as ToolValidationError
    from .errors import WinkError as WinkError
    from .filesystem import Filesystem as Filesystem
    from .filesystem import HostMount as HostMount
    from .filesystem import MemoryFilesystem as MemoryFilesystem
    from .filesystem import UrlMount as UrlMount
    from .prompt import MarkdownSection as MarkdownSection
    from .prompt import Prompt as Prompt
    from .prompt import PromptTemplate as PromptTemplate
    from .prompt import ReadBeforeWritePolicy as ReadBeforeWritePolicy
    from .prompt import RenderedPrompt as RenderedPrompt
    from .prompt import SequentialDependencyPolicy as SequentialDependencyPolicy
    from .prompt import Tool as Tool
    from .prompt import ToolContext as ToolContext
    from .prompt import ToolExample as ToolExample
    from .prompt import ToolResult as ToolResult
    from .resources import Binding as Binding
    from .resources import ResourceRegistry as ResourceRegistry
    from .resources import Scope as Scope
    from .runtime import ToolCall as ToolCall
    from .runtime import ToolExecutor as ToolExecutor
    from .sandbox import Sandbox as Sandbox
    from .sandbox.asteval import AstevalConfig as AstevalConfig
    from .sandbox.asteval import PythonConfig as PythonConfig
    from .sandbox.bubblewrap import BubblewrapConfig as BubblewrapConfig
    from .sandbox.podman import PodmanConfig as PodmanConfig
    from .sections import AstevalSection as AstevalSection
    from .sections import PlanningStrategy as PlanningStrategy
    from .sections import PlanningToolsSection as PlanningToolsSection
    from .sections import PodmanSandboxSection as PodmanSandboxSection
    from .sections import VfsToolsSection as VfsToolsSection
    from .session import Session as Session
    from .workspace import Workspace as Workspace
    from .workspace import WorkspaceConfig as WorkspaceConfig
    from .workspace import WorkspaceStorage as WorkspaceStorage

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
