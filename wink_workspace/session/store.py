"""The slices of one session: what is fixed about each, its reducers, and all the values.

Rule 1: an event is all or nothing. Every new slice is computed first; then one assignment
replaces all of them, so neither a reducer that raises nor an interrupt leaves half an event.
Rule 2: slices and reducers go by exact type. An event of a subclass is another event.
Rule 3: values are kept in one immutable map for each kind. The STATE map *is* the snapshot.

It knows neither locks nor subscribers nor other sessions; the session adds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar, cast

from immutables import Map

from wink_workspace.errors import ReducerError, SessionError, UsageError, WinkError

from .events import SliceWritten
from .reducers import Reducer
from .slices import Append, Clear, Replace, ReplaceAt, SliceKind, SliceOp, SliceView

__all__ = ["Slices", "Store"]

S = TypeVar("S")
E = TypeVar("E")

# The values of different slices have nothing in common but `object`. Giving a slice its type
# back with a cast is sound because a view checks every value that it takes in.
Slices: TypeAlias = Map[type[object], SliceView[object]]
Contents: TypeAlias = Map[SliceKind, Slices]


@dataclass(frozen=True, slots=True)
class _Definition:
    """What is fixed about a slice: its kind, and the view that stands for "no values"."""

    kind: SliceKind
    empty: SliceView[object]


@dataclass(frozen=True, slots=True)
class _Registration:
    """A reducer of one slice for one type of event."""

    slice_type: type[object]
    reducer: Reducer[object, object]

    def reduced(self, view: SliceView[object], event: object) -> SliceView[object]:
        """The slice after *event*; whatever goes wrong is a ``ReducerError``."""
        try:
            operation = self.reducer(view, event)
            if type(operation) not in _OPERATIONS:
                _check_operation(operation)
            return operation.apply(view)
        except Exception as error:
            raise self._error(event, error) from error

    def _error(self, event: object, cause: Exception) -> ReducerError:
        name = getattr(self.reducer, "__qualname__", None) or repr(self.reducer)
        text, hint = (cause.message, cause.hint) if isinstance(cause, WinkError) else (cause, "")
        return ReducerError(
            f"reducer {name} of slice {self.slice_type.__name__} failed on "
            f"{type(event).__name__}: {type(cause).__name__}: {text}",
            hint=hint or None,
        )


class Store:
    """Definitions, reducers and values of a session's slices."""

    def __init__(self) -> None:
        self._definitions: dict[type[object], _Definition] = {}
        self._registrations: dict[type[object], tuple[_Registration, ...]] = {}
        self._contents: Contents = Map({kind: Map() for kind in SliceKind})
        self._reducing = False

    def copy(self) -> Store:
        """An independent store that shares the values; costs the number of slices."""
        twin = Store()
        twin._definitions = dict(self._definitions)
        twin._registrations = dict(self._registrations)
        twin._contents = self._contents
        return twin

    def declare(self, slice_type: type[object], kind: SliceKind | None = None) -> None:
        """Fix the slice's kind, STATE for a new one without *kind*.

        Raises:
            SessionError: If it is already of the other kind.
        """
        definition = self._definition(slice_type, kind or SliceKind.STATE)
        if kind is not None and kind is not definition.kind:
            raise SessionError(
                f"slice {slice_type.__name__} is {definition.kind.name}, "
                f"so it cannot also be {kind.name}",
                hint=f"Leave kind out or use SliceKind.{definition.kind.name}; "
                "for the other kind, use another dataclass.",
            )

    def set_initial(self, slice_type: type[S], initial: S) -> None:
        """Fix what the slice's latest value is while it is empty.

        Raises:
            UsageError: If *initial* is not exactly a *slice_type*.
            SessionError: If another initial value was fixed before.
        """
        definition = self._definition(slice_type)
        before = definition.empty.initial
        if before is not None and before != initial:
            raise SessionError(
                f"slice {slice_type.__name__} starts from {before!r}, "
                f"so it cannot also start from {initial!r}",
                hint="Install it with one initial value, or leave it out the second time.",
            )
        empty = cast("SliceView[object]", SliceView(slice_type, initial=initial))
        self._definitions[slice_type] = _Definition(definition.kind, empty)

    def register(self, slice_type: type[S], event_type: type[E], reducer: Reducer[S, E]) -> None:
        """Add a reducer, after those already there; an equal one for the event changes nothing."""
        self.declare(slice_type)
        registration = _Registration(slice_type, cast("Reducer[object, object]", reducer))
        registered = self._registrations.get(event_type, ())
        if registration not in registered:
            self._registrations[event_type] = (*registered, registration)

    def known(self, kind: SliceKind) -> list[type[object]]:
        """The types of all slices of *kind*, with values or without."""
        return [cls for cls, definition in self._definitions.items() if definition.kind is kind]

    def view(self, slice_type: type[S]) -> SliceView[S]:
        """The slice's values now; asking does not make it known."""
        definition = self._definitions.get(slice_type)
        if definition is None:
            return SliceView(slice_type)
        view = self._contents[definition.kind].get(slice_type, definition.empty)
        return view if len(view) else definition.empty  # pyright: ignore[reportReturnType] - see ``Slices``

    @property
    def state(self) -> Slices:
        """All STATE slices, by reference."""
        return self._contents[SliceKind.STATE]

    def set_state(self, state: Slices) -> None:
        """Put *state* in the place of all STATE slices.

        Raises:
            SessionError: If a reducer asks for it.
        """
        self.refuse_reducers()
        self._contents = self._contents.set(SliceKind.STATE, state)

    def reduce(self, event: object, kind: SliceKind | None = None) -> None:
        """Run the reducers for *event*, over slices of *kind* alone if given, all or nothing.

        Raises:
            ReducerError: If a reducer raised or returned no ``SliceOp``; nothing changed.
            SessionError: If a reducer asks for it.
        """
        if self._reducing:
            self.refuse_reducers()
        registrations = self._registrations.get(type(event), ())
        if isinstance(event, SliceWritten):
            registrations = (_Registration(event.slice_type, _write), *registrations)
        if not registrations:
            return
        try:
            self._reducing = True
            contents = self._contents
            for registration in registrations:
                slice_type = registration.slice_type
                definition = self._definitions.get(slice_type) or self._definition(slice_type)
                if kind is not None and definition.kind is not kind:
                    continue
                slices = contents[definition.kind]
                # An empty slice always has the present initial value
                before = slices.get(slice_type, definition.empty)
                before = before if len(before) else definition.empty
                after = registration.reduced(before, event)
                if after is not before:
                    contents = contents.set(definition.kind, slices.set(slice_type, after))
            self._contents = contents
        finally:
            self._reducing = False

    def refuse_reducers(self) -> None:
        """Raise ``SessionError`` inside a reducer.

        A change made by a reducer itself would be lost when the event's own is put in place.
        """
        if self._reducing:
            raise SessionError(
                "a reducer tried to change its own session",
                hint="Return the change as a SliceOp; dispatch further events afterwards.",
            )

    def _definition(
        self, slice_type: type[object], kind: SliceKind = SliceKind.STATE
    ) -> _Definition:
        """What is fixed about the slice; a new one is of *kind*."""
        if slice_type not in self._definitions:
            self._definitions[slice_type] = _Definition(kind, SliceView(slice_type))
        return self._definitions[slice_type]


_OPERATIONS = frozenset((Append, Clear, Replace, ReplaceAt))


def _check_operation(answer: object) -> None:
    if not isinstance(answer, SliceOp):
        raise UsageError(
            f"it returned {type(answer).__name__}, not a slice operation",
            hint="Return Append(...), Replace(...), ReplaceAt(...) or Clear().",
        )


def _write(view: SliceView[object], event: object) -> SliceOp[object]:
    """The reducer that every slice has for what is written to it directly."""
    del view
    return cast("SliceWritten", event).op
