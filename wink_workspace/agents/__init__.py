"""Agent programs of others in a workspace: each of their tool calls becomes one call of ours.

``run_agent`` runs a program in the workspace's sandbox, over its files. Importing this package
loads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .program_starts import AgentProgram as AgentProgram
    from .program_starts import AgentProvider as AgentProvider
    from .running import AgentLimits as AgentLimits
    from .running import AgentResult as AgentResult
    from .running import run_agent as run_agent

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
