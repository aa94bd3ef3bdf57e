"""Reducers: pure functions from a slice and an event to an operation on that slice.

A reducer gets a view of the slice and one event, and returns a ``SliceOp``. It must not change
anything itself: the session applies the operation, or none if any reducer raises.

Equal reducers are registered once, because sections install theirs repeatedly. So the factories
return equal objects for the same key function. A lambda is a new function each time it is
evaluated: use a named key function where it may be registered twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import getattr_static
from typing import Generic, TypeAlias, TypeVar, cast

from wink_workspace.errors import SessionError, UsageError

from .slices import Append, Replace, ReplaceAt, SliceOp, SliceView

S = TypeVar("S")
E = TypeVar("E")
R = TypeVar("R")

Reducer: TypeAlias = Callable[[SliceView[S], E], SliceOp[S]]

_MARK = "__wink_reducer_on__"


def append_all(view: SliceView[S], event: S) -> SliceOp[S]:
    """Keep every event."""
    del view
    return Append(event)


def replace_latest(view: SliceView[S], event: S) -> SliceOp[S]:
    """Keep only the newest event."""
    del view
    return Replace((event,))


def upsert_by(key: Callable[[S], object]) -> Reducer[S, S]:
    """Keep the newest event of each key, at the position where the key first appeared.

    Calls ``key`` once for each value newer than the replaced one.
    """
    return _UpsertBy(key)


def replace_latest_by(key: Callable[[S], object]) -> Reducer[S, S]:
    """Keep the newest event of each key, in order of arrival; ``latest`` is the last event.

    Costs the length of the slice; prefer ``upsert_by`` if the order does not matter.
    """
    return _ReplaceLatestBy(key)


@dataclass(frozen=True)
class _UpsertBy(Generic[S]):
    key: Callable[[S], object]

    def __call__(self, view: SliceView[S], event: S) -> SliceOp[S]:
        wanted = self.key(event)
        for n_newer, value in enumerate(reversed(view)):
            if self.key(value) == wanted:
                return ReplaceAt(len(view) - 1 - n_newer, event)
        return Append(event)


@dataclass(frozen=True)
class _ReplaceLatestBy(Generic[S]):
    key: Callable[[S], object]

    def __call__(self, view: SliceView[S], event: S) -> SliceOp[S]:
        wanted = self.key(event)
        return Replace((*view.where(lambda value: self.key(value) != wanted), event))


def reducer(*, on: type[E]) -> Callable[[Callable[[S, E], R]], Callable[[S, E], R]]:
    """Mark a method of a slice's dataclass as its reducer for events of exactly type *on*.

    The method gets the latest value as ``self`` and the event. It returns a ``SliceOp``, or a new
    value that replaces all others. It may be marked for several events.
    ``session.install(cls)`` registers the marked methods.
    """

    def mark(method: Callable[[S, E], R]) -> Callable[[S, E], R]:
        setattr(method, _MARK, (*_marks(method), on))
        return method

    return mark


@dataclass(frozen=True)
class _MethodReducer(Generic[S, E]):
    """A marked method as a reducer; the slice checks the type of its result."""

    method: Callable[[S, E], object]

    def __call__(self, view: SliceView[S], event: E) -> SliceOp[S]:
        current = view.latest()
        if current is None:
            raise SessionError(
                f"slice {view.slice_type.__name__} has no value to start from",
                hint="Pass initial= to install, or seed the slice first.",
            )
        result = self.method(current, event)
        if isinstance(result, SliceOp):
            return cast("SliceOp[S]", result)
        return Replace((cast("S", result),))

    def __repr__(self) -> str:
        return self.method.__qualname__


def method_reducers(cls: type[S]) -> list[tuple[type[object], Reducer[S, object]]]:
    """The marked methods of *cls* with their event types, in the order of definition, bases first.

    An override replaces the method of the base, whether it is marked or not.

    Raises:
        UsageError: If there are none.
    """
    names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
    methods = [getattr_static(cls, name) for name in names]
    found = [(on, _MethodReducer[S, object](method)) for method in methods for on in _marks(method)]
    if not found:
        raise UsageError(
            f"{cls.__name__} has no method marked as a reducer",
            hint="Decorate its methods with @reducer(on=EventType).",
        )
    return found


def _marks(method: object) -> tuple[type[object], ...]:
    return getattr(method, _MARK, ())
