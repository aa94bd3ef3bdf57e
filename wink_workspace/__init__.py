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
    from .adapters import (
        ModelTurn,
        PromptResponse,
        ProviderAdapter,
        ScriptedAdapter,
        ScriptRecorder,
        load_script,
    )
    from .adapters.model import ModelAdapter
    from .clock import (
        Budget,
        BudgetTracker,
        Cancellation,
        Deadline,
        Heartbeat,
        TokenUsage,
    )
    from .errors import ToolValidationError, WinkError
    from .filesystem import Filesystem, HostMount, MemoryFilesystem, UrlMount
    from .prompt import (
        MarkdownSection,
        Prompt,
        PromptTemplate,
        ReadBeforeWritePolicy,
        RenderedPrompt,
        SequentialDependencyPolicy,
        Tool,
        ToolContext,
        ToolExample,
        ToolResult,
    )
    from .resources import Binding, ResourceRegistry, Scope
    from .runtime import ToolCall, ToolExecutor
    from .sandbox import Sandbox
    from .sandbox.asteval import AstevalConfig, PythonConfig
    from .sandbox.podman import PodmanConfig
    from .sections import (
        AstevalSection,
        PlanningStrategy,
        PlanningToolsSection,
        PodmanSandboxSection,
        VfsToolsSection,
    )
    from .session import Session
    from .workspace import Workspace, WorkspaceConfig, WorkspaceStorage

__all__ = [
    "AstevalConfig",
    "AstevalSection",
    "Binding",
    "Budget",
    "BudgetTracker",
    "Cancellation",
    "Deadline",
    "Filesystem",
    "Heartbeat",
    "HostMount",
    "MarkdownSection",
    "MemoryFilesystem",
    "ModelAdapter",
    "ModelTurn",
    "PlanningStrategy",
    "PlanningToolsSection",
    "PodmanConfig",
    "PodmanSandboxSection",
    "Prompt",
    "PromptResponse",
    "PromptTemplate",
    "ProviderAdapter",
    "PythonConfig",
    "ReadBeforeWritePolicy",
    "RenderedPrompt",
    "ResourceRegistry",
    "Sandbox",
    "Scope",
    "ScriptRecorder",
    "ScriptedAdapter",
    "SequentialDependencyPolicy",
    "Session",
    "TokenUsage",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolExample",
    "ToolExecutor",
    "ToolResult",
    "ToolValidationError",
    "UrlMount",
    "VfsToolsSection",
    "WinkError",
    "Workspace",
    "WorkspaceConfig",
    "WorkspaceStorage",
    "load_script",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
