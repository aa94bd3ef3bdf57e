"""Hides the paths of the host that the list of mounts would show inside a container.

The engine's mounts show them: the root has the image's layers as options, and ``/etc/hosts`` its
path in the engine's directory. Between the creation of a container's first process and the start
of its program, the program that makes overlay mounts gives the container another root: a read-only
overlay of the engine's root, whose options are relative. So the cost is part of the start, and a
container that waits for its workspace has paid it. The first process must be in the root directory:
another one would stay in the mounts that are detached.

What is bound keeps its path: a workspace that is a plain copy, and ``PodmanConfig.mounts``. The
kernel shows the path of a bound directory inside its filesystem, and an overlay cannot replace it:
its behaviour is undefined if its layers change, as these do. The history for git never changes, so
an overlay replaces it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from wink_workspace.errors import MountError
from wink_workspace.filesystem.overlay.mounting import Mounter
from wink_workspace.sandbox.git_directory import HISTORY_PATH

__all__ = ["hide_host_paths"]

_log = logging.getLogger(__name__)


def hide_host_paths(pid: int, spec: Mapping[str, Any], directory: str) -> str | None:
    """Replace the root of a container whose program has not started.

    Args:
        pid: Its first process.
        spec: The request that created it; see ``container_spec``.
        directory: A directory there. If this is interrupted, it stays covered.

    Returns:
        Why the machine cannot do it; the container is unchanged then. ``None`` if it is done.
    """
    mounts = spec.get("mounts", ())
    bound = {str(mount["destination"]) for mount in mounts if mount["type"] == "bind"}
    unchanging = bound & {HISTORY_PATH}
    try:
        Mounter.shared().hide_paths(
            pid, directory, keep=[*bound - unchanging], unchanging=[*unchanging]
        )
    except MountError as error:
        _log.warning("Commands can see paths of the host in the list of mounts: %s", error)
        return error.message
    return None
