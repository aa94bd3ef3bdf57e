"""Where a sandbox has the history of the user's repository, for git.

``.git`` in the workspace is a file that names ``GIT_PATH``. That directory is a copy of the
``template`` below ``HISTORY_PATH``, made again for each command, so what a command does to refs and
index ends with it. The objects below ``HISTORY_PATH`` are read-only.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

HISTORY_PATH: Final = "/run/wink/history"
"""Has ``objects`` and ``template``, read-only."""

GIT_OBJECTS_PATH: Final = f"{HISTORY_PATH}/objects"

GIT_LAYER_PATH: Final = "/run/wink/call"
"""A directory in memory, emptied after each command."""

GIT_PATH: Final = f"{GIT_LAYER_PATH}/git"

WORKSPACE_PATH: Final = "/workspace"
"""The path of the workspace in a sandbox."""

GIT_DIRECTORY_FILE: Final = f"gitdir: {GIT_PATH}\n".encode()
"""The content of ``.git`` in the workspace."""


# -------------------------------------------------------------------------------------- ownership

# The owner of a workspace's files, so that the ordinary user of a sandbox can change them.
#
# If an ordinary user runs the engine, the container's ordinary user is mapped to that user, and the
# owner stays as it is. If root runs it, the container's users are mapped to ids that no account of
# the host has, not even the container's root. A workspace's copy then belongs to one of these ids
# from the start. Only copies change their owner, never the user's own directory.


FIRST_HOST_ID: Final = 2_100_000_000
"""The host's id for the container's root when the engine runs as root.

It is above the ids that are assigned automatically: by ``useradd`` (up to 600,100,000), by
``systemd-nspawn`` (up to 1,879,048,191), by SSSD (up to 2,000,200,000). It is below those that
systemd reserves (from 2,147,352,576).
"""

N_HOST_IDS: Final = 65_536

_ORDINARY_ID: Final = 1_000


def host_owner(user_id: int = _ORDINARY_ID) -> int | None:
    """The user and group id on the host of the container's *user_id*.

    ``None`` if this process is not root: then it is the caller's own id.
    """
    return FIRST_HOST_ID + user_id if os.geteuid() == 0 else None


def give_to_sandbox(directory: Path) -> None:
    """Change the owner of a new, empty directory to the ordinary user of sandboxes.

    If the system does not permit that, the owner stays, and no sandbox can use the directory.
    """
    owner = host_owner()
    if owner is not None:
        with suppress(OSError):  # root of a user namespace in which that id does not exist
            os.chown(directory, owner, owner)
