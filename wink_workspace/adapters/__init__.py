"""Evaluating prompts: the loop shared by all providers, and the providers."""

from .core import LoopLimits, PromptResponse, ProviderAdapter
from .messages import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelTurn,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from .no_model import NoModelAdapter
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
