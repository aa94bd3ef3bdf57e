"""Runs commands inside the container, for the host at the other end of its standard streams.

This file is sent to the container's Python as a whole. It imports nothing of this package, works on
Python 3.8 and later, and imports few modules, because the process is forked for every command.

It is the container's first process. So it inherits every process that a command leaves behind, it
knows that all have ended when it has no child, and the container ends with it. It is the
container's root with only the privileges to change to the commands' user and to kill them. So no
command can signal, trace or read it. In a sandbox of an ordinary user it has the id of commands. It
is protected there by these privileges, which commands lack, by being the first process, and by the
filter of system calls.

Only the workspace outlives a command: when one ends, every process in the container is killed, and
the world-writable directories are emptied. Requests and output pass through memory that a fork does
not inherit, so no command can read those of another.

With a network allow-list it listens on the loopback of the container, and carries the bytes of each
connection to the host and back. It does not interpret them. The connections end with their command.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import mmap
import os
import select
import stat
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn
else:
    import _signal as signal  # the module signal loads enum, which takes 4 ms

PROTOCOL_VERSION = 4
MOST_PAYLOAD_BYTES = 65536
USUAL_REQUEST_BYTES = 1048576
MOST_REQUEST_BYTES = 67108864
RUN, PYTHON, INPUT, KILL = 1, 2, 3, 4
TO_CONNECTION, END_CONNECTION, ACK_CONNECTION, DROP_CONNECTION = 5, 6, 7, 8
RESIZE, TAKEN = 9, 74
READY, OUTPUT, ERRORS, ENDED, REFUSED = 64, 65, 66, 67, 68
LANDLOCK_CREATE, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT = 444, 445, 446
CONNECTION, FROM_CONNECTION, CONNECTION_ENDED, CONNECTION_ACKED, CONNECTION_CLOSED = range(69, 74)
WINDOW_BYTES = 131072
MOST_CONNECTIONS = 64

HEADER = struct.Struct("!BII")
LENGTH = struct.Struct("!I")
ACCEPTED = b"."
SCRATCH = ("/tmp", "/dev/shm", "/dev/mqueue")
GIT_TEMPLATE = "/run/wink/history/template"
GIT_LAYER = "/run/wink/call"
GIT_DIRECTORY = GIT_LAYER + "/git"
SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
WARM_MODULES = ("ast", "io", "json", "linecache", "pathlib", "re", "traceback", "types")
IDLE_MS = 200
COMPILED = "# compiled\n"
MERGED, TERMINAL = 1, 2
TERMINAL_SIZE = (24, 80)
END_OF_INPUT = b"\4" * 16  # for so many programs that read it
READ_BYTES = 65536 - HEADER.size  # with its header, the capacity of a pipe


class suppress:  # noqa: N801 - that of contextlib, which takes 3 ms to load
    """A block that ends with the first of some errors."""

    def __init__(self, *errors: type[BaseException]) -> None:
        self.errors = errors

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        """Whether the error is one of them."""
        return kind is not None and issubclass(kind, self.errors)


class HostGoneError(Exception):
    """The host has closed the stream or violated the protocol; the runner ends."""


class RefusedError(Exception):
    """A command could not be started; ``stage`` and the error number ``code`` say why."""

    def __init__(self, stage: str, code: int) -> None:
        super().__init__(stage, code)
        self.stage = stage
        self.code = code


def joined_fields(parts: Iterable[bytes]) -> bytes:
    """Several byte strings as one; the host has the same function."""
    return b"".join(LENGTH.pack(len(part)) + part for part in parts)


def fields(payload: memoryview) -> list[memoryview]:
    """The byte strings that the host joined, without a copy."""
    found: list[memoryview] = []
    at = 0
    while at < len(payload):
        (length,) = LENGTH.unpack_from(payload, at)
        at += LENGTH.size
        found.append(payload[at : at + length])
        at += length
    return found


def private_memory(n_bytes: int) -> memoryview:
    """Memory that a fork does not inherit."""
    memory = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_DONTFORK)
    return memoryview(memory)


class HostChannel:
    """The stream to the host.

    There are two buffers: one for requests, one for all other frames and for what is sent. A frame
    is valid until the next one in its buffer. An unusually large request gets a buffer of its own.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self.request = private_memory(HEADER.size + USUAL_REQUEST_BYTES)
        self.piece = private_memory(HEADER.size + MOST_PAYLOAD_BYTES)

    def receive(
        self, room: memoryview, most_bytes: int = MOST_PAYLOAD_BYTES
    ) -> tuple[int, int, memoryview]:
        """Wait for the next frame; returns its kind, its number and the whole frame.

        The frame is in *room*, or in a new buffer if it is larger than that. More than
        *most_bytes* violate the protocol.
        """
        self._fill(room[: HEADER.size])
        kind, number, length = HEADER.unpack_from(room)
        if length > most_bytes:
            raise HostGoneError
        if length > len(room) - HEADER.size:
            header, room = room[: HEADER.size], private_memory(HEADER.size + length)
            room[: HEADER.size] = header
        frame = room[: HEADER.size + length]
        self._fill(frame[HEADER.size :])
        return kind, number, frame

    def send(self, kind: int, number: int, payload: bytes = b"") -> None:
        """Send a frame; blocks while the pipe is full."""
        write_all(self.write_fd, HEADER.pack(kind, number, len(payload)) + payload)

    def pass_on(
        self, fd: int, kind: int, number: int, prefix: bytes = b"", most_bytes: int = READ_BYTES
    ) -> int | None:
        """Send what can be read from a stream now, after *prefix*; returns the number of bytes.

        0 means the end of the stream, ``None`` that nothing can be read yet.
        """
        start = HEADER.size + len(prefix)
        most_bytes = min(most_bytes, READ_BYTES - len(prefix))
        try:
            length = os.readv(fd, [self.piece[start : start + most_bytes]])
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return 0  # a terminal that no process has open any more
        if length:
            HEADER.pack_into(self.piece, 0, kind, number, len(prefix) + length)
            self.piece[HEADER.size : start] = prefix
            write_all(self.write_fd, self.piece[: start + length])
        return length

    def _fill(self, room: memoryview) -> None:
        while room:
            n_bytes = os.readv(self.read_fd, [room])
            if not n_bytes:
                raise HostGoneError
            room = room[n_bytes:]


class Command:
    """A command, parsed from the frame of a request."""

    def __init__(self, request: bytes) -> None:
        cwd, variables, n_input, output, *arguments = fields(memoryview(request)[HEADER.size :])
        self.kind = request[0]
        self.cwd = os.fsdecode(bytes(cwd))
        self.env = dict(os.fsdecode(bytes(each)).split("=", 1) for each in fields(variables))
        self.files = {name: self.env.pop(name) for name in list(self.env) if name[:1] == "/"}
        flags, *size = map(int, bytes(output).split())
        self.has_input = bytes(n_input) != b"0" or bool(size)
        self.merges_errors = bool(flags & MERGED)
        self.arguments = [bytes(argument) for argument in arguments]


class Spare:
    """A process that waits to become the next command, and the runner's ends of its pipes.

    It is forked while no command runs, so no command can reach it. It has already done the slow
    part: the fork and the drop of all privileges.
    """

    def __init__(self, pid: int, request: int, status: int, streams: dict[int, int]) -> None:
        self.pid = pid
        self.request = request
        self.status = status
        self.streams = streams

    def take(self, request: memoryview) -> bool:
        """Send it the request; ``False`` if it has died before, with its descriptors closed.

        Raises:
            RefusedError: If it could not start the command; its descriptors are closed.
        """
        with suppress(BrokenPipeError):
            write_all(self.request, request)
        os.close(self.request)
        answer = read_all(self.status)
        os.close(self.status)
        if answer == ACCEPTED:
            return True
        for fd in self.streams:
            os.close(fd)
        if answer:
            stage, code = answer.lstrip(ACCEPTED).split(b" ")
            raise RefusedError(stage.decode(), int(code))
        return False

    def discard(self) -> None:
        """End it without a command."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        for fd in (self.request, self.status, *self.streams):
            os.close(fd)


class Input:
    """What the host sends to a command that runs, one piece after the other, in private memory."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.memory = private_memory(MOST_PAYLOAD_BYTES)
        self.left = self.memory[:0]

    def receive(self, kind: int, payload: memoryview, poll: select.poll) -> None:
        """Handle a frame of the host."""
        if kind == RESIZE:
            import termios

            fcntl.ioctl(self.fd, termios.TIOCSWINSZ, bytes(payload))
        elif payload:
            self.left = self.memory[: len(payload)]
            self.left[:] = payload
            poll.register(self.fd, select.POLLOUT)
        else:
            self.close()

    def write(self) -> bool:
        """Write as much as the command reads now; whether that was all, or it reads no more."""
        try:
            self.left = self.left[os.write(self.fd, self.left) :]
        except BlockingIOError:
            return False
        except OSError:
            return True
        return not self.left

    def close(self) -> None:
        """End the input. May be called again."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


class Connection:
    """A connection of a command to the host's proxy. What waits for the client is private memory.

    ``credit`` is how many bytes the host accepts now.
    """

    def __init__(self, host: HostChannel, accepted: Any, command: int, number: int) -> None:
        accepted.setblocking(False)
        self.host = host
        self.socket = accepted
        self.fd: int = accepted.fileno()
        self.command = command
        self.name = LENGTH.pack(number)
        self.credit = WINDOW_BYTES
        self.waiting = private_memory(WINDOW_BYTES)
        self.first = self.n_waiting = 0
        self.is_read = self.host_ended = self.is_broken = False
        self.send(CONNECTION)

    def has_error(self) -> bool:
        """Whether the client has reset it."""
        import socket

        return self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    @property
    def is_over(self) -> bool:
        """Whether it can be closed."""
        return self.is_broken or (self.is_read and self.host_ended and not self.n_waiting)

    @property
    def events(self) -> int:
        """What to poll for; 0 for nothing."""
        reads = not self.is_read and self.credit > 0
        return (select.POLLIN if reads else 0) | (select.POLLOUT if self.n_waiting else 0)

    def send(self, kind: int, payload: bytes = b"") -> None:
        """Send a frame about it."""
        self.host.send(kind, self.command, self.name + payload)

    def read(self) -> None:
        """Pass on what the client sent, as far as the host accepts it."""
        if self.is_read:  # nothing else is reported after the end, except that it is gone
            self.is_broken = True
            return
        try:
            length = self.host.pass_on(
                self.fd, FROM_CONNECTION, self.command, self.name, self.credit
            )
        except ConnectionError:
            self.is_broken = True
            return
        if length:
            self.credit -= length
        elif length == 0:
            self.is_read = True
            self.send(CONNECTION_ENDED)

    def take(self, data: memoryview) -> None:
        """Keep what the host sent until the client reads it."""
        if len(data) + self.n_waiting > WINDOW_BYTES:
            raise HostGoneError
        at = (self.first + self.n_waiting) % WINDOW_BYTES
        head = data[: WINDOW_BYTES - at]
        self.waiting[at : at + len(head)] = head
        self.waiting[: len(data) - len(head)] = data[len(head) :]
        self.n_waiting += len(data)
        self.write()

    def write(self) -> None:
        """Write what waits, as far as the client reads it, and report how much that was."""
        if not self.n_waiting:  # a frame after the poll has written it already
            return
        end = self.first + self.n_waiting
        pieces = [self.waiting[self.first : end], self.waiting[: max(0, end - WINDOW_BYTES)]]
        try:
            length = os.writev(self.fd, pieces)
        except BlockingIOError:
            return
        except ConnectionError:
            self.is_broken = True
            return
        self.first = (self.first + length) % WINDOW_BYTES
        self.n_waiting -= length
        self.send(CONNECTION_ACKED, LENGTH.pack(length))
        self.end_if_written()

    def end_if_written(self) -> None:
        """End the direction to the client once everything was written."""
        if self.host_ended and not self.n_waiting:
            with suppress(OSError):
                self.socket.shutdown(1)


class Connections:
    """Every connection of the present command, and the listener that accepts them."""

    def __init__(self, host: HostChannel, port: int) -> None:
        import socket

        self.host = host
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(MOST_CONNECTIONS)
        self.listener.setblocking(False)
        self.by_fd: dict[int, Connection] = {}
        self.by_name: dict[bytes, Connection] = {}
        self.n_accepted = 0

    def begin(self, poll: select.poll) -> None:
        """Accept the connections of a command that starts."""
        self.poll = poll
        poll.register(self.listener.fileno(), select.POLLIN)

    def ready(self, fd: int, events: int, command: int) -> None:
        """Handle what the poll object reported about a descriptor."""
        if fd == self.listener.fileno():
            self.accept(command)
            return
        connection = self.by_fd.get(fd)
        if connection is None:
            return  # it was closed after the poll
        if events & select.POLLERR:
            connection.is_broken = connection.has_error()  # the poll may have been about another
        elif events & select.POLLOUT:
            connection.write()
        elif events & (select.POLLIN | select.POLLHUP):
            connection.read()
        self.update(connection)

    def receive(self, kind: int, payload: memoryview) -> None:
        """Handle a frame of the host."""
        connection = self.by_name.get(bytes(payload[: LENGTH.size]))
        if connection is None:
            return  # it was closed before the host knew
        data = payload[LENGTH.size :]
        if kind == TO_CONNECTION:
            connection.take(data)
        elif kind == ACK_CONNECTION:
            connection.credit += LENGTH.unpack(data)[0]
        elif kind == END_CONNECTION:
            connection.host_ended = True
            connection.end_if_written()
        else:
            connection.is_broken = True
        self.update(connection)

    def accept(self, command: int) -> None:
        """Accept one connection; without descriptors, wait until one is closed."""
        try:
            accepted, _ = self.listener.accept()
        except BlockingIOError:
            return
        except OSError:
            self.poll.unregister(self.listener.fileno())
            return
        self.n_accepted += 1
        connection = Connection(self.host, accepted, command, self.n_accepted)
        self.by_fd[connection.fd] = self.by_name[connection.name] = connection
        self.poll.register(connection.fd, connection.events)
        if len(self.by_fd) == MOST_CONNECTIONS:
            self.poll.unregister(self.listener.fileno())

    def update(self, connection: Connection) -> None:
        """Close a connection that is over, or poll for what it needs next."""
        if not connection.is_over:
            self.poll.register(connection.fd, connection.events)
            return
        self.poll.unregister(connection.fd)
        connection.send(CONNECTION_CLOSED)
        del self.by_fd[connection.fd], self.by_name[connection.name]
        connection.socket.close()
        self.poll.register(self.listener.fileno(), select.POLLIN)

    def end(self) -> None:
        """Close everything, also what was not accepted yet: its clients are dead."""
        for connection in self.by_fd.values():
            connection.socket.close()
        self.by_fd.clear()
        self.by_name.clear()
        self.n_accepted = 0
        with suppress(OSError):
            while True:
                self.listener.accept()[0].close()


class Runner:
    """Runs the host's requests, one after the other."""

    def __init__(
        self,
        host: HostChannel,
        user_id: int,
        connections: Connections | None = None,
        scratch: Iterable[str] = (),
    ) -> None:
        self.host = host
        self.user_id = user_id
        self.is_contained = not scratch
        if scratch:
            set_dumpable(0)
        self.scratch = {path: state_of(path) for path in scratch or SCRATCH}
        self.connections = connections
        self.spare: Spare | None = None
        self.input: Input | None = None
        self.is_warm = False
        self.stdin = os.memfd_create("stdin")
        self.wake_read, wake_write = os.pipe()
        for fd in (self.wake_read, wake_write):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, ignore_signal)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Report that it is ready, then run requests until the host closes the stream."""
        shell = next((path for path in SHELLS if os.access(path, os.X_OK)), "")
        ready = (PROTOCOL_VERSION, shell, ".".join(map(str, sys.version_info[:3])))
        self.host.send(READY, 0, joined_fields(str(each).encode() for each in ready))
        while True:
            self.make_spare()
            if not self.is_warm:
                self.warm_up()
            self.answer(*self.host.receive(self.host.request, MOST_REQUEST_BYTES))

    def warm_up(self) -> None:
        """Load what evaluations need, unless a request comes: the first commands do not wait."""
        poll = select.poll()
        poll.register(self.host.read_fd, select.POLLIN)
        if poll.poll(IDLE_MS):
            return
        self.is_warm = True
        for name in WARM_MODULES:
            __import__(name)
        gc.freeze()  # garbage collection in a fork must not write to shared pages
        if self.spare is not None:
            self.spare.discard()
            self.spare = None
        self.make_spare()

    def answer(self, kind: int, number: int, request: memoryview) -> None:
        """Run one request of the host."""
        if kind in (RUN, PYTHON):
            self.run(number, request)
        elif not INPUT <= kind <= RESIZE:  # these are ignored after their command has ended
            raise HostGoneError

    def run(self, number: int, request: memoryview) -> None:
        """Run a command, wait until it ends, and report how."""
        try:
            self.take_input(int(bytes(fields(request[HEADER.size :])[2])))
            child, streams = self.start(request)
        except RefusedError as refused:
            self.kill_all()  # nothing of the command has run
            self.end_input()
            reason = joined_fields((refused.stage.encode(), str(refused.code).encode()))
            self.host.send(REFUSED, number, reason)
            return
        status = self.follow(number, child, streams)
        self.kill_all()
        self.end_input()
        if self.connections is not None:
            self.connections.end()
        for fd, stream in streams.items():
            while self.host.pass_on(fd, stream, number):
                pass  # all writers are dead, so it ends
            os.close(fd)
        self.empty_scratch()
        how, code = ("signal", -status) if status < 0 else ("exit", status)
        self.host.send(ENDED, number, joined_fields((how.encode(), str(code).encode())))

    def take_input(self, n_bytes: int) -> None:
        """Receive the standard input that follows a request into the file ``stdin``."""
        refused: RefusedError | None = None
        while n_bytes > 0:
            kind, _, frame = self.host.receive(self.host.piece)
            if kind != INPUT:
                raise HostGoneError
            piece = frame[HEADER.size :]
            n_bytes -= len(piece)
            if refused is None:
                try:
                    write_all(self.stdin, piece)
                except OSError as error:  # it is larger than the limit of a file
                    refused = RefusedError("input", error.errno or errno.EIO)
        os.lseek(self.stdin, 0, os.SEEK_SET)
        if refused is not None:
            os.ftruncate(self.stdin, 0)
            raise refused

    def end_input(self) -> None:
        """Close what an interactive command reads."""
        if self.input is not None:
            self.input.close()
            self.input = None

    # Starting

    def make_spare(self) -> None:
        """Fork a process for the next command; if that fails, the request tries again."""
        if self.spare is None:
            with suppress(OSError):
                self.spare = self.fork_spare()

    def start(self, request: memoryview) -> tuple[int, dict[int, int]]:
        """Start a command; returns its process id, and its streams with their kinds of frames."""
        flags, *size = map(int, bytes(fields(request[HEADER.size :])[3]).split())
        spare, self.spare = self.spare, None
        try:
            if size or flags & TERMINAL:
                spare = self.start_apart(spare, request, flags, size)
            elif spare is None or not spare.take(request):  # killed for lack of memory
                spare = self.fork_spare()
                if not spare.take(request):
                    raise RefusedError("fork", errno.ENOMEM)
        except OSError as error:
            raise RefusedError("fork", error.errno or errno.EIO) from error
        finally:
            os.close(self.stdin)
            self.stdin = os.memfd_create("stdin")
        for fd in spare.streams:
            os.set_blocking(fd, False)
        return spare.pid, spare.streams

    def start_apart(
        self, unused: Spare | None, request: memoryview, flags: int, size: list[int]
    ) -> Spare:
        """Start a command whose standard streams are a terminal, or with input while it runs."""
        if unused is not None:
            unused.discard()
        terminal = None
        if flags & TERMINAL:
            ours, terminal = open_terminal(size)
        else:
            os.close(self.stdin)
            self.stdin, ours = os.pipe()
        try:
            spare = self.fork_spare(terminal)
        except OSError:
            os.close(ours)
            raise
        finally:
            if terminal is not None:
                os.close(terminal)
        if terminal is not None:
            for fd in spare.streams:
                os.close(fd)
            spare.streams = {ours: OUTPUT}
        if size:
            self.input = Input(ours if terminal is None else os.dup(ours))
        else:
            os.write(ours, END_OF_INPUT)
        if not spare.take(request):
            raise RefusedError("fork", errno.ENOMEM)
        return spare

    def fork_spare(self, terminal: int | None = None) -> Spare:
        """Fork a process that becomes the commands' user and waits for a request."""
        pipes: list[tuple[int, int]] = []
        try:
            while len(pipes) < 4:
                pipes.append(os.pipe())
            (request_read, request_write), (status_read, status_write), *outputs = pipes
            child = os.fork()
        except OSError:
            for fd in (fd for pipe in pipes for fd in pipe):
                os.close(fd)
            raise
        (out_read, out_write), (err_read, err_write) = outputs
        if child == 0:
            self.run_spare(request_read, (out_write, err_write), status_write, terminal)
        for fd in (request_read, status_write, out_write, err_write):
            os.close(fd)
        return Spare(child, request_write, status_read, {out_read: OUTPUT, err_read: ERRORS})

    def run_spare(
        self, request: int, outputs: tuple[int, int], status: int, terminal: int | None
    ) -> NoReturn:
        """In the child: wait for the request and execute the command; never returns."""
        stage = "start"
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for target, source in enumerate(outputs, 1):
                os.fchmod(source, 0o622)  # so that a command can open /dev/stdout and /dev/stderr
                os.dup2(source, target)
            close_all_but(request, status, self.stdin, *(() if terminal is None else (terminal,)))
            self.drop_privileges()
            renew_git_directory()
            command = Command(read_all(request))
            os.write(status, ACCEPTED)
            os.close(request)
            os.dup2(self.stdin if command.has_input else os.open("/dev/null", os.O_RDONLY), 0)
            if command.merges_errors:
                os.dup2(1, 2)
            if terminal is not None:
                enter_terminal(terminal)
            for path, text in command.files.items():
                write_settings(path, text)
            stage = "cwd"
            os.chdir(command.cwd)
            stage = "program"
            if command.kind == PYTHON:
                evaluate(command)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)  # Python has set them to be ignored
            os.execvpe(command.arguments[0], command.arguments, command.env)
        except (OSError, ValueError) as error:
            code = getattr(error, "errno", None) or errno.EINVAL
            os.write(status, b"%s %d" % (stage.encode(), code))
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(127)

    def drop_privileges(self) -> None:
        """Become the commands' user, without any privilege."""
        if not self.is_contained:
            set_dumpable(1)
        with suppress(OSError):
            write_file("/proc/self/oom_score_adj", b"1000")
        os.setsid()
        os.umask(0o022)
        if os.getuid() != self.user_id:
            os.setgroups([])
            os.setresgid(self.user_id, self.user_id, self.user_id)
            os.setresuid(self.user_id, self.user_id, self.user_id)
        if not self.is_contained:
            give_up_capabilities()

    # Running and ending

    def follow(self, number: int, child: int, streams: dict[int, int]) -> int:
        """Pass the child's output on until it ends; returns its exit code or negative signal."""
        poll = select.poll()
        for fd in (self.host.read_fd, self.wake_read, *streams):
            poll.register(fd, select.POLLIN)
        if self.connections is not None:
            self.connections.begin(poll)
        while True:
            for fd, events in poll.poll():
                if fd in streams:
                    if self.host.pass_on(fd, streams[fd], number) == 0:
                        poll.unregister(fd)
                elif fd == self.host.read_fd:
                    kind, about, frame = self.host.receive(self.host.piece)
                    if kind == KILL:
                        if about == number:
                            return -signal.SIGKILL
                    elif self.input is not None and kind in (INPUT, RESIZE):
                        self.input.receive(kind, frame[HEADER.size :], poll)
                    elif self.connections is None or not KILL < kind <= DROP_CONNECTION:
                        raise HostGoneError
                    elif about == number:
                        self.connections.receive(kind, frame[HEADER.size :])
                elif self.input is not None and fd == self.input.fd:
                    if self.input.write():
                        poll.unregister(fd)
                        self.host.send(TAKEN, number)
                elif fd != self.wake_read:
                    if self.connections is not None:
                        self.connections.ready(fd, events, number)
                else:
                    drain(self.wake_read)
                    status = reap(child)
                    if status is not None:
                        return status

    def kill_all(self) -> None:
        """Kill every other process, and wait until none is left."""
        while True:
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
        drain(self.wake_read)

    def empty_scratch(self) -> None:
        """Empty the world-writable directories, as the user who owns their files.

        What was there at the start is a mount point, which cannot be removed.
        """
        if all(state_of(path) == state for path, state in self.scratch.items()):
            return
        child = os.fork()
        if child == 0:
            try:
                close_all_but()
                self.drop_privileges()
                for path, state in self.scratch.items():
                    with suppress(OSError):
                        os.chmod(path, state[0])
                    empty_directory(path)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        drain(self.wake_read)


def ignore_signal(*_: object) -> None:
    """Do nothing: the wake-up descriptor reports the signal."""


def drain(fd: int) -> None:
    """Discard what can be read now."""
    with suppress(BlockingIOError):
        os.read(fd, READ_BYTES)


def write_all(fd: int, content: bytes | memoryview) -> None:
    """Write all of it; blocks while the pipe is full."""
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]


def duplicate_above_stdio(fd: int) -> int:
    """A duplicate of a descriptor, with a number above those of the standard streams."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)


def close_all_but(*kept: int) -> None:
    """Close every descriptor above the standard streams except *kept*."""
    first = 3
    for fd in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
        os.closerange(first, fd)
        first = fd + 1


def called(name: str, *arguments: int | bytes | None) -> int:
    """The result of a function of the C library. The module ctypes itself takes 3 ms to load."""
    import _ctypes

    handle = _ctypes.dlopen(None, 0)  # pyright: ignore[reportArgumentType] - this program itself
    return _ctypes.call_function(_ctypes.dlsym(handle, name), arguments)


def checked(result: int) -> int:
    """The *result* of such a function; ``OSError`` if it is negative."""
    if result < 0:
        raise OSError(errno.EPERM, "a restriction cannot be applied")
    return result


def set_dumpable(value: int) -> None:
    """Whether processes with the same id may read this one [prctl(2)]."""
    checked(called("prctl", 4, value, 0, 0, 0))


def give_up_capabilities() -> None:
    """In the child: have no capability, also after an exec [capabilities(7)]."""
    checked(called("prctl", 47, 4, 0, 0, 0))  # no ambient ones
    checked(called("capset", struct.pack("=Ii", 0x20080522, 0), bytes(24)))


def write_file(path: str, content: bytes) -> None:
    """Write to a file in ``/proc``."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


def read_all(fd: int) -> bytes:
    """Read until the end of the stream."""
    pieces: list[bytes] = []
    while True:
        piece = os.read(fd, READ_BYTES)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def reap(child: int) -> int | None:
    """Reap every child that has ended; returns the exit code or negative signal of *child*."""
    status: int | None = None
    while True:
        try:
            pid, raw = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if not pid:
            return status
        if pid == child:
            status = -os.WTERMSIG(raw) if os.WIFSIGNALED(raw) else os.WEXITSTATUS(raw)


# Landlock


def restrict_paths(writable: Iterable[str]) -> None:
    """Let this process and its children write below *writable* only, whatever is mounted.

    The numbers are those of landlock(7).
    Without Landlock, or with its first version, which forbids to move files, nothing happens.
    """
    version = called("syscall", LANDLOCK_CREATE, None, 0, 1)
    if version < 2:
        return
    every = (1 << (16 if version >= 5 else 15 if version >= 3 else 14)) - 1
    read, change = 0b1101, 0b0010 | (every & (0b11 << 14))
    attributes = struct.pack("=QQQ", every, 0, 0)
    ruleset = checked(called("syscall", LANDLOCK_CREATE, attributes, len(attributes), 0))
    allowed = {"/": read, "/proc": read | change, "/dev": read | change}
    for path, rights in {**allowed, **dict.fromkeys(writable, every)}.items():
        try:
            directory = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:  # below another mount
            continue
        rule = struct.pack("=Qi", rights, directory)
        checked(called("syscall", LANDLOCK_ADD_RULE, ruleset, 1, rule, 0))
        os.close(directory)
    checked(called("syscall", LANDLOCK_RESTRICT, ruleset, 0))
    os.close(ruleset)


# Terminals


def open_terminal(size: list[int]) -> tuple[int, int]:
    """A terminal: our end, and that of the command. Without a size it changes no byte of output."""
    try:
        import termios
    except ImportError:
        raise RefusedError("terminal", errno.ENOSYS) from None
    try:
        master, slave = os.openpty()
    except OSError as error:
        raise RefusedError("terminal", error.errno or errno.EIO) from error
    os.fchmod(slave, 0o666)  # so that a command can open it by its name
    if not size:
        settings = termios.tcgetattr(slave)
        settings[1] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, settings)
    packed = struct.pack("HHHH", *(size or TERMINAL_SIZE), 0, 0)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, packed)
    return master, slave


def enter_terminal(terminal: int) -> None:
    """In the child: make it the controlling terminal and the standard streams."""
    import termios

    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for target in range(3):
        os.dup2(terminal, target)


# Emptying


def state_of(path: str) -> tuple[int, list[str]]:
    """The mode of a directory and the names in it; no mode if it cannot be read."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode), sorted(os.listdir(path))
    except OSError:
        return -1, []


def empty_directory(path: str) -> None:
    """Remove everything in a directory, at any depth and with any file modes.

    Nothing is removed of other filesystems that are mounted there.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        here = os.open(path, flags)
    except OSError:
        return
    device = os.fstat(here).st_dev
    todo = [remove_files(here)]
    names: list[str] = []
    while True:
        if todo[-1]:
            name = todo[-1].pop()
            try:
                if os.stat(name, dir_fd=here, follow_symlinks=False).st_dev != device:
                    continue
                os.chmod(name, 0o700, dir_fd=here)
                below = os.open(name, flags, dir_fd=here)
            except OSError:
                continue
            os.close(here)
            here = below
            names.append(name)
            todo.append(remove_files(here))
            continue
        todo.pop()
        if not todo:
            os.close(here)
            return
        above = os.open("..", flags, dir_fd=here)
        os.close(here)
        here = above
        emptied = names.pop()
        with suppress(OSError):
            os.rmdir(emptied, dir_fd=here)


def remove_files(fd: int) -> list[str]:
    """Remove the files of a directory; returns the names of its directories."""
    directories: list[str] = []
    for name in os.listdir(fd):
        try:
            os.unlink(name, dir_fd=fd)
        except OSError as error:
            if error.errno in (errno.EISDIR, errno.EPERM):
                directories.append(name)
    return directories


def renew_git_directory() -> None:
    """Make the git directory equal to its template, if this container has one.

    A failure is not reported here: git finds no repository then, and says so.
    """
    if not os.path.isdir(GIT_TEMPLATE):
        return
    empty_directory(GIT_LAYER)
    with suppress(OSError):
        copy_directory(GIT_TEMPLATE, GIT_DIRECTORY)


def copy_directory(source: str, target: str) -> None:
    """Copy a directory of ours, which is neither deep nor has links."""
    os.mkdir(target, 0o755)
    for entry in os.scandir(source):
        path = os.path.join(target, entry.name)
        if entry.is_dir():
            copy_directory(entry.path, path)
            continue
        with open(entry.path, "rb") as content, open(path, "xb") as copy:
            copy.write(content.read())


def write_settings(path: str, text: str) -> None:
    """Write the settings of a client, unless the image has such a file or it cannot be written."""
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x") as file:
            file.write(text)


# Python in a forked process, without a new interpreter


def evaluate(command: Command) -> NoReturn:
    """In the child: run the code as ``__main__`` and exit; never returns."""
    import io
    import types

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(command.env)
    close_all_but()  # not earlier: the status pipe for failures is one of them
    sys.path[:] = [os.getcwd()] + [path for path in sys.path if path]
    sys.argv[:] = [""]
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        fd = ("stdin", "stdout", "stderr").index(name)
        raw = open(fd, mode + "b", -1)
        errors = "backslashreplace" if name == "stderr" else "surrogateescape"
        stream = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=name == "stderr")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    main = types.ModuleType("__main__")
    vars(main)["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    source = command.arguments[0].decode("utf-8", "replace")
    code = run_to_exit(lambda: execute(source, main.__dict__))
    os._exit(code)


def execute(source: str, namespace: dict[str, Any]) -> None:
    """Run *source*; print the value of its last statement, if that is an expression.

    Probes are compiled by an interpreter of the same version, so that nothing has to be loaded.
    """
    if source.startswith(COMPILED):
        import marshal

        for line in source.splitlines()[1:]:
            exec(marshal.loads(bytes.fromhex(line)), {"__name__": "__main__"})
        return
    import ast
    import linecache

    name = "<code>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    tree = ast.parse(source, name)
    last = tree.body[-1] if tree.body else None
    is_shown = isinstance(last, ast.Expr)
    if is_shown:
        tree.body.pop()
    exec(compile(tree, name, "exec"), namespace)
    if is_shown:
        sys.displayhook(eval(compile(ast.Expression(last.value), name, "eval"), namespace))


def run_to_exit(action: Callable[[], None]) -> int:
    """Run *action* and the exit functions of an interpreter; returns the exit code."""
    code = 0
    try:
        action()
    except SystemExit as ending:
        code = exit_code(ending.code)
    except BaseException:
        code = 1
        print_error()
    threading = sys.modules.get("threading")
    for at_end in (
        getattr(threading, "_shutdown", None),
        getattr(sys.modules.get("atexit"), "_run_exitfuncs", None),
        sys.stdout.flush,
        sys.stderr.flush,
    ):
        try:
            if at_end is not None:
                at_end()
        except BaseException:
            code = code or 120
    return code


def exit_code(given: object) -> int:
    """The exit code of a ``SystemExit``; prints a value that is not a number, as Python does."""
    if given is None:
        return 0
    if isinstance(given, int):
        return given & 0xFF
    sys.stderr.write(f"{given}\n")
    return 1


def print_error() -> None:
    """Print the traceback, without the frames of this file."""
    import traceback

    kind, error, trace = sys.exc_info()
    own = print_error.__code__.co_filename
    while trace is not None and trace.tb_frame.f_code.co_filename == own:
        trace = trace.tb_next
    sys.stdout.flush()
    if isinstance(error, SyntaxError):
        trace = None
    traceback.print_exception(kind, error, trace)


def main(
    user_id: int, proxy_port: int, scratch: Iterable[str], writable: Iterable[str] = ()
) -> NoReturn:
    """Serve the host on the standard streams; never returns.

    *proxy_port* is the port on which commands reach the host's proxy, 0 without one. *scratch* is
    empty in a container, otherwise the directories that are emptied after each command, and
    *writable* are the others in which commands write.
    """
    if scratch:
        restrict_paths((*scratch, *writable))
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the kernel ignores it for a first process
    read_fd, write_fd = duplicate_above_stdio(0), duplicate_above_stdio(1)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    os.close(null)
    host = HostChannel(read_fd, write_fd)
    connections = Connections(host, proxy_port) if proxy_port else None
    runner = Runner(host, user_id, connections, scratch)
    with suppress(HostGoneError, BrokenPipeError):
        runner.serve()
    os._exit(0)


if __name__ == "__main__":
    directories = sys.argv[4:]
    end = directories.index("--") if directories else 0
    main(int(sys.argv[1]), int((*sys.argv, "0")[3]), directories[:end], directories[end + 1 :])
