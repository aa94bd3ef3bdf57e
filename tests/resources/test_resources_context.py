"""Resources are built on first use, live as long as their scope, and are closed in reverse."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from wink_workspace.errors import (
    CircularDependencyError,
    ProviderError,
    ResourceError,
    ResourcesClosedError,
    UnboundResourceError,
    UsageError,
)
from wink_workspace.resources import (
    Binding,
    Closeable,
    ResourceContext,
    ResourceRegistry,
    ResourceResolver,
    Scope,
    Snapshotable,
)


class Store(ABC):
    @abstractmethod
    def read(self) -> str: ...


@dataclass(eq=False)
class Part(Store):
    """A resource that notes its closing in a shared diary."""

    diary: list[str] = field(default_factory=list)
    error: BaseException | None = None

    def read(self) -> str:
        return type(self).__name__

    def close(self) -> None:
        self.diary.append(type(self).__name__)
        if self.error is not None:
            raise self.error


class A(Part): ...


class B(Part): ...


class C(Part): ...


class D(Part): ...


def part(
    type_: type[Part],
    *needed: type[Part],
    scope: Scope = Scope.SINGLETON,
    diary: list[str] | None = None,
) -> Binding[Any]:
    """A binding whose provider first gets all types in *needed*."""

    def provide(resolver: ResourceResolver) -> Part:
        for each in needed:
            resolver.get(each)
        return type_([] if diary is None else diary)

    return Binding(type_, provide, scope)


def failing(error: BaseException) -> Callable[[ResourceResolver], Any]:
    def provide(resolver: ResourceResolver) -> Any:
        raise error

    return provide


@pytest.mark.behaviour(65)
def test_resource_is_built_on_first_use_and_only_once() -> None:
    built: list[str] = []
    registry = ResourceRegistry.of(Binding(A, lambda _: built.append("A") or A()))
    with registry.open() as context:
        assert built == []
        assert context.get(A) is context.get(A)
        assert context.built() == (context.get(A),)
    assert built == ["A"]


def test_eager_resource_is_built_when_the_context_opens() -> None:
    with ResourceRegistry.of(Binding(A, lambda _: A(), eager=True)).open() as context:
        assert [type(each) for each in context.built()] == [A]


def test_only_a_singleton_can_be_eager() -> None:
    with pytest.raises(UsageError, match="A is eager, but not a singleton"):
        Binding(A, lambda _: A(), Scope.TOOL_CALL, eager=True)


def test_resource_can_be_bound_to_its_base_class() -> None:
    with ResourceRegistry.of(Binding[Store](Store, lambda _: A())).open() as context:
        assert context.get(Store).read() == "A"


@pytest.mark.behaviour(65)
def test_resources_are_closed_in_reverse_order_of_building() -> None:
    diary: list[str] = []
    registry = ResourceRegistry.of(
        part(A, B, diary=diary), part(B, C, diary=diary), part(C, diary=diary)
    )
    with registry.open() as context:
        context.get(B)
        context.get(A)
        assert [type(each) for each in context.built()] == [C, B, A]
    assert diary == ["A", "B", "C"]


@pytest.mark.behaviour(65)
def test_every_resource_is_closed_and_all_failures_are_named() -> None:
    diary: list[str] = []
    registry = ResourceRegistry.of(
        Binding(A, lambda _: A(diary, OSError("disk full"))),
        Binding(B, lambda _: B(diary)),
        Binding(C, lambda _: C(diary, KeyError("x"))),
    )
    with (
        pytest.raises(
            ResourceError, match=r"close C \(KeyError: 'x'\), A \(OSError: disk full\)"
        ) as caught,
        registry.open() as context,
    ):
        for type_ in (A, B, C):
            context.get(type_)
    assert diary == ["C", "B", "A"]
    assert isinstance(caught.value.__cause__, KeyError)


def test_exception_of_the_block_is_not_hidden_by_a_close_that_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = ResourceRegistry.of(Binding(A, lambda _: A(error=OSError("disk full"))))
    with pytest.raises(ZeroDivisionError), registry.open() as context:
        context.get(A)
        raise ZeroDivisionError
    assert "Resource A did not close" in caplog.text


def test_interrupt_during_a_close_is_raised_after_the_others_are_closed() -> None:
    diary: list[str] = []
    registry = ResourceRegistry.of(
        Binding(A, lambda _: A(diary)), Binding(B, lambda _: B(diary, KeyboardInterrupt()))
    )
    with pytest.raises(KeyboardInterrupt), registry.open() as context:
        context.get(A)
        context.get(B)
    assert diary == ["B", "A"]


def test_instance_of_the_caller_is_never_closed() -> None:
    mine = A()
    registry = ResourceRegistry.of(
        Binding(Store, lambda resolver: resolver.get(A)), Binding.instance(A, mine)
    )
    with registry.open() as context:
        assert context.built() == (mine,)
        assert context.get(A) is mine
        assert context.get(Store) is mine
        assert context.built() == (mine,)
        with context.tool_scope():
            pass
        assert context.evict_since(0) == ()
        assert context.get(A) is mine
    assert mine.diary == []


def test_resource_bound_to_two_types_is_closed_once() -> None:
    diary: list[str] = []
    registry = ResourceRegistry.of(
        Binding(Store, lambda resolver: resolver.get(A)), Binding(A, lambda _: A(diary))
    )
    with registry.open() as context:
        assert context.get(Store) is context.get(A)
    assert diary == ["A"]


def test_resource_without_close_is_dropped() -> None:
    with ResourceRegistry.of(Binding(str, lambda _: "text")).open() as context:
        assert context.get(str) == "text"


@pytest.mark.parametrize("ask", [ResourceContext.get, ResourceContext.get_optional])
def test_get_outside_the_block_is_refused(ask: Callable[..., object]) -> None:
    context = ResourceRegistry.of(Binding(A, lambda _: A())).open()
    with pytest.raises(ResourcesClosedError, match="not open yet"):
        ask(context, A)
    with context:
        ask(context, A)
    with pytest.raises(ResourcesClosedError, match="are closed"):
        ask(context, A)


@pytest.mark.parametrize(
    "use",
    [
        lambda context: context.built(),
        lambda context: context.mark(),
        lambda context: context.evict_since(0),
        lambda context: context.tool_scope().__enter__(),
    ],
)
def test_every_other_use_outside_the_block_is_refused(
    use: Callable[[ResourceContext], object],
) -> None:
    with pytest.raises(ResourcesClosedError):
        use(ResourceRegistry.of().open())


def test_context_opens_only_once_and_the_registry_opens_new_ones() -> None:
    registry = ResourceRegistry.of(Binding(A, lambda _: A()))
    with registry.open() as context:
        first = context.get(A)
        with pytest.raises(ResourceError, match="is already open; it can be opened only once"):
            context.__enter__()
    with pytest.raises(ResourceError, match="is closed; it can be opened only once"):
        context.__enter__()
    with registry.open() as fresh:
        assert fresh.get(A) is not first


def test_unbound_type_is_an_error_with_the_whole_dependency_chain() -> None:
    registry = ResourceRegistry.of(
        part(A, B),
        part(B, C),
    )
    with registry.open() as context:
        with pytest.raises(
            UnboundResourceError, match=r"bound to C \(needed by A -> B -> C\)"
        ) as caught:
            context.get(A)
        assert "Bound types: A, B." in caught.value.hint
        with pytest.raises(UnboundResourceError, match=r"^nothing is bound to D\. "):
            context.get(D)


def test_optional_resource_is_none_only_if_nothing_is_bound() -> None:
    registry = ResourceRegistry.of(Binding(A, lambda _: A()), Binding(B, failing(OSError())))
    with registry.open() as context, context.tool_scope() as tools:
        assert context.get_optional(C) is None
        assert tools.get_optional(C) is None
        assert context.get_optional(A) is tools.get_optional(A) is not None
        with pytest.raises(ProviderError):
            context.get_optional(B)
        with pytest.raises(UnboundResourceError):
            tools.get(C)


@pytest.mark.behaviour(65)
@pytest.mark.parametrize("scope", Scope)
def test_cycle_is_named_in_the_order_of_dependencies(scope: Scope) -> None:
    registry = ResourceRegistry.of(
        part(A, C, scope=scope),
        part(B, D, scope=scope),
        part(C, B, scope=scope),
        part(D, C, scope=scope),
    )
    with (
        registry.open() as context,
        context.tool_scope() as tools,
        pytest.raises(CircularDependencyError, match="in a cycle: A -> C -> B -> D -> C"),
    ):
        tools.get(A)


def test_cycle_through_a_captured_context_is_found() -> None:
    opened: list[ResourceContext] = []
    registry = ResourceRegistry.of(Binding(A, lambda _: opened[0].get(A)))
    with registry.open() as context:
        opened.append(context)
        with pytest.raises(CircularDependencyError, match="A -> A"):
            context.get(A)


def test_provider_that_raises_is_named_and_leaves_no_incomplete_resource() -> None:
    attempts = iter([OSError("no route"), None])

    def provide(resolver: ResourceResolver) -> B:
        error = next(attempts)
        if error is not None:
            raise error
        return B()

    registry = ResourceRegistry.of(part(A, B), Binding(B, provide))
    with registry.open() as context:
        with pytest.raises(ProviderError, match="A -> B raised OSError: no route") as caught:
            context.get(A)
        assert isinstance(caught.value.__cause__, OSError)
        assert context.built() == ()
        assert isinstance(context.get(A), A)


def test_provider_that_returns_nothing_is_refused() -> None:
    registry = ResourceRegistry.of(Binding(A, lambda _: None))
    with registry.open() as context, pytest.raises(ProviderError, match="of A returned None"):
        context.get(A)


def test_eager_provider_that_raises_closes_what_was_built_before() -> None:
    diary: list[str] = []
    registry = ResourceRegistry.of(
        Binding(A, lambda _: A(diary), eager=True), Binding(B, failing(OSError()), eager=True)
    )
    context = registry.open()
    with pytest.raises(ProviderError):
        context.__enter__()
    assert diary == ["A"]
    with pytest.raises(ResourcesClosedError):
        context.get(A)


def test_interrupted_provider_leaves_the_context_usable() -> None:
    errors: list[BaseException] = [KeyboardInterrupt()]
    registry = ResourceRegistry.of(
        Binding(A, lambda _: failing(errors.pop())(_) if errors else A())
    )
    with registry.open() as context:
        with pytest.raises(KeyboardInterrupt):
            context.get(A)
        assert isinstance(context.get(A), A)


@pytest.mark.behaviour(39)
def test_tool_call_resource_is_built_for_each_call_and_closed_after_it() -> None:
    diary: list[str] = []
    registry = ResourceRegistry.of(
        part(A, B, scope=Scope.TOOL_CALL, diary=diary), part(B, scope=Scope.TOOL_CALL, diary=diary)
    )
    with registry.open() as context:
        with context.tool_scope() as first:
            one = first.get(A)
            assert first.get(A) is one
            assert diary == []
        assert diary == ["A", "B"]
        with context.tool_scope() as second:
            assert second.get(A) is not one
        assert context.built() == ()
        with pytest.raises(ResourcesClosedError, match=r"call .* has ended"):
            first.get(A)
        with pytest.raises(ResourcesClosedError):
            first.get_optional(A)


@pytest.mark.behaviour(39)
@pytest.mark.behaviour(65)
def test_every_resource_of_a_tool_call_is_closed_despite_failures() -> None:
    diary: list[str] = []
    registry = ResourceRegistry.of(
        Binding(A, lambda _: A(diary), Scope.TOOL_CALL),
        Binding(B, lambda _: B(diary, OSError("stuck")), Scope.TOOL_CALL),
    )
    with registry.open() as context:
        with (
            pytest.raises(ResourceError, match=r"B \(OSError: stuck\)"),
            context.tool_scope() as tools,
        ):
            tools.get(A)
            tools.get(B)
        with pytest.raises(ZeroDivisionError), context.tool_scope() as tools:
            tools.get(B)
            raise ZeroDivisionError
    assert diary == ["B", "A", "B"]


@pytest.mark.behaviour(39)
def test_prototype_is_built_at_each_access_and_never_closed() -> None:
    diary: list[str] = []
    registry = ResourceRegistry.of(Binding(A, lambda _: A(diary), Scope.PROTOTYPE))
    with registry.open() as context, context.tool_scope() as tools:
        assert len({context.get(A), context.get(A), tools.get(A), tools.get(A)}) == 4
        assert context.built() == ()
    assert diary == []


def test_tool_call_shares_singletons_and_does_not_close_them() -> None:
    diary: list[str] = []
    registry = ResourceRegistry.of(
        Binding(A, lambda _: A(diary)),
        Binding(Store, lambda resolver: resolver.get(A), Scope.TOOL_CALL),
    )
    with registry.open() as context:
        with context.tool_scope() as tools:
            assert tools.get(Store) is tools.get(A) is context.get(A)
        assert diary == []


def test_tool_call_resource_is_refused_outside_a_call() -> None:
    registry = ResourceRegistry.of(Binding(A, lambda _: A(), Scope.TOOL_CALL))
    with (
        registry.open() as context,
        pytest.raises(ResourceError, match="A lives for one tool call"),
    ):
        context.get(A)


@pytest.mark.parametrize("middle", [Scope.SINGLETON, Scope.PROTOTYPE])
def test_singleton_cannot_depend_on_a_tool_call_resource(middle: Scope) -> None:
    registry = ResourceRegistry.of(
        part(A, B),
        part(B, C, scope=middle),
        Binding(C, lambda _: C(), Scope.TOOL_CALL),
    )
    with (
        registry.open() as context,
        context.tool_scope() as tools,
        pytest.raises(ResourceError, match=r"singleton and cannot depend on C.*\(A -> B -> C\)"),
    ):
        tools.get(A)


def test_prototype_may_depend_on_a_tool_call_resource() -> None:
    registry = ResourceRegistry.of(
        Binding(A, lambda resolver: A(resolver.get(B).diary), Scope.PROTOTYPE),
        Binding(B, lambda _: B(), Scope.TOOL_CALL),
    )
    with registry.open() as context, context.tool_scope() as tools:
        assert tools.get(A).diary is tools.get(B).diary


@pytest.mark.behaviour(32)
def test_singletons_built_after_a_mark_can_be_evicted() -> None:
    diary: list[str] = []
    registry = ResourceRegistry.of(
        Binding(A, lambda _: A(diary)),
        Binding(B, lambda _: B(diary, OSError("stuck"))),
        Binding(C, lambda _: C(diary)),
    )
    with registry.open() as context:
        kept = context.get(A)
        mark = context.mark()
        forgotten = context.get(C)
        context.get(B)
        (error,) = context.evict_since(mark)
        assert str(error) == "stuck"
        assert diary == ["B", "C"]
        assert context.built() == (kept,)
        assert context.evict_since(mark) == ()
        assert context.get(C) is not forgotten
    assert diary == ["B", "C", "C", "A"]


@pytest.mark.behaviour(67)
def test_concurrent_threads_share_one_singleton() -> None:
    start = threading.Barrier(8)
    inside: list[int] = []
    got: list[A] = []

    def provide(resolver: ResourceResolver) -> A:
        inside.append(1)
        return A()

    with ResourceRegistry.of(Binding(A, provide)).open() as context:

        def ask() -> None:
            start.wait()
            got.append(context.get(A))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(inside) == 1
    assert len({id(each) for each in got}) == 1
    assert len(got) == 8


def test_resource_protocols_are_checked_by_their_methods() -> None:
    class Saved:
        def snapshot(self) -> object:
            return 1

        def restore(self, token: object) -> None: ...

    assert isinstance(A(), Closeable)
    assert isinstance(Saved(), Snapshotable)
    assert not isinstance(A(), Snapshotable)
