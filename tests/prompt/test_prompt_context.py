"""The context of a handler."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any, cast

import pytest

from wink_workspace.clock import Deadline, Heartbeat, ManualClock
from wink_workspace.filesystem.memory import MemoryFilesystem
from wink_workspace.filesystem.protocol import Filesystem
from wink_workspace.prompt import Prompt
from wink_workspace.prompt.tool_context import ToolContext
from wink_workspace.resources import Binding, ResourceRegistry
from wink_workspace.session import Session


def in_context(resources: Any = None, **fields: Any) -> ToolContext:
    return ToolContext(
        prompt=Prompt(ns="test", key="test", sections=[]),
        rendered_prompt=None,
        adapter=cast("Any", None),
        session=Session(),
        resources=resources,
        **fields,
    )


@pytest.mark.behaviour(21)
def test_filesystem_is_the_bound_one_or_none() -> None:
    files = MemoryFilesystem()
    with (
        ResourceRegistry.of(Binding.instance(Filesystem, files)).open() as resources,
        resources.tool_scope() as view,
    ):
        assert in_context(view).filesystem is files
    with ResourceRegistry.of().open() as resources, resources.tool_scope() as view:
        assert in_context(view).filesystem is None


@pytest.mark.behaviour(20)
def test_beat_of_a_handler_notifies_the_heartbeat() -> None:
    heartbeat, beats = Heartbeat(ManualClock()), list[str]()
    heartbeat.observe(lambda: beats.append("beat"))

    context = in_context(heartbeat=heartbeat)
    context.beat()
    context.beat()

    assert beats == ["beat", "beat"]


def test_beat_without_a_heartbeat_does_nothing() -> None:
    context = in_context()

    context.beat()

    assert context.heartbeat is None


@pytest.mark.behaviour(18)
def test_a_handler_can_read_the_time_until_the_deadline() -> None:
    clock = ManualClock()
    context = in_context(deadline=Deadline.after(10, clock=clock))

    clock.advance(4)

    assert context.remaining_s == 6.0
    assert in_context().remaining_s is None


def test_dispatcher_and_event_bus_are_the_sessions_dispatcher() -> None:
    context = in_context()

    assert context.dispatcher is context.event_bus is context.session.dispatcher


def test_a_context_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        in_context().session = Session()
