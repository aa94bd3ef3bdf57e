"""The session: typed immutable state that only events change.

Rule 1: code that makes more than one change, or must not be interleaved, holds ``lock``. A parent
and its children share the lock, because a snapshot of the parent includes the children. So a thread
that uses a child waits for a call on the parent.
Rule 2: a snapshot is a reference to an immutable map. Taking or restoring it costs the same for any
content of the slices.
Rule 3: snapshots do not include registrations and subscriptions.

``store.py`` turns an event into new slices, all or nothing.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, cast
from uuid import uuid4

from immutables import Map

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import SnapshotError

from .events import TELEMETRY_EVENTS, SliceWritten
from .reducers import Reducer, append_all, method_reducers
from .session_document import dump_slices, parse_slices
from .slices import Append, Clear, Replace, SliceKind, SliceOp, SliceView, check_slice_type
from .store import Slices, Store

# ---------------------------------------------------------------------------------------- locking


class SessionLock:
    """Two re-entrant locks: one keeps code out during a call, one is for the code inside.

    Attributes:
        outside: Held for the whole length of a call.
        inside: Held during each change by the code of that call, which may have several threads.
        is_inside: Whether the code that asks is part of the call; the owner of the calls sets it.
    """

    def __init__(self) -> None:
        self.outside = threading.RLock()
        self.inside = threading.RLock()
        self.is_inside: Callable[[], bool] = lambda: False

    def now(self) -> threading.RLock:
        """The lock for a change by the code that asks."""
        return self.inside if self.is_inside() else self.outside


# ------------------------------------------------------------------------------------- dispatcher

# The dispatcher: passes each event to the reducers, then to the subscribers.
#
# Rule 1: reducers run first. If one raises, the error propagates and no subscriber is notified.
# Rule 2: a subscriber cannot fail the dispatch. If one raises, the error is logged and the others
# are still notified; an exception that ends the program, such as Ctrl-C, is raised after that.
# Rule 3: all subscribers receive the events in the same order. An event dispatched by a subscriber
# is reduced at once, and delivered after all have received the present one. So two subscribers that
# answer each other without end never return.
# Rule 4: subscribers run on the thread that dispatches, under the lock. A subscriber that waits for
# another thread that uses the same session waits forever.


_log = logging.getLogger(__name__)


class Dispatcher:
    """Synchronous delivery of events, in order.

    Args:
        reduce: Called with each event before any subscriber; a session passes its own.
        locks: Held while an event is reduced and delivered; a session passes its own.

    Attributes:
        subscriptions: The subscribers, beside reducers; only ``subscribe`` changes it.
    """

    def __init__(
        self,
        reduce: Callable[[object], None] | None = None,
        *,
        locks: SessionLock | None = None,
    ) -> None:
        self._reduce = reduce
        self._locks = locks or SessionLock()
        self.subscriptions: dict[object, tuple[type[object], Callable[[object], object]]] = {}
        self._pending: deque[object] = deque()
        self._delivering = False

    def subscribe(
        self, event_type: type[E], subscriber: Callable[[E], object]
    ) -> Callable[[], None]:
        """Call *subscriber* with each later event of *event_type* or a subclass.

        ``object`` receives every event. Returns a function that ends the subscription at once,
        even during a delivery; calling it again does nothing.
        """
        key = object()
        with self._locks.now():
            self.subscriptions[key] = (event_type, cast("Callable[[object], object]", subscriber))

        def unsubscribe() -> None:
            with self._locks.now():
                self.subscriptions.pop(key, None)

        return unsubscribe

    def dispatch(self, event: object) -> None:
        """Reduce *event*, then notify the subscribers.

        Raises:
            ReducerError: If a reducer of the session raised; nothing changed, and no subscriber
                was notified.
        """
        with self._locks.now():
            if self._reduce is not None:
                self._reduce(event)
            self.notify(event)

    def notify(self, event: object) -> None:
        """Notify the subscribers of the type of *event*, without running reducers."""
        with self._locks.now():
            self._pending.append(event)
            if self._delivering:
                return
            try:
                self._delivering = True
                while self._pending:
                    present = self._pending.popleft()
                    if self.subscriptions:
                        self._deliver(present)
            finally:
                self._delivering = False
                self._pending.clear()

    def _deliver(self, event: object) -> None:
        interruption: BaseException | None = None
        for key, (event_type, subscriber) in tuple(self.subscriptions.items()):
            if key not in self.subscriptions or not isinstance(event, event_type):
                continue
            try:
                subscriber(event)
            except Exception:  # noqa: BLE001 - a subscriber must not fail what it only observes
                _log.exception(
                    "A subscriber raised on %s; the others are still notified", type(event).__name__
                )
            except BaseException as error:  # noqa: BLE001 - raised again after all were notified
                interruption = interruption or error
        if interruption is not None:
            raise interruption


EventBus = Dispatcher
"""The same class, named as in ``ToolContext.event_bus``."""


# ---------------------------------------------------------------------------------------- session


S = TypeVar("S")
E = TypeVar("E")


class SessionProtocol(Protocol):
    """The session as a tool's handler may use it."""

    @property
    def id(self) -> str:
        """A unique name."""
        ...

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher, for subscriptions."""
        ...

    @property
    def lock(self) -> threading.RLock:
        """Held during every change, and by the executor during a whole call."""
        ...

    def dispatch(self, event: object) -> None:
        """Reduce the event, then notify the subscribers."""
        ...

    def __getitem__(self, slice_type: type[S], /) -> SliceAccessor[S]: ...


@dataclass(frozen=True, eq=False, repr=False)
class SessionSnapshot:
    """A session's STATE slices at one moment, with its children's; only for ``restore``.

    ``state`` is the session's own map, not a copy: two snapshots without a change between them
    have the same object.
    """

    session: Session
    state: Slices
    children: tuple[SessionSnapshot, ...]


class Session:
    """Typed immutable state changed only by events.

    Args:
        session_id: A unique name; random by default.
        clock: The time, for code that makes events for this session.
        parent: The session that this one is saved and restored with; see ``child``.

    Attributes:
        id: The unique name.
        clock: The clock.
        locks: Its lock, shared with the sessions that are restored with it; see ``lock``.
        dispatcher: The dispatcher, for subscriptions.
        parent: The session whose snapshots include this one, if any. Read only.
        children: The sessions attached to this one, oldest first. Read only.
        companions: Objects of other layers that exist as long as the session, by their class.
    """

    def __init__(
        self,
        *,
        session_id: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        parent: Session | None = None,
    ) -> None:
        self.id: Final = session_id or uuid4().hex
        self.clock: Final = clock
        self.locks: Final = SessionLock() if parent is None else parent.locks
        self.dispatcher: Final = Dispatcher(self.reduce, locks=self.locks)
        self.parent: Session | None = None
        self.children: tuple[Session, ...] = ()
        self.store = Store()
        self.companions: Final[dict[type[object], object]] = {}
        self._accessors: dict[type[object], SliceAccessor[Any]] = {}
        for event_type in TELEMETRY_EVENTS:
            self[event_type].register(event_type, append_all, kind=SliceKind.LOG)
        if parent is not None:
            with parent.lock:
                _attach(parent, (*parent.children, self))

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    @property
    def lock(self) -> threading.RLock:
        """Re-entrant. During a call only the code of that call gets it; other threads wait."""
        return self.locks.now()

    def __getitem__(self, slice_type: type[S], /) -> SliceAccessor[S]:
        """The slice of *slice_type*, a frozen dataclass; another type is a ``UsageError``."""
        is_type = isinstance(slice_type, type)  # pyright: ignore[reportUnnecessaryIsInstance] - callers pass a value by mistake
        accessor: Any = self._accessors.get(slice_type) if is_type else None
        if accessor is None:
            check_slice_type(slice_type)
            accessor = self._accessors[slice_type] = SliceAccessor(self, slice_type)
        return accessor

    def dispatch(self, event: object) -> None:
        """Reduce *event* over slices of both kinds, then notify the subscribers.

        Raises:
            ReducerError: If a reducer failed; nothing changed, and no subscriber was notified.
        """
        self.dispatcher.dispatch(event)

    def reduce(self, event: object, *, kind: SliceKind | None = None) -> None:
        """Run the reducers for exactly the event's type, all or nothing, without subscribers.

        Reducers run in order of registration; the second one of a slice gets the first one's
        result. An event without reducers changes nothing. With *kind*, only slices of that kind
        are reduced.

        Raises:
            ReducerError: If a reducer raised or did not return a ``SliceOp``; nothing changed.
            SessionError: If a reducer called this.
        """
        with self.lock:
            self.store.reduce(event, kind)

    def refuse_reducers(self) -> None:
        """Raise ``SessionError`` if a reducer is running."""
        self.store.refuse_reducers()

    def notify(self, event: object) -> None:
        """Notify subscribers of the type of *event*, without reducers; their errors are logged."""
        self.dispatcher.notify(event)

    def install(self, cls: type[S], *, initial: S | None = None) -> None:
        """Register the methods of *cls* that ``@reducer`` marks, for the slice of *cls*.

        While the slice is empty, *initial* is its latest value: methods get it as ``self``, and
        ``latest`` returns it. Installing changes no value and may be repeated.

        Raises:
            UsageError: If *cls* has no such method, or *initial* is not exactly a *cls*.
            SessionError: If it was installed before with another initial value.
        """
        slice_ = self[cls]
        methods = method_reducers(cls)
        with self.lock:
            if initial is not None:
                self.store.set_initial(cls, initial)
            for event_type, reducer in methods:
                slice_.register(event_type, reducer)

    def snapshot(self) -> SessionSnapshot:
        """A token of the STATE slices, children included; costs the number of sessions."""
        with self.lock:
            children = tuple([child.snapshot() for child in self.children]) if self.children else ()
            return SessionSnapshot(self, self.store.state, children)

    def restore(self, token: object) -> None:
        """Restore the STATE slices of *token*; may be repeated.

        A slice first used since is empty again. LOG slices, registrations and subscriptions stay.
        Children are restored too; one made since is detached.

        Raises:
            SnapshotError: If *token* is not a snapshot of this session; nothing changed.
        """
        if not isinstance(token, SessionSnapshot) or token.session is not self:
            raise SnapshotError(f"the snapshot to restore is not one of {self!r}")
        with self.lock:
            self.store.set_state(token.state)
            _attach(self, tuple(child.session for child in token.children))
            for child in token.children:
                child.session.restore(child)

    def dump_state(self) -> str:
        """The session's own STATE slices as JSON with a schema version; children are left out.

        Raises:
            SessionError: If two slices' classes have the same name.
        """
        return dump_slices(self.store.state.values())

    def load_state(self, text: str) -> None:
        """Replace every STATE slice by the output of ``dump_state``, all or nothing.

        The classes must be known: registered, installed, declared or written to before.

        Raises:
            SnapshotVersionError: If *text* has another schema version.
            SnapshotError: If it cannot be read or names an unknown class.
            SessionError: If two slices' classes have the same name.
        """
        with self.lock:
            views = parse_slices(text, self.store.known(SliceKind.STATE))
            self.store.set_state(Map((view.slice_type, view) for view in views))

    def child(self, *, session_id: str | None = None) -> Session:
        """A new, empty session that is saved and restored with this one.

        It shares the lock and the clock, and has its own slices, reducers and subscribers.
        """
        return Session(session_id=session_id, clock=self.clock, parent=self)

    def detach(self) -> None:
        """Remove this session from its parent and from the parent's later snapshots."""
        with self.lock:
            if self.parent is not None:
                others = (child for child in self.parent.children if child is not self)
                _attach(self.parent, tuple(others))

    def clone(self, *, session_id: str | None = None) -> Session:
        """An independent session with the same values of both kinds and the same reducers.

        It costs the number of slices. Subscribers, parent and children are not copied.
        """
        clone = Session(session_id=session_id, clock=self.clock)
        with self.lock:
            clone.store = self.store.copy()
        return clone


def _attach(parent: Session, children: tuple[Session, ...]) -> None:
    """Set the children of *parent*; its other children are detached."""
    for child in parent.children:
        child.parent = None
    for child in children:
        child.parent = parent
    parent.children = children


class SliceAccessor(Generic[S]):
    """One slice of a session: read its values, write them by events, register its reducers.

    Reading needs no lock, since a view is immutable.
    """

    __slots__ = ("_session", "_slice_type")

    def __init__(self, session: Session, slice_type: type[S]) -> None:
        self._session = session
        self._slice_type = slice_type

    def view(self) -> SliceView[S]:
        """The present values; later events do not change the view."""
        return self._session.store.view(self._slice_type)

    def latest(self) -> S | None:
        """The newest value; for an empty slice the initial value of ``install``, or ``None``."""
        return self.view().latest()

    def all(self) -> tuple[S, ...]:
        """Every value, oldest first; costs their number."""
        return self.view().all()

    def where(self, predicate: Callable[[S], bool]) -> tuple[S, ...]:
        """The values for which *predicate* holds, oldest first."""
        return self.view().where(predicate)

    def __len__(self) -> int:
        return len(self.view())

    def seed(self, values: S | Iterable[S]) -> None:
        """Replace all values by one value or several, as an event.

        Raises:
            UsageError: If a value is not exactly of the slice's type.
        """
        single = isinstance(values, self._slice_type) or not isinstance(values, Iterable)
        self._write(Replace((cast("S", values),) if single else cast("Iterable[S]", values)))

    def append(self, value: S) -> None:
        """Append *value*, as an event; raises ``UsageError`` as ``seed`` does."""
        self._write(Append(value))

    def clear(self) -> None:
        """Remove all values, as an event."""
        self._write(Clear())

    def declare(self, *, kind: SliceKind | None = None) -> None:
        """Make the slice known without a reducer: to set its kind, or so that it can be loaded.

        Args:
            kind: STATE or LOG; left out, it does not change. A new slice is STATE.

        Raises:
            SessionError: If the slice is already of the other kind.
        """
        with self._session.lock:
            self._session.store.declare(self._slice_type, kind)

    def register(
        self, event_type: type[E], reducer: Reducer[S, E], *, kind: SliceKind | None = None
    ) -> None:
        """Run *reducer* on the slice for each event of exactly *event_type*.

        Registering an equal reducer for the same event again does nothing. ``restore`` does not
        undo a registration.

        Args:
            event_type: Any class; its subclasses do not count.
            reducer: A pure function from the slice's view and the event to a ``SliceOp``.
            kind: As in ``declare``.

        Raises:
            SessionError: If the slice is already of the other kind.
        """
        with self._session.lock:
            self._session.store.declare(self._slice_type, kind)
            self._session.store.register(self._slice_type, event_type, reducer)

    def _write(self, op: SliceOp[S]) -> None:
        op.apply(SliceView(self._slice_type))  # raises the caller's error before a reducer runs
        self._session.dispatch(SliceWritten(self._slice_type, cast("SliceOp[object]", op)))
