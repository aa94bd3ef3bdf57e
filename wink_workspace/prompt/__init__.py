"""Prompts for models: sections with their tools and policies, and the prompts made from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from wink_workspace.errors import OverridesError as OverridesError
    from wink_workspace.errors import PromptError as PromptError
    from wink_workspace.errors import PromptEvaluationError as PromptEvaluationError
    from wink_workspace.errors import PromptRenderError as PromptRenderError
    from wink_workspace.errors import PromptValidationError as PromptValidationError
    from wink_workspace.errors import ToolValidationError as ToolValidationError
    from wink_workspace.errors import VisibilityExpansionRequired as VisibilityExpansionRequired

    from ._bindings import PromptResources as PromptResources
    from ._tree import SectionNode as SectionNode
    from .disclosure import SetVisibility as SetVisibility
    from .disclosure import VisibilityOverrides as VisibilityOverrides
    from .disclosure_tools import DISCLOSURE_TOOL_NAMES as DISCLOSURE_TOOL_NAMES
    from .disclosure_tools import OpenSections as OpenSections
    from .disclosure_tools import ReadSection as ReadSection
    from .overrides import LocalPromptOverridesStore as LocalPromptOverridesStore
    from .overrides import PromptDescriptor as PromptDescriptor
    from .overrides import PromptOverrides as PromptOverrides
    from .overrides import PromptOverridesStore as PromptOverridesStore
    from .overrides import SectionDescriptor as SectionDescriptor
    from .overrides import SectionOverride as SectionOverride
    from .overrides import ToolDescriptor as ToolDescriptor
    from .overrides import ToolOverride as ToolOverride
    from .policy import CompletedTools as CompletedTools
    from .policy import FilesUsed as FilesUsed
    from .policy import FileUse as FileUse
    from .policy import KnownFiles as KnownFiles
    from .policy import PolicyDecision as PolicyDecision
    from .policy import ReadBeforeWritePolicy as ReadBeforeWritePolicy
    from .policy import SequentialDependencyPolicy as SequentialDependencyPolicy
    from .policy import ToolCompleted as ToolCompleted
    from .policy import ToolPolicy as ToolPolicy
    from .policy import UsesFiles as UsesFiles
    from .prompt import Prompt as Prompt
    from .prompt import PromptTemplate as PromptTemplate
    from .rendered import RenderedPrompt as RenderedPrompt
    from .rendered import RenderedSection as RenderedSection
    from .section import EnabledPredicate as EnabledPredicate
    from .section import MarkdownSection as MarkdownSection
    from .section import Section as Section
    from .section import SectionOptions as SectionOptions
    from .section import TextSection as TextSection
    from .section import ToolsSection as ToolsSection
    from .tool import Tool as Tool
    from .tool import ToolAnnotations as ToolAnnotations
    from .tool import ToolExample as ToolExample
    from .tool import ToolHandler as ToolHandler
    from .tool_context import PromptProtocol as PromptProtocol
    from .tool_context import PromptResponseProtocol as PromptResponseProtocol
    from .tool_context import ProviderAdapterProtocol as ProviderAdapterProtocol
    from .tool_context import RenderedPromptProtocol as RenderedPromptProtocol
    from .tool_context import SectionProtocol as SectionProtocol
    from .tool_context import ToolContext as ToolContext
    from .tool_result import ToolImage as ToolImage
    from .tool_result import ToolRenderableResult as ToolRenderableResult
    from .tool_result import ToolResult as ToolResult
    from .visibility import SectionVisibility as SectionVisibility

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
