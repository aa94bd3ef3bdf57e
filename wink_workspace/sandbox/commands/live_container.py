"""A running sandbox, known by its first process: the others end with it."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .freezer import thaw


@dataclass(frozen=True, slots=True)
class LiveContainer:
    """Identifies a running container without the engine.

    ``pid`` is the host's process id of its first process. ``started`` is the start time of that
    process, which distinguishes it from a later process with the same id. ``shown`` is why the
    list of mounts in it shows paths of the engine; ``None`` if it does not.
    """

    name: str
    pid: int
    started: int
    shown: str | None = field(default=None, compare=False)

    @property
    def is_running(self) -> bool:
        """Whether its first process is running; the others end with it."""
        return started_ticks(self.pid) == self.started

    def ends_within(self, timeout_s: float) -> bool:
        """Whether it has ended, or ends within *timeout_s*."""
        if not self.is_running:
            return True
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            return bool(poll.poll(timeout_s * 1_000)) or not self.is_running
        finally:
            os.close(fd)


def kill_first_process(container: LiveContainer) -> None:
    """Kill a container without its engine, if permitted; the kernel ends its other processes."""
    if container.is_running:
        thaw(container.pid)  # a frozen process may not die
    with suppress(ProcessLookupError, PermissionError):
        fd = os.pidfd_open(container.pid)
        try:
            if container.is_running:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)


def started_ticks(pid: int) -> int | None:
    """The start time of a process, in clock ticks since boot; ``None`` if it does not run."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    after_name = status.rpartition(")")[2].split()
    return None if after_name[0] in "ZX" else int(after_name[19])
