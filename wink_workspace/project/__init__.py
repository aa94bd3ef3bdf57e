"""The settings of a project: its ``wink-workspace.toml``, the user's own file, variables and flags.

``load_settings`` joins them. A project's own file is not trusted: see ``resolving`` for the rules
and for what the user confirmed. Importing the package loads nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .configs import mcp_sections as mcp_sections
    from .configs import network_rules as network_rules
    from .configs import sandbox_config as sandbox_config
    from .configs import workspace_config as workspace_config
    from .detecting import Detected as Detected
    from .detecting import detect as detect
    from .host_packages import unusable_packages as unusable_packages
    from .resolving import Confirmations as Confirmations
    from .resolving import ProjectSettings as ProjectSettings
    from .resolving import RunBudgets as RunBudgets
    from .resolving import SandboxRequest as SandboxRequest
    from .resolving import load_settings as load_settings
    from .resolving import own_settings as own_settings
    from .settings import KEYS as KEYS
    from .settings import Key as Key
    from .settings import McpServer as McpServer
    from .settings import MountSetting as MountSetting
    from .settings import Secret as Secret
    from .settings import Settings as Settings
    from .settings import Trust as Trust
    from .settings import parse_seconds as parse_seconds
    from .settings import parse_size as parse_size
    from .settings_file import PROJECT_FILE as PROJECT_FILE
    from .settings_file import USER_FILE as USER_FILE
    from .settings_file import NamedFile as NamedFile
    from .settings_file import ProjectFile as ProjectFile

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
