"""Which paths may have moved, without walking the tree.

``scan`` says what a tracker is, looks at every entry, and chooses the best tracker; ``inotify`` is
notified by the kernel, and ``index`` is what both compare with. Their answer is a ``Dirty``. All of
them use ``disk``; ``disk`` knows none of them.
"""

from .dirty import NOTHING, Dirty
from .index import FileIndex
from .scan import ChangeTracker, ScanTracker, open_tracker

__all__ = ["NOTHING", "ChangeTracker", "Dirty", "FileIndex", "ScanTracker", "open_tracker"]
