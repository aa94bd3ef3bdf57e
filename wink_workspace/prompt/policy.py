"""Rules that may refuse a call before its handler runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from wink_workspace.filesystem.paths import WorkspacePath
from wink_workspace.session import SessionProtocol

from .context import ToolContext
from .tool import Tool
from .tool_result import ToolResult

__all__ = [
    "FileUse",
    "PolicyDecision",
    "ReadBeforeWritePolicy",
    "SequentialDependencyPolicy",
    "ToolPolicy",
    "UsesFiles",
]


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """Whether a call may run; a refusal's ``reason`` tells the model what to do first."""

    allowed: bool
    reason: str = ""

    @staticmethod
    def allow() -> PolicyDecision:
        """The call may run."""
        return PolicyDecision(allowed=True)

    @staticmethod
    def deny(reason: str) -> PolicyDecision:
        """The call may not run, because of *reason*, a clause such as ``test must run first``."""
        return PolicyDecision(allowed=False, reason=reason)


class ToolPolicy(ABC):
    """A rule about calls. A policy that raises refuses the call."""

    name: str

    @abstractmethod
    def check(
        self, tool: Tool[Any, Any], params: object, *, context: ToolContext
    ) -> PolicyDecision:
        """Whether the call may run. It must change nothing."""

    def on_result(
        self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext
    ) -> None:
        """Learn from a call that succeeded; what is dispatched here is undone with the call."""

    def install(self, session: SessionProtocol) -> None:
        """Register the reducers that the policy needs; may be called again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUse:
    """Which files a call touches; every path parsed, so every spelling is one value."""

    reads: tuple[WorkspacePath, ...] = ()
    writes: tuple[WorkspacePath, ...] = ()
    deletes: tuple[WorkspacePath, ...] = ()
    moves: tuple[tuple[WorkspacePath, WorkspacePath], ...] = ()


@runtime_checkable
class UsesFiles(Protocol):
    """Parameters that know which files their call touches."""

    def file_use(self) -> FileUse:
        """The files; raises the filesystem's errors for what is no path."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialDependencyPolicy(ToolPolicy):
    """Tools that need others to have succeeded before: ``{"deploy": {"test", "build"}}``."""

    dependencies: Mapping[str, frozenset[str]]

    name = "sequential-dependency"

    def check(
        self, tool: Tool[Any, Any], params: object, *, context: ToolContext
    ) -> PolicyDecision:
        """Refuse a tool whose dependencies have not all succeeded in this session."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBeforeWritePolicy(ToolPolicy):
    """A file may be changed only by who has read its present content."""

    read_tools: Mapping[str, str] = field(default_factory=dict[str, str])
    write_tools: Mapping[str, str] = field(default_factory=dict[str, str])

    name = "read-before-write"

    def check(
        self, tool: Tool[Any, Any], params: object, *, context: ToolContext
    ) -> PolicyDecision:
        """Refuse a write to a file whose present content was not read."""
        raise NotImplementedError
