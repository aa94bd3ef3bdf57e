"""A registry holds one binding for each type."""

from __future__ import annotations

import pytest

from wink_workspace.errors import DuplicateBindingError
from wink_workspace.resources import Binding, ResourceRegistry, Scope


class A: ...


class B: ...


class C: ...


def bind(type_: type, scope: Scope = Scope.SINGLETON) -> Binding:
    return Binding(type_, lambda _: type_(), scope)


def test_registry_lists_its_bindings_in_order() -> None:
    one, two = bind(A), bind(B)
    registry = ResourceRegistry.of(one, two)
    assert A in registry
    assert C not in registry
    assert list(registry) == [one, two]
    assert len(registry) == 2


def test_type_that_is_bound_twice_is_refused() -> None:
    with pytest.raises(DuplicateBindingError, match="A is bound twice"):
        ResourceRegistry.of(bind(A), bind(B), bind(A))


def test_same_binding_may_be_given_twice() -> None:
    one = bind(A)
    assert list(ResourceRegistry.of(one, one)) == [one]


def test_merged_registry_has_the_bindings_of_both_and_changes_neither() -> None:
    shared, one, two = bind(A), bind(B), bind(C)
    left, right = ResourceRegistry.of(shared, one), ResourceRegistry.of(shared, two)
    assert set(left.merge(right)) == {shared, one, two}
    assert len(left) == len(right) == 2


def test_conflict_names_every_type_bound_differently() -> None:
    left = ResourceRegistry.of(bind(A), bind(B))
    with pytest.raises(DuplicateBindingError, match="both registries bind A, B"):
        left.merge(ResourceRegistry.of(bind(A), bind(B), bind(C)))


@pytest.mark.parametrize("rule", ["keep", "replace"])
def test_conflict_is_resolved_by_the_given_rule(rule: str) -> None:
    mine, other, more = bind(A), bind(A, Scope.TOOL_CALL), bind(B)
    merged = ResourceRegistry.of(mine).merge(ResourceRegistry.of(other, more), on_conflict=rule)
    assert set(merged) == {mine if rule == "keep" else other, more}


def test_binding_may_be_built_with_an_explicit_type() -> None:
    binding = Binding[A](A, lambda _: A())
    with ResourceRegistry.of(binding).open() as context:
        assert isinstance(context.get(A), A)
