"""The limits of a sandbox by a cgroup of its own, which only root can make here.

An ordinary user's programs are in the cgroup of a session, and may not leave it. Then limits of
each process apply instead, and the report says so.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from wink_workspace.sandbox.commands.command_config import CommandConfig

__all__ = ["LimitGroup", "sweep_groups"]

_ROOT: Final = Path("/sys/fs/cgroup")
_PARENT: Final = "wink-workspace"
_PERIOD_US: Final = 100_000
_SPARE_PIDS: Final = 64
"""Additional processes, so that a command's limit never affects the runner."""


class LimitGroup:
    """A cgroup, or one for each controller of cgroups v1.

    Attributes:
        controllers: The controllers that limit it; empty if this user can make none.
        files: A process enters by writing its id to each of them.
    """

    def __init__(self, config: CommandConfig) -> None:
        self.controllers: set[str] = set()
        self.files: list[str] = []
        self._folders: list[Path] = []
        if os.geteuid():
            return
        name = f"{os.getpid()}-{secrets.token_hex(8)}"
        is_unified = (_ROOT / "cgroup.controllers").is_file()
        for controller in ("memory", "pids", "cpu", "freezer"):
            with suppress(OSError):
                parent = _ROOT / _PARENT if is_unified else _ROOT / controller / _PARENT
                self._enter(parent / name, controller, is_unified=is_unified)
                for file, value in _values(controller, config, is_unified=is_unified).items():
                    with suppress(FileNotFoundError):  # a kernel that does not count swap
                        (parent / name / file).write_text(str(value), encoding="ascii")
                self.controllers.add(controller)

    def _enter(self, folder: Path, controller: str, *, is_unified: bool) -> None:
        if folder in self._folders:
            return
        if not is_unified and not folder.parents[1].is_dir():
            raise FileNotFoundError(controller)
        folder.parent.mkdir(exist_ok=True)
        if is_unified:
            for above in (_ROOT, folder.parent):
                text = "+memory +pids +cpu"
                (above / "cgroup.subtree_control").write_text(text, encoding="ascii")
        folder.mkdir()
        self._folders.append(folder)
        self.files.append(str(folder / "cgroup.procs"))

    def remove(self) -> None:
        """Remove it; its processes have ended."""
        for folder in self._folders:
            with suppress(OSError):
                folder.rmdir()


def _values(controller: str, config: CommandConfig, *, is_unified: bool) -> dict[str, object]:
    quota = int(config.cpus * _PERIOD_US)
    match controller, is_unified:
        case "memory", True:
            return {"memory.max": config.memory_bytes, "memory.swap.max": 0}
        case "memory", False:
            return {
                "memory.limit_in_bytes": config.memory_bytes,
                "memory.memsw.limit_in_bytes": config.memory_bytes,
            }
        case "pids", _:
            return {"pids.max": config.n_processes + _SPARE_PIDS}
        case "cpu", True:
            return {"cpu.max": f"{quota} {_PERIOD_US}"}
        case "cpu", False:
            return {"cpu.cfs_period_us": _PERIOD_US, "cpu.cfs_quota_us": quota}
        case _:
            return {}


def sweep_groups() -> tuple[str, ...]:
    """Remove the cgroups of sandboxes whose owner was killed; their names."""
    removed: list[str] = []
    for folder in (*_ROOT.glob(f"{_PARENT}/*-*/"), *_ROOT.glob(f"*/{_PARENT}/*-*/")):
        if Path("/proc", folder.name.partition("-")[0]).exists():
            continue
        with suppress(OSError):  # one that is in use
            folder.rmdir()
            removed.append(f"cgroup {folder.name}")
    return tuple(dict.fromkeys(removed))
