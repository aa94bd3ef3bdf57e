"""The fork server: a process with the interpreter loaded that forks a child per evaluation.

It is started by exec, so it has nothing of the host's memory, and it has one thread, so forking
it is sound. It never sees code, values or files: those go between the host and the child.

Its control socket carries datagrams: first its own ``hello``, then the host's orders, each with
one socket, the *watch*. Over it the server hands out a child: a descriptor of the process, and
the host's end of the child's pipe. In the end it says there how the child ended; when the host
closes the watch, the child is killed. The server ends when the control socket or the host does,
and its children with it.

One child is always ready, its wall up, for the order to come: forking and walling takes longer
than most evaluations. Each child serves one evaluation and no more.
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
from typing import Final

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.sandbox.isolation import Layer

from .child import Channel, answer_host, run_child
from .interpreter import Interpreter, builtin_names, numpy_names
from .isolation import Isolation
from .modules import namespaces

__all__ = ["Server", "main"]

_ORDER_BYTES_MAX: Final = 64
_GRACE_S: Final = 2.0
_NEEDED_LATER: Final = ("_strptime", "calendar", "locale", "stringprep", "tokenize", "unicodedata")
_ENCODINGS: Final = (
    *("ascii", "cp1252", "cp437", "hex", "idna", "iso8859-15", "latin-1", "punycode"),
    *("raw_unicode_escape", "rot13", "unicode_escape", "utf-16", "utf-16-be", "utf-16-le"),
    *("utf-32", "utf-7", "utf-8", "utf-8-sig"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What all children of a server may take."""

    memory_bytes: int
    timeout_s: float
    start_timeout_s: float


@dataclass(slots=True)
class _Child:
    """A child, as the server sees it; waiting while it has no *watch*."""

    pid: int
    process: int
    pipe: socket.socket
    watch: socket.socket | None = None
    dies_at_s: float | None = None

    def due_s(self) -> float:
        return math.inf if self.dies_at_s is None else self.dies_at_s


class Server:
    """Serves the orders that come over *control* until that ends.

    Args:
        control: A socket of datagrams.
        isolation: What each child puts up.
        interpreter: What each child evaluates with; it is made once, as that takes a while.
        limits: What each child may take.
        host: A descriptor of the host's process, if it can be watched.
        clock: Tells when a child is overdue, should its host have forgotten it.
    """

    def __init__(
        self,
        control: socket.socket,
        isolation: Isolation,
        interpreter: Interpreter,
        limits: Limits,
        *,
        host: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._control = control
        self._isolation = isolation
        self._interpreter = interpreter
        self._limits = limits
        self._host = host
        self._clock = clock
        self._pid = os.getpid()
        self._children: dict[int, _Child] = {}
        self._by_watch: dict[int, _Child] = {}
        self._spare: _Child | None = None
        self._poll = select.poll()

    def serve(self) -> None:
        """Work until the host goes; no child is left when this returns."""
        self._poll.register(self._control, select.POLLIN)
        if self._host is not None:
            self._poll.register(self._host, select.POLLIN)
        try:
            self._spare = self._forked()
            while self._turn():
                pass
        finally:
            for child in tuple(self._children.values()):
                self._kill(child)
                self._end(child)

    def _turn(self) -> bool:
        """Wait for something and see to it; whether to go on."""
        goes_on = True
        for descriptor, _ in self._poll.poll(self._patience_ms()):
            if descriptor == self._host:
                goes_on = False
            elif descriptor == self._control.fileno():
                goes_on = self._take_order() and goes_on
            elif descriptor in self._children:
                self._end(self._children[descriptor])
            elif descriptor in self._by_watch:
                self._kill(self._by_watch[descriptor])
        now = self._clock.monotonic_s()
        for child in tuple(self._children.values()):
            if child.due_s() <= now:
                self._kill(child)
        return goes_on

    def _patience_ms(self) -> float | None:
        due_s = min((child.due_s() for child in self._children.values()), default=math.inf)
        if due_s == math.inf:
            return None
        return max(0.0, due_s - self._clock.monotonic_s()) * 1_000 + 1

    def _take_order(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(
                self._control, _ORDER_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            return False
        if not data:
            return False
        for descriptor in descriptors:  # none if there is no room; the host sees its end close
            watch = socket.socket(fileno=descriptor)
            try:
                self._hand_out(self._spare or self._forked(), watch)
                self._spare = self._forked()
            except OSError as error:
                if watch.fileno() not in self._by_watch:
                    _tell(watch, {"failed": str(error)})
                    watch.close()
        return True

    def _hand_out(self, child: _Child, watch: socket.socket) -> None:
        self._spare = None
        child.watch = watch
        patience_s = self._limits.start_timeout_s + self._limits.timeout_s + _GRACE_S
        child.dies_at_s = self._clock.monotonic_s() + patience_s
        self._by_watch[watch.fileno()] = child
        self._poll.register(watch, select.POLLIN)
        with child.pipe, contextlib.suppress(OSError):  # the host has gone, and its end with it
            socket.send_fds(watch, [b"{}"], [child.process, child.pipe.fileno()])

    def _forked(self) -> _Child:
        ours, theirs = socket.socketpair()
        with theirs:
            pid = os.fork()
            if pid == 0:
                run_child(lambda: self._be_child(theirs.fileno()))
        process = os.pidfd_open(pid)
        child = self._children[process] = _Child(pid, process, ours)
        self._poll.register(process, select.POLLIN)
        return child

    def _be_child(self, channel: int) -> None:
        layers = self._isolation.put_up(
            channel=channel,
            parent=self._pid,
            memory_bytes=self._limits.memory_bytes,
            timeout_s=self._limits.timeout_s,
        )
        answer_host(Channel(channel), layers, self._interpreter)

    def _kill(self, child: _Child) -> None:
        signal.pidfd_send_signal(child.process, signal.SIGKILL)
        child.dies_at_s = None
        self._look_away(child)

    def _look_away(self, child: _Child) -> None:
        """Its watch has nothing more to say to us."""
        if child.watch is not None and self._by_watch.pop(child.watch.fileno(), None) is not None:
            self._poll.unregister(child.watch)

    def _end(self, child: _Child) -> None:
        """Take leave of a child that is dead or dying, and tell how it went."""
        _, status, usage = os.wait4(child.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._look_away(child)
        self._poll.unregister(child.process)
        del self._children[child.process]
        os.close(child.process)
        child.pipe.close()
        if child is self._spare:  # another is made with the next order, not in a circle
            self._spare = None
        if child.watch is None:
            return
        _tell(
            child.watch,
            {
                "exit_code": code if code >= 0 else None,
                "signal": -code if code < 0 else None,
                "cpu_s": usage.ru_utime + usage.ru_stime,
                "max_rss_bytes": usage.ru_maxrss * 1_024,
            },
        )
        child.watch.close()


def _tell(watch: socket.socket, fields: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # the host no longer listens
        watch.send(json.dumps(fields).encode())


def loaded_interpreter(*, use_numpy: bool) -> Interpreter:
    """Load all that a child may need, as it can load nothing itself."""
    for name in _NEEDED_LATER:
        import_module(name)
    for name in _ENCODINGS:
        codecs.lookup(name)
    warnings.simplefilter("ignore")
    modules = namespaces()
    if use_numpy:
        modules["numpy"] = numpy_names()
    return Interpreter(builtin_names(use_numpy=use_numpy), modules)


def _n_threads() -> int:
    try:
        return sum(1 for _ in Path("/proc/self/task").iterdir())
    except OSError:
        return 1  # no /proc to ask


def _hello(layers: tuple[Layer, ...]) -> dict[str, object]:
    return {"layers": [[layer.name, layer.is_up, layer.detail] for layer in layers]}


def main(arguments: list[str]) -> None:
    """Be the server: *arguments* are the control socket, the host's process id, and the rest."""
    control = socket.socket(fileno=int(arguments[0]))
    host_pid = int(arguments[1])
    limits = Limits(int(arguments[2]), float(arguments[3]), float(arguments[4]))
    use_numpy = arguments[5] == "numpy"
    host = os.pidfd_open(host_pid)
    if os.getppid() != host_pid:
        return
    interpreter = loaded_interpreter(use_numpy=use_numpy)
    isolation = Isolation.prepare()
    if _n_threads() != 1:
        raise RuntimeError("a library has started threads; forking would not be sound")
    hello = _hello(isolation.confine_server())
    sys.argv[:] = []
    gc.collect()
    gc.freeze()  # what children share with us is not to be written by a collection
    control.send(json.dumps(hello).encode())
    Server(control, isolation, interpreter, limits, host=host).serve()
