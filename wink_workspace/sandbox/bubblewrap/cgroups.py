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

from wink_workspace.errors import SandboxUnavailableError
from wink_workspace.sandbox.commands.command_config import CommandConfig
from wink_workspace.sandbox.commands.kernel_limits import PERIOD_US, SPARE_PIDS

_ROOT: Final = Path("/sys/fs/cgroup")
_PARENT: Final = "wink-workspace"
_CONTROLLERS: Final = ("memory", "pids", "cpu", "freezer")


class LimitGroup:
    """A cgroup, or one for each controller of cgroups v1; it is made by ``enter``.

    Attributes:
        controllers: The controllers that limit it; empty if this user can make none.
    """

    def __init__(self, config: CommandConfig) -> None:
        self._config = config
        self._is_unified = (_ROOT / "cgroup.controllers").is_file()
        self._folders: list[Path] = []
        above = {each: _ROOT if self._is_unified else _ROOT / each for each in _CONTROLLERS}
        is_root = os.geteuid() == 0
        self.controllers = {each for each in above if is_root and os.access(above[each], os.W_OK)}

    def enter(self, pid: int) -> None:
        """Make it, and move a process that has no children yet into it.

        Raises:
            SandboxUnavailableError: If that is not permitted.
        """
        name = f"{os.getpid()}-{secrets.token_hex(8)}"
        try:
            for controller in self.controllers:
                above = _ROOT if self._is_unified else _ROOT / controller
                folder = above / _PARENT / name
                if not folder.exists():
                    folder.parent.mkdir(exist_ok=True)
                    for each in (above, folder.parent) if self._is_unified else ():
                        (each / "cgroup.subtree_control").write_text("+memory +pids +cpu")
                    folder.mkdir()
                    self._folders.append(folder)
                for file, value in self._values(controller).items():
                    with suppress(FileNotFoundError):  # a kernel that does not count swap
                        (folder / file).write_text(str(value), encoding="ascii")
            for folder in self._folders:
                (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")
        except ProcessLookupError:
            return  # it has died, and its stream says why
        except OSError as error:
            raise SandboxUnavailableError(
                f"the limits of a cgroup cannot be set: {error}",
                hint="Run as an ordinary user, or where root may make cgroups.",
            ) from error

    def _values(self, controller: str) -> dict[str, object]:
        config, quota = self._config, int(self._config.cpus * PERIOD_US)
        match controller, self._is_unified:
            case "memory", True:
                return {"memory.max": config.memory_bytes, "memory.swap.max": 0}
            case "memory", False:
                names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
                return dict.fromkeys(names, config.memory_bytes)
            case "pids", _:
                return {"pids.max": config.n_processes + SPARE_PIDS}
            case "cpu", True:
                return {"cpu.max": f"{quota} {PERIOD_US}"}
            case "cpu", False:
                return {"cpu.cfs_period_us": PERIOD_US, "cpu.cfs_quota_us": quota}
            case _:
                return {}

    def remove(self) -> None:
        """Remove it; its processes have ended."""
        for folder in self._folders:
            with suppress(OSError):
                folder.rmdir()


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
