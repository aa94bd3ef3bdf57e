"""Bindings: how a type is built, and how long the result lives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from wink_workspace.errors import UsageError

T = TypeVar("T")
V = TypeVar("V")

TypeOf: TypeAlias = type[T] | Callable[..., T]
"""The type ``T``, which may be abstract or a protocol: mypy takes those for no ``type[T]``."""


class Scope(Enum):
    """How long a resource lives."""

    SINGLETON = "singleton"
    """Once per open context; closed with it."""

    TOOL_CALL = "tool_call"
    """Once per tool call; closed when the call ends."""

    PROTOTYPE = "prototype"
    """Built at each request; the caller owns and closes it."""


class ResourceResolver(Protocol):
    """Gives a provider the resources that it depends on."""

    def get(self, type_: TypeOf[T], /) -> T:
        """The resource bound to *type_*; see ``ResourceContext.get``."""
        ...

    def get_optional(self, type_: TypeOf[T], /) -> T | None:
        """The resource bound to *type_*, or ``None``."""
        ...


@dataclass(frozen=True)  # not slotted: Binding[X](…) must be able to try setting __orig_class__
class Binding(Generic[T]):
    """A type and the provider that builds it.

    Args:
        type_: The type that callers look up; often a base class of what the provider returns.
        provider: Builds it, given a resolver for its dependencies. It runs with the context's
            lock held, so it must not wait for another thread that looks up resources.
        scope: How long it lives.
        eager: Build it when the context opens, not on first use; singletons only.
        owned: Whether the context closes it.
    """

    type_: TypeOf[T]
    provider: Callable[[ResourceResolver], T]
    scope: Scope = Scope.SINGLETON
    eager: bool = False
    owned: bool = True

    def __post_init__(self) -> None:
        if self.eager and self.scope is not Scope.SINGLETON:
            raise UsageError(
                f"the binding of {self.type_.__qualname__} is eager, but not a singleton",
                hint="Use Scope.SINGLETON, or leave out eager=True.",
            )

    @staticmethod
    def instance(type_: TypeOf[V], value: object) -> Binding[V]:
        """Bind *type_* to an existing value of it, which the caller closes.

        Type checkers do not compare them: mypy would refuse a class that only has a protocol's
        members.
        """
        return Binding(type_, lambda _: cast("V", value), eager=True, owned=False)


# -------------------------------------------------------------------------------------- protocols


@runtime_checkable
class Closeable(Protocol):
    """A resource that must be closed when it is no longer needed."""

    def close(self) -> None:
        """Release what it holds. Called once, on the thread that ends its scope."""
        ...


@runtime_checkable
class Snapshotable(Protocol):
    """A resource whose state a transaction can save and restore.

    ``snapshot`` must be cheap: it runs before every call. ``restore`` must leave the resource
    equal to the moment of the token, however often it is called.
    """

    def snapshot(self) -> object:
        """A token for the present state."""
        ...

    def restore(self, token: object) -> None:
        """Restore the state of *token*."""
        ...
