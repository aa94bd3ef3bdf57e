"""Files in a host directory that other processes may be changing.

``descriptors`` has the system calls, which never follow a link; ``tree`` is a directory tree
built on them; ``filesystem`` is the ``Filesystem`` over a tree.
"""

from .filesystem import DiskFilesystem, DiskHistory
from .tree import DiskEntry, DiskTree

__all__ = ["DiskEntry", "DiskFilesystem", "DiskHistory", "DiskTree"]
