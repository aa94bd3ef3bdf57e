"""Several threads use one session and lose no update."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from wink_workspace.session import Replace, Session, SliceOp, SliceView

WATCHDOG_S = 10.0


@dataclass(frozen=True, slots=True)
class Add:
    n: int


@dataclass(frozen=True, slots=True)
class Total:
    n: int = 0


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    """Let threads interrupt one another as often as the interpreter can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def add(view: SliceView[Total], event: Add) -> SliceOp[Total]:
    latest = view.latest() or Total()
    return Replace((Total(latest.n + event.n),))


def run(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WATCHDOG_S)
        assert not thread.is_alive()


@pytest.mark.behaviour(67)
def test_two_threads_that_dispatch_to_one_session_lose_no_update() -> None:
    session, received = Session(), []
    session[Total].register(Add, add)
    session.dispatcher.subscribe(Add, lambda event: received.append(session[Total].latest().n))

    def work() -> None:
        for _ in range(1_000):
            session.dispatch(Add(1))

    run(threading.Thread(target=work), threading.Thread(target=work))
    assert session[Total].latest() == Total(2_000)
    assert received == list(range(1, 2_001)), "each event is reduced and delivered before the next"


def test_a_snapshot_of_parent_and_child_never_has_half_of_a_locked_change() -> None:
    """A parent and its child always change together; every snapshot must have them equal."""
    parent = Session()
    child = parent.child()
    done = threading.Event()

    def change() -> None:
        for n in range(500):
            with parent.lock:
                parent[Total].seed(Total(n))
                child[Total].seed(Total(n))
        done.set()

    def check() -> None:
        while not done.is_set():
            token = parent.snapshot()
            views = [s.state.get(Total, SliceView(Total)) for s in (token, *token.children)]
            assert views[0].all() == views[1].all()

    thread = threading.Thread(target=change)
    thread.start()
    check()
    thread.join(WATCHDOG_S)


class AnnouncingLock:
    """A re-entrant lock that sets ``asked`` when a thread other than its creator's acquires it."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._lock = threading.RLock()
        self._maker = threading.current_thread()

    def __enter__(self) -> None:
        if threading.current_thread() is not self._maker:
            self.asked.set()
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("change", ["dispatch", "reduce", "notify", "snapshot", "restore", "load"])
def test_a_held_lock_makes_other_threads_wait(change: str) -> None:
    parent, lock = Session(), AnnouncingLock()
    parent.locks.outside = lock
    session = parent.child()
    session[Total].register(Add, add)
    token, text = session.snapshot(), session.dump_state()
    changes = {
        "dispatch": lambda: session.dispatch(Add(1)),
        "reduce": lambda: session.reduce(Add(1)),
        "notify": lambda: session.notify(Add(1)),
        "snapshot": session.snapshot,
        "restore": lambda: session.restore(token),
        "load": lambda: session.load_state(text),
    }
    finished = threading.Event()
    thread = threading.Thread(target=lambda: (changes[change](), finished.set()))
    with lock:
        thread.start()
        assert lock.asked.wait(WATCHDOG_S)
        assert not finished.is_set()
    thread.join(WATCHDOG_S)
    assert finished.is_set()
