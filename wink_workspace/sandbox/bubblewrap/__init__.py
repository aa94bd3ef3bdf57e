"""A sandbox over the programs of this machine, made with ``bwrap``.

Importing the package loads no module that starts anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .bubblewrap_config import BubblewrapConfig as BubblewrapConfig
    from .bubblewrap_sandbox import BubblewrapSandbox as BubblewrapSandbox

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
