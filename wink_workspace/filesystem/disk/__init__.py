"""Files in a host directory that others may be changing at the same time.

``descriptors`` holds the system calls, which never follow a link; ``tree`` a directory as a
whole; ``filesystem`` is the ``Filesystem`` over it.
"""

from .filesystem import DiskFilesystem, DiskHistory
from .tree import DiskEntry, DiskTree

__all__ = ["DiskEntry", "DiskFilesystem", "DiskHistory", "DiskTree"]
