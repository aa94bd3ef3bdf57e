"""The settings of the engine that we start ourselves; the user's are neither used nor changed.

Podman reads the file that ``CONTAINERS_CONF`` names in place of all others. Ours says only what
this machine needs: a runtime that works with its cgroups, limits that its caller may set, and no
daemon that is not running. Where images and containers are kept stays as the user has it.
"""

from __future__ import annotations

import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

__all__ = ["EngineSettings"]

_FILE = "containers.conf"
_MOST_FILES = 4_096
_MOST_PROCESSES = 2_048
_SYSTEM_FOLDERS = "/usr/sbin:/sbin"  # where Debian keeps runc; not on an ordinary user's PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What the engine is told.

    Attributes:
        runtime: The program that starts containers; the engine's own choice if ``None``.
        cgroup_manager: ``cgroupfs`` where no systemd runs; the engine's own choice if ``None``.
        n_files: Most open files of a process that asks for no limit of its own.
        n_processes: Most processes, likewise.
    """

    runtime: str | None
    cgroup_manager: str | None
    n_files: int
    n_processes: int

    @classmethod
    def for_this_machine(cls, *, path: str, runtime: str | None = None) -> EngineSettings:
        """What works here.

        Args:
            path: Where programs are, as in ``PATH``.
            runtime: The runtime asked for, if one is.
        """
        return cls(
            runtime=runtime or _runtime(f"{path}:{_SYSTEM_FOLDERS}"),
            cgroup_manager=None if Path("/run/systemd/system").is_dir() else "cgroupfs",
            n_files=_allowed(resource.RLIMIT_NOFILE, _MOST_FILES),
            n_processes=_allowed(resource.RLIMIT_NPROC, _MOST_PROCESSES),
        )

    @property
    def text(self) -> str:
        """The settings in the form that the engine reads."""
        chosen = {"runtime": self.runtime, "cgroup_manager": self.cgroup_manager}
        engine = [f'{key} = "{value}"' for key, value in chosen.items() if value is not None]
        files, processes = self.n_files, self.n_processes
        return "\n".join(
            [
                "[engine]",
                *engine,
                'events_logger = "file"',
                "",
                "[containers]",
                f'default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]',
                "",
            ]
        )

    def write(self, folder: Path) -> Path:
        """Write the settings into *folder*, which exists; where they are now."""
        file = folder / _FILE
        file.write_text(self.text, encoding="utf-8")
        return file


def _runtime(path: str) -> str | None:
    """Either does the same; crun refuses cgroups that are of both versions at once."""
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    wanted = ("crun", "runc") if unified else ("runc", "crun")
    return next((name for name in wanted if shutil.which(name, path=path)), None)


def _allowed(limit: int, most: int) -> int:
    """No more than the caller may set: raising a hard limit takes a right it may not have."""
    _, hard = resource.getrlimit(limit)
    return most if hard == resource.RLIM_INFINITY else min(most, hard)
