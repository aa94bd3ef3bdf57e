"""Who made a container: a process, told apart from all others that ever had its number.

It is written on each container as a label, so that somebody else can tell that the process is
dead and remove what it left.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Owner", "started_ticks"]


@dataclass(frozen=True, slots=True)
class Owner:
    """A process: ``boot`` and ``namespace`` say where its number means something."""

    boot: str
    namespace: str
    pid: int
    started: int

    @classmethod
    def this_process(cls) -> Owner:
        """Who runs this."""
        return cls(_boot(), _namespace(), os.getpid(), started_ticks(os.getpid()) or 0)

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """The owner that ``str`` gave; ``None`` if it is nothing of the kind."""
        try:
            boot, namespace, pid, started = text.split("/")
            return cls(boot, namespace, int(pid), int(started))
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.boot}/{self.namespace}/{self.pid}/{self.started}"

    @property
    def is_dead(self) -> bool:
        """Whether it is known to have ended; of another pid namespace that is never known."""
        if self.boot != _boot():
            return True
        return self.namespace == _namespace() and started_ticks(self.pid) != self.started


def started_ticks(pid: int) -> int | None:
    """When a process began, in ticks since the system did; ``None`` if there is none."""
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
    return os.readlink("/proc/self/ns/pid").removeprefix("pid:").strip("[]")  # noqa: PTH115 - it leads nowhere
