"""Where a sandbox has the history of the user's repository, for git.

``.git`` in the workspace is a file that names ``GIT_PATH``. That directory is a copy of the
``template`` below ``HISTORY_PATH``, made again for each command, so what a command does to refs and
index ends with it. The objects below ``HISTORY_PATH`` are read-only.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "GIT_DIRECTORY_FILE",
    "GIT_LAYER_PATH",
    "GIT_OBJECTS_PATH",
    "GIT_PATH",
    "GIT_WORKTREE_PATH",
    "HISTORY_PATH",
]

HISTORY_PATH: Final = "/run/wink/history"
"""Has ``objects`` and ``template``, read-only."""

GIT_OBJECTS_PATH: Final = f"{HISTORY_PATH}/objects"

GIT_LAYER_PATH: Final = "/run/wink/call"
"""A directory in memory, emptied after each command."""

GIT_PATH: Final = f"{GIT_LAYER_PATH}/git"

GIT_WORKTREE_PATH: Final = "/workspace"

GIT_DIRECTORY_FILE: Final = f"gitdir: {GIT_PATH}\n".encode()
"""The content of ``.git`` in the workspace."""
