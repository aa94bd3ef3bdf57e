"""The thread that joins a container and its proxy can be ended from any thread."""

from __future__ import annotations

import asyncio
import threading

from proxy_machine import ProxyMachine


def test_link_closed_on_its_own_thread_ends_without_waiting_for_itself(proxy: ProxyMachine) -> None:
    """The garbage collector may run there, also while the thread holds the lock of the frames."""
    link = proxy.link()

    async def close() -> threading.Thread:
        with link._wire._lock:
            link.close()
        return threading.current_thread()

    thread = asyncio.run_coroutine_threadsafe(close(), link._started()).result(30)
    thread.join(30)
    assert not thread.is_alive()
    assert link._wire._is_closed
    link.close()
