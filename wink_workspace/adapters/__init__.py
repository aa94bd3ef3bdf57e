"""Evaluation of prompts: the loop that all providers share, and the providers."""

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
from .scripted import ScriptedAdapter, ScriptRecorder, load_script

__all__ = [
    "AssistantMessage",
    "LoopLimits",
    "Message",
    "ModelRequest",
    "ModelTurn",
    "NoModelAdapter",
    "PromptResponse",
    "ProviderAdapter",
    "ScriptRecorder",
    "ScriptedAdapter",
    "ToolDefinition",
    "ToolMessage",
    "UserMessage",
    "load_script",
]
