"""The context that builds resources from bindings, caches them and closes them.

A lock is held while a resource is built, so only one chain of providers runs at a time, and a plain
stack can hold it. The stack is used to find cycles and to name the whole chain in errors,
whichever resolver a provider uses.

States of a context: NEW -> OPEN -> CLOSED, each once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeVar, assert_never, cast

from wink_workspace.errors import (
    CircularDependencyError,
    DuplicateBindingError,
    ProviderError,
    ResourceError,
    ResourcesClosedError,
    UnboundResourceError,
)

from .binding import Binding, Closeable, ResourceResolver, Scope, TypeOf

_log = logging.getLogger(__name__)

T = TypeVar("T")


class ResourceObserver(Protocol):
    """Is notified of built and closed resources; the runtime uses it to restore them."""

    def built(self, resource: object) -> None:
        """Called when *resource* was built, before its first use; an exception fails the build."""
        ...

    def outlives(self, resources: Sequence[object], close: Callable[[], object]) -> bool:
        """Called at the end of the block, with the *resources* that were built.

        Returns ``True`` if the observer will call *close* later.
        """
        ...


class ResourceContext:
    """The resources of one ``with`` block; made by ``ResourceRegistry.open``.

    Args:
        bindings: How the resource of each type is made.

    ``observer`` may be set and changed at any time.

    Thread-safe: each singleton is built once. At the end of the block all that was built is closed,
    newest first. If a close fails, that is logged and the others are still closed. Then
    ``ResourceError`` names all failures, unless the block itself raised.
    """

    def __init__(self, bindings: Mapping[type[Any], Binding[Any]]) -> None:
        self._store = _Store(bindings, context=self)
        self._n_instances = 0

    def __enter__(self) -> Self:
        self._store.open()
        try:
            self._build_eager()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def _build_eager(self) -> None:
        eager = [binding for binding in self._store.bindings.values() if binding.eager]
        for binding in sorted(eager, key=lambda each: each.owned):  # instances first
            self.get(binding.type_)
        self._n_instances = sum(not binding.owned for binding in eager)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        leaving = self._store.close()
        closing = [built.value for built in leaving if built.closes]
        observer = self._store.observer
        if observer is None or not observer.outlives(
            closing, lambda: _close_all(leaving, during=None)
        ):
            _close_all(leaving, during=error)

    @property
    def observer(self) -> ResourceObserver | None:
        """The observer of the context, or ``None``."""
        return self._store.observer

    @observer.setter
    def observer(self, observer: ResourceObserver | None) -> None:
        self._store.observer = observer

    def get(self, type_: TypeOf[T], /) -> T:
        """The resource bound to *type_*, built now if necessary.

        Raises:
            UnboundResourceError: If nothing is bound; names the dependent types.
            CircularDependencyError: If it depends on itself; names the cycle.
            ProviderError: If a provider raised, or returned ``None``. No incomplete resource stays.
            ResourceError: If its scope is ``TOOL_CALL``.
            ResourcesClosedError: Outside of the ``with`` block.
        """
        return self._store.resolve(type_, self, call=None)

    def get_optional(self, type_: TypeOf[T], /) -> T | None:
        """As ``get``, but ``None`` if nothing is bound to *type_*."""
        self._store.check_open()
        return self.get(type_) if type_ in self._store.bindings else None

    def built(self) -> tuple[object, ...]:
        """Every live singleton, in the order built; bound instances come first."""
        store = self._store
        with store.lock:
            if store.state is not _State.OPEN:
                store.check_open()  # raises
            return store.singletons.values()

    def mark(self) -> int:
        """The number of live singletons; see ``evict_since``."""
        store = self._store
        with store.lock:
            if store.state is not _State.OPEN:
                store.check_open()  # raises
            return len(store.singletons.built)

    def evict_since(
        self, mark: int, *, before_close: Callable[[object], object] = lambda _: None
    ) -> tuple[Exception, ...]:
        """Close and forget the singletons built after *mark*, newest first.

        Bound instances stay. If a ``close`` raises, that is logged and returned, and the others are
        still closed. *before_close* is called with each before its ``close``; it must not raise.
        """
        with self._store.lock:
            self._store.check_open()
            leaving = self._store.singletons.take_since(max(mark, self._n_instances))
        return tuple(error for _, error in _close_each(leaving, before_close))

    def tool_scope(self) -> AbstractContextManager[ToolResources]:
        """One tool call's view of the resources.

        Resources with scope ``TOOL_CALL`` are closed at its end, as the context closes others.
        """
        self._store.check_open()
        return _ToolScope(self._store)


class _ToolScope(AbstractContextManager["ToolResources"]):
    """The block of one tool call."""

    __slots__ = ("_cache", "_store")

    def __init__(self, store: _Store) -> None:
        self._store = store
        self._cache = _Cache()

    def __enter__(self) -> ToolResources:
        return ToolResources(self._store, self._cache)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        leaving = self._cache.end()
        if leaving:
            _close_all(leaving, during=error)


class ToolResources:
    """One tool call's view of the resources; made by ``ResourceContext.tool_scope``.

    ``TOOL_CALL`` resources are cached here, singletons in the context; prototypes are not cached.
    """

    def __init__(self, store: _Store, cache: _Cache) -> None:
        self._store = store
        self._cache = cache

    def get(self, type_: TypeOf[T], /) -> T:
        """The resource bound to *type_*, built now if necessary.

        Raises:
            ResourceError: As ``ResourceContext.get``; also if a singleton depends on a
                ``TOOL_CALL`` resource.
            ResourcesClosedError: If the call or the context has ended.
        """
        self._check_open()
        return self._store.resolve(type_, self, call=self._cache)

    def get_optional(self, type_: TypeOf[T], /) -> T | None:
        """As ``get``, but ``None`` if nothing is bound to *type_*."""
        if self._cache.ended or self._store.state is not _State.OPEN:
            self._check_open()  # raises
        kept = self._store.singletons.built.get(type_)  # a cached value is complete; no lock needed
        if kept is not None:
            return kept.value
        return self.get(type_) if type_ in self._store.bindings else None

    def _check_open(self) -> None:
        self._store.check_open()
        if self._cache.ended:
            raise ResourcesClosedError(
                "the tool call of these resources has ended",
                hint="Do not keep resources after the call that received them.",
            )


class _State(Enum):
    NEW = "not open yet"
    OPEN = "already open"
    CLOSED = "closed"


class _Built(NamedTuple):
    """A live resource; *closes* says whether the context closes it."""

    type_: Any
    value: Any  # an instance of type_, which an annotation cannot express
    closes: bool


class _Cache:
    """The resources that one scope has built, in order."""

    def __init__(self) -> None:
        self.ended = False
        self.built: dict[Any, _Built] = {}
        self._values: tuple[object, ...] | None = ()

    def add(self, built: _Built) -> None:
        self.built[built.type_] = built
        self._values = None

    def holds(self, value: object) -> bool:
        return any(built.value is value for built in self.built.values())

    def values(self) -> tuple[object, ...]:
        """The values in the order built; a value bound to several types comes once."""
        if self._values is None:  # cached, as every call needs it
            unique = {id(built.value): built.value for built in self.built.values()}
            self._values = tuple(unique.values())
        return self._values

    def take_since(self, mark: int) -> list[_Built]:
        """Remove all resources after the first *mark*, and return them newest first."""
        taken = list(self.built.values())[mark:]
        for built in taken:
            del self.built[built.type_]
        self._values = None
        return taken[::-1]

    def end(self) -> list[_Built]:
        """End the scope; remove all resources and return them newest first."""
        self.ended = True
        return self.take_since(0) if self.built else []


class _Store:
    """The bindings, the singletons, and the chain of running providers.

    ``lock`` guards the singletons and the chain; code that uses ``singletons`` must hold it.
    """

    def __init__(self, bindings: Mapping[Any, Binding[Any]], *, context: ResourceResolver) -> None:
        self.bindings = bindings
        self.lock = threading.RLock()
        self.singletons = _Cache()
        self.observer: ResourceObserver | None = None
        self._context = context
        self.state = _State.NEW
        self._chain: list[Binding[Any]] = []

    def open(self) -> None:
        with self.lock:
            if self.state is not _State.NEW:
                raise ResourceError(
                    f"this resource context is {self.state.value}; it can be opened only once",
                    hint="Open a new one: `with registry.open() as context:`.",
                )
            self.state = _State.OPEN

    def close(self) -> list[_Built]:
        """Close the store; returns the singletons, newest first."""
        with self.lock:
            self.state = _State.CLOSED
            return self.singletons.end()

    def check_open(self) -> None:
        if self.state is not _State.OPEN:
            raise ResourcesClosedError(f"the resources are {self.state.value}")

    def resolve(self, type_: TypeOf[T], resolver: ResourceResolver, *, call: _Cache | None) -> T:
        """The resource bound to *type_*; *call* is the cache of the tool call, if there is one."""
        with self.lock:
            if self.state is not _State.OPEN:
                self.check_open()  # raises
            if (kept := self.singletons.built.get(type_)) is not None:  # the usual case
                return kept.value
            binding = self._binding(type_)
            match binding.scope:
                case Scope.PROTOTYPE:
                    return self._build(binding, resolver)
                case Scope.SINGLETON:
                    return self._cached(binding, self._context, self.singletons)
                case Scope.TOOL_CALL:
                    self._check_no_singleton_needs(binding)
                    if call is None:
                        raise ResourceError(
                            f"{_name(binding)} lives for one tool call, but no tool call runs",
                            hint="Get it from the resources that a tool call receives.",
                        )
                    return self._cached(binding, resolver, call)
                case _:
                    assert_never(binding.scope)

    def _binding(self, type_: TypeOf[T]) -> Binding[T]:
        binding = self.bindings.get(type_)
        if binding is None:
            needed = f" (needed by {self._chain_text(type_)})" if self._chain else ""
            bound = ", ".join(sorted(map(_name, self.bindings.values()))) or "nothing"
            raise UnboundResourceError(
                f"nothing is bound to {type_.__qualname__}{needed}",
                hint=f"Bind it in resources={{{type_.__qualname__}: …}}. Bound types: {bound}.",
            )
        return cast("Binding[T]", binding)

    def _check_no_singleton_needs(self, binding: Binding[Any]) -> None:
        singleton = next((each for each in self._chain if each.scope is Scope.SINGLETON), None)
        if singleton is not None:
            raise ResourceError(
                f"{_name(singleton)} is a singleton and cannot depend on {_name(binding)}, which"
                f" lives for one tool call ({self._chain_text(binding.type_)})",
                hint="Give both the scope TOOL_CALL, or make the dependency a singleton as well.",
            )

    def _cached(self, binding: Binding[T], resolver: ResourceResolver, cache: _Cache) -> T:
        found = cache.built.get(binding.type_)
        if found is not None:
            return found.value
        made = self._build(binding, resolver)
        # A provider may return an object of another binding, which closes it.
        shared = self.singletons.holds(made) or cache.holds(made)
        built = _Built(binding.type_, made, closes=binding.owned and not shared)
        if cache is self.singletons and self.observer is not None:
            try:
                self.observer.built(made)
            except BaseException:
                _close_each([built])
                raise
        cache.add(built)
        return made

    def _build(self, binding: Binding[T], resolver: ResourceResolver) -> T:
        if any(each is binding for each in self._chain):
            raise CircularDependencyError(
                f"resources depend on each other in a cycle: {self._chain_text(binding.type_)}",
                hint="Pass one of them later, or move what both need into a third resource.",
            )
        self._chain.append(binding)
        try:
            made = binding.provider(resolver)
        except ResourceError:
            raise  # from a dependency; it names the chain
        except Exception as error:
            raise ProviderError(
                f"the provider of {self._chain_text()} raised {type(error).__name__}: {error}",
                hint="Fix the provider, or one of its dependencies.",
            ) from error
        else:
            self._check_made(made)
            return made
        finally:
            self._chain.pop()

    def _check_made(self, made: object) -> None:
        if made is None:
            raise ProviderError(
                f"the provider of {self._chain_text()} returned None",
                hint="Return the resource, or remove the binding.",
            )

    def _chain_text(self, *more: Any) -> str:
        """The chain from the first request to the present one: ``App -> Client -> Config``."""
        types = [*(binding.type_ for binding in self._chain), *more]
        return " -> ".join(type_.__qualname__ for type_ in types)


def _name(binding: Binding[Any]) -> str:
    return binding.type_.__qualname__


def _close_each(
    leaving: Iterable[_Built], before_close: Callable[[object], object] = lambda _: None
) -> list[tuple[str, Exception]]:
    """Close the owned resources in *leaving*; returns the failures by name.

    A ``KeyboardInterrupt`` or the like is raised after the last one is closed.
    """
    failures: list[tuple[str, Exception]] = []
    interrupt: BaseException | None = None
    for built in leaving:
        before_close(built.value)
        if not built.closes or not isinstance(built.value, Closeable):
            continue
        name = built.type_.__qualname__
        try:
            built.value.close()
        except Exception as error:  # noqa: BLE001 - the others must be closed, too
            _log.exception("Resource %s did not close", name)
            failures.append((name, error))
        except BaseException as error:  # noqa: BLE001 - raised below, after all are closed
            interrupt = error
    if interrupt is not None:
        raise interrupt
    return failures


def _close_all(leaving: Iterable[_Built], *, during: BaseException | None) -> None:
    """Close all; raise ``ResourceError`` for failures unless the exception *during* is raised."""
    failures = _close_each(leaving)
    if failures and during is None:
        listed = ", ".join(f"{name} ({type(error).__name__}: {error})" for name, error in failures)
        raise ResourceError(
            f"could not close {listed}", hint="Release by hand what it still holds."
        ) from failures[0][1]


# --------------------------------------------------------------------------------------- registry


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
