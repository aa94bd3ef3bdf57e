"""The thread that requests run on: started once, ended once, and no hostage of what fails on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager

import pytest

from wink_workspace.adapters.model.connection import Connection


class Door:
    """A resource that notes who came and went."""

    def __init__(self, *, fails_in: bool = False, fails_out: bool = False) -> None:
        self.fails_in, self.fails_out = fails_in, fails_out
        self.seen: list[str] = []

    async def __aenter__(self) -> Door:
        if self.fails_in:
            raise OSError("no way in")
        self.seen.append("in")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.seen.append("out")
        if self.fails_out:
            raise OSError("no way out")


async def name_of_thread() -> str:
    return threading.current_thread().name


def test_the_resource_is_entered_once_and_left_with_the_thread() -> None:
    door = Door()
    connection = Connection(door)
    assert door.seen == []
    names = {connection.submit(name_of_thread()).result() for _ in range(3)}
    assert names == {"wink-workspace-model"}
    connection.close()
    connection.close()
    assert door.seen == ["in", "out"]
    assert "wink-workspace-model" not in {thread.name for thread in threading.enumerate()}


def test_closing_cancels_what_still_runs() -> None:
    connection = Connection(Door())
    begun = threading.Event()

    async def wait_for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    waiting = connection.submit(wait_for_ever())
    begun.wait(60)
    connection.close()
    with pytest.raises(CancelledError):
        waiting.result()


def test_a_resource_that_cannot_be_entered_is_tried_again_by_the_next_request() -> None:
    door = Door(fails_in=True)
    connection = Connection(door)
    with pytest.raises(OSError, match="no way in"):
        connection.submit(name_of_thread())
    connection.close()
    door.fails_in = False
    assert connection.submit(name_of_thread()).result()
    connection.close()


def test_a_resource_that_cannot_be_left_is_logged_and_closing_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection = Connection(Door(fails_out=True))
    connection.submit(name_of_thread()).result()
    connection.close()
    assert "did not close" in caplog.text


def test_work_may_be_asked_for_by_one_who_has_an_event_loop() -> None:
    @asynccontextmanager
    async def nothing() -> AsyncIterator[None]:
        yield

    connection = Connection(nothing())

    async def ask() -> str:
        return connection.submit(name_of_thread()).result()

    assert asyncio.run(ask()) == "wink-workspace-model"
    connection.close()
