"""The dispatcher: in order, synchronous, and subscribers do not affect one another."""

from __future__ import annotations

import logging

import pytest

from wink_workspace.session import Dispatcher, EventBus


class Animal:
    pass


class Dog(Animal):
    pass


def test_event_bus_is_another_name_of_the_dispatcher() -> None:
    assert EventBus is Dispatcher


def test_subscribers_receive_their_type_and_its_subclasses_and_object_receives_all() -> None:
    bus, received = Dispatcher(), []
    for event_type in (Dog, Animal, object):
        bus.subscribe(
            event_type, lambda event, event_type=event_type: received.append((event_type, event))
        )
    animal, dog = Animal(), Dog()
    for event in (animal, dog, 7):
        bus.dispatch(event)
    assert received == [
        (Animal, animal),
        (object, animal),
        (Dog, dog),
        (Animal, dog),
        (object, dog),
        (object, 7),
    ]


@pytest.mark.behaviour(28)
def test_a_subscriber_that_raises_is_logged_and_the_others_are_still_notified(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus, received = Dispatcher(), []

    def broken(event: object) -> None:
        raise ValueError("boom")

    bus.subscribe(object, broken)
    bus.subscribe(object, received.append)
    with caplog.at_level(logging.ERROR):
        bus.dispatch("event")
    assert received == ["event"]
    (record,) = caplog.records
    assert record.getMessage() == "A subscriber raised on str; the others are still notified"
    assert record.exc_info is not None


def test_no_subscriber_is_notified_if_a_reducer_raises() -> None:
    def refuse(event: object) -> None:
        raise ValueError("refused")

    bus, received = Dispatcher(refuse), []
    bus.subscribe(object, received.append)
    with pytest.raises(ValueError, match="refused"):
        bus.dispatch("event")
    assert received == []


def test_each_subscription_ends_on_its_own_and_ending_it_twice_is_harmless() -> None:
    bus, received = Dispatcher(), []
    end_first = bus.subscribe(object, received.append)
    bus.subscribe(object, received.append)
    end_first()
    end_first()
    bus.dispatch("event")
    assert received == ["event"]


def test_a_subscription_ended_during_a_delivery_receives_nothing_more() -> None:
    bus, received = Dispatcher(), []

    def end_all(event: object) -> None:
        for end in ends:
            end()

    ends = [
        bus.subscribe(object, end_all),
        bus.subscribe(object, received.append),
    ]
    bus.subscribe(object, lambda event: received.append(f"last: {event}"))
    bus.dispatch("one")
    bus.dispatch("two")
    assert received == ["last: one", "last: two"]


def test_a_subscription_begun_during_a_delivery_receives_events_from_the_next_one() -> None:
    bus, received = Dispatcher(), []
    end = bus.subscribe(object, lambda event: (end(), bus.subscribe(object, received.append)))
    bus.dispatch("one")
    bus.dispatch("two")
    assert received == ["two"]


def test_events_dispatched_by_a_subscriber_reach_everyone_in_the_same_order() -> None:
    reduced, early, late = [], [], []
    bus = Dispatcher(reduced.append)

    def answer(event: int) -> None:
        early.append(event)
        if event < 3:
            bus.dispatch(event + 1)
            assert reduced[-1] == event + 1, "the answer is reduced at once"

    bus.subscribe(int, answer)
    bus.subscribe(int, late.append)
    bus.dispatch(1)
    assert early == late == reduced == [1, 2, 3]


def test_an_interrupt_in_a_subscriber_propagates_after_all_and_drops_waiting_events() -> None:
    bus, received = Dispatcher(), []

    def interrupt(event: str) -> None:
        if event == "one":
            bus.dispatch("waiting")
            raise KeyboardInterrupt

    bus.subscribe(str, interrupt)
    bus.subscribe(str, received.append)
    with pytest.raises(KeyboardInterrupt):
        bus.dispatch("one")
    bus.dispatch("two")
    assert received == ["one", "two"]
