"""Slices: the values of one frozen dataclass type, as a persistent vector.

A ``SliceView`` is immutable. Its values are in chunks of 64, and an operation makes a new view that
shares the chunks without a change. So appending, replacing one value and reading the newest cost
about the same for 10 values and for 100,000, an old view takes memory only for its differences, and
the ledger writes only the chunks that changed.

A slice has values of exactly its own type: a subclass has its own slice. So the stored form
(``session_document.py``) is exact, and each value belongs to one slice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Final, Generic, TypeVar

from wink_workspace.errors import UsageError

S = TypeVar("S")

CHUNK_VALUES: Final = 64


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

    __slots__ = ("_initial", "chunks", "slice_type")

    chunks: tuple[tuple[S, ...], ...]
    """The values, in chunks of ``CHUNK_VALUES``; only the last one may have fewer. Read only."""

    def __init__(
        self, slice_type: type[S], values: Iterable[S] = (), *, initial: S | None = None
    ) -> None:
        self.slice_type = slice_type
        self._initial = None if initial is None else self._check_types((initial,))[0]
        self.chunks = _chunked(self._check_types(values)) if values else ()

    @property
    def initial(self) -> S | None:
        """The result of ``latest`` for an empty slice."""
        return self._initial

    def latest(self) -> S | None:
        """The newest value; for an empty slice the initial one, or ``None``. Reads one value."""
        return self.chunks[-1][-1] if self.chunks else self._initial

    def all(self) -> tuple[S, ...]:
        """Every value, oldest first; costs their number. ``reversed`` is lazy."""
        return tuple(chain.from_iterable(self.chunks))

    def where(self, predicate: Callable[[S], bool]) -> tuple[S, ...]:
        """The values for which *predicate* holds, oldest first."""
        return tuple(value for value in self if predicate(value))

    def __len__(self) -> int:
        chunks = self.chunks
        return CHUNK_VALUES * (len(chunks) - 1) + len(chunks[-1]) if chunks else 0

    def __iter__(self) -> Iterator[S]:
        return chain.from_iterable(self.chunks)

    def __reversed__(self) -> Iterator[S]:
        return chain.from_iterable(map(reversed, reversed(self.chunks)))

    def __repr__(self) -> str:
        return f"SliceView({self.slice_type.__name__}, {len(self)} values)"

    def appended(self, *values: S) -> SliceView[S]:
        """A view with *values* appended; costs their number, not the slice's."""
        if not values:
            return self
        added = self._check_types(values)
        *full, last = self.chunks or ((),)
        if len(last) == CHUNK_VALUES:
            return self._with((*self.chunks, *_chunked(added)))
        return self._with((*full, *_chunked(last + added)))

    def replaced_at(self, position: int, value: S) -> SliceView[S]:
        """A view with another value at *position*, counted from 0; costs the same at any length.

        Raises:
            UsageError: If there is no value at *position*.
        """
        if not 0 <= position < len(self):
            raise UsageError(
                f"slice {self.slice_type.__name__} has {len(self)} values, none at {position}",
                hint="Use a position between 0 and the number of values less one.",
            )
        at, n = divmod(position, CHUNK_VALUES)
        chunk = self.chunks[at]
        changed = (*chunk[:n], *self._check_types((value,)), *chunk[n + 1 :])
        return self._with((*self.chunks[:at], changed, *self.chunks[at + 1 :]))

    def replaced(self, values: Iterable[S]) -> SliceView[S]:
        """A view with only *values*."""
        return self._with(_chunked(self._check_types(values)))

    def cleared(self) -> SliceView[S]:
        """A view without values."""
        return self._with(()) if self.chunks else self

    def _with(self, chunks: tuple[tuple[S, ...], ...]) -> SliceView[S]:
        view = object.__new__(type(self))
        view.slice_type, view._initial, view.chunks = self.slice_type, self._initial, chunks
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


def _chunked(values: tuple[S, ...]) -> tuple[tuple[S, ...], ...]:
    if len(values) <= CHUNK_VALUES:
        return (values,) if values else ()
    starts = range(0, len(values), CHUNK_VALUES)
    return tuple(values[start : start + CHUNK_VALUES] for start in starts)


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
