"""Files in a host directory that other processes may be changing.

``descriptors`` has the system calls, which never follow a link; ``tree`` is a directory tree
built on them; ``disk_filesystem`` is the ``Filesystem`` over a tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .disk_filesystem import DiskFilesystem as DiskFilesystem
    from .disk_filesystem import DiskHistory as DiskHistory
    from .tree import DiskEntry as DiskEntry
    from .tree import DiskTree as DiskTree

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
