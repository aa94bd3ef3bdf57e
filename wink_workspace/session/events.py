"""The telemetry events, and the event of a direct write to a slice.

An event is a frozen dataclass in the past tense. The telemetry events (``TELEMETRY_EVENTS``)
are LOG slices of every session from the start, so a rollback never erases them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from inspect import getattr_static
from typing import Generic, TypeAlias, TypeVar, cast

from wink_workspace.clock import TokenUsage
from wink_workspace.errors import SessionError, UsageError

from .slices import Append, Replace, ReplaceAt, SliceOp, SliceView

__all__ = [
    "TELEMETRY_EVENTS",
    "ExternalChange",
    "Outcome",
    "PolicyVerdict",
    "PromptExecuted",
    "PromptRendered",
    "Reducer",
    "SliceWritten",
    "ToolInvoked",
    "WorkspaceRestored",
    "append_all",
    "method_reducers",
    "reducer",
    "replace_latest",
    "replace_latest_by",
    "upsert_by",
]


class Outcome(StrEnum):
    """The outcome of a call."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    UNKNOWN = "unknown"
    """The call failed, or a crash interrupted it, when an effect outside may have begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVerdict:
    """One policy's decision about one call; ``reason`` is empty if it gave none."""

    policy: str
    allowed: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInvoked:
    """The record of one tool call, failed or not; exactly one per call.

    ``params`` is the parsed object, or the raw arguments if parsing failed. ``rendered_text`` is
    the rendered value only (``""`` for ``None``), ``text`` what the provider saw. ``error`` is the
    traceback of an exception in the call. ``decisions`` are those of the policies, in the order in
    which they were asked. ``depth`` is 0 for a call of the model, and 1 more for
    each call around it. ``notes`` list discarded files that a rollback could not keep, and
    ``outside_effects`` what neither a rollback nor an undo takes back.
    """

    call_id: str
    tool: str
    prompt: str
    params: object
    success: bool
    message: str
    value: object
    rendered_text: str
    text: str
    outcome: Outcome
    started_at: datetime
    duration_s: float
    decisions: tuple[PolicyVerdict, ...] = ()
    error: str | None = None
    depth: int = 0
    notes: tuple[str, ...] = ()
    outside_effects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRendered:
    """A prompt was rendered; ``tools`` are the names of its tools, in order."""

    prompt: str
    text: str
    tools: tuple[str, ...]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptExecuted:
    """A run ended with an answer; ``output`` is its parsed form, ``None`` for plain text."""

    prompt: str
    text: str
    output: object
    usage: TokenUsage
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalChange:
    """``paths`` were edited outside of any call, between two calls."""

    paths: tuple[str, ...]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceRestored:
    """An undo, redo or restore changed ``paths``; ``reason`` says which and why."""

    reason: str
    paths: tuple[str, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class SliceWritten:
    """The slice ``slice_type`` was written by ``seed``, ``append`` or ``clear``, with ``op``."""

    slice_type: type[object]
    op: SliceOp[object]


TELEMETRY_EVENTS: tuple[type[object], ...] = (
    ToolInvoked,
    PromptRendered,
    PromptExecuted,
    ExternalChange,
    WorkspaceRestored,
)


# --------------------------------------------------------------------------------------- reducers

# Reducers: pure functions from a slice and an event to an operation on that slice.
#
# A reducer gets a view of the slice and one event, and returns a ``SliceOp``. It must not change
# anything itself: the session applies the operation, or none if any reducer raises.
#
# Equal reducers are registered once, because sections install theirs repeatedly. So the factories
# return equal objects for the same key function. A lambda is a new function each time it is
# evaluated: use a named key function where it may be registered twice.


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
