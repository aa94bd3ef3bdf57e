"""The dispatcher: passes each event to the reducers, then to the subscribers.

Rule 1: reducers run first. If one raises, the error propagates and no subscriber is notified.
Rule 2: a subscriber cannot fail the dispatch. If one raises, the error is logged and the others
are still notified; an exception that ends the program, such as Ctrl-C, is raised after that.
Rule 3: all subscribers receive the events in the same order. An event dispatched by a subscriber
is reduced at once, and delivered after all have received the present one. So two subscribers that
answer each other without end never return.
Rule 4: subscribers run on the thread that dispatches, under the lock. A subscriber that waits for
another thread that uses the same session waits forever.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TypeVar, cast

from .locking import SessionLock

__all__ = ["Dispatcher", "EventBus"]

_log = logging.getLogger(__name__)

E = TypeVar("E")


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
