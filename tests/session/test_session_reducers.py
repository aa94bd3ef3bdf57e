"""Reducers: which events each built-in one keeps, and reducers written as methods."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace

import pytest

from wink_workspace.errors import ReducerError, SessionError, UsageError
from wink_workspace.session import (
    Append,
    Clear,
    Session,
    SliceOp,
    SliceView,
    append_all,
    reducer,
    replace_latest,
    replace_latest_by,
    upsert_by,
)


@dataclass(frozen=True, slots=True)
class Reading:
    sensor: str
    celsius: int


by_sensor = operator.attrgetter("sensor")
EVENTS = [Reading("a", 1), Reading("b", 2), Reading("a", 3), Reading("c", 4), Reading("a", 5)]


@pytest.mark.parametrize(
    ("kept_by", "expected"),
    [
        (append_all, EVENTS),
        (replace_latest, [Reading("a", 5)]),
        (upsert_by(by_sensor), [Reading("a", 5), Reading("b", 2), Reading("c", 4)]),
        (replace_latest_by(by_sensor), [Reading("b", 2), Reading("c", 4), Reading("a", 5)]),
    ],
    ids=["append_all", "replace_latest", "upsert_by", "replace_latest_by"],
)
def test_each_built_in_reducer_keeps_its_events(kept_by, expected) -> None:
    session = Session()
    session[Reading].register(Reading, kept_by)
    for event in EVENTS:
        session.dispatch(event)
    assert session[Reading].all() == tuple(expected)


def test_upsert_by_compares_only_the_values_newer_than_the_one_it_replaces() -> None:
    """The newest of 100,000 is found by two calls of the key: the event's and the value's."""
    n_calls = 0

    def key(reading: Reading) -> str:
        nonlocal n_calls
        n_calls += 1
        return reading.sensor

    view = SliceView(Reading, (Reading(str(n), 0) for n in range(100_000)))
    view = upsert_by(key)(view, Reading("99999", 1)).apply(view)
    assert (n_calls, len(view), view.latest()) == (2, 100_000, Reading("99999", 1))


@pytest.mark.parametrize("factory", [upsert_by, replace_latest_by])
def test_reducers_made_from_the_same_key_function_are_equal(factory) -> None:
    assert factory(by_sensor) == factory(by_sensor)
    assert factory(by_sensor) != factory(operator.attrgetter("celsius"))


@dataclass(frozen=True, slots=True)
class AddStep:
    title: str


@dataclass(frozen=True, slots=True)
class Fork:
    pass


@dataclass(frozen=True, slots=True)
class Drop:
    pass


@dataclass(frozen=True, slots=True)
class Reset(Drop):
    pass


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[str, ...] = ()

    @reducer(on=AddStep)
    def add(self, event: AddStep) -> Plan:
        return replace(self, steps=(*self.steps, event.title))

    @reducer(on=Fork)
    def fork(self, event: Fork) -> SliceOp[Plan]:
        return Append(self)

    @reducer(on=Drop)
    @reducer(on=Reset)
    def drop(self, event: Drop) -> SliceOp[Plan]:
        return Clear()


def test_a_method_gets_the_latest_value_and_its_result_becomes_the_only_value() -> None:
    session = Session()
    session.install(Plan)
    session[Plan].seed([Plan(("old",)), Plan(("first",))])
    session.dispatch(AddStep("second"))
    assert session[Plan].all() == (Plan(("first", "second")),)


def test_a_method_may_return_an_operation() -> None:
    session = Session()
    session.install(Plan)
    session[Plan].seed(Plan(("a",)))
    session.dispatch(Fork())
    assert session[Plan].all() == (Plan(("a",)), Plan(("a",)))


@pytest.mark.parametrize("event", [Drop(), Reset()])
def test_a_method_may_be_marked_for_several_events(event: object) -> None:
    session = Session()
    session.install(Plan)
    session[Plan].seed(Plan(("a",)))
    session.dispatch(event)
    assert session[Plan].all() == ()


def test_a_marked_method_can_still_be_called() -> None:
    assert Plan().add(AddStep("a")) == Plan(("a",))


def test_installing_repeatedly_runs_each_method_once_per_event() -> None:
    session = Session()
    for _ in range(3):
        session.install(Plan, initial=Plan())
    session.install(Plan)
    session.dispatch(AddStep("once"))
    assert session[Plan].latest() == Plan(("once",))


def test_a_method_without_a_value_fails_and_the_error_says_how_to_give_one() -> None:
    session = Session()
    session.install(Plan)
    with pytest.raises(ReducerError, match=r"Plan\.add of slice Plan failed on AddStep") as caught:
        session.dispatch(AddStep("a"))
    assert isinstance(caught.value.__cause__, SessionError)
    assert "initial=" in caught.value.hint


def test_the_initial_value_is_the_latest_one_whenever_the_slice_is_empty() -> None:
    session = Session()
    before = session.snapshot()
    session.install(Plan, initial=Plan(("given",)))
    assert (session[Plan].latest(), session[Plan].all()) == (Plan(("given",)), ())
    session.dispatch(AddStep("a"))
    assert session[Plan].all() == (Plan(("given", "a")),)
    for empty in (session[Plan].clear, lambda: session.restore(before)):
        empty()
        assert (session[Plan].latest(), len(session[Plan])) == (Plan(("given",)), 0)
        session.dispatch(AddStep("b"))
        assert session[Plan].all() == (Plan(("given", "b")),)


def test_an_initial_value_can_be_set_after_the_slice_was_emptied() -> None:
    session = Session()
    session[Plan].seed(Plan(("a",)))
    session[Plan].clear()
    session.install(Plan, initial=Plan(("given",)))
    assert session[Plan].latest() == Plan(("given",))


def test_two_initial_values_for_one_slice_are_refused() -> None:
    session = Session()
    session.install(Plan, initial=Plan())
    with pytest.raises(SessionError, match="cannot also start from") as caught:
        session.install(Plan, initial=Plan(("another",)))
    assert caught.value.hint
    assert session[Plan].latest() == Plan()


def test_an_initial_value_of_another_type_is_refused() -> None:
    session = Session()
    with pytest.raises(UsageError, match="slice Plan holds Plan values, not AddStep"):
        session.install(Plan, initial=AddStep("a"))
    assert session[Plan].latest() is None


def test_installing_a_class_without_marked_methods_raises_with_a_hint_to_mark_them() -> None:
    with pytest.raises(UsageError, match="no method marked as a reducer") as caught:
        Session().install(Reading)
    assert "@reducer(on=" in caught.value.hint


def test_a_method_that_returns_none_fails_the_event() -> None:
    @dataclass(frozen=True)
    class Forgetful:
        @reducer(on=AddStep)
        def forget(self, event: AddStep) -> None:
            pass

    session = Session()
    session.install(Forgetful, initial=Forgetful())
    with pytest.raises(ReducerError, match="holds Forgetful values, not NoneType"):
        session.dispatch(AddStep("a"))


def test_a_subclass_has_the_methods_of_its_base_except_those_it_overrides() -> None:
    @dataclass(frozen=True, slots=True)
    class Shouting(Plan):
        @reducer(on=AddStep)
        def add(self, event: AddStep) -> Shouting:
            return replace(self, steps=(*self.steps, event.title.upper()))

        def fork(self, event: Fork) -> SliceOp[Plan]:
            raise AssertionError("not marked, so not a reducer")

    session = Session()
    session.install(Shouting, initial=Shouting())
    session.dispatch(AddStep("a"))
    session.dispatch(Fork())
    assert session[Shouting].all() == (Shouting(("A",)),)
    session.dispatch(Drop())
    assert session[Shouting].all() == (), "a marked method of the base counts as well"
