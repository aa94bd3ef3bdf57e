"""Run-time type checks: whether a value is of a type, and whether one type is a subtype.

A type that cannot be checked at run time (a protocol, a type variable, a forward reference) is
accepted: a type checker checks those, and a wrong refusal would stop working code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Never,
    NoReturn,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

from ._generics import type_name

_MATCHES_ALL: tuple[object, ...] = (Any, Never, NoReturn)


def is_params_type(type_: object) -> bool:
    """Whether it may be a tool's params: a dataclass, or ``NoneType`` for no parameters."""
    return type_ is NoneType or (isinstance(type_, type) and is_dataclass(type_))


def is_result_type(type_: object) -> bool:
    """Whether it may be a result: a dataclass, mapping, sequence, ``str``, ``None``, or a union."""
    type_ = _plain(type_)
    if _is_union(type_):
        return all(is_result_type(arm) for arm in get_args(type_))
    class_ = get_origin(type_) or type_
    if not isinstance(class_, type):
        return False
    return (
        class_ is NoneType
        or is_dataclass(class_)
        or (issubclass(class_, Mapping | Sequence) and not issubclass(class_, bytes | bytearray))
    )


def mismatch(value: object, type_: object, *, what: str = "the value") -> str | None:
    """Why *value* is not a *type_*, as a clause; ``None`` if it is one.

    Checks the items of mappings and sequences, not the fields of dataclasses. An ``int`` is a
    ``float``, and a string is not a sequence of strings.
    """
    type_ = _plain(type_)
    if _is_union(type_):
        fits = any(mismatch(value, arm) is None for arm in get_args(type_))
    elif get_origin(type_) is Literal:
        fits = value in get_args(type_)
    else:
        fits = _is_instance(value, get_origin(type_) or type_)
    if not fits:
        return f"{what} is {_described(value)}, not {type_name(type_)}"
    return None if _is_union(type_) else _mismatch_inside(value, get_args(type_), what)


def assignable(narrow: object, wide: object) -> bool:
    """Whether every *narrow* is also a *wide*, as far as can be checked."""
    narrow, wide = _plain(narrow), _plain(wide)
    if _is_union(narrow):
        return all(assignable(arm, wide) for arm in get_args(narrow))
    if _is_union(wide):
        return any(assignable(narrow, arm) for arm in get_args(wide))
    if narrow == wide or _matches_all(narrow) or _matches_all(wide):
        return True
    if not _is_subclass(get_origin(narrow) or narrow, get_origin(wide) or wide):
        return False
    return not get_args(wide) or all(
        assignable(*pair) for pair in zip(_items(narrow), _items(wide), strict=False)
    )


def _plain(type_: object) -> object:
    """*type_* without ``Annotated``, ``NewType`` and ``type`` aliases around it."""
    if get_origin(type_) is Annotated:
        return _plain(get_args(type_)[0])
    meant = getattr(type_, "__supertype__", None) or getattr(type_, "__value__", None)
    return type_ if meant is None or isinstance(type_, type) else _plain(meant)


def _is_union(type_: object) -> bool:
    return get_origin(type_) in (Union, UnionType)


def _matches_all(type_: object) -> bool:
    """Whether *type_* matches every other; ``Never`` does, as it has no values."""
    return type_ in _MATCHES_ALL or isinstance(type_, TypeVar)


def _items(type_: object) -> tuple[object, ...]:
    return tuple(arg for arg in get_args(type_) if arg is not ...)


def _is_subclass(narrow: object, wide: object) -> bool:
    if not (isinstance(narrow, type) and isinstance(wide, type)):
        return False
    try:
        return issubclass(narrow, wide)
    except TypeError:  # a protocol or TypedDict, which issubclass() does not support
        return True


def _is_instance(value: object, class_: object) -> bool:
    if not isinstance(class_, type):
        return True
    if class_ is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if isinstance(value, str | bytes) and issubclass(class_, Iterable):
        return isinstance(value, class_) and issubclass(class_, str | bytes)
    try:
        return isinstance(value, class_)
    except TypeError:  # as above
        return True


def _mismatch_inside(value: object, items: tuple[object, ...], what: str) -> str | None:
    if not items:
        return None
    if isinstance(value, Mapping):
        key_type, item_type = items if len(items) == 2 else (Any, Any)
        entries = cast("Mapping[object, object]", value).items()
        return _first(
            mismatch(part, type_, what=f"{named} of {what}")
            for key, item in entries
            for part, type_, named in ((key, key_type, "a key"), (item, item_type, f"{key!r}"))
        )
    if isinstance(value, tuple) and items[-1] is not ...:
        return _mismatch_in_tuple(cast("tuple[object, ...]", value), items, what)
    if isinstance(value, Collection):
        return _first(
            mismatch(item, items[0], what=f"item {n} of {what}")
            for n, item in enumerate(cast("Collection[object]", value))
        )
    return None


def _mismatch_in_tuple(row: tuple[object, ...], types: tuple[object, ...], what: str) -> str | None:
    if len(row) != len(types):
        return f"{what} has {len(row)} items, not {len(types)}"
    return _first(
        mismatch(item, type_, what=f"item {n} of {what}")
        for n, (item, type_) in enumerate(zip(row, types, strict=True))
    )


def _first(problems: Iterable[str | None]) -> str | None:
    return next((problem for problem in problems if problem is not None), None)


def _described(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"
