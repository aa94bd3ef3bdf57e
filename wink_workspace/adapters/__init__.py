"""Evaluation of prompts: the loop that all providers share, and the providers."""

from .context_window import ContextLimits
from .core import LoopLimits, NoModelAdapter, PromptResponse, ProviderAdapter
from .messages import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelTurn,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from .repetition import RepetitionLimits
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
