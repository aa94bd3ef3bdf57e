"""The slices of one session: their definitions, reducers and values.

Rule 1: an event is applied all or nothing. Every new slice is computed first; then one assignment
replaces all of them. So a reducer that raises, or an interrupt, cannot leave half an event.
Rule 2: slices and reducers are found by exact type. An event of a subclass is another event.
Rule 3: values are in one immutable map for each kind. The STATE map *is* the snapshot.

The session adds locks, subscribers and children; this module has none of them.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, TypeVar, cast

from immutables import Map

from wink_workspace.errors import ReducerError, SessionError, UsageError, WinkError

from .events import SliceWritten
from .reducers import Reducer
from .slices import Append, Clear, Replace, ReplaceAt, SliceKind, SliceOp, SliceView

S = TypeVar("S")
E = TypeVar("E")

# Values of different slices have only `object` in common. Casting a slice to its type is safe
# because a view checks the type of every value.
Slices: TypeAlias = Map[type[object], SliceView[object]]
Contents: TypeAlias = Map[SliceKind, Slices]


class _Definition(NamedTuple):
    """The constant part of a slice: its kind, and its view without values."""

    kind: SliceKind
    empty: SliceView[object]


class _Registration(NamedTuple):
    """A reducer of one slice for one type of event."""

    slice_type: type[object]
    reducer: Reducer[object, object]

    def apply(self, view: SliceView[object], event: object) -> SliceView[object]:
        """The slice after *event*; raises any exception as a ``ReducerError``."""
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
        copy = Store()
        copy._definitions = dict(self._definitions)
        copy._registrations = dict(self._registrations)
        copy._contents = self._contents
        return copy

    def declare(self, slice_type: type[object], kind: SliceKind | None = None) -> None:
        """Set the slice's kind, STATE for a new one without *kind*.

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
        """Set the slice's latest value for when it is empty.

        Raises:
            UsageError: If *initial* is not exactly a *slice_type*.
            SessionError: If another initial value was set before.
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
        """Append a reducer, unless an equal one is registered for the event."""
        self.declare(slice_type)
        registration = _Registration(slice_type, cast("Reducer[object, object]", reducer))
        registered = self._registrations.get(event_type, ())
        if registration not in registered:
            self._registrations[event_type] = (*registered, registration)

    def known(self, kind: SliceKind) -> list[type[object]]:
        """The types of all slices of *kind*, empty ones included."""
        return [cls for cls, definition in self._definitions.items() if definition.kind is kind]

    def view(self, slice_type: type[S]) -> SliceView[S]:
        """The slice's present values; reading does not make it known."""
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
        """Replace all STATE slices.

        Raises:
            SessionError: If a reducer calls this.
        """
        self.refuse_reducers()
        self._contents = self._contents.set(SliceKind.STATE, state)

    def reduce(self, event: object, kind: SliceKind | None = None) -> None:
        """Run the reducers for *event*, only over slices of *kind* if given, all or nothing.

        Raises:
            ReducerError: If a reducer raised or did not return a ``SliceOp``; nothing changed.
            SessionError: If a reducer calls this.
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
                after = registration.apply(before, event)
                if after is not before:
                    contents = contents.set(definition.kind, slices.set(slice_type, after))
            self._contents = contents
        finally:
            self._reducing = False

    def refuse_reducers(self) -> None:
        """Raise ``SessionError`` inside a reducer.

        The changes of the event would overwrite a change that a reducer makes itself.
        """
        if self._reducing:
            raise SessionError(
                "a reducer tried to change its own session",
                hint="Return the change as a SliceOp; dispatch further events afterwards.",
            )

    def _definition(
        self, slice_type: type[object], kind: SliceKind = SliceKind.STATE
    ) -> _Definition:
        """The slice's definition; a new slice is of *kind*."""
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
    """The reducer of every slice for direct writes."""
    del view
    return cast("SliceWritten", event).op
