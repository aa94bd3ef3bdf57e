"""Prompts for models: sections with their tools and policies, and the prompts made from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from wink_workspace.errors import (
        OverridesError,
        PromptError,
        PromptEvaluationError,
        PromptRenderError,
        PromptValidationError,
        ToolValidationError,
        VisibilityExpansionRequired,
    )

    from ._bindings import PromptResources
    from ._tree import SectionNode
    from .disclosure import SetVisibility, VisibilityOverrides
    from .disclosure_tools import DISCLOSURE_TOOL_NAMES, OpenSections, ReadSection
    from .overrides import (
        LocalPromptOverridesStore,
        PromptDescriptor,
        PromptOverrides,
        PromptOverridesStore,
        SectionDescriptor,
        SectionOverride,
        ToolDescriptor,
        ToolOverride,
    )
    from .policy import (
        CompletedTools,
        FilesUsed,
        FileUse,
        KnownFiles,
        PolicyDecision,
        ReadBeforeWritePolicy,
        SequentialDependencyPolicy,
        ToolCompleted,
        ToolPolicy,
        UsesFiles,
    )
    from .prompt import Prompt, PromptTemplate
    from .rendered import RenderedPrompt, RenderedSection
    from .section import (
        EnabledPredicate,
        MarkdownSection,
        Section,
        SectionOptions,
        TextSection,
        ToolsSection,
    )
    from .tool import Tool, ToolAnnotations, ToolExample, ToolHandler
    from .tool_context import (
        PromptProtocol,
        PromptResponseProtocol,
        ProviderAdapterProtocol,
        RenderedPromptProtocol,
        SectionProtocol,
        ToolContext,
    )
    from .tool_result import ToolImage, ToolRenderableResult, ToolResult
    from .visibility import SectionVisibility

__all__ = [
    "DISCLOSURE_TOOL_NAMES",
    "CompletedTools",
    "EnabledPredicate",
    "FileUse",
    "FilesUsed",
    "KnownFiles",
    "LocalPromptOverridesStore",
    "MarkdownSection",
    "OpenSections",
    "OverridesError",
    "PolicyDecision",
    "Prompt",
    "PromptDescriptor",
    "PromptError",
    "PromptEvaluationError",
    "PromptOverrides",
    "PromptOverridesStore",
    "PromptProtocol",
    "PromptRenderError",
    "PromptResources",
    "PromptResponseProtocol",
    "PromptTemplate",
    "PromptValidationError",
    "ProviderAdapterProtocol",
    "ReadBeforeWritePolicy",
    "ReadSection",
    "RenderedPrompt",
    "RenderedPromptProtocol",
    "RenderedSection",
    "Section",
    "SectionDescriptor",
    "SectionNode",
    "SectionOptions",
    "SectionOverride",
    "SectionProtocol",
    "SectionVisibility",
    "SequentialDependencyPolicy",
    "SetVisibility",
    "TextSection",
    "Tool",
    "ToolAnnotations",
    "ToolCompleted",
    "ToolContext",
    "ToolDescriptor",
    "ToolExample",
    "ToolHandler",
    "ToolImage",
    "ToolOverride",
    "ToolPolicy",
    "ToolRenderableResult",
    "ToolResult",
    "ToolValidationError",
    "ToolsSection",
    "UsesFiles",
    "VisibilityExpansionRequired",
    "VisibilityOverrides",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
