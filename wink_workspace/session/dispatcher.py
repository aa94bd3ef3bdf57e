"""The dispatcher: hands each event to the reducers, then to the subscribers.

Rule 1: reducers come first; if one raises, the error propagates and no subscriber hears of
the event.
Rule 2: a subscriber cannot fail the dispatch. One that raises is logged, the others go on; what
ends a program, such as Ctrl-C, is raised when all have heard of the event.
Rule 3: every subscriber hears the events in one order. An event dispatched by a subscriber is
reduced at once and delivered after the present one has reached everybody; so two subscribers
that answer one another without end never return.
Rule 4: subscribers run on the thread that dispatches, under the lock. One that waits for another
thread which uses the same session waits forever.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar, cast

__all__ = ["Dispatcher", "EventBus"]

_log = logging.getLogger(__name__)

E = TypeVar("E")


class Dispatcher:
    """Synchronous delivery of events, in order.

    Args:
        reduce: What takes the event before any subscriber; a session passes its own.
        lock: Held while an event is reduced and delivered; a session passes its own.
    """

    def __init__(
        self,
        reduce: Callable[[object], None] | None = None,
        *,
        lock: threading.RLock | None = None,
    ) -> None:
        self._reduce = reduce
        self._lock = lock if lock is not None else threading.RLock()
        self._subscriptions: dict[object, tuple[type[object], Callable[[object], object]]] = {}
        self._pending: deque[object] = deque()
        self._delivering = False

    def subscribe(
        self, event_type: type[E], subscriber: Callable[[E], object]
    ) -> Callable[[], None]:
        """Call *subscriber* with each later event of *event_type* or a subclass.

        ``object`` hears everything. Returns a function that ends the subscription, at once even
        in the middle of a delivery; calling it again does nothing.
        """
        key = object()
        with self._lock:
            self._subscriptions[key] = (event_type, cast("Callable[[object], object]", subscriber))

        def unsubscribe() -> None:
            with self._lock:
                self._subscriptions.pop(key, None)

        return unsubscribe

    def dispatch(self, event: object) -> None:
        """Reduce *event*, then tell the subscribers.

        Raises:
            ReducerError: If a reducer of the session raised; nothing changed, nobody was told.
        """
        with self._lock:
            if self._reduce is not None:
                self._reduce(event)
            self.notify(event)

    def notify(self, event: object) -> None:
        """Tell the subscribers alone."""
        with self._lock:
            self._pending.append(event)
            if self._delivering:
                return
            try:
                self._delivering = True
                while self._pending:
                    heard = self._pending.popleft()
                    if self._subscriptions:
                        self._deliver(heard)
            finally:
                self._delivering = False
                self._pending.clear()

    def _deliver(self, event: object) -> None:
        interruption: BaseException | None = None
        for key, (event_type, subscriber) in tuple(self._subscriptions.items()):
            if key not in self._subscriptions or not isinstance(event, event_type):
                continue
            try:
                subscriber(event)
            except Exception:  # noqa: BLE001 - a subscriber must not fail what it only observes
                _log.exception("A subscriber raised on %s; the others go on", type(event).__name__)
            except BaseException as error:  # noqa: BLE001 - raised again once all have been told
                interruption = interruption or error
        if interruption is not None:
            raise interruption


EventBus = Dispatcher
"""The same class, by the name that ``ToolContext.event_bus`` has."""
