"""The fork server: a process that has loaded the interpreter and forks a child per evaluation.

It is started with exec, so it has no copy of the host's memory. It has one thread, so forking it
is safe. Code, values and files do not pass through it; host and child exchange them directly.

Its control socket carries datagrams: first its own ``hello``, then the host's requests, each with
one socket, the *watch*. On the watch the server sends a descriptor of the child's process and the
host's end of the child's pipe, and later a report of how the child ended. When the host closes the
watch, the server kills the child. The server and its children end when the host ends or closes the
control socket.

One isolated child is always ready for the next request, because forking and isolating it takes
longer than most evaluations. Each child serves one evaluation only.
"""

from __future__ import annotations

import codecs
import contextlib
import gc
import json
import math
import os
import select
import signal
import socket
import sys
import warnings
from dataclasses import dataclass
from importlib import import_module  # noqa: TID251 - of a fixed list
from pathlib import Path
from typing import Any, Final

from wink_workspace.clock import SYSTEM_CLOCK, Clock

from .child import Channel, answer_host, run_child
from .main_program import MainProgram
from .restrictions import Isolation

_REQUEST_BYTES_MAX: Final = 64
_GRACE_S: Final = 2.0
_PRELOADED: Final = ("_strptime", "calendar", "locale", "stringprep", "tokenize", "unicodedata")
_ENCODINGS: Final = (
    *("ascii", "cp1252", "cp437", "hex", "idna", "iso8859-15", "latin-1", "punycode"),
    *("raw_unicode_escape", "rot13", "unicode_escape", "utf-16", "utf-16-be", "utf-16-le"),
    *("utf-32", "utf-7", "utf-8", "utf-8-sig"),
)


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits of all children of a server."""

    memory_bytes: int
    timeout_s: float
    start_timeout_s: float


@dataclass(slots=True)
class _Child:
    """A child, as the server sees it. Without a *watch* it waits for a request."""

    pid: int
    process: int
    pipe: socket.socket
    watch: socket.socket | None = None
    kill_at_s: float = math.inf


class Server:
    """Serves the requests on *control* until the host closes it.

    Args:
        control: A datagram socket.
        isolation: Restricts each child.
        program: Runs in each child. It is created once, because that is slow.
        limits: The limits of each child.
        host: A descriptor of the host's process, if it can be watched.
        clock: Measures when a child is overdue that its host has not killed.
    """

    def __init__(
        self,
        control: socket.socket,
        isolation: Isolation,
        program: MainProgram,
        limits: _Limits,
        *,
        host: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._control = control
        self._isolation = isolation
        self._program = program
        self._limits = limits
        self._host = host
        self._clock = clock
        self._pid = os.getpid()
        self._children: dict[int, _Child] = {}
        self._by_watch: dict[int, _Child] = {}
        self._spare: _Child | None = None
        self._poll = select.poll()

    def serve(self) -> None:
        """Serve until the host ends; all children are dead when this returns."""
        self._poll.register(self._control, select.POLLIN)
        if self._host is not None:
            self._poll.register(self._host, select.POLLIN)
        try:
            self._spare = self._fork_child()
            while self._serve_once():
                pass
        finally:
            for child in tuple(self._children.values()):
                self._kill(child)
                self._end(child)

    def _serve_once(self) -> bool:
        """Wait for events and handle them; returns whether to continue."""
        is_serving = True
        for descriptor, _ in self._poll.poll(self._wait_ms()):
            if descriptor == self._host:
                is_serving = False
            elif descriptor == self._control.fileno():
                is_serving = self._take_request() and is_serving
            elif descriptor in self._children:
                self._end(self._children[descriptor])
            elif descriptor in self._by_watch:
                self._kill(self._by_watch[descriptor])
        now = self._clock.monotonic_s()
        for child in tuple(self._children.values()):
            if child.kill_at_s <= now:
                self._kill(child)
        return is_serving

    def _wait_ms(self) -> float | None:
        kill_at_s = min((child.kill_at_s for child in self._children.values()), default=math.inf)
        if kill_at_s == math.inf:
            return None
        return max(0.0, kill_at_s - self._clock.monotonic_s()) * 1_000 + 1

    def _take_request(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(
                self._control, _REQUEST_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            return False
        if not data:
            return False
        for (
            descriptor
        ) in descriptors:  # none if descriptors have run out; the host sees its end close
            watch = socket.socket(fileno=descriptor)
            try:
                self._hand_over(self._spare or self._fork_child(), watch)
                self._spare = self._fork_child()
            except OSError as error:
                if watch.fileno() not in self._by_watch:
                    _report(watch, {"failed": str(error)})
                    watch.close()
        return True

    def _hand_over(self, child: _Child, watch: socket.socket) -> None:
        self._spare = None
        child.watch = watch
        limit_s = self._limits.start_timeout_s + self._limits.timeout_s + _GRACE_S
        child.kill_at_s = self._clock.monotonic_s() + limit_s
        self._by_watch[watch.fileno()] = child
        self._poll.register(watch, select.POLLIN)
        with child.pipe, contextlib.suppress(OSError):  # the host has ended
            socket.send_fds(watch, [b"{}"], [child.process, child.pipe.fileno()])

    def _fork_child(self) -> _Child:
        host_end, child_end = socket.socketpair()
        with child_end:
            pid = os.fork()
            if pid == 0:
                run_child(lambda: self._be_child(child_end.fileno()))
        process = os.pidfd_open(pid)
        child = self._children[process] = _Child(pid, process, host_end)
        self._poll.register(process, select.POLLIN)
        return child

    def _be_child(self, channel: int) -> None:
        layers = self._isolation.confine_child(
            channel=channel,
            parent=self._pid,
            memory_bytes=self._limits.memory_bytes,
            timeout_s=self._limits.timeout_s,
        )
        answer_host(Channel(channel), layers, self._program)

    def _kill(self, child: _Child) -> None:
        signal.pidfd_send_signal(child.process, signal.SIGKILL)
        child.kill_at_s = math.inf
        self._unwatch(child)

    def _unwatch(self, child: _Child) -> None:
        """Stop polling the child's watch."""
        if child.watch is not None and self._by_watch.pop(child.watch.fileno(), None) is not None:
            self._poll.unregister(child.watch)

    def _end(self, child: _Child) -> None:
        """Wait for a child that is dead or dying, and report how it ended."""
        _, status, usage = os.wait4(child.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._unwatch(child)
        self._poll.unregister(child.process)
        del self._children[child.process]
        os.close(child.process)
        child.pipe.close()
        if child is self._spare:  # the next request forks another; forking here could loop
            self._spare = None
        if child.watch is None:
            return
        _report(
            child.watch,
            {
                "exit_code": code if code >= 0 else None,
                "signal": -code if code < 0 else None,
                "cpu_s": usage.ru_utime + usage.ru_stime,
                "max_rss_bytes": usage.ru_maxrss * 1_024,
            },
        )
        child.watch.close()


def _report(watch: socket.socket, fields: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # the host has closed the watch
        watch.send(json.dumps(fields).encode())


def loaded_program(interpreter: str, *, use_numpy: bool) -> MainProgram:
    """Load everything that a child may need, because a child cannot load anything."""
    for name in _PRELOADED:
        import_module(name)
    for name in _ENCODINGS:
        codecs.lookup(name)
    warnings.simplefilter("ignore")
    # Each interpreter is loaded only by the servers that need it
    if interpreter == "python":
        from .python import PythonInterpreter

        return PythonInterpreter(use_numpy=use_numpy)
    from .interpreter import Interpreter

    return Interpreter(use_numpy=use_numpy)


def _n_threads() -> int:
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    except OSError:
        return 1  # no /proc


def main(*, control: int, host_pid: int, interpreter: str, use_numpy: bool, **limits: Any) -> None:
    """Run the server on the socket *control*, with the *limits* of its children."""
    host = os.pidfd_open(host_pid)
    if os.getppid() != host_pid:
        return
    program = loaded_program(interpreter, use_numpy=use_numpy)
    isolation = Isolation.prepare()
    if _n_threads() != 1:
        raise RuntimeError("a library has started threads, so forking is not safe")
    isolation.confine_server()
    sys.argv[:] = []
    gc.collect()
    gc.freeze()  # a collection in a child must not write to shared pages
    with socket.socket(fileno=control) as requests:
        requests.send(b"{}")
        Server(requests, isolation, program, _Limits(**limits), host=host).serve()
