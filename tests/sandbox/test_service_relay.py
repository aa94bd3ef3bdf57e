"""The program that carries connections to services, against clients that use up what it has."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack

import pytest

from wink_workspace.sandbox.commands.live_container import LiveContainer, started_ticks
from wink_workspace.sandbox.commands.relay import Relay

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
        while data := client.recv(65536):
            client.sendall(data)
while True:
    threading.Thread(target=serve, args=listening.accept()[:1]).start()
"""
"""An echo server in user and network namespaces of its own."""


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


@pytest.mark.behaviour(147)
def test_a_connection_to_a_service_that_has_ended_is_closed(
    relay: Relay, server: tuple[LiveContainer, int]
) -> None:
    target, port = server
    _, host_port = relay.listen(None, "127.0.0.1", 0, target, port)
    os.kill(target.pid, signal.SIGKILL)
    assert target.ends_within(30)
    assert not greets(("127.0.0.1", host_port))


def test_each_direction_is_carried_whole_and_ends_on_its_own(
    relay: Relay, server: tuple[LiveContainer, int]
) -> None:
    _, host_port = relay.listen(None, "127.0.0.1", 0, *server)
    sent = os.urandom(5_000_000)

    def send() -> None:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)

    with socket.create_connection(("127.0.0.1", host_port), timeout=30) as client:
        sender = threading.Thread(target=send)
        sender.start()
        received = b"".join(iter(lambda: client.recv(65_536), b""))
        sender.join()
    assert received == b"hello" + sent


def test_a_listener_that_is_closed_ends_its_connections(
    relay: Relay, server: tuple[LiveContainer, int]
) -> None:
    number, host_port = relay.listen(None, "127.0.0.1", 0, *server)
    with socket.create_connection(("127.0.0.1", host_port)) as client:
        assert greeting(client) == b"hello"
        relay.close(number)
        assert greeting(client) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", host_port))
