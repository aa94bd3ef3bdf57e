"""Generic classes that know at run time which types they were given.

``Tool[Params, Result](…)`` must know ``Params`` while it is being built, and ``typing``
cannot tell it: an alias sets ``__orig_class__`` after ``__init__`` has returned. So
``Specialised`` lets ``cls[…]`` return a real subclass that carries the types:

- one subclass per class and types, cached, so ``Tool[A, B] is Tool[A, B]``;
- with a type variable or a forward reference among the types it is typing's alias, so
  ``def f(tool: Tool[P, R])`` and ``class X(Tool[P, None], Generic[P])`` mean what they say;
- instances pickle and copy as ``origin[types]``, since no module has the subclass by name;
- a type checker sees nothing of this, just ``Generic``.

Write ``class Tool(Specialised, Generic[P, R])``, in this order, and ask with
``type_arguments(type(self), Tool)``. Values whose types nobody asks for at run time
(results, examples) stay plain ``Generic``; when frozen and slotted they need
``firmly_frozen``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ForwardRef, NoReturn, TypeVar, cast, get_args, get_origin
from weakref import WeakValueDictionary

__all__ = ["Specialised", "firmly_frozen", "type_arguments", "type_name"]

C = TypeVar("C", bound=type)

_Key = tuple[type, tuple[object, ...]]

_cache: WeakValueDictionary[_Key, type] = WeakValueDictionary()
_cache_lock = threading.Lock()


class Specialised:
    """Base, before ``Generic``, of a class whose ``cls[types]`` is a subclass that knows them."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: object) -> object:
            """The cached subclass for *types*, or typing's alias while they are still open."""
            alias = super().__class_getitem__(types)  # checks the number of types
            if alias.__parameters__ or any(isinstance(a, ForwardRef) for a in alias.__args__):
                return alias
            return _subclass(cls, alias.__args__)

        def __reduce_ex__(self, protocol: int) -> object:
            """Pickle by origin and types; a class that a module defines needs no help."""
            made_of = type(self).__dict__.get("_specialises")
            if made_of is None:
                return super().__reduce_ex__(protocol)
            return _blank, made_of, self.__getstate__()


def type_arguments(cls: type, origin: type) -> tuple[Any, ...] | None:
    """The types that *cls* has for the parameters of *origin*; ``None`` while they are open.

    Works for ``origin[A, B]``, for subclasses of it, and for subclasses that are generic
    themselves (``class X(Tool[P, None], Generic[P])``, then ``X[A]``). ``None`` the value
    is given as ``NoneType``.
    """
    return _arguments(cls, origin, None)


def type_name(type_: object) -> str:
    """How a person would write *type_*: ``Params``, ``list[int]``, ``None``."""
    if type_ is type(None):
        return "None"
    return type_.__name__ if isinstance(type_, type) else str(type_).replace("typing.", "")


def firmly_frozen(cls: C) -> C:
    """Make a frozen, slotted dataclass refuse every assignment with ``FrozenInstanceError``.

    Decorate above ``@dataclass(frozen=True, slots=True)`` when the class is generic. On
    Python 3.11 and 3.12 the ``__setattr__`` generated there raises ``TypeError`` for names
    that are no fields, and so for the ``__orig_class__`` that typing tries to set on the
    result of ``cls[T](…)``; typing expects an ``AttributeError``, which this one is.
    """

    def refuse(_self: object, name: str, *_value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot change {name!r} of a frozen {cls.__name__}")

    for method in ("__setattr__", "__delattr__"):
        setattr(cls, method, refuse)
    return cls


def _subclass(cls: type, types: tuple[object, ...]) -> type:
    key = (cls, types)
    with _cache_lock:
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
    """An instance of ``cls[types]`` before its state is set; what pickles refer to."""
    return object.__new__(cls[types])


def _arguments(
    cls: type, origin: type, given: tuple[object, ...] | None
) -> tuple[object, ...] | None:
    """Walk up from *cls*, whose own parameters are *given*, and translate at every step."""
    if cls is origin:
        return given
    made_of = cast("_Key | None", cls.__dict__.get("_specialises"))
    if made_of is not None:
        return _arguments(made_of[0], origin, made_of[1])
    parameters: tuple[object, ...] = getattr(cls, "__parameters__", ())
    meaning = dict(zip(parameters, given or (), strict=False))
    for base in cls.__dict__.get("__orig_bases__", cls.__bases__):
        above = get_origin(base) or base
        if isinstance(above, type) and issubclass(above, origin):
            return _arguments(above, origin, _filled_in(get_args(base), meaning))
    return None


def _filled_in(
    types: tuple[Any, ...], meaning: Mapping[object, object]
) -> tuple[object, ...] | None:
    """*types* with their variables replaced; ``None`` when there is nothing, or one stays open."""
    together = GenericAlias(tuple, types)
    variables = together.__parameters__
    if not types or not all(variable in meaning for variable in variables):
        return None
    values = tuple(meaning[variable] for variable in variables)
    return get_args(together[values]) if values else types
