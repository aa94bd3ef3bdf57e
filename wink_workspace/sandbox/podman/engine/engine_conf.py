"""Settings of the engine that we start ourselves; the user's are neither used nor changed.

Podman reads the file named by ``CONTAINERS_CONF`` instead of all others. Ours has only what this
machine needs: a runtime that works with its cgroups, limits that the caller may set, and no
dependency on a daemon that does not run. The user's storage of images and containers is used.
"""

from __future__ import annotations

import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

_FILE = "containers.conf"
_MOST_FILES = 4_096
_MOST_PROCESSES = 2_048
_SYSTEM_PATH = "/usr/sbin:/sbin"  # where Debian keeps runc; not on an ordinary user's PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The settings of the engine.

    Attributes:
        runtime: The program that starts containers; ``None`` for the engine's default.
        cgroup_manager: ``cgroupfs`` if systemd does not run; ``None`` for the engine's default.
        n_files: Default limit of open files of a process.
        n_processes: Default limit of processes.
    """

    runtime: str | None
    cgroup_manager: str | None
    n_files: int
    n_processes: int

    @classmethod
    def for_this_machine(cls, *, path: str, runtime: str | None = None) -> EngineSettings:
        """The settings that work on this machine.

        Args:
            path: The directories of programs, in the form of ``PATH``.
            runtime: The requested runtime, if any.
        """
        return cls(
            runtime=runtime or _runtime(f"{path}:{_SYSTEM_PATH}"),
            cgroup_manager=None if Path("/run/systemd/system").is_dir() else "cgroupfs",
            n_files=_allowed(resource.RLIMIT_NOFILE, _MOST_FILES),
            n_processes=_allowed(resource.RLIMIT_NPROC, _MOST_PROCESSES),
        )

    @property
    def text(self) -> str:
        """The content of the settings file."""
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
        """Write the settings into the existing directory *folder*; returns the file."""
        file = folder / _FILE
        file.write_text(self.text, encoding="utf-8")
        return file


def _runtime(path: str) -> str | None:
    """The installed runtime that suits the cgroups; crun refuses hybrid ones (v1 and v2)."""
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    wanted = ("crun", "runc") if unified else ("runc", "crun")
    return next((name for name in wanted if shutil.which(name, path=path)), None)


def _allowed(limit: int, most: int) -> int:
    """*most*, or the hard limit if that is lower: raising it may not be permitted."""
    _, hard = resource.getrlimit(limit)
    return most if hard == resource.RLIM_INFINITY else min(most, hard)
