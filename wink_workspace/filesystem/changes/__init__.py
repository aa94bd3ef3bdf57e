"""Which paths may have moved, without walking the tree.

``tracker`` says what a tracker is; ``inotify`` is told by the kernel, ``scan`` looks at every
entry, and ``index`` is what both compare with. ``scan.open_tracker`` chooses. Those three are
imported by name, as they stand on ``disk``, which stands on ``tracker``.
"""

from .tracker import ChangeTracker, Dirty, Noted

__all__ = ["ChangeTracker", "Dirty", "Noted"]
