"""Carries TCP connections from one network namespace to another, without looking at their bytes.

A program of its own, because a threaded process must not fork or change its namespaces. It is
started as ``python -I -S relay_program.py FD``, and uses the standard library only. FD is one end
of a ``SOCK_SEQPACKET`` pair; the program ends when the other end is closed.

Every request is a JSON object with ``do``, and every answer has ``errno`` and ``text`` after a
failure.

``listen``  ``host``, ``port``, ``to`` and ``to_port``, and perhaps ``from``: accepts connections on
            that address, and connects each one to ``to_port`` on the loopback of process ``to``.
            With ``from``, it accepts them in the network namespace of that process, otherwise on
            this machine. Answers with the ``id`` of the listener and its ``port``.
``close``   ``id``: ends a listener with its connections.

A process of the program enters a sandbox's namespaces, makes a socket there, and sends it back.
It enters the user namespace that the network belongs to, then the network, then the user namespace
of the sandbox, and so has no rights on this machine. It refuses a process that is in the network
namespace of this machine.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_CLONE_NEWUSER, _CLONE_NEWNET = 0x1000_0000, 0x4000_0000
_NS_GET_USERNS = 0xB701
_MAX_BYTES = 65_536
_MAX_CONNECTIONS = 256
_BACKLOG = 64

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _enter(pid: int) -> None:
    """Enter the network and user namespaces of a process, for the rest of this process's life."""
    import ctypes
    import fcntl

    libc = ctypes.CDLL(None, use_errno=True)
    names = (f"/proc/{pid}/ns/net", f"/proc/{pid}/ns/user")
    network, user = (os.open(name, os.O_RDONLY | os.O_CLOEXEC) for name in names)
    if os.path.samestat(os.fstat(network), Path("/proc/self/ns/net").stat()):
        raise PermissionError(errno.EPERM, "the process is in the network of this machine")
    owner = fcntl.ioctl(network, _NS_GET_USERNS)
    order = ((owner, _CLONE_NEWUSER), (network, _CLONE_NEWNET), (user, _CLONE_NEWUSER))
    for descriptor, kind in order:
        present = Path("/proc/self/ns/user").stat()  # which cannot be entered a second time
        is_there = os.path.samestat(os.fstat(descriptor), present)
        if not is_there and libc.setns(descriptor, kind):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        os.close(descriptor)


def _child(pid: int, work: Callable[[socket.socket], None]) -> tuple[int, socket.socket]:
    """A process that runs *work* in the namespaces of process *pid*; its id, and the way to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child:
        theirs.close()
        return child, ours
    try:
        keep = theirs.fileno()
        os.closerange(3, keep)
        os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
        _enter(pid)
        work(theirs)
    except OSError as error:
        with suppress(OSError):
            theirs.send(json.dumps({"errno": error.errno, "text": error.strerror}).encode())
    finally:
        os._exit(0)


def _received(channel: socket.socket) -> socket.socket:
    """The socket that a child made.

    Raises:
        OSError: If it could not make one.
    """
    packet, descriptors, _, _ = socket.recv_fds(channel, _MAX_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
    if descriptors:
        made = socket.socket(fileno=descriptors[0])
        made.setblocking(False)
        return made
    answer = json.loads(packet) if packet else {"errno": errno.ESRCH, "text": "it has ended"}
    # A socket that came without its descriptor: this process has too many of them.
    raise OSError(answer.get("errno", errno.EMFILE), answer.get("text", os.strerror(errno.EMFILE)))


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    made.setblocking(False)
    return made


def _listening_in(pid: int, host: str, port: int) -> socket.socket:
    """A listening socket in the network namespace of a process."""

    def work(channel: socket.socket) -> None:
        with _listening(host, port) as made:
            socket.send_fds(channel, [b"{}"], [made.fileno()])

    child, channel = _child(pid, work)
    with channel:
        try:
            return _received(channel)
        finally:
            os.waitpid(child, 0)


class _Connector:
    """Makes sockets in the network of one container; they stay in it wherever they are used."""

    def __init__(self, pid: int) -> None:
        self._child, self._channel = _child(pid, self._serve)

    def socket(self, family: int) -> socket.socket:
        """A socket that is not connected."""
        self._channel.send(str(family).encode())
        return _received(self._channel)

    def close(self) -> None:
        self._channel.close()
        os.waitpid(self._child, 0)

    @staticmethod
    def _serve(channel: socket.socket) -> None:
        """In the child."""
        while request := channel.recv(_MAX_BYTES):
            try:
                with socket.socket(int(request), socket.SOCK_STREAM) as made:
                    socket.send_fds(channel, [b"{}"], [made.fileno()])
            except OSError as error:
                answer = {"errno": error.errno, "text": error.strerror}
                channel.send(json.dumps(answer).encode())


class _Listener:
    """A listening socket, and the connections that it accepted."""

    def __init__(self, request: dict[str, object]) -> None:
        host, port, start = str(request["host"]), int(str(request["port"])), request.get("from")
        self._to_port = int(str(request["to_port"]))
        self._connections: set[asyncio.Task[None]] = set()
        if start is None:
            self._socket = _listening(host, port)
        else:
            self._socket = _listening_in(int(str(start)), host, port)
        try:
            self._connector = _Connector(int(str(request["to"])))
        except BaseException:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]

    async def accept(self) -> None:
        """Accept connections from now on; without a free descriptor, asyncio waits a second."""
        # asyncio accepts as many at once as its backlog: a burst would leave no descriptor to
        # connect any of them.
        self._server = await asyncio.start_server(self._accepted, sock=self._socket, backlog=1)
        self._socket.listen(_BACKLOG)

    async def close(self) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._connector.close()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= _MAX_CONNECTIONS:
            writer.transport.abort()
            return
        connection = asyncio.ensure_future(self._carry((reader, writer)))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _carry(self, client: Streams) -> None:
        """Carry the bytes of a connection until both directions have ended."""
        ends = [client]
        try:
            with suppress(OSError):  # an end was closed, or the container has ended
                ends.append(service := await self._service())
                await asyncio.gather(_pump(client[0], service[1]), _pump(service[0], client[1]))
        finally:
            for _, writer in ends:
                writer.transport.abort()

    async def _service(self) -> Streams:
        """A connection to the service; some servers listen on ::1 only."""
        try:
            return await self._connected(socket.AF_INET, "127.0.0.1")
        except OSError:
            return await self._connected(socket.AF_INET6, "::1")

    async def _connected(self, family: int, host: str) -> Streams:
        made = self._connector.socket(family)
        try:
            await asyncio.get_running_loop().sock_connect(made, (host, self._to_port))
            return await asyncio.open_connection(sock=made)
        except BaseException:
            made.close()
            raise


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry one direction to its end; when this returns, the system has all of it."""
    writer.transport.set_write_buffer_limits(0)
    while data := await reader.read(_MAX_BYTES):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()


async def _serve(channel: socket.socket) -> None:
    """Answer requests until the other end is closed."""
    loop = asyncio.get_running_loop()
    channel.setblocking(False)
    listeners: dict[int, _Listener] = {}
    numbers = itertools.count(1)
    while packet := await loop.sock_recv(channel, _MAX_BYTES):
        request = json.loads(packet)
        answer: dict[str, object] = {}
        try:
            if request["do"] == "listen":
                listener = _Listener(request)
                await listener.accept()
                listeners[number := next(numbers)] = listener
                answer = {"id": number, "port": listener.port}
            elif (listener := listeners.pop(request["id"], None)) is not None:
                await listener.close()
        except OSError as error:
            answer = {"errno": error.errno, "text": error.strerror or str(error)}
        await loop.sock_sendall(channel, json.dumps(answer).encode())


def main() -> None:
    """Serve until the other end is closed."""
    with suppress(BrokenPipeError, ConnectionResetError):
        asyncio.run(_serve(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
