"""Workspaces on disk, where every tool call is one commit of a private history.

Importing this package loads nothing: what a name needs is loaded when it is first used, so
that a command which only lists workspaces starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .applying import Applied, ApplyTarget
    from .config import WorkspaceConfig
    from .importing import Imported
    from .reading import WorkspaceReader
    from .recorded_runs import RecordedRun, RunAbout
    from .storage import WorkspaceFolder, WorkspaceInfo, WorkspaceMode, WorkspaceStorage
    from .workspace import Workspace

__all__ = [
    "Applied",
    "ApplyTarget",
    "Imported",
    "RecordedRun",
    "RunAbout",
    "Workspace",
    "WorkspaceConfig",
    "WorkspaceFolder",
    "WorkspaceInfo",
    "WorkspaceMode",
    "WorkspaceReader",
    "WorkspaceStorage",
]

_MODULES = {
    "applying": ("Applied", "ApplyTarget"),
    "config": ("WorkspaceConfig",),
    "importing": ("Imported",),
    "reading": ("WorkspaceReader",),
    "recorded_runs": ("RecordedRun", "RunAbout"),
    "storage": ("WorkspaceFolder", "WorkspaceInfo", "WorkspaceMode", "WorkspaceStorage"),
    "workspace": ("Workspace",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
