"""Evaluation of prompts: the loop that all providers share, and the providers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .context_window import ContextLimits
    from .core import LoopLimits, NoModelAdapter, PromptResponse, ProviderAdapter, RepetitionLimits
    from .messages import (
        AssistantMessage,
        Message,
        ModelRequest,
        ModelTurn,
        ToolDefinition,
        ToolMessage,
        UserMessage,
    )
    from .scripted import ScriptedAdapter, ScriptRecorder, load_script

__all__ = [
    "AssistantMessage",
    "ContextLimits",
    "LoopLimits",
    "Message",
    "ModelRequest",
    "ModelTurn",
    "NoModelAdapter",
    "PromptResponse",
    "ProviderAdapter",
    "RepetitionLimits",
    "ScriptRecorder",
    "ScriptedAdapter",
    "ToolDefinition",
    "ToolMessage",
    "UserMessage",
    "load_script",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
