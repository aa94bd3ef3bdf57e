"""Which paths may have changed, without walking the tree.

``scan`` defines the protocol of a tracker, has a tracker that reads the status of every entry, and
chooses the best tracker. ``inotify`` has one that the kernel notifies. Both compare with an
``index`` and return a ``Dirty``. They use ``disk``, which does not use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .index import NOTHING as NOTHING
    from .index import Dirty as Dirty
    from .index import FileIndex as FileIndex
    from .index import Leaves as Leaves
    from .scan import ChangeTracker as ChangeTracker
    from .scan import ScanTracker as ScanTracker
    from .scan import open_tracker as open_tracker

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
