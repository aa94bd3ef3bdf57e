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

A process of the program enters a container's namespaces, makes a socket there, and sends it back.
It enters the user namespace first, and so has no rights on this machine. It refuses a process that
is in the network namespace of this machine.
"""

from __future__ import annotations

import errno
import json
import os
import selectors
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_CLONE_NEWUSER, _CLONE_NEWNET = 0x1000_0000, 0x4000_0000
_MAX_BYTES = 65_536
_MAX_CONNECTIONS = 256
_BACKLOG = 64
_REQUEST = struct.Struct("!BH")
_LOOPBACKS = {4: (socket.AF_INET, "127.0.0.1"), 6: (socket.AF_INET6, "::1")}
_OTHER = {4: 6}
"""Where to try next if no process listens: some servers listen on ::1 only."""

Event = Callable[[int], None]


def _enter(pid: int) -> None:
    """Enter the user and network namespaces of a process, for the rest of this process's life."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    wanted = {_CLONE_NEWUSER: f"/proc/{pid}/ns/user", _CLONE_NEWNET: f"/proc/{pid}/ns/net"}
    opened = {kind: os.open(path, os.O_RDONLY | os.O_CLOEXEC) for kind, path in wanted.items()}
    if os.path.samestat(os.fstat(opened[_CLONE_NEWNET]), Path("/proc/self/ns/net").stat()):
        raise PermissionError(errno.EPERM, "the process is in the network of this machine")
    for kind, descriptor in opened.items():
        if libc.setns(descriptor, kind):
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
    """Makes sockets that connect to the loopback of one container."""

    def __init__(self, pid: int) -> None:
        self._child, self._channel = _child(pid, self._serve)

    def connect(self, family: int, port: int) -> socket.socket:
        """A socket that is being connected."""
        self._channel.send(_REQUEST.pack(family, port))
        return _received(self._channel)

    def close(self) -> None:
        self._channel.close()
        os.waitpid(self._child, 0)

    @staticmethod
    def _serve(channel: socket.socket) -> None:
        """In the child."""
        while request := channel.recv(_MAX_BYTES):
            version, port = _REQUEST.unpack(request)
            family, host = _LOOPBACKS[version]
            try:
                with socket.socket(family, socket.SOCK_STREAM) as made:
                    made.setblocking(False)
                    made.connect_ex((host, port))
                    socket.send_fds(channel, [b"{}"], [made.fileno()])
            except OSError as error:
                answer = {"errno": error.errno, "text": error.strerror}
                channel.send(json.dumps(answer).encode())


class _Way:
    """One direction of a connection: bytes that were received and not yet sent."""

    def __init__(self) -> None:
        self.waiting = bytearray()
        self.ended = False


class _Connection:
    """Two sockets: one of the client, one of the service."""

    def __init__(self, relay: _Relay, listener: _Listener, client: socket.socket) -> None:
        self._relay = relay
        self._listener = listener
        self._client = client
        self._family = 4
        self._is_connected = False
        self._to_service, self._to_client = _Way(), _Way()
        self._service = listener.connector.connect(self._family, listener.to_port)
        relay.watch(self._service, selectors.EVENT_WRITE, self._on_service)

    def close(self) -> None:
        self._listener.connections.discard(self)
        for end in (self._client, self._service):
            self._relay.forget(end)
            end.close()
        self._relay.resume()

    def _on_service(self, events: int) -> None:
        if not self._is_connected:
            self._on_connected()
            return
        self._transfer(events, self._service, self._to_client, self._to_service)

    def _on_client(self, events: int) -> None:
        self._transfer(events, self._client, self._to_service, self._to_client)

    def _on_connected(self) -> None:
        if self._service.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            other = _OTHER.get(self._family)
            self._relay.forget(self._service)
            self._service.close()
            if other is None:
                self.close()
                return
            self._family = other
            try:
                self._service = self._listener.connector.connect(other, self._listener.to_port)
            except OSError:  # the container has ended
                self.close()
                return
            self._relay.watch(self._service, selectors.EVENT_WRITE, self._on_service)
            return
        self._is_connected = True
        self._update()

    def _transfer(self, events: int, end: socket.socket, received: _Way, to_send: _Way) -> None:
        try:
            if events & selectors.EVENT_WRITE and to_send.waiting:
                del to_send.waiting[: end.send(to_send.waiting)]
            if events & selectors.EVENT_READ and not received.ended:
                data = end.recv(_MAX_BYTES)
                received.waiting += data
                received.ended = not data
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        self._update()

    def _update(self) -> None:
        """Watch for what can be done next; close when both directions have ended."""
        ends = (
            (self._client, self._to_service, self._to_client, self._on_client),
            (self._service, self._to_client, self._to_service, self._on_service),
        )
        n_open = 0
        for end, received, to_send, event in ends:
            events = 0
            if not received.ended and len(received.waiting) < _MAX_BYTES:
                events |= selectors.EVENT_READ
            if to_send.waiting:
                events |= selectors.EVENT_WRITE
            elif to_send.ended:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_WR)
            n_open += not received.ended or bool(received.waiting)
            self._relay.watch(end, events, event)
        if not n_open:
            self.close()


class _Listener:
    """A listening socket, and the connections that it accepted."""

    def __init__(self, relay: _Relay, request: dict[str, object]) -> None:
        host, port, start = str(request["host"]), int(str(request["port"])), request.get("from")
        self._relay = relay
        self.to_port = int(str(request["to_port"]))
        self.connections: set[_Connection] = set()
        if start is None:
            self._socket = _listening(host, port)
        else:
            self._socket = _listening_in(int(str(start)), host, port)
        try:
            self.connector = _Connector(int(str(request["to"])))
        except BaseException:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        self.accept()

    def accept(self) -> None:
        """Accept connections from now on."""
        self._relay.watch(self._socket, selectors.EVENT_READ, self._accept)

    def pause(self) -> None:
        """Accept none until the next ``accept``."""
        self._relay.forget(self._socket)

    def close(self) -> None:
        self.pause()
        self._socket.close()
        for connection in list(self.connections):
            connection.close()
        self.connector.close()

    def _accept(self, _: int) -> None:
        try:
            client, _peer = self._socket.accept()
        except OSError as error:  # it has gone, or there are too many open files
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._relay.pause(self)
            return
        if len(self.connections) >= _MAX_CONNECTIONS:
            client.close()
            return
        client.setblocking(False)
        try:
            self.connections.add(_Connection(self._relay, self, client))
        except OSError:  # the container has ended
            client.close()


class _Relay:
    """Waits for events, and answers requests."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._selector = selectors.DefaultSelector()
        self._listeners: dict[int, _Listener] = {}
        self._paused: set[_Listener] = set()
        self._next = 1

    def serve(self) -> None:
        """Serve until the other end is closed."""
        self._selector.register(self._channel, selectors.EVENT_READ, None)
        while True:
            for key, events in self._selector.select():
                if key.data is None:
                    packet = self._channel.recv(_MAX_BYTES)
                    if not packet:
                        return
                    self._channel.send(json.dumps(self._answer(json.loads(packet))).encode())
                elif key.fileobj.fileno() >= 0:  # pyright: ignore - not closed by an earlier event
                    key.data(events)

    def watch(self, end: socket.socket, events: int, event: Event) -> None:
        """Call *event* for these events of a socket from now on."""
        known = self._selector.get_map().get(end)
        if known is not None and known.events == events:
            return
        self.forget(end)
        if events:
            self._selector.register(end, events, event)

    def forget(self, end: socket.socket) -> None:
        """Call nothing for this socket any more."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(end)

    def pause(self, listener: _Listener) -> None:
        """Let *listener* accept nothing until a connection has ended."""
        listener.pause()
        self._paused.add(listener)

    def resume(self) -> None:
        """A connection has ended: let all listeners accept again."""
        paused, self._paused = self._paused, set()
        for listener in paused & set(self._listeners.values()):
            listener.accept()

    def _answer(self, request: dict[str, object]) -> dict[str, object]:
        try:
            if request["do"] == "close":
                listener = self._listeners.pop(int(str(request["id"])), None)
                if listener is not None:
                    listener.close()
                return {}
            listener = _Listener(self, request)
        except OSError as error:
            return {"errno": error.errno, "text": error.strerror or str(error)}
        number, self._next = self._next, self._next + 1
        self._listeners[number] = listener
        return {"id": number, "port": listener.port}


def main() -> None:
    """Serve until the other end is closed."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    with suppress(BrokenPipeError, ConnectionResetError):
        _Relay(channel).serve()


if __name__ == "__main__":
    main()
