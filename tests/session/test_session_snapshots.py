"""Snapshots: STATE is restored, LOG stays, and a snapshot copies nothing."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from dataclasses import dataclass

import pytest

from wink_workspace.errors import SnapshotError
from wink_workspace.session import Append, Session, SliceKind, append_all


@dataclass(frozen=True)
class Item:
    n: int


@dataclass(frozen=True, slots=True)
class Other:
    n: int


@dataclass(frozen=True, slots=True)
class Entry:
    n: int


def session_with_log() -> Session:
    session = Session()
    session[Entry].register(Entry, append_all, kind=SliceKind.LOG)
    return session


@pytest.mark.behaviour(26)
def test_restore_resets_state_keeps_the_log_and_empties_slices_first_used_since() -> None:
    session = session_with_log()
    session[Item].seed(Item(1))
    session.dispatch(Entry(1))
    token = session.snapshot()
    session[Item].append(Item(2))
    session[Other].append(Other(1))
    session.dispatch(Entry(2))
    session.restore(token)
    assert session[Item].all() == (Item(1),)
    assert session[Other].all() == ()
    assert session[Entry].all() == (Entry(1), Entry(2))


def test_one_snapshot_can_be_restored_repeatedly() -> None:
    session = Session()
    session[Item].seed(Item(1))
    token = session.snapshot()
    for n in range(3):
        session[Item].seed(Item(n))
        session.restore(token)
        assert session[Item].all() == (Item(1),)


def test_a_later_snapshot_survives_the_restore_of_an_earlier_one() -> None:
    session = Session()
    session[Item].seed(Item(1))
    earlier = session.snapshot()
    session[Item].seed(Item(2))
    later = session.snapshot()
    session.restore(earlier)
    session.restore(later)
    assert session[Item].all() == (Item(2),)


@pytest.mark.behaviour(33)
@pytest.mark.parametrize("foreign", ["another", "same id", "clone", "child", "nonsense", "none"])
def test_a_foreign_snapshot_is_refused_and_changes_nothing(foreign: str) -> None:
    session = Session(session_id="s")
    session[Item].seed(Item(1))
    child = session.child()
    tokens = {
        "another": Session().snapshot(),
        "same id": Session(session_id="s").snapshot(),
        "clone": session.clone().snapshot(),
        "child": child.snapshot(),
        "nonsense": "a text",
        "none": None,
    }
    before = session.snapshot()
    with pytest.raises(SnapshotError, match=r"not one of Session\('s'\)") as caught:
        session.restore(tokens[foreign])
    assert caught.value.hint
    assert session.snapshot().state is before.state
    assert session.children == (child,)


def test_registrations_and_subscriptions_are_not_undone() -> None:
    session, received = Session(), []
    token = session.snapshot()
    session[Item].register(Item, append_all)
    session.dispatcher.subscribe(Item, received.append)
    session.restore(token)
    session.dispatch(Item(1))
    assert session[Item].all() == (Item(1),)
    assert received == [Item(1)]


def test_a_snapshot_of_100_000_values_is_a_reference_and_restoring_assigns_it() -> None:
    session = Session()
    session[Item].seed(Item(n) for n in range(100_000))
    view = session[Item].view()
    first, second = session.snapshot(), session.snapshot()
    assert first.state is second.state, "nothing was copied"
    assert first.state[Item] is view
    session[Item].append(Item(-1))
    session.restore(first)
    assert session.snapshot().state is first.state
    assert session[Item].view() is view


def test_events_that_change_nothing_leave_the_same_state_object() -> None:
    session = session_with_log()
    session[Item].seed(Item(1))
    session[Item].register(Other, lambda view, event: Append())
    before = session.snapshot()
    session.dispatch(Other(1))
    session.dispatch(Entry(1))
    session[Other].clear()
    assert session.snapshot().state is before.state


@pytest.mark.behaviour(37)
def test_values_that_only_a_deleted_snapshot_held_are_freed() -> None:
    session = Session()
    session[Item].seed(Item(1))
    token = session.snapshot()
    held = weakref.ref(session[Item].latest())
    session[Item].seed(Item(2))
    assert held() is not None, "the snapshot keeps it"
    del token
    gc.collect()
    assert held() is None


@pytest.mark.behaviour(37)
def test_100_snapshots_that_differ_by_one_value_take_less_memory_than_one_copy() -> None:
    session = Session()
    tracemalloc.start()
    try:
        session[Other].seed(Other(n) for n in range(10_000))
        one_copy_bytes, _ = tracemalloc.get_traced_memory()
        tokens = []
        for n in range(100):
            session[Other].append(Other(n))
            tokens.append(session.snapshot())
        all_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all_bytes - one_copy_bytes < one_copy_bytes
    assert len({id(token.state) for token in tokens}) == 100
