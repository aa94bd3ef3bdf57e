"""The thread on which requests run.

It is started with the first request and ended by ``close``. Whoever waits for a request waits on
a queue, so that an exception can end the waiting at any time; the request is then cancelled,
which closes its connection.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

__all__ = ["Connection"]

_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class Connection:
    """An event loop on a thread of its own, inside of which *resource* is entered.

    Args:
        resource: Entered when the thread starts and left when it ends, such as a model with its
            HTTP connections.
    """

    def __init__(self, resource: AbstractAsyncContextManager[Any]) -> None:
        self._resource = resource
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    def submit(self, work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        """Run *work* on the thread; raises what entering the resource raised."""
        with self._lock:
            try:
                loop, _ = self._running()
            except BaseException:
                self._thread = None
                work.close()
                raise
        return asyncio.run_coroutine_threadsafe(work, loop)

    def close(self) -> None:
        """Cancel what runs, leave the resource and end the thread; the next request starts anew."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            loop, stop = self._started.result()
            loop.call_soon_threadsafe(stop.set)
            thread.join()

    def _running(self) -> tuple[asyncio.AbstractEventLoop, asyncio.Event]:
        """The thread's loop, started if need be, and what ends it."""
        if self._thread is None:
            self._started = Future()
            self._thread = threading.Thread(
                target=self._run, name="wink-workspace-model", daemon=True
            )
            self._thread.start()
        return self._started.result()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # noqa: BLE001 - told to whoever asked for the thread
            if self._started.done():
                _log.exception("The connection to a model did not close")
            else:
                self._started.set_exception(error)

    async def _serve(self) -> None:
        async with self._resource:
            stop = asyncio.Event()
            self._started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
