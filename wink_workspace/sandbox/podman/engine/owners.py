"""The process that owns a container, distinguished from later processes with the same process id.

Each container has its owner as a label. So another process can find out that the owner is dead,
and remove the container.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Owner", "started_ticks"]


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, identified by boot, pid namespace, process id and start time."""

    boot: str
    namespace: str
    pid: int
    started: int

    @classmethod
    def this_process(cls) -> Owner:
        """The present process."""
        return cls(_boot(), _namespace(), os.getpid(), started_ticks(os.getpid()) or 0)

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Parse what ``str`` returned; ``None`` if *text* is not in that format."""
        try:
            boot, namespace, pid, started = text.split("/")
            return cls(boot, namespace, int(pid), int(started))
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.boot}/{self.namespace}/{self.pid}/{self.started}"

    @property
    def is_dead(self) -> bool:
        """Whether it has certainly ended; never true for a process of another pid namespace."""
        if self.boot != _boot():
            return True
        return self.namespace == _namespace() and started_ticks(self.pid) != self.started


def started_ticks(pid: int) -> int | None:
    """The start time of a process, in clock ticks since boot; ``None`` if it does not run."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    after_name = status.rpartition(")")[2].split()
    return None if after_name[0] in "ZX" else int(after_name[19])


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid").removeprefix("pid:").strip("[]")  # noqa: PTH115 - the link's target is not a path
