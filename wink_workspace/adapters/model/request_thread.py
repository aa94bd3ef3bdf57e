"""The thread on which requests run.

The first request starts it, and ``close`` ends it. The caller waits for a request on a queue, so
an exception can end the wait at any time. The request is then cancelled, which closes its
connection.
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
    """An event loop on a separate thread, which enters *resource*.

    Args:
        resource: Entered when the thread starts and exited when it ends, such as a model with
            its HTTP connections.
    """

    def __init__(self, resource: AbstractAsyncContextManager[Any]) -> None:
        self._resource = resource
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    def submit(self, work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        """Run *work* on the thread. An exception from entering the resource is raised here."""
        with self._lock:
            try:
                loop, _ = self._ensure_running()
            except BaseException:
                self._thread = None
                work.close()
                raise
        return asyncio.run_coroutine_threadsafe(work, loop)

    def close(self) -> None:
        """Cancel requests, exit the resource, end the thread; the next request starts a new one.

        Called on that thread, it does not wait: the garbage collector may call finalizers there.
        """
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            loop, stop = self._started.result()
            loop.call_soon_threadsafe(stop.set)
            if thread is not threading.current_thread():
                thread.join()

    def _ensure_running(self) -> tuple[asyncio.AbstractEventLoop, asyncio.Event]:
        """Return the thread's loop and its stop event; start the thread if necessary."""
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
        except Exception as error:  # noqa: BLE001 - raised in the thread that called submit
            if self._started.done():
                _log.exception("The connection to the model did not close")
            else:
                self._started.set_exception(error)

    async def _serve(self) -> None:
        async with self._resource:
            stop = asyncio.Event()
            self._started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
