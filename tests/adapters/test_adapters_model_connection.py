"""The thread for requests: started once, ended once, and robust against failing resources."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager

import pytest

from wink_workspace.adapters.model.adapter import RequestThread


class Resource:
    """A resource that records when it is entered and exited."""

    def __init__(self, *, fails_on_enter: bool = False, fails_on_exit: bool = False) -> None:
        self.fails_on_enter, self.fails_on_exit = fails_on_enter, fails_on_exit
        self.log: list[str] = []

    async def __aenter__(self) -> Resource:
        if self.fails_on_enter:
            raise OSError("cannot enter")
        self.log.append("in")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.log.append("out")
        if self.fails_on_exit:
            raise OSError("cannot exit")


async def name_of_thread() -> str:
    return threading.current_thread().name


def test_the_resource_is_entered_once_and_exited_when_the_thread_ends() -> None:
    resource = Resource()
    connection = RequestThread(resource)
    assert resource.log == []
    names = {connection.submit(name_of_thread()).result() for _ in range(3)}
    assert names == {"wink-workspace-model"}
    connection.close()
    connection.close()
    assert resource.log == ["in", "out"]
    assert "wink-workspace-model" not in {thread.name for thread in threading.enumerate()}


def test_close_cancels_running_requests() -> None:
    connection = RequestThread(Resource())
    begun = threading.Event()

    async def wait_forever() -> None:
        begun.set()
        await asyncio.Event().wait()

    waiting = connection.submit(wait_forever())
    begun.wait(60)
    connection.close()
    with pytest.raises(CancelledError):
        waiting.result()


def test_close_on_the_thread_itself_does_not_wait_for_its_end() -> None:
    """The garbage collector may run on that thread, and calls the finalizers there."""
    resource = Resource()
    connection = RequestThread(resource)

    async def close() -> threading.Thread:
        connection.close()
        return threading.current_thread()

    thread = connection.submit(close()).result()
    thread.join(60)
    assert not thread.is_alive()
    assert resource.log == ["in", "out"]


def test_a_resource_that_fails_to_enter_is_retried_by_the_next_request() -> None:
    resource = Resource(fails_on_enter=True)
    connection = RequestThread(resource)
    with pytest.raises(OSError, match="cannot enter"):
        connection.submit(name_of_thread())
    connection.close()
    resource.fails_on_enter = False
    assert connection.submit(name_of_thread()).result()
    connection.close()


def test_a_resource_that_fails_to_exit_is_logged_and_close_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection = RequestThread(Resource(fails_on_exit=True))
    connection.submit(name_of_thread()).result()
    connection.close()
    assert "did not close" in caplog.text


def test_a_caller_inside_an_event_loop_may_submit_work() -> None:
    @asynccontextmanager
    async def nothing() -> AsyncIterator[None]:
        yield

    connection = RequestThread(nothing())

    async def ask() -> str:
        return connection.submit(name_of_thread()).result()

    assert asyncio.run(ask()) == "wink-workspace-model"
    connection.close()
