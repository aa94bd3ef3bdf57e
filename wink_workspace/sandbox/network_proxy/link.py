"""Joins the stream of a container and its proxy: an event loop on a thread of its own.

The thread that runs a command receives frames and sends them; it never waits for the proxy. The
loop starts with the first connection. What is queued between the two threads is bounded by the
windows of the connections.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Container, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Final

from wink_workspace.environment import Environment
from wink_workspace.sandbox.network import NetworkRequest, NetworkRules
from wink_workspace.sandbox.transport.container_frames import Kind

from .channels import Channels, Event, Message
from .client_settings import Registry, read_registries
from .dialer import CanaryDialer, SystemDialer
from .package_cache import NO_CACHE
from .proxy import Proxy
from .routes import RouteTable, client_files, client_variables

_MOST_TAKEN_BYTES: Final = 262_144
_END_TIMEOUT_S: Final = 10.0
_NONE: Final[Mapping[str, Sequence[Registry]]] = MappingProxyType({})


class NetworkLink:
    """The connections of the commands of one container.

    ``begin`` and ``end`` enclose each command. It is a ``Relay`` of the stream.

    Args:
        proxy: Serves the connections.
        registries: Where each registry is; for what leads the programs inside to the proxy.
    """

    def __init__(self, proxy: Proxy, registries: Mapping[str, Sequence[Registry]] = _NONE) -> None:
        self._proxy = proxy
        self._registries = registries
        self._wire = _Wire()
        self._clients: dict[int, _Client] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, rules: NetworkRules, environment: Environment) -> NetworkLink | None:
        """The link for a list, ``None`` if it is empty; reads the settings of this machine now.

        Raises:
            UsageError: If a client has a registry that is not a URL of HTTP.
        """
        if not rules:
            return None
        registries = read_registries(environment)
        dialer = SystemDialer(environment, timeout_s=rules.limits.connect_s)
        cache = environment.cache_dir / "packages" if environment.home else NO_CACHE
        proxy = Proxy(RouteTable(rules, registries), dialer, cache)
        return cls(proxy, registries)

    @property
    def rules(self) -> NetworkRules:
        """The list that the proxy applies."""
        return self._proxy.rules

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """The variables of a command with those that lead its clients to the proxy.

        A name that is an absolute path is a file that the runner writes before the command.
        """
        rules, registries = self.rules, self._registries
        files = client_files(rules, registries, env)
        return {**client_variables(rules, registries), **env, **files}

    @property
    def kinds(self) -> Container[Kind]:
        """Those of connections."""
        return range(Kind.CONNECTION, Kind.CONNECTION_CLOSED + 1)

    def fileno(self) -> int:
        """A descriptor that can be read while frames wait to be sent."""
        return self._wire.fileno()

    def begin(self) -> None:
        """Prepare for a command: forget the connections of the last one."""
        self._wire.begin()

    def receive(self, kind: Kind, payload: bytes) -> None:
        """Handle a frame of the container.

        Raises:
            FrameError: If it violates the protocol.
        """
        event = self._wire.receive(kind, payload)
        if event is not None:
            self._started().call_soon_threadsafe(self._dispatch, event)

    def waiting(self) -> list[Message]:
        """Some of the frames that wait to be sent; the caller sends them before it asks again."""
        return self._wire.take()

    def end(self) -> tuple[NetworkRequest, ...]:
        """End the connections of the command; returns its requests."""
        if self._loop is not None:
            ending = asyncio.run_coroutine_threadsafe(self._end_all(), self._loop)
            ending.result(_END_TIMEOUT_S)
        return self._proxy.take_records()

    def close(self) -> None:
        """End the thread; may be called again. Called on that thread, it does not wait."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is threading.current_thread():
            # The garbage collector called it, perhaps while the loop holds the lock of the wire
            loop.call_soon_threadsafe(self._wire.close)
            loop.call_soon_threadsafe(loop.stop)
            return
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_END_TIMEOUT_S)
        self._wire.close()

    @contextmanager
    def probing(self) -> Generator[CanaryDialer]:
        """For the isolation probes: connect nowhere, and remember what would have been."""
        dialer, canary = self._proxy.dialer, CanaryDialer()
        self._proxy.dialer = canary
        try:
            yield canary
        finally:
            self._proxy.dialer = dialer

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_run, args=(self._loop,), name="wink-network-proxy", daemon=True
            )
            self._thread.start()
        return self._loop

    def _dispatch(self, event: Event) -> None:
        """Handle an event, in the event loop."""
        if event.kind is Kind.CONNECTION:
            client = self._clients[event.connection] = _Client(self._wire, event.connection)
            task = asyncio.ensure_future(self._proxy.serve(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        self._clients[event.connection].handle(event)
        if event.kind is Kind.CONNECTION_CLOSED:
            del self._clients[event.connection]

    async def _end_all(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._clients.clear()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


class _Wire:
    """The channels and the frames that wait to be sent, for two threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels = Channels()
        self._frames: deque[Message] = deque()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_closed = False

    def fileno(self) -> int:
        return self._wake_read

    def begin(self) -> None:
        with self._lock:
            self._channels = Channels()
            self._frames.clear()
            self._drain()

    def receive(self, kind: Kind, payload: bytes) -> Event | None:
        with self._lock:
            return self._channels.receive(kind, payload)

    def take(self) -> list[Message]:
        taken: list[Message] = []
        n_bytes = 0
        with self._lock:
            while self._frames and n_bytes < _MOST_TAKEN_BYTES:
                taken.append(self._frames.popleft())
                n_bytes += len(taken[-1][1])
            if not self._frames:
                self._drain()
        return taken

    def send_some(self, connection: int, data: memoryview) -> int:
        """Queue as much of *data* as the window permits; returns its length.

        Raises:
            ConnectionError: If the connection is closed.
        """
        with self._lock:
            if not self._channels.is_open(connection):
                raise ConnectionResetError
            length = min(len(data), self._channels.credit(connection))
            if length:
                self._post(self._channels.send(connection, bytes(data[:length])))
            return length

    def acknowledge(self, connection: int, n_bytes: int) -> None:
        with self._lock:
            self._post(self._channels.acknowledge(connection, n_bytes))

    def end(self, connection: int) -> None:
        with self._lock:
            self._post(self._channels.end(connection))

    def drop(self, connection: int) -> None:
        with self._lock:
            self._post(self._channels.drop(connection))

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._wake_read)
                os.close(self._wake_write)

    def _post(self, message: Message | None) -> None:
        if message is not None and not self._is_closed:
            self._frames.append(message)
            with suppress(BlockingIOError):
                os.write(self._wake_write, b"x")

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._wake_read, 65_536):
                pass


class _Client:
    """A connection of the container, for the proxy; all its methods run in the event loop."""

    def __init__(self, wire: _Wire, connection: int) -> None:
        self._wire = wire
        self._connection = connection
        self._received: deque[bytes] = deque()
        self._has_ended = False
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()

    def handle(self, event: Event) -> None:
        match event.kind:
            case Kind.FROM_CONNECTION:
                self._received.append(event.data)
            case Kind.CONNECTION_ENDED | Kind.CONNECTION_CLOSED:
                self._has_ended = True
            case _:
                pass
        self._readable.set()
        self._writable.set()

    async def read(self) -> bytes:
        while not self._received:
            if self._has_ended:
                return b""
            self._readable.clear()
            await self._readable.wait()
        data = self._received.popleft()
        self._wire.acknowledge(self._connection, len(data))
        return data

    async def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            self._writable.clear()
            length = self._wire.send_some(self._connection, left)
            left = left[length:]
            if not length:
                await self._writable.wait()

    def end(self) -> None:
        self._wire.end(self._connection)

    def drop(self) -> None:
        self._wire.drop(self._connection)
