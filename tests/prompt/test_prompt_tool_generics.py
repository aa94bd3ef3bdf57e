"""Generic classes that know their type arguments at run time."""

from __future__ import annotations

import copy
import gc
import pickle
import typing
import weakref
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Generic, TypeVar

import pytest

from wink_workspace.prompt._generics import (
    Specialised,
    strictly_frozen,
    type_arguments,
    type_name,
)

A = TypeVar("A")
B = TypeVar("B")


@strictly_frozen
@dataclass(frozen=True, slots=True)
class Pair(Specialised, Generic[A, B]):
    name: str = "pair"

    def types(self) -> tuple[object, ...] | None:
        return type_arguments(type(self), Pair)


class Plain(Specialised, Generic[A]):
    def __init__(self) -> None:
        self.types_while_built = type_arguments(type(self), Plain)


@strictly_frozen
@dataclass(frozen=True, slots=True)
class Value(Generic[A]):
    content: A


class Concrete(Pair[int, str]):
    __slots__ = ()


class OneLeft(Pair[A, None], Generic[A]):
    __slots__ = ()


class Closed(OneLeft[bytes]):
    __slots__ = ()


class Swapped(Pair[list[B], A], Generic[A, B]):
    __slots__ = ()


class Mark:
    __slots__ = ()


class Mixed(Mark, Pair[int, str]):
    __slots__ = ()


def test_types_are_known_inside_init() -> None:
    assert Plain[int]().types_while_built == (int,)


def test_none_is_returned_as_none_type() -> None:
    assert Pair[int, None]().types() == (int, type(None))


def test_same_types_give_the_same_class() -> None:
    assert Pair[int, str] is Pair[int, str]
    assert Pair[int, str] is not Pair[str, int]


def test_an_instance_is_one_of_the_plain_class_and_its_class_names_the_types() -> None:
    pair = Pair[int, list[str]]("x")

    assert isinstance(pair, Pair)
    assert repr(pair) == "Pair[int, list[str]](name='x')"


@pytest.mark.parametrize(
    ("cls", "types"),
    [
        (Concrete, (int, str)),
        (OneLeft[int], (int, type(None))),
        (Closed, (bytes, type(None))),
        (Swapped[int, str], (list[str], int)),
        (Swapped[int, list[str]], (list[list[str]], int)),
        (Mixed, (int, str)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_types_are_found_through_subclasses(cls: type, types: tuple[object, ...]) -> None:
    assert type_arguments(cls, Pair) == types


@pytest.mark.parametrize("cls", [Pair, OneLeft, Swapped, int], ids=lambda cls: cls.__name__)
def test_missing_types_and_type_variables_give_none(cls: type) -> None:
    assert type_arguments(cls, Pair) is None


def test_type_variables_and_forward_references_are_left_to_typing() -> None:
    later = Pair["Pair[int, str]", None]

    def function(pair: Pair[A, B], later: later) -> Pair[int, str]: ...

    hints = typing.get_type_hints(function, localns={"later": later})

    assert hints["return"] is Pair[int, str]
    assert typing.get_args(hints["pair"]) == (A, B)
    assert typing.get_args(hints["later"]) == (Pair[int, str], type(None))


def test_a_class_specialised_with_type_variables_still_makes_instances() -> None:
    assert Pair[A, None]().types() is None


def test_a_class_accepts_as_many_types_as_it_has_parameters() -> None:
    with pytest.raises(TypeError, match=r"[Tt]oo few"):
        Pair[int]
    with pytest.raises(TypeError, match="not a generic class"):
        Pair[int, str][int]


@pytest.mark.parametrize(
    "instance", [Pair[int, list[str]]("x"), Concrete("x"), OneLeft[int]("x"), Pair("x")], ids=repr
)
def test_pickles_and_copies_are_equal_and_know_their_types(instance: Pair) -> None:
    for copied in (
        pickle.loads(pickle.dumps(instance)),
        copy.copy(instance),
        copy.deepcopy(instance),
        replace(instance),
    ):
        assert copied == instance
        assert copied.types() == instance.types()


def test_an_instance_with_a_dict_keeps_it_when_pickled() -> None:
    plain = Plain[int]()
    plain.extra = 1

    assert pickle.loads(pickle.dumps(plain)).extra == 1


def test_unused_types_are_garbage_collected() -> None:
    class Local: ...

    Plain[Local]()
    ghost = weakref.ref(Plain[Local])
    for cleanup in typing._cleanups:  # typing keeps the aliases it made last
        cleanup()
    gc.collect()

    assert ghost() is None


@pytest.mark.parametrize("instance", [Value[int](1), Pair[int, str](), Pair()], ids=repr)
def test_nothing_can_be_set_on_or_deleted_from_a_frozen_instance(instance: object) -> None:
    for name in ("content", "name", "anything"):
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(instance, name, 2)
        with pytest.raises(FrozenInstanceError, match=name):
            delattr(instance, name)


def test_a_plain_generic_value_equals_one_without_written_types() -> None:
    assert Value[int](1) == Value(1)


@pytest.mark.parametrize(
    ("type_", "name"),
    [
        (int, "int"),
        (type(None), "None"),
        (list[int], "list[int]"),
        (typing.Any, "Any"),
        (Pair[int, None], "Pair[int, None]"),
    ],
)
def test_types_are_named_as_in_source_code(type_: object, name: str) -> None:
    assert type_name(type_) == name
