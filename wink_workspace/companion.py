"""A helper process for what a threaded process must not do itself, such as enter namespaces.

Rule 1: it is started with exec, isolated from the environment of Python, in a session of its own:
Ctrl-C in a terminal is not for it.
Rule 2: it ends by itself when our end of its pair of sockets is closed: at ``end``, with this
object, with the interpreter, and when this process is killed.
Rule 3: a forked child closes its copy and leaves the process to its parent.
"""

from __future__ import annotations

import os
import socket
import subprocess  # noqa: TID251 - the one place that starts companions
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import IO, Final

__all__ = ["ISOLATED", "Companion"]

ISOLATED: Final = ("-I", "-S")
"""Options of Python: no variables, no current directory, and no start-up files of packages."""

_END_TIMEOUT_S: Final = 2.0
_ENDING_S: Final = 5.0
_OUTPUT_CHARS: Final = 2_000


class Companion:
    """A process of our own interpreter, and our end of a pair of sockets with packets.

    Args:
        arguments: Those of the interpreter, given the descriptor of its end.
        before: A command that starts the interpreter.
        keeps_output: Whether ``output`` has what it writes to standard error.
        variables: Its environment variables; by default those of this process.

    Attributes:
        channel: Our end.
        end: Closes our end, and waits; kills the process if it does not end in two seconds. May be
            called again.

    Raises:
        OSError: If it cannot be started.
    """

    def __init__(
        self,
        arguments: Callable[[int], Sequence[str]],
        *,
        before: Sequence[str] = (),
        keeps_output: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, ExitStack() as opened:
            opened.enter_context(self.channel)
            self._output: IO[bytes] | None = None
            if keeps_output:
                made = os.fdopen(os.memfd_create("wink-companion-output"), "w+b")
                self._output = opened.enter_context(made)
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
                [*before, sys.executable, *ISOLATED, *arguments(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._output or subprocess.DEVNULL,
                cwd="/",
                env=variables,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
            closing = opened.pop_all()
        self.end = weakref.finalize(self, _end, self._process, closing, os.getpid())

    @property
    def pid(self) -> int:
        """Its process id, while it lives."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def output(self) -> str:
        """The last 2,000 characters that it wrote; waits at most 5 seconds for its end."""
        assert self._output is not None  # noqa: S101 - only those that keep it are asked
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING_S)
        self._output.seek(0)
        return self._output.read().decode("utf-8", "replace").strip()[-_OUTPUT_CHARS:]


def _end(process: subprocess.Popen[bytes], opened: ExitStack, owner: int) -> None:
    opened.close()
    if os.getpid() != owner:
        return
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # the kernel may hold it, in a mount
            process.wait(_END_TIMEOUT_S)
