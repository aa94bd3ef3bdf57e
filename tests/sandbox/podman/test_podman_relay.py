"""The program that carries connections to services, against clients that use up what it has."""

from __future__ import annotations

import resource
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from wink_workspace.sandbox.podman.engine.containers import LiveContainer
from wink_workspace.sandbox.podman.engine.owners import started_ticks
from wink_workspace.sandbox.podman.engine.relay import Relay
from wink_workspace.sandbox.podman.inside import relay_program

SERVER = """\
import ctypes, fcntl, socket, struct, threading
assert ctypes.CDLL(None).unshare(0x50000000) == 0
listening = socket.socket()
fcntl.ioctl(listening, 0x8914, struct.pack("16sh14x", b"lo", 1))
listening.bind(("127.0.0.1", 0))
listening.listen(200)
print(listening.getsockname()[1], flush=True)
def serve(client):
    with client:
        client.sendall(b"hello")
        client.recv(1)
while True:
    threading.Thread(target=serve, args=listening.accept()[:1]).start()
"""
"""A server in user and network namespaces of its own; a connection lasts as long as its client."""


@pytest.fixture
def server() -> Generator[tuple[LiveContainer, int]]:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            started = started_ticks(process.pid)
            assert started is not None
            yield LiveContainer("server", process.pid, started), port
        finally:
            process.kill()


@pytest.fixture
def relay() -> Generator[Relay]:
    relay = Relay()
    yield relay
    relay.end()


def greeting(client: socket.socket) -> bytes:
    client.settimeout(30)
    try:
        return client.recv(100)
    except ConnectionResetError:
        return b""


def greets(address: tuple[str, int]) -> bool:
    with socket.create_connection(address) as client:
        return greeting(client) == b"hello"


@pytest.mark.behaviour(147)
def test_clients_that_use_up_all_descriptors_end_no_listener(
    relay: Relay, server: tuple[LiveContainer, int]
) -> None:
    target, port = server
    number, host_port = relay.listen(None, "127.0.0.1", 0, target, port)
    pid = relay.pid
    assert pid is not None
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (40, hard))
    address = ("127.0.0.1", host_port)
    with ExitStack() as clients:
        opened = [clients.enter_context(socket.create_connection(address)) for _ in range(60)]
        assert greeting(opened[0]) == b"hello"
        assert relay.pid == pid
    pause = threading.Event()
    while not greets(address):  # until it has closed those connections
        pause.wait(0.01)
    assert relay.pid == pid
    relay.close(number)


class _Connector:
    """Makes one socket, then its process has ended."""

    def __init__(self) -> None:
        self.made: list[socket.socket] = []

    def connect(self, family: int, port: int) -> socket.socket:
        del family, port
        if self.made:
            raise BrokenPipeError
        self.made.append(socket.socket())
        self.made[0].setblocking(False)
        self.made[0].connect_ex(("127.0.0.1", 1))
        return self.made[0]


@pytest.mark.behaviour(147)
def test_a_connection_whose_service_ends_while_it_is_tried_is_closed() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        relay = relay_program._Relay(ours)
        listener = SimpleNamespace(connector=_Connector(), to_port=1, connections=set())
        connection = relay_program._Connection(relay, listener, theirs)
        listener.connections.add(connection)
        listener.connector.made[0].setblocking(True)
        connection._on_service(selectors.EVENT_WRITE)
        assert theirs.fileno() == -1
        assert not listener.connections
