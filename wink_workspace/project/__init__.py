"""The settings of a project: its ``wink-workspace.toml``, the user's own file, variables and flags.

``load_settings`` joins them. A project's own file is not trusted: see ``resolving`` for the rules
and for what the user confirmed. Importing the package loads nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .configs import mcp_sections, network_rules, sandbox_config, workspace_config
    from .detecting import Detected, detect
    from .host_packages import unusable_packages
    from .resolving import (
        Confirmations,
        ProjectSettings,
        RunBudgets,
        SandboxRequest,
        load_settings,
        own_settings,
    )
    from .settings import (
        KEYS,
        Key,
        McpServer,
        MountSetting,
        Secret,
        Settings,
        Trust,
        parse_seconds,
        parse_size,
    )
    from .settings_file import PROJECT_FILE, USER_FILE, NamedFile, ProjectFile

__all__ = [
    "KEYS",
    "PROJECT_FILE",
    "USER_FILE",
    "Confirmations",
    "Detected",
    "Key",
    "McpServer",
    "MountSetting",
    "NamedFile",
    "ProjectFile",
    "ProjectSettings",
    "RunBudgets",
    "SandboxRequest",
    "Secret",
    "Settings",
    "Trust",
    "detect",
    "load_settings",
    "mcp_sections",
    "network_rules",
    "own_settings",
    "parse_seconds",
    "parse_size",
    "sandbox_config",
    "unusable_packages",
    "workspace_config",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
