"""The resources of a prompt: types bound to instances, or to ``Binding`` objects.

Rule 1: ``Prompt.bind`` replaces what sections bind. Two sections may bind one type only to the
same object.
Rule 2: resources live as long as a ``with prompt.resources:`` block. Each block builds them
again, and a prompt has at most one open block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar, cast

from wink_workspace.errors import PromptValidationError, ResourceError, ResourcesClosedError
from wink_workspace.resources import (
    Binding,
    ResourceContext,
    ResourceObserver,
    ResourceRegistry,
    Scope,
    ToolResources,
    TypeOf,
)

T = TypeVar("T")


class PromptResources:
    """The resources of one prompt; open them with ``with prompt.resources:``.

    Args:
        bound: The instance, or the ``Binding``, for each type.

    Outside the block everything but ``is_open``, ``types`` and ``singletons`` raises
    ``ResourcesClosedError``.
    """

    def __init__(self, bound: Mapping[type[Any], object]) -> None:
        self._bindings = {type_: _binding(type_, value) for type_, value in bound.items()}
        self._context: ResourceContext | None = None

    def __enter__(self) -> Self:
        if self.is_open:
            raise ResourceError(
                "the prompt's resources are already open",
                hint="Use the resources of the open block, or end that block first.",
            )
        context = ResourceRegistry.of(*self._bindings.values()).open()
        self._context = context.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        context, self._context = self.opened, None
        context.__exit__(kind, error, trace)

    @property
    def is_open(self) -> bool:
        """Whether this is inside the ``with`` block."""
        return self._context is not None

    @property
    def types(self) -> frozenset[type[Any]]:
        """The types that are bound."""
        return frozenset(self._bindings)

    @property
    def singletons(self) -> frozenset[type[Any]]:
        """The types that are bound to one instance for the whole block."""
        return frozenset(
            type_ for type_, binding in self._bindings.items() if binding.scope is Scope.SINGLETON
        )

    def get(self, type_: TypeOf[T]) -> T:
        """The resource bound to *type_*; see ``ResourceContext.get``."""
        return self.opened.get(type_)

    def get_optional(self, type_: TypeOf[T]) -> T | None:
        """The resource bound to *type_*, or None."""
        return self.opened.get_optional(type_)

    def tool_scope(self) -> AbstractContextManager[ToolResources]:
        """One call's view of the resources; see ``ResourceContext.tool_scope``."""
        return self.opened.tool_scope()

    def built(self) -> tuple[object, ...]:
        """Every live singleton, in the order built."""
        return self.opened.built()

    def mark(self) -> int:
        """The number of live singletons; an argument for ``evict_since``."""
        return self.opened.mark()

    def evict_since(
        self, mark: int, *, before_close: Callable[[object], object] = lambda _: None
    ) -> tuple[Exception, ...]:
        """As ``ResourceContext.evict_since``."""
        return self.opened.evict_since(mark, before_close=before_close)

    @property
    def observer(self) -> ResourceObserver | None:
        """The observer of the open block; see ``ResourceObserver``."""
        return self.opened.observer

    @observer.setter
    def observer(self, observer: ResourceObserver | None) -> None:
        self.opened.observer = observer

    @property
    def opened(self) -> ResourceContext:
        """The context of the open block, for callers that use it often.

        Raises:
            ResourcesClosedError: Outside of the block ``with prompt.resources:``.
        """
        if self._context is None:
            raise ResourcesClosedError("the prompt's resources are not open")
        return self._context


def checked_resources(
    given: Mapping[type[Any], object], *, section_path: Sequence[str] = ()
) -> Mapping[type[Any], object]:
    """A read-only copy of *given*, whose values match their types.

    Raises:
        PromptValidationError: If *given* is not a mapping, a key is not a type, a binding is for
            another type, or a value is not an instance of its type.
    """
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass a workspace
        raise PromptValidationError(
            f"{type(given).__name__} is not a mapping",
            section_path=section_path,
            field="resources",
            hint="Write {Type: instance}; for a workspace, pass workspace.resources.",
        )
    for type_, value in given.items():
        problem = _problem(type_, value)
        if problem is not None:
            raise PromptValidationError(
                problem,
                section_path=section_path,
                field="resources",
                hint="Bind the type to an instance of it, or to a Binding.",
            )
    return MappingProxyType(dict(given))


def joined_resources(
    declared: Iterable[tuple[tuple[str, ...], Mapping[type[Any], object]]],
) -> Mapping[type[Any], object]:
    """The resources of all sections; each section is given with its path.

    Raises:
        PromptValidationError: If two sections bind one type to different objects; names both.
    """
    joined: dict[type[Any], object] = {}
    owners: dict[type[Any], tuple[str, ...]] = {}
    for path, resources in declared:
        for type_, value in resources.items():
            if joined.setdefault(type_, value) is not value:
                raise PromptValidationError(
                    f"{type_.__name__} is bound here and, to another object, in section "
                    + " > ".join(owners[type_]),
                    section_path=path,
                    field="resources",
                    hint="Give both sections the same instance or binding, or remove one.",
                )
            owners.setdefault(type_, path)
    return MappingProxyType(joined)


def _problem(type_: object, value: object) -> str | None:
    if not isinstance(type_, type):
        return f"{type_!r} is not a type"
    if isinstance(value, Binding):
        bound = cast("Binding[Any]", value).type_
        return None if bound is type_ else f"{type_.__name__} has a binding for another type"
    try:
        fits = isinstance(value, type_)
    except TypeError:  # a protocol that isinstance() does not support
        fits = True
    return None if fits else f"a {type(value).__name__} is bound to {type_.__name__}"


def _binding(type_: type[Any], value: object) -> Binding[Any]:
    if isinstance(value, Binding):
        return cast("Binding[Any]", value)
    return Binding.instance(type_, value)
