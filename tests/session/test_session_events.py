"""Events: all or nothing over every slice, in order, by exact type."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from wink_workspace.clock import TokenUsage
from wink_workspace.errors import ReducerError, SessionError, UsageError
from wink_workspace.session import (
    TELEMETRY_EVENTS,
    Append,
    Clear,
    ExternalChange,
    Outcome,
    PolicyVerdict,
    PromptExecuted,
    PromptRendered,
    Replace,
    Session,
    SliceKind,
    SliceOp,
    SliceView,
    SliceWritten,
    ToolInvoked,
    WorkspaceRestored,
    append_all,
    replace_latest,
)

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Tick:
    n: int


@dataclass(frozen=True, slots=True)
class LoudTick(Tick):
    pass


@dataclass(frozen=True, slots=True)
class First:
    n: int = 0


@dataclass(frozen=True, slots=True)
class Second:
    n: int = 0


@dataclass(frozen=True, slots=True)
class Third:
    n: int = 0


SLICES = (First, Second, Third)


def contents(session: Session) -> dict[type, tuple[object, ...]]:
    return {slice_type: session[slice_type].all() for slice_type in (*SLICES, Tick)}


@pytest.mark.behaviour(28)
def test_an_event_whose_nth_reducer_raises_changes_no_slice_for_any_n() -> None:
    """Raise in reducer 1, 2, 3, ... until none raises; no failure may change a slice."""
    for n in itertools.count(1):
        session, n_calls = Session(), itertools.count(1)

        def counted(view: SliceView, event: Tick, n: int = n, n_calls=n_calls) -> SliceOp:
            if next(n_calls) == n:
                raise RuntimeError("crash")
            return Append(view.slice_type(event.n))

        for slice_type in SLICES:
            session[slice_type].seed(slice_type(100))
            session[slice_type].register(Tick, counted)
        session[Tick].register(Tick, append_all, kind=SliceKind.LOG)
        before, state_before, received = contents(session), session.snapshot().state, []
        session.dispatcher.subscribe(object, received.append)
        try:
            session.dispatch(Tick(7))
        except ReducerError:
            assert contents(session) == before, f"reducer {n} changed a slice"
            assert session.snapshot().state is state_before
            assert received == []
        else:
            assert n == 4
            assert contents(session) == {
                **{slice_type: (slice_type(100), slice_type(7)) for slice_type in SLICES},
                Tick: (Tick(7),),
            }
            break


def explode(view: SliceView[First], event: Tick) -> SliceOp[First]:
    raise ValueError("boom")


def test_a_reducers_error_names_slice_reducer_and_event_and_keeps_the_cause() -> None:
    session = Session()
    session[First].register(Tick, explode)
    with pytest.raises(ReducerError) as caught:
        session.dispatch(Tick(1))
    assert caught.value.message == "reducer explode of slice First failed on Tick: ValueError: boom"
    assert caught.value.hint
    assert isinstance(caught.value.__cause__, ValueError)


def test_the_error_names_a_reducer_that_is_not_a_plain_function() -> None:
    session = Session()
    session[First].register(Tick, functools.partial(explode))
    with pytest.raises(ReducerError, match=r"reducer functools\.partial\(.*explode.*\) of slice"):
        session.dispatch(Tick(1))


@pytest.mark.parametrize("answer", [None, First(1), [First(1)], Append])
def test_a_reducer_that_does_not_return_an_operation_fails_the_event(answer) -> None:
    session = Session()
    session[First].register(Tick, lambda view, event: answer)
    with pytest.raises(ReducerError, match="not a slice operation"):
        session.dispatch(Tick(1))
    assert session[First].all() == ()


def test_a_reducer_that_returns_another_slices_value_fails_the_event() -> None:
    session = Session()
    session[First].register(Tick, lambda view, event: Append(Second()))
    with pytest.raises(ReducerError, match="slice First holds First values, not Second"):
        session.dispatch(Tick(1))


def test_an_interrupt_in_a_reducer_propagates_and_the_session_stays_usable() -> None:
    session = Session()
    session[First].register(Tick, lambda view, event: Append(First(event.n)))

    def interrupt(view: SliceView[Second], event: Tick) -> SliceOp[Second]:
        if event.n == 1:
            raise KeyboardInterrupt
        return Append(Second(event.n))

    session[Second].register(Tick, interrupt)
    with pytest.raises(KeyboardInterrupt):
        session.dispatch(Tick(1))
    assert contents(session)[First] == ()
    session.dispatch(Tick(2))
    assert (session[First].all(), session[Second].all()) == ((First(2),), (Second(2),))


@pytest.mark.parametrize("change", ["dispatch", "append", "restore", "load"])
def test_a_reducer_that_changes_its_own_session_is_refused_and_nothing_changes(change) -> None:
    session = Session()
    session[First].seed(First(1))
    token, text = session.snapshot(), session.dump_state()
    changes = {
        "dispatch": lambda: session.dispatch(LoudTick(1)),
        "append": lambda: session[First].append(First(9)),
        "restore": lambda: session.restore(token),
        "load": lambda: session.load_state(text),
    }

    def change_session(view: SliceView[Second], event: Tick) -> SliceOp[Second]:
        changes[change]()
        return Append(Second())

    session[Second].register(Tick, change_session)
    with pytest.raises(ReducerError, match="a reducer tried to change its own session"):
        session.dispatch(Tick(1))
    assert (session[First].all(), session[Second].all()) == ((First(1),), ())


def test_two_reducers_of_one_slice_run_in_sequence_in_order_of_registration() -> None:
    session = Session()
    session[First].register(Tick, lambda view, event: Append(First(event.n)))
    session[First].register(Tick, lambda view, event: Replace(First(v.n * 10) for v in view))
    session.dispatch(Tick(1))
    session.dispatch(Tick(2))
    assert session[First].all() == (First(100), First(20))


def test_an_event_of_a_subclass_is_another_event_for_reducers() -> None:
    session = Session()
    session[Tick].register(Tick, append_all)
    session.dispatch(LoudTick(1))
    assert session[Tick].all() == ()


def test_an_event_without_reducers_changes_nothing_and_subscribers_receive_it() -> None:
    session, received = Session(), []
    before = session.snapshot()
    session.dispatcher.subscribe(str, received.append)
    session.dispatch("any object can be an event")
    assert received == ["any object can be an event"]
    assert session.snapshot().state is before.state


def test_the_same_reducer_registered_again_runs_once_per_event() -> None:
    session = Session()
    for _ in range(3):
        session[Tick].register(Tick, append_all)
    session.dispatch(Tick(1))
    assert session[Tick].all() == (Tick(1),)


def test_reduce_with_a_kind_runs_only_its_reducers_and_notifies_no_subscriber() -> None:
    session, received = Session(), []
    session.dispatcher.subscribe(object, received.append)
    session[First].register(Tick, lambda view, event: Append(First(event.n)))
    session[Tick].register(Tick, append_all, kind=SliceKind.LOG)
    session.reduce(Tick(1), kind=SliceKind.STATE)
    assert (len(session[First]), len(session[Tick])) == (1, 0)
    session.reduce(Tick(1), kind=SliceKind.LOG)
    assert (len(session[First]), len(session[Tick])) == (1, 1)
    session.reduce(Tick(1))
    assert (len(session[First]), len(session[Tick])) == (2, 2)
    assert received == []


def test_notify_calls_subscribers_and_runs_no_reducer() -> None:
    session, received = Session(), []
    session[Tick].register(Tick, append_all)
    session.dispatcher.subscribe(Tick, received.append)
    session.notify(Tick(1))
    assert (received, len(session[Tick])) == ([Tick(1)], 0)


@pytest.mark.parametrize("kind", SliceKind)
def test_a_slice_cannot_have_two_kinds(kind: SliceKind) -> None:
    other = SliceKind.LOG if kind is SliceKind.STATE else SliceKind.STATE
    session = Session()
    session[Tick].register(Tick, append_all, kind=kind)
    for claim in (
        lambda: session[Tick].register(LoudTick, append_all, kind=other),
        lambda: session[Tick].declare(kind=other),
    ):
        with pytest.raises(
            SessionError, match=f"{kind.name}, so it cannot also be {other.name}"
        ) as caught:
            claim()
        assert f"SliceKind.{kind.name}" in caught.value.hint
    session.dispatch(LoudTick(1))
    assert len(session[Tick]) == 0, "the refused reducer was registered"


def test_a_slice_written_before_its_kind_is_declared_is_state() -> None:
    session = Session()
    session[Tick].append(Tick(1))
    with pytest.raises(SessionError, match="Tick is STATE"):
        session[Tick].declare(kind=SliceKind.LOG)


def test_registering_without_a_kind_keeps_the_kind_of_the_slice() -> None:
    session = Session()
    session[ExternalChange].register(Tick, lambda view, event: Clear())
    session.dispatch(ExternalChange(paths=("a",), at=NOON))
    session.dispatch(Tick(1))
    assert session[ExternalChange].all() == ()


def test_direct_writes_are_events_that_subscribers_receive() -> None:
    session, received = Session(), []
    session.dispatcher.subscribe(SliceWritten, received.append)
    session[First].seed(First(1))
    session[First].append(First(2))
    session[First].clear()
    assert received == [
        SliceWritten(First, Replace((First(1),))),
        SliceWritten(First, Append(First(2))),
        SliceWritten(First, Clear()),
    ]


def test_a_direct_write_is_reduced_with_the_slices_of_its_kind() -> None:
    session = Session()
    session[Tick].declare(kind=SliceKind.LOG)
    write = SliceWritten(Tick, Append(Tick(1)))
    session.reduce(write, kind=SliceKind.STATE)
    assert len(session[Tick]) == 0
    session.reduce(write, kind=SliceKind.LOG)
    assert len(session[Tick]) == 1


def test_a_reducer_may_be_registered_for_direct_writes() -> None:
    session = Session()
    session[Second].register(SliceWritten, lambda view, event: Append(Second(len(event.op.values))))
    session[First].seed(First(n) for n in range(5))
    assert session[Second].all() == (Second(5),)


def test_a_wrong_value_written_directly_raises_and_no_subscriber_is_notified() -> None:
    session, received = Session(), []
    session.dispatcher.subscribe(object, received.append)
    with pytest.raises(UsageError, match="slice First holds First values, not Second"):
        session[First].append(Second())
    assert received == []


TELEMETRY = [
    ToolInvoked(
        call_id="1",
        tool="read_file",
        prompt="main",
        params=None,
        success=True,
        message="",
        value=None,
        rendered_text="",
        text="",
        outcome=Outcome.COMMITTED,
        started_at=NOON,
        duration_s=0.5,
        decisions=(PolicyVerdict(policy="read-first", allowed=True, reason=""),),
    ),
    PromptRendered(prompt="main", text="hello", tools=("read_file",), at=NOON),
    PromptExecuted(prompt="main", text="done", output=None, usage=TokenUsage(1, 2), at=NOON),
    ExternalChange(paths=("a.txt",), at=NOON),
    WorkspaceRestored(reason="undo", paths=("a.txt",), at=NOON),
]


@pytest.mark.parametrize("event", TELEMETRY, ids=lambda event: type(event).__name__)
def test_telemetry_is_logged_from_the_start_and_survives_a_restore(event: object) -> None:
    session = Session()
    before = session.snapshot()
    session.dispatch(event)
    session.restore(before)
    assert session[type(event)].all() == (event,)
    with pytest.raises(SessionError, match="is LOG"):
        session[type(event)].register(Tick, replace_latest, kind=SliceKind.STATE)


def test_every_telemetry_event_is_covered_above() -> None:
    assert [type(event) for event in TELEMETRY] == list(TELEMETRY_EVENTS)
