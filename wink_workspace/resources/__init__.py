"""Resources of tools: looked up by type, built on first use.

A ``Binding`` defines how a type is built and how long the result lives. A ``ResourceRegistry`` is a
set of bindings. A ``ResourceContext``, opened from it, owns what was built and closes it.

Rule 1: each type has one binding, and only that binding builds it.
Rule 2: the context closes what it built, in reverse order, all of it even if one close fails. It
does not close instances that the caller passed, nor prototypes: their caller owns them.
Rule 3: a resource cannot depend on one with a shorter life: a singleton cannot use a resource of a
tool call.
"""

from __future__ import annotations

from .binding import Binding, Closeable, ResourceResolver, Scope, Snapshotable, TypeOf
from .resource_context import ResourceContext, ResourceObserver, ResourceRegistry, ToolResources

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
    "TypeOf",
]
