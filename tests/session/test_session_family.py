"""Children, which are saved with their parent, and clones, which are not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from wink_workspace.clock import ManualClock
from wink_workspace.session import Session, SessionProtocol, SliceKind, append_all


@dataclass(frozen=True, slots=True)
class Item:
    n: int


@dataclass(frozen=True, slots=True)
class Entry:
    n: int


def test_a_child_starts_empty_and_shares_the_clock_and_the_lock() -> None:
    clock = ManualClock()
    parent = Session(clock=clock)
    parent[Item].seed(Item(1))
    child = parent.child(session_id="c")
    assert (child.id, child.parent, parent.children) == ("c", parent, (child,))
    assert child.clock is clock
    assert child.lock is parent.lock
    assert child[Item].all() == ()


def test_restoring_a_parent_restores_its_children_and_grandchildren() -> None:
    parent = Session()
    child = parent.child()
    grandchild = child.child()
    family = (parent, child, grandchild)
    for session in family:
        session[Item].seed(Item(1))
        session[Entry].declare(kind=SliceKind.LOG)
    token = parent.snapshot()
    for session in family:
        session[Item].seed(Item(2))
        session[Entry].append(Entry(1))
    parent.restore(token)
    assert [session[Item].all() for session in family] == [(Item(1),)] * 3
    assert [session[Entry].all() for session in family] == [(Entry(1),)] * 3


def test_a_child_made_after_the_snapshot_is_detached_and_keeps_its_values() -> None:
    parent = Session()
    elder = parent.child()
    token = parent.snapshot()
    younger = parent.child()
    younger[Item].seed(Item(1))
    with_younger = parent.snapshot()
    parent.restore(token)
    assert (parent.children, younger.parent) == ((elder,), None)
    assert younger[Item].all() == (Item(1),)
    parent.restore(with_younger)
    assert (parent.children, younger.parent) == ((elder, younger), parent)


def test_later_snapshots_do_not_include_a_detached_child() -> None:
    parent = Session()
    child, sibling = parent.child(), parent.child()
    child.detach()
    child.detach()
    assert (parent.children, child.parent, sibling.parent) == ((sibling,), None, parent)
    token = parent.snapshot()
    child[Item].seed(Item(1))
    parent.restore(token)
    assert child[Item].all() == (Item(1),)


def test_a_clone_has_values_log_and_reducers_and_is_independent() -> None:
    session, received = Session(clock=ManualClock()), []
    session.child()
    session.dispatcher.subscribe(object, received.append)
    session[Entry].register(Entry, append_all, kind=SliceKind.LOG)
    session[Item].seed(Item(n) for n in range(1_000))
    session.dispatch(Entry(1))
    n_received = len(received)
    clone = session.clone()
    assert clone.id != session.id
    assert clone.clock is session.clock
    assert (clone.parent, clone.children) == (None, ())
    assert clone[Item].view() is session[Item].view(), "shared, not copied"
    clone.dispatch(Entry(2))
    clone[Item].clear()
    clone[Entry].register(Item, lambda view, event: 1 / 0)
    session.dispatch(Item(1))
    assert (len(session[Item]), session[Entry].all()) == (1_000, (Entry(1),))
    assert clone[Entry].all() == (Entry(1), Entry(2))
    assert received[n_received:] == [Item(1)], "the clone has its own subscribers"


@pytest.mark.parametrize("n", [1, 2])
def test_ids_are_as_given_or_unique(n: int) -> None:
    assert Session(session_id=f"s{n}").id == f"s{n}"
    assert len({Session().id for _ in range(100)}) == 100


def test_a_session_implements_the_protocol_for_handlers() -> None:
    session: SessionProtocol = Session()
    session.dispatch(Item(1))
    with session.lock:
        assert session[Item].latest() is None
    assert session.dispatcher
    assert session.id
