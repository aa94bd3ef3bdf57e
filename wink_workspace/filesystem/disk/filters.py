"""Processes that look at files beside this one, as the interpreter runs one thread at a time.

``filesystem/search_filter.py`` says which files cannot match a search, and
``filesystem/status_filter.py`` in which directories nothing changed.

Rule 1: a filter is only an optimization. If one ends or cannot start, this process does its work.
Rule 2: a filter lives as long as one search or walk, and ends if this process is killed.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess  # noqa: TID251 - only another process can search at the same time
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

from wink_workspace.filesystem import search_filter
from wink_workspace.filesystem.search import Expression, SearchTimer

from .descriptors import READ

__all__ = ["Filter", "n_useful_filters", "running", "started_filters"]

_MOST_FILTERS: Final = 3
_MOST_REQUESTS: Final = 3

Group: TypeAlias = tuple[int, Sequence[str]]
"""A descriptor of a directory, and names of files in it."""


def n_useful_filters() -> int:
    """How many filters can run beside this process at the same time."""
    return min(_MOST_FILTERS, len(os.sched_getaffinity(0)) - 1)


class Filter:
    """A running filter, which answers requests in their order."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._n_waiting = 0
        self._is_full = self._ended = False

    def takes_more(self) -> bool:
        """Whether it should get another request; it has a few, so that it need not wait."""
        return not self._ended and not self._is_full and self._n_waiting < _MOST_REQUESTS

    def send(self, groups: Sequence[Group]) -> bool:
        """Ask about files in at most ``MAX_DIRECTORIES`` directories.

        ``False`` if there is no room for the names now, or if the filter ended.
        """
        names = (b"\0".join(map(os.fsencode, names)) for _, names in groups)
        self._channel.settimeout(0)
        try:
            socket.send_fds(self._channel, [b"\0\0".join(names)], [fd for fd, _ in groups])
        except BlockingIOError:
            self._is_full = True
            return False
        except OSError:
            self._ended = True
            return False
        self._n_waiting += 1
        return True

    def has_answer(self) -> bool:
        """Whether ``answer`` returns at once."""
        self._channel.settimeout(0)
        try:
            self._channel.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            self._ended = True
        return True

    def answer(self, timer: SearchTimer) -> bytes | None:
        """The answer to the oldest request, ``None`` if the filter ended.

        Raises:
            SearchTimeoutError: If the *timer* ends first.
        """
        self._n_waiting -= 1
        self._is_full = False
        if self._ended:
            return None
        self._channel.settimeout(timer.left_s())
        try:
            answer = self._channel.recv(search_filter.MAX_PACKET_BYTES)
        except TimeoutError as error:
            raise timer.expired() from error
        except OSError:
            answer = b""
        self._ended = not answer
        return answer or None


@contextmanager
def started_filters(
    n_filters: int, expression: Expression, timer: SearchTimer
) -> Generator[list[Filter]]:
    """Filters for *expression*; fewer if the system does not start them."""
    import regex

    settings = {
        "literals": [literal.decode() for literal in expression.encoded_literals],
        "pattern": expression.pattern if expression.fits_blocks else None,
        "library": str(Path(regex.__file__).parents[1]),
        "timeout_s": timer.left_s(),
        "open_flags": READ,
    }
    with ExitStack() as stack:
        filters: list[Filter] = []
        with suppress(OSError):
            while len(filters) < n_filters:
                filters.append(Filter(stack.enter_context(_started(json.dumps(settings)))))
        yield filters


@contextmanager
def _started(settings: str) -> Generator[socket.socket]:
    with ExitStack() as stack:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.enter_context(ours)
        with theirs:
            stack.enter_context(running(search_filter.__file__, theirs.fileno()))
        ours.send(settings.encode())
        yield ours


@contextmanager
def running(program: str, *descriptors: int) -> Generator[None]:
    """Run a program of ours beside the block; its arguments are *descriptors*, which it inherits.

    Raises:
        OSError: If the system does not start it.
    """
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-I", "-S", program, *map(str, descriptors)],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in a terminal is not for it
        cwd="/",
    )
    try:
        yield
    finally:
        process.kill()  # it has no state
        process.wait()
