"""How one type is made, and how long what is made lives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from wink_workspace.errors import UsageError

__all__ = ["Binding", "ResourceResolver", "Scope"]

T = TypeVar("T")


class Scope(Enum):
    """How long a resource lives."""

    SINGLETON = "singleton"
    """Once per open context; closed with it."""

    TOOL_CALL = "tool_call"
    """Once per tool call; closed when the call ends."""

    PROTOTYPE = "prototype"
    """Made at each request; it belongs to whoever asked, who also closes it."""


class ResourceResolver(Protocol):
    """What a provider asks for the resources that it builds on."""

    def get(self, type_: type[T], /) -> T:
        """The resource bound to *type_*; see ``ResourceContext.get``."""
        ...

    def get_optional(self, type_: type[T], /) -> T | None:
        """The resource bound to *type_*, or ``None`` if nothing is."""
        ...


@dataclass(frozen=True)  # not slotted: Binding[X](…) must be able to try setting __orig_class__
class Binding(Generic[T]):
    """One type and the provider that makes it.

    Args:
        type_: What callers ask for; often a base class of what the provider makes.
        provider: Makes it, given a resolver for what it depends on. It runs with the context's
            lock held, so it must not wait for another thread that asks for resources.
        scope: How long it lives.
        eager: Build it when the context opens, not when first asked for; singletons only.
        owned: Whether the context closes it.
    """

    type_: type[T]
    provider: Callable[[ResourceResolver], T]
    scope: Scope = Scope.SINGLETON
    eager: bool = False
    owned: bool = True

    def __post_init__(self) -> None:
        if self.eager and self.scope is not Scope.SINGLETON:
            raise UsageError(
                f"the binding of {self.type_.__qualname__} is eager, and not a singleton",
                hint="Only a singleton can be built when the context opens.",
            )

    @classmethod
    def instance(cls, type_: type[T], value: T) -> Binding[T]:
        """Bind *type_* to a value that exists already and stays the caller's to close."""
        return cls(type_, lambda _: value, eager=True, owned=False)
