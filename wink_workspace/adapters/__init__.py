"""Evaluation of prompts: the loop that all providers share, and the providers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .context_window import ContextLimits as ContextLimits
    from .core import LoopLimits as LoopLimits
    from .core import NoModelAdapter as NoModelAdapter
    from .core import PromptResponse as PromptResponse
    from .core import ProviderAdapter as ProviderAdapter
    from .core import RepetitionLimits as RepetitionLimits
    from .messages import AssistantMessage as AssistantMessage
    from .messages import Message as Message
    from .messages import ModelRequest as ModelRequest
    from .messages import ModelTurn as ModelTurn
    from .messages import SummaryMessage as SummaryMessage
    from .messages import ToolDefinition as ToolDefinition
    from .messages import ToolMessage as ToolMessage
    from .messages import UserMessage as UserMessage
    from .scripted import ScriptedAdapter as ScriptedAdapter
    from .scripted import ScriptRecorder as ScriptRecorder
    from .scripted import load_script as load_script

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
