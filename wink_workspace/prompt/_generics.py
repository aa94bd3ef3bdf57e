"""Generic classes that know their type arguments at run time.

``Tool[Params, Result](…)`` needs ``Params`` in ``__init__``, and ``typing`` does not provide it
there: an alias sets ``__orig_class__`` after ``__init__`` has returned. So with ``Specialised``,
``cls[…]`` returns a real subclass that holds the types:

- one cached subclass for a class and types, so ``Tool[A, B] is Tool[A, B]``;
- with a type variable or a forward reference among the types it returns typing's alias, so
  ``def f(tool: Tool[P, R])`` and ``class X(Tool[P, None], Generic[P])`` work as usual;
- instances pickle and copy as ``origin[types]``, since no module has the subclass by name;
- a type checker sees only ``Generic``.

Write ``class Tool(Specialised, Generic[P, R])``, in this order, and read the types with
``type_arguments(type(self), Tool)``. Classes whose types are not needed at run time (results,
examples) are plain ``Generic``; if they are frozen and slotted they need ``strictly_frozen``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ForwardRef, NoReturn, TypeVar, cast, get_args, get_origin
from weakref import WeakValueDictionary

from wink_workspace._module_lock import ModuleLock

C = TypeVar("C", bound=type)

_Key = tuple[type, tuple[object, ...]]

_cache: WeakValueDictionary[_Key, type] = WeakValueDictionary()
_cache_lock = ModuleLock()


class Specialised:
    """Base class, listed before ``Generic``: ``cls[types]`` is a subclass that knows the types."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: object) -> object:
            """The cached subclass for *types*, or typing's alias if one of them is not concrete."""
            alias = super().__class_getitem__(types)  # checks the number of types
            if alias.__parameters__ or any(isinstance(a, ForwardRef) for a in alias.__args__):
                return alias
            return _subclass(cls, alias.__args__)

        def __reduce_ex__(self, protocol: int) -> object:
            """Pickle as origin and types; a class that a module defines pickles as usual."""
            made_of = type(self).__dict__.get("_specialises")
            if made_of is None:
                return super().__reduce_ex__(protocol)
            return _blank, made_of, self.__getstate__()


def type_arguments(cls: type, origin: type) -> tuple[Any, ...] | None:
    """The types that *cls* has for the parameters of *origin*; ``None`` if they are not set.

    Works for ``origin[A, B]``, for subclasses of it, and for subclasses that are generic
    themselves (``class X(Tool[P, None], Generic[P])``, then ``X[A]``). The type ``None`` is
    returned as ``NoneType``.
    """
    return _arguments(cls, origin, None)


def type_name(type_: object) -> str:
    """*type_* as in source code: ``Params``, ``list[int]``, ``None``."""
    if type_ is type(None):
        return "None"
    return type_.__name__ if isinstance(type_, type) else str(type_).replace("typing.", "")


def strictly_frozen(cls: C) -> C:
    """Make a frozen, slotted dataclass refuse every assignment with ``FrozenInstanceError``.

    Put it above ``@dataclass(frozen=True, slots=True)`` on a generic class. On Python 3.11 and
    3.12 the generated ``__setattr__`` raises ``TypeError`` for names that are not fields. One is
    ``__orig_class__``, which typing sets on the result of ``cls[T](…)``; typing ignores only an
    ``AttributeError``, and ``FrozenInstanceError`` is one.
    """

    def refuse(_self: object, name: str, *_value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot change {name!r} of a frozen {cls.__name__}")

    for method in ("__setattr__", "__delattr__"):
        setattr(cls, method, refuse)
    return cls


def _subclass(cls: type, types: tuple[object, ...]) -> type:
    key = (cls, types)
    with _cache_lock.now:
        found = _cache.get(key)
        if found is None:
            listed = ", ".join(type_name(type_) for type_ in types)
            namespace = {
                "__slots__": (),
                "__doc__": cls.__doc__,
                "__module__": cls.__module__,
                "__qualname__": f"{cls.__qualname__}[{listed}]",
                "_specialises": key,
            }
            found = _cache[key] = type(cls)(f"{cls.__name__}[{listed}]", (cls,), namespace)
        return found


def _blank(cls: Any, types: tuple[object, ...]) -> object:
    """An instance of ``cls[types]`` without state; pickles refer to this function."""
    return object.__new__(cls[types])


def _arguments(
    cls: type, origin: type, given: tuple[object, ...] | None
) -> tuple[object, ...] | None:
    """Walk up from *cls*, whose own parameters are *given*, and substitute at every step."""
    if cls is origin:
        return given
    made_of = cast("_Key | None", cls.__dict__.get("_specialises"))
    if made_of is not None:
        return _arguments(made_of[0], origin, made_of[1])
    parameters: tuple[object, ...] = getattr(cls, "__parameters__", ())
    values_by_variable = dict(zip(parameters, given or (), strict=False))
    for base in cls.__dict__.get("__orig_bases__", cls.__bases__):
        above = get_origin(base) or base
        if isinstance(above, type) and issubclass(above, origin):
            return _arguments(above, origin, _filled_in(get_args(base), values_by_variable))
    return None


def _filled_in(
    types: tuple[Any, ...], values_by_variable: Mapping[object, object]
) -> tuple[object, ...] | None:
    """*types* with their variables replaced; ``None`` if it is empty or a variable has no value."""
    together = GenericAlias(tuple, types)
    variables = together.__parameters__
    if not types or not all(variable in values_by_variable for variable in variables):
        return None
    values = tuple(values_by_variable[variable] for variable in variables)
    return get_args(together[values]) if values else types
