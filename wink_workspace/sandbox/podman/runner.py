"""Runs commands inside the container, for the host at the other end of its standard streams.

This file is sent to the container's Python as a whole: it imports nothing of ours, works on
Python 3.8 and later, and keeps what it imports small, as it is forked for every command.

It is the container's first process. So whatever a command leaves behind becomes its child, it
knows that all are gone when it has no child left, and its own end is the end of all. It is the
container's root with no rights but to change to the commands' user and to kill them, which is
why no command can signal, trace or read it.

Nothing but the workspace outlives a command: when one ends, every process in the container is
killed, and the places that anybody may write to are emptied. What passes through this process
lies in memory that no fork inherits, so that no command finds what another was told or said.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import mmap
import os
import select
import signal
import struct
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

PROTOCOL_VERSION = 2
MOST_PAYLOAD_BYTES = 65536
USUAL_REQUEST_BYTES = 1048576
MOST_REQUEST_BYTES = 67108864
RUN, PYTHON, INPUT, KILL = 1, 2, 3, 4
READY, OUTPUT, ERRORS, ENDED, REFUSED = 64, 65, 66, 67, 68

HEADER = struct.Struct("!BII")
LENGTH = struct.Struct("!I")
TAKEN = b"."
SCRATCH = ("/tmp", "/dev/shm", "/dev/mqueue")
SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
WARM_MODULES = ("ast", "io", "json", "linecache", "pathlib", "re", "traceback", "types")
READ_BYTES = 65536 - HEADER.size  # with its header, what a pipe takes at once


class HostGoneError(Exception):
    """The other end has closed the stream, or says what cannot be; everything ends."""


class RefusedError(Exception):
    """A command that could not be started: at which stage, and why."""

    def __init__(self, stage: str, code: int) -> None:
        super().__init__(stage, code)
        self.stage = stage
        self.code = code


def joined_fields(parts: Iterable[bytes]) -> bytes:
    """Several byte strings as one; the host has the same function."""
    return b"".join(LENGTH.pack(len(part)) + part for part in parts)


def fields(payload: memoryview) -> list[memoryview]:
    """What the host joined; no byte of it is copied."""
    found: list[memoryview] = []
    at = 0
    while at < len(payload):
        (length,) = LENGTH.unpack_from(payload, at)
        at += LENGTH.size
        found.append(payload[at : at + length])
        at += length
    return found


def own_memory(n_bytes: int) -> memoryview:
    """Memory that no fork inherits."""
    memory = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_DONTFORK)
    return memoryview(memory)


class Host:
    """The stream to the host.

    A frame that is received stays where it is until the next of its kind: a request in one
    place, all others, and what is sent, in another. A request that is larger than usual gets
    memory of its own, for as long as it is needed.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self.request = own_memory(HEADER.size + USUAL_REQUEST_BYTES)
        self.piece = own_memory(HEADER.size + MOST_PAYLOAD_BYTES)

    def receive(
        self, room: memoryview, most_bytes: int = MOST_PAYLOAD_BYTES
    ) -> tuple[int, int, memoryview]:
        """The next frame, waited for: its kind, its number, and all of it.

        It is in *room*, or in memory of its own if it is larger and within *most_bytes*.
        """
        self._fill(room[: HEADER.size])
        kind, number, length = HEADER.unpack_from(room)
        if length > most_bytes:
            raise HostGoneError
        if length > len(room) - HEADER.size:
            header, room = room[: HEADER.size], own_memory(HEADER.size + length)
            room[: HEADER.size] = header
        frame = room[: HEADER.size + length]
        self._fill(frame[HEADER.size :])
        return kind, number, frame

    def send(self, kind: int, number: int, payload: bytes = b"") -> None:
        """Send a frame; waits while the host is busy."""
        write_all(self.write_fd, HEADER.pack(kind, number, len(payload)) + payload)

    def pass_on(self, fd: int, kind: int, number: int) -> int | None:
        """Send what can be read from a stream now; how many bytes, ``None`` if none came yet.

        At the stream's end there are 0.
        """
        try:
            length = os.readv(fd, [self.piece[HEADER.size :][:READ_BYTES]])
        except BlockingIOError:
            return None
        if length:
            HEADER.pack_into(self.piece, 0, kind, number, length)
            write_all(self.write_fd, self.piece[: HEADER.size + length])
        return length

    def _fill(self, room: memoryview) -> None:
        while room:
            n_bytes = os.readv(self.read_fd, [room])
            if not n_bytes:
                raise HostGoneError
            room = room[n_bytes:]


class Command:
    """What to run, from an order: the host's frame."""

    def __init__(self, order: bytes) -> None:
        cwd, variables, n_input, merges, *arguments = fields(memoryview(order)[HEADER.size :])
        self.kind = order[0]
        self.cwd = os.fsdecode(bytes(cwd))
        self.env = dict(os.fsdecode(bytes(each)).split("=", 1) for each in fields(variables))
        self.has_input = bytes(n_input) != b"0"
        self.merges_errors = bytes(merges) == b"1"
        self.arguments = [bytes(argument) for argument in arguments]


class Spare:
    """A process that waits to become a command, and our ends of its pipes.

    It is made when nothing else runs and is used up by the next command, so no command ever
    meets one. What takes long, a fork and giving up all rights, is behind it.
    """

    def __init__(self, pid: int, order: int, told: int, streams: dict[int, int]) -> None:
        self.pid = pid
        self.order = order
        self.told = told
        self.streams = streams

    def take(self, order: memoryview) -> bool:
        """Give it its order; ``False``, with all closed, if it was no longer there to take it.

        Raises:
            RefusedError: If it took it and cannot do it; all is closed.
        """
        with suppress(BrokenPipeError):
            write_all(self.order, order)
        os.close(self.order)
        told = read_all(self.told)
        os.close(self.told)
        if told == TAKEN:
            return True
        for fd in self.streams:
            os.close(fd)
        if told:
            stage, code = told.lstrip(TAKEN).split(b" ")
            raise RefusedError(stage.decode(), int(code))
        return False


class Runner:
    """Runs one command after the other."""

    def __init__(self, host: Host, user_id: int) -> None:
        self.host = host
        self.user_id = user_id
        self.spare: Spare | None = None
        self.stdin = os.memfd_create("stdin")
        self.wake_read, wake_write = os.pipe()
        for fd in (self.wake_read, wake_write):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, heard)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Say what there is, then do what comes, until the host is gone."""
        shell = next((path for path in SHELLS if os.access(path, os.X_OK)), "")
        ready = (PROTOCOL_VERSION, shell, ".".join(map(str, sys.version_info[:3])))
        self.host.send(READY, 0, joined_fields(str(each).encode() for each in ready))
        while True:
            self.make_spare()
            self.answer(*self.host.receive(self.host.request, MOST_REQUEST_BYTES))

    def answer(self, kind: int, number: int, order: memoryview) -> None:
        """Do what the host asks for."""
        if kind in (RUN, PYTHON):
            self.run(number, order)
        elif kind != KILL:  # one that came after its command had ended is nothing
            raise HostGoneError

    def run(self, number: int, order: memoryview) -> None:
        """Run a command to its end and report it."""
        try:
            self.take_input(int(bytes(fields(order[HEADER.size :])[2])))
            child, streams = self.started(order)
        except RefusedError as refused:
            self.kill_all()  # nothing of the command has run
            reason = joined_fields((refused.stage.encode(), str(refused.code).encode()))
            self.host.send(REFUSED, number, reason)
            return
        status = self.followed(number, child, streams)
        self.kill_all()
        for fd, stream in streams.items():
            while self.host.pass_on(fd, stream, number):
                pass  # nobody writes to it any more
            os.close(fd)
        self.empty_scratch()
        how, code = ("signal", -status) if status < 0 else ("exit", status)
        self.host.send(ENDED, number, joined_fields((how.encode(), str(code).encode())))

    def take_input(self, n_bytes: int) -> None:
        """Put the standard input that follows a request where the command is to read it."""
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
                except OSError as error:  # it is larger than a file may be
                    refused = RefusedError("input", error.errno or errno.EIO)
        os.lseek(self.stdin, 0, os.SEEK_SET)
        if refused is not None:
            os.ftruncate(self.stdin, 0)
            raise refused

    # Starting

    def make_spare(self) -> None:
        """Have a process ready for the next command; without one it is made when that comes."""
        if self.spare is None:
            with suppress(OSError):
                self.spare = self.forked()

    def started(self, order: memoryview) -> tuple[int, dict[int, int]]:
        """Start a command; its process, and its streams with the kinds of their frames."""
        spare, self.spare = self.spare, None
        try:
            if spare is None or not spare.take(order):  # the kernel, short of memory, took it
                spare = self.forked()
                if not spare.take(order):
                    raise RefusedError("fork", errno.ENOMEM)
        except OSError as error:
            raise RefusedError("fork", error.errno or errno.EIO) from error
        finally:
            os.close(self.stdin)
            self.stdin = os.memfd_create("stdin")
        for fd in spare.streams:
            os.set_blocking(fd, False)
        return spare.pid, spare.streams

    def forked(self) -> Spare:
        """A process that is the commands' user already, and waits for its order."""
        pipes: list[tuple[int, int]] = []
        try:
            while len(pipes) < 4:
                pipes.append(os.pipe())
            (order_read, order_write), (told_read, told_write), *outputs = pipes
            child = os.fork()
        except OSError:
            for fd in (fd for pipe in pipes for fd in pipe):
                os.close(fd)
            raise
        (out_read, out_write), (err_read, err_write) = outputs
        if child == 0:
            self.become(order_read, (out_write, err_write), told_write)
        for fd in (order_read, told_write, out_write, err_write):
            os.close(fd)
        return Spare(child, order_write, told_read, {out_read: OUTPUT, err_read: ERRORS})

    def become(self, order: int, outputs: tuple[int, int], told: int) -> NoReturn:
        """The child: wait for the order and turn into the command; never returns."""
        stage = "start"
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for target, source in enumerate(outputs, 1):
                os.fchmod(source, 0o622)  # so that a command can open /dev/stdout and its kin
                os.dup2(source, target)
            close_all_but(order, told, self.stdin)
            self.drop_rights()
            command = Command(read_all(order))
            os.write(told, TAKEN)
            os.close(order)
            os.dup2(self.stdin if command.has_input else nothing(), 0)
            if command.merges_errors:
                os.dup2(1, 2)
            stage = "cwd"
            os.chdir(command.cwd)
            stage = "program"
            if command.kind == PYTHON:
                evaluate(command)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)  # an interpreter ignores them
            os.execvpe(command.arguments[0], command.arguments, command.env)
        except (OSError, ValueError) as error:
            code = getattr(error, "errno", None) or errno.EINVAL
            os.write(told, b"%s %d" % (stage.encode(), code))
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
        finally:
            os._exit(127)

    def drop_rights(self) -> None:
        """Become the commands' user, who has no right that this one had."""
        with suppress(OSError):
            write_file("/proc/self/oom_score_adj", b"1000")
        os.setsid()
        os.umask(0o022)
        os.setgroups([])
        os.setresgid(self.user_id, self.user_id, self.user_id)
        os.setresuid(self.user_id, self.user_id, self.user_id)

    # Following and ending

    def followed(self, number: int, child: int, streams: dict[int, int]) -> int:
        """Pass on what the child writes until it ends; how it did."""
        poll = select.poll()
        for fd in (self.host.read_fd, self.wake_read, *streams):
            poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd in streams:
                    if self.host.pass_on(fd, streams[fd], number) == 0:
                        poll.unregister(fd)
                elif fd == self.host.read_fd:
                    kind, about, _ = self.host.receive(self.host.piece)
                    if kind != KILL:
                        raise HostGoneError
                    if about == number:
                        return -signal.SIGKILL
                else:
                    forget(self.wake_read)
                    status = reaped(child)
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
        forget(self.wake_read)

    def empty_scratch(self) -> None:
        """Empty the places that anybody may write to, as the user whose things are there."""
        if not any(names_in(place) for place in SCRATCH):
            return
        child = os.fork()
        if child == 0:
            try:
                close_all_but()
                self.drop_rights()
                for place in SCRATCH:
                    empty(place)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        forget(self.wake_read)


def heard(*_: object) -> None:
    """Take a signal; that it came can be read from the wake-up descriptor."""


def nothing() -> int:
    """A descriptor with nothing to read."""
    return os.open("/dev/null", os.O_RDONLY)


def forget(fd: int) -> None:
    """Read what can be read now, of which nothing is wanted."""
    with suppress(BlockingIOError):
        os.read(fd, READ_BYTES)


def write_all(fd: int, content: bytes | memoryview) -> None:
    """Write all of it; waits while there is no room."""
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]


def moved_up(fd: int) -> int:
    """The same file under a number that no standard stream has."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)


def close_all_but(*kept: int) -> None:
    """Close every descriptor above the standard streams but some."""
    first = 3
    for fd in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
        os.closerange(first, fd)
        first = fd + 1


def write_file(path: str, content: bytes) -> None:
    """Write to a file of the kernel."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


def read_all(fd: int) -> bytes:
    """All until the end."""
    pieces: list[bytes] = []
    while True:
        piece = os.read(fd, READ_BYTES)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def reaped(child: int) -> int | None:
    """Take leave of all that have ended; how *child* did, if it is among them."""
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


# Emptying


def names_in(place: str) -> list[str]:
    """What is in a directory; nothing, if it is none or cannot be read."""
    try:
        return os.listdir(place)
    except OSError:
        return []


def empty(place: str) -> None:
    """Remove all that is in a directory, however deep and whatever the modes."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        here = os.open(place, flags)
    except OSError:
        return
    todo = [remove_files(here)]
    names: list[str] = []
    while True:
        if todo[-1]:
            name = todo[-1].pop()
            try:
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
        left = names.pop()
        with suppress(OSError):
            os.rmdir(left, dir_fd=here)


def remove_files(fd: int) -> list[str]:
    """Remove what is no directory; the names of those that are."""
    directories: list[str] = []
    for name in os.listdir(fd):
        try:
            os.unlink(name, dir_fd=fd)
        except OSError as error:
            if error.errno in (errno.EISDIR, errno.EPERM):
                directories.append(name)
    return directories


# Python, without starting one


def evaluate(command: Command) -> NoReturn:
    """The child: run the code as a program, and end as one does; never returns."""
    import io
    import types

    os.environ.clear()
    os.environ.update(command.env)
    close_all_but()  # not before: who is told of failures is among them
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
    code = ended(lambda: execute(command.arguments[0].decode("utf-8", "replace"), main.__dict__))
    os._exit(code)


def execute(source: str, namespace: dict[str, Any]) -> None:
    """Run *source*; show the value of its last statement, if that has one."""
    import ast
    import linecache

    name = "<code>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    tree = ast.parse(source, name)
    last = tree.body[-1] if tree.body else None
    shown = isinstance(last, ast.Expr)
    if shown:
        tree.body.pop()
    exec(compile(tree, name, "exec"), namespace)
    if shown:
        sys.displayhook(eval(compile(ast.Expression(last.value), name, "eval"), namespace))


def ended(action: Callable[[], None]) -> int:
    """Do *action*, and what an interpreter does at its end; the exit code."""
    code = 0
    try:
        action()
    except SystemExit as ending:
        code = exit_code(ending.code)
    except BaseException:
        code = 1
        tell_error()
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
    """The code of a ``SystemExit``; words are written down, as by any interpreter."""
    if given is None:
        return 0
    if isinstance(given, int):
        return given & 0xFF
    sys.stderr.write(f"{given}\n")
    return 1


def tell_error() -> None:
    """The traceback, without the steps that are ours."""
    import traceback

    kind, error, trace = sys.exc_info()
    own = tell_error.__code__.co_filename
    while trace is not None and trace.tb_frame.f_code.co_filename == own:
        trace = trace.tb_next
    sys.stdout.flush()
    if isinstance(error, SyntaxError):
        trace = None
    traceback.print_exception(kind, error, trace)


def main(user_id: int) -> NoReturn:
    """Serve the host at the standard streams; never returns."""
    read_fd, write_fd = moved_up(0), moved_up(1)
    nothing = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1):
        os.dup2(nothing, fd)
    os.close(nothing)
    runner = Runner(Host(read_fd, write_fd), user_id)
    for name in WARM_MODULES:
        __import__(name)
    gc.freeze()  # what is here by now is shared with every fork, and not written by collecting
    with suppress(HostGoneError, BrokenPipeError):
        runner.serve()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
