"""Things that tools need, asked for by type and built when first asked for.

A ``Binding`` says how one type is made and how long it lives; a ``ResourceRegistry`` holds
bindings; a ``ResourceContext``, opened from it, holds what was built and closes it.

Rule 1: each type has one binding, and it is built by nobody else.
Rule 2: what we built we close, in reverse order, trying all; what the caller built is theirs,
and so are prototypes, which belong to whoever asked.
Rule 3: nothing may hold what dies before it: a singleton cannot have a tool call's resource.
"""

from __future__ import annotations

from .binding import Binding, ResourceResolver, Scope
from .context import ResourceContext, ResourceObserver, ToolResources
from .protocols import Closeable, Snapshotable
from .registry import ResourceRegistry

__all__ = [
    "Binding",
    "Closeable",
    "ResourceContext",
    "ResourceObserver",
    "ResourceRegistry",
    "ResourceResolver",
    "Scope",
    "Snapshotable",
    "ToolResources",
]
