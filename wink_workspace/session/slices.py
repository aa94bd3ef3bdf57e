"""Slices: the values of one frozen dataclass type, as a persistent vector.

A ``SliceView`` is immutable; an operation makes a new view that shares unchanged values. It is an
``immutables.Map`` from position to value. So appending, replacing one value and reading the newest
cost about the same for 10 values and for 100,000 (O(log32 n)), and an old view takes memory only
for its differences.

A slice has values of exactly its own type: a subclass has its own slice. So the stored form
(``stored.py``) is exact, and each value belongs to one slice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from immutables import Map

from wink_workspace.errors import UsageError

__all__ = [
    "Append",
    "Clear",
    "Replace",
    "ReplaceAt",
    "SliceKind",
    "SliceOp",
    "SliceView",
    "check_slice_type",
]

S = TypeVar("S")


class SliceKind(StrEnum):
    """What a rollback does to a slice."""

    STATE = "state"
    """Working state: a rollback restores it."""
    LOG = "log"
    """History: a rollback does not change it."""


class SliceView(Generic[S]):
    """A slice's values at one moment, oldest first; immutable.

    Args:
        slice_type: The frozen dataclass of the values. Read only.
        values: The values.
        initial: The result of ``latest`` for an empty slice.

    Raises:
        UsageError: If a value is not exactly a *slice_type*.
    """

    __slots__ = ("_initial", "_items", "slice_type")

    def __init__(
        self, slice_type: type[S], values: Iterable[S] = (), *, initial: S | None = None
    ) -> None:
        self.slice_type = slice_type
        self._initial = None if initial is None else self._check_types((initial,))[0]
        self._items: Map[int, S] = Map(enumerate(self._check_types(values))) if values else Map()

    @property
    def initial(self) -> S | None:
        """The result of ``latest`` for an empty slice."""
        return self._initial

    def latest(self) -> S | None:
        """The newest value; for an empty slice the initial one, or ``None``. Reads one value."""
        n = len(self._items)
        return self._items[n - 1] if n else self._initial

    def all(self) -> tuple[S, ...]:
        """Every value, oldest first; costs their number. ``reversed`` is lazy."""
        return tuple(map(self._items.__getitem__, range(len(self._items))))

    def where(self, predicate: Callable[[S], bool]) -> tuple[S, ...]:
        """The values for which *predicate* holds, oldest first."""
        return tuple(value for value in self if predicate(value))

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[S]:
        return (self._items[position] for position in range(len(self._items)))

    def __reversed__(self) -> Iterator[S]:
        return (self._items[position] for position in reversed(range(len(self._items))))

    def __repr__(self) -> str:
        return f"SliceView({self.slice_type.__name__}, {len(self)} values)"

    def appended(self, *values: S) -> SliceView[S]:
        """A view with *values* appended; costs their number, not the slice's."""
        if not values:
            return self
        added = enumerate(self._check_types(values), start=len(self._items))
        return self._with(self._items.update(added))

    def replaced_at(self, position: int, value: S) -> SliceView[S]:
        """A view with another value at *position*, counted from 0; costs the same at any length."""
        if not 0 <= position < len(self):
            raise UsageError(
                f"slice {self.slice_type.__name__} has {len(self)} values, none at {position}",
                hint="Use a position between 0 and the number of values less one.",
            )
        return self._with(self._items.set(position, *self._check_types((value,))))

    def replaced(self, values: Iterable[S]) -> SliceView[S]:
        """A view with only *values*."""
        return self._with(Map(enumerate(self._check_types(values))))

    def cleared(self) -> SliceView[S]:
        """A view without values."""
        return self._with(Map()) if len(self) else self

    def _with(self, items: Map[int, S]) -> SliceView[S]:
        view = object.__new__(type(self))
        view.slice_type, view._initial, view._items = self.slice_type, self._initial, items
        return view

    def _check_types(self, values: Iterable[S]) -> tuple[S, ...]:
        taken = tuple(values)
        for value in taken:
            if type(value) is not self.slice_type:
                raise UsageError(
                    f"slice {self.slice_type.__name__} holds {self.slice_type.__name__} values, "
                    f"not {type(value).__name__}",
                    hint="Another type, even a subclass, has its own slice.",
                )
        return taken


class SliceOp(ABC, Generic[S]):
    """A change of a slice, returned by its reducer; ``Append()`` without values changes nothing."""

    # The operations are frozen but have no slots: `Append[Plan](plan)` makes typing set an
    # attribute, which raises TypeError on 3.11 for a frozen dataclass with slots.

    @abstractmethod
    def apply(self, view: SliceView[S]) -> SliceView[S]:
        """The changed view; *view* itself if nothing differs.

        Raises:
            UsageError: If a value does not have the slice's type, or a position is out of range.
        """


@dataclass(frozen=True, init=False)
class Append(SliceOp[S]):
    """Add values at the end, in the order given."""

    values: tuple[S, ...]

    def __init__(self, *values: S) -> None:
        object.__setattr__(self, "values", values)

    def apply(self, view: SliceView[S]) -> SliceView[S]:
        """*view* with the values added."""
        return view.appended(*self.values)


@dataclass(frozen=True, init=False)
class Replace(SliceOp[S]):
    """Replace all values."""

    values: tuple[S, ...]

    def __init__(self, values: Iterable[S]) -> None:
        object.__setattr__(self, "values", tuple(values))

    def apply(self, view: SliceView[S]) -> SliceView[S]:
        """*view* with only these values."""
        return view.replaced(self.values)


@dataclass(frozen=True)
class ReplaceAt(SliceOp[S]):
    """Replace one value; ``position`` counts from 0, the oldest."""

    position: int
    value: S

    def apply(self, view: SliceView[S]) -> SliceView[S]:
        """*view* with that one value replaced."""
        return view.replaced_at(self.position, self.value)


@dataclass(frozen=True)
class Clear(SliceOp[S]):
    """Remove every value."""

    def apply(self, view: SliceView[S]) -> SliceView[S]:
        """*view* without values."""
        return view.cleared()


def check_slice_type(candidate: object) -> None:
    """Raise ``UsageError`` unless *candidate* is a frozen dataclass type.

    A snapshot is a reference, so a mutable value could change after it was taken. Only the class is
    checked: the program must not change a mapping or list in a field.
    """
    params = getattr(candidate, "__dataclass_params__", None)
    if not isinstance(candidate, type) or params is None:
        raise UsageError(
            f"{candidate!r} is not a dataclass, so it cannot be a slice",
            hint="Use a class decorated with @dataclass(frozen=True).",
        )
    if not params.frozen:
        raise UsageError(
            f"{candidate.__name__} is not frozen, so it cannot be a slice",
            hint="Decorate it with @dataclass(frozen=True); reducers return new values.",
        )
