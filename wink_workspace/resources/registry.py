"""A set of bindings, from which a context is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

from wink_workspace.errors import DuplicateBindingError

from .binding import Binding
from .resource_context import ResourceContext

__all__ = ["ResourceRegistry"]


class ResourceRegistry:
    """An immutable set of bindings, at most one for each type.

    ``type_ in registry`` is whether a type is bound; iterating gives the bindings in order.
    """

    def __init__(self, bindings: Mapping[type[Any], Binding[Any]]) -> None:
        self._bindings = MappingProxyType(dict(bindings))

    @classmethod
    def of(cls, *bindings: Binding[Any]) -> ResourceRegistry:
        """A registry of these bindings.

        Raises:
            DuplicateBindingError: If two of them are for one type.
        """
        by_type: dict[Any, Binding[Any]] = {}
        for binding in bindings:
            if by_type.setdefault(binding.type_, binding) is not binding:
                raise DuplicateBindingError(
                    f"{binding.type_.__qualname__} is bound twice",
                    hint="Keep one of the two bindings.",
                )
        return cls(by_type)

    def merge(
        self, other: ResourceRegistry, *, on_conflict: Literal["raise", "keep", "replace"] = "raise"
    ) -> ResourceRegistry:
        """A registry of the bindings of both.

        Args:
            other: The registry to add.
            on_conflict: If both bind a type differently: ``"raise"``, ``"keep"`` the binding of
                this registry, or ``"replace"`` it by that of *other*.

        Raises:
            DuplicateBindingError: On a conflict, with ``"raise"``; names every such type.
        """
        clashes = [
            type_.__qualname__
            for type_, binding in other._bindings.items()
            if self._bindings.get(type_, binding) is not binding
        ]
        if clashes and on_conflict == "raise":
            raise DuplicateBindingError(
                f"both registries bind {', '.join(clashes)}",
                hint="Pass on_conflict='keep' or on_conflict='replace'.",
            )
        if on_conflict == "keep":
            return ResourceRegistry({**other._bindings, **self._bindings})
        return ResourceRegistry({**self._bindings, **other._bindings})

    def __contains__(self, type_: object) -> bool:
        return type_ in self._bindings

    def __iter__(self) -> Iterator[Binding[Any]]:
        return iter(self._bindings.values())

    def __len__(self) -> int:
        return len(self._bindings)

    def open(self) -> ResourceContext:
        """A new context; use it as ``with registry.open() as context:``."""
        return ResourceContext(self._bindings)
