"""Slices: the values of one frozen dataclass type, as a persistent vector.

A ``SliceView`` never changes; an operation makes another one that shares all that did not
differ. It is an ``immutables.Map`` from position to value, so appending, replacing one value
and asking for the newest cost the same at 10 values and at 100,000 (O(log32 n)), and keeping
an old view keeps only what differs.

A slice holds values of exactly its own type: a subclass has a slice of its own. That makes
the stored form (``stored.py``) exact and every value's place unambiguous.
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
    """Working state: comes back with the snapshot."""
    LOG = "log"
    """History: a rollback leaves it alone."""


class SliceView(Generic[S]):
    """A slice's values at one moment, oldest first; it never changes.

    Args:
        slice_type: The frozen dataclass whose instances it holds. Read only.
        values: What it holds.
        initial: What ``latest`` answers while there are no values.

    Raises:
        UsageError: If one of them is not exactly a *slice_type*.
    """

    __slots__ = ("_initial", "_items", "slice_type")

    def __init__(
        self, slice_type: type[S], values: Iterable[S] = (), *, initial: S | None = None
    ) -> None:
        self.slice_type = slice_type
        self._initial = None if initial is None else self._checked((initial,))[0]
        self._items: Map[int, S] = Map(enumerate(self._checked(values))) if values else Map()

    @property
    def initial(self) -> S | None:
        """What ``latest`` answers while there are no values."""
        return self._initial

    def latest(self) -> S | None:
        """The newest value; without any, the initial one, or ``None``. Does not read the rest."""
        n = len(self._items)
        return self._items[n - 1] if n else self._initial

    def all(self) -> tuple[S, ...]:
        """Every value, oldest first; costs their number. ``reversed`` looks back lazily."""
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
        """With *values* added at the end; costs their number, not the slice's."""
        if not values:
            return self
        added = enumerate(self._checked(values), start=len(self._items))
        return self._with(self._items.update(added))

    def replaced_at(self, position: int, value: S) -> SliceView[S]:
        """With another value at *position*, counted from 0; costs the same at any length."""
        if not 0 <= position < len(self):
            raise UsageError(
                f"slice {self.slice_type.__name__} has {len(self)} values, none at {position}",
                hint="Use a position between 0 and the number of values less one.",
            )
        return self._with(self._items.set(position, *self._checked((value,))))

    def replaced(self, values: Iterable[S]) -> SliceView[S]:
        """With *values* and nothing else."""
        return self._with(Map(enumerate(self._checked(values))))

    def cleared(self) -> SliceView[S]:
        """Without values."""
        return self._with(Map()) if len(self) else self

    def _with(self, items: Map[int, S]) -> SliceView[S]:
        view = object.__new__(type(self))
        view.slice_type, view._initial, view._items = self.slice_type, self._initial, items
        return view

    def _checked(self, values: Iterable[S]) -> tuple[S, ...]:
        taken = tuple(values)
        for value in taken:
            if type(value) is not self.slice_type:
                raise UsageError(
                    f"slice {self.slice_type.__name__} holds {self.slice_type.__name__} values, "
                    f"not {type(value).__name__}",
                    hint="Another type, even a subclass, has a slice of its own.",
                )
        return taken


class SliceOp(ABC, Generic[S]):
    """What a reducer wants done to its slice; ``Append()`` of nothing leaves it as it is."""

    # The operations are frozen but not slotted: `Append[Plan](plan)` makes typing set an
    # attribute, and a frozen dataclass with slots=True answers that with a TypeError on 3.11.

    @abstractmethod
    def apply(self, view: SliceView[S]) -> SliceView[S]:
        """The slice afterwards; the very same view when nothing differs.

        Raises:
            UsageError: If a value has not the slice's type, or a position is out of range.
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
    """Put these values in the place of all there are."""

    values: tuple[S, ...]

    def __init__(self, values: Iterable[S]) -> None:
        object.__setattr__(self, "values", tuple(values))

    def apply(self, view: SliceView[S]) -> SliceView[S]:
        """*view* with these values and nothing else."""
        return view.replaced(self.values)


@dataclass(frozen=True)
class ReplaceAt(SliceOp[S]):
    """Put one value in the place of another; ``position`` counts from 0, the oldest."""

    position: int
    value: S

    def apply(self, view: SliceView[S]) -> SliceView[S]:
        """*view* with that one value replaced."""
        return view.replaced_at(self.position, self.value)


@dataclass(frozen=True)
class Clear(SliceOp[S]):
    """Forget every value."""

    def apply(self, view: SliceView[S]) -> SliceView[S]:
        """*view* without values."""
        return view.cleared()


def check_slice_type(candidate: object) -> None:
    """Raise ``UsageError`` unless *candidate* is a frozen dataclass type.

    A mutable one would let a snapshot, which is a reference, change after it was taken. Only the
    surface is checked: a mapping or list in a field must be left alone by whoever made it.
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
