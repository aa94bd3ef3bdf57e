"""The limits of commands, which every sandbox that runs commands has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from wink_workspace.errors import UsageError
from wink_workspace.sandbox.backends import SandboxConfig
from wink_workspace.sandbox.network import NetworkRules

if TYPE_CHECKING:
    from wink_workspace.sandbox.services import ServiceConfig

_KIB, _MIB, _GIB = 1_024, 1_048_576, 1_073_741_824
_LEAST: Final = {"cpus": 0.01, "memory_bytes": 16 * _MIB, "n_processes": 16, "n_open_files": 16}
"""The least values with which the container runtime, the runner and Python can start a command.

The number of threads of the runtime varies with the load of the machine.
"""
_RESERVED_PATHS = ("/", "/workspace", "/tmp", "/dev", "/proc", "/sys")  # noqa: S108 - inside the container
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class ReadOnlyMount:
    """A directory or file of the host that commands may read, such as a package cache.

    Both paths are absolute; *source* is that of the host and *target* that in the container.
    """

    source: str
    target: str

    def __post_init__(self) -> None:
        for path in (self.source, self.target):
            if not path.startswith("/") or ".." in PurePosixPath(path).parts or "\0" in path:
                raise UsageError(
                    f"the mount's path {path!r} is not an absolute path without '..'",
                    hint="Use absolute paths without '..'.",
                )
        if str(PurePosixPath(self.target)) in _RESERVED_PATHS:
            raise UsageError(
                f"nothing can be mounted at {self.target}: the sandbox uses this path",
                hint="Choose another path, such as /mnt/data.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandConfig(SandboxConfig):
    """Limits of commands.

    A limit above the caller's own hard limit is lowered to that. A limit with which nothing can be
    started is refused; the error names the least value.

    Attributes:
        cpus: Processor time, as a number of processors.
        memory_bytes: Memory of all commands together, with swap. Without cgroups (rootless on
            some systems) it limits the data of each process instead.
        n_processes: Most processes and threads of a command at one time; at least 16.
        n_open_files: Most open descriptors of each process.
        file_bytes: The largest file that a command can write.
        tmp_bytes: Size of ``/tmp``, which is emptied after each command.
        shm_bytes: Size of ``/dev/shm``, which is emptied after each command.
        workspace_bytes: Largest size of the workspace; a command that exceeds it is ended.
        workspace_entries: Most files and directories of the workspace, likewise.
        env: Environment variables of every command.
        mounts: Directories and files of the host that commands can read.
        timeout_s: Time limit of a command that sets none.
        longest_timeout_s: The longest time limit that a command can set.
        output_bytes: How much of each stream a result contains.
        output_file_bytes: How much of each stream is kept in a file if the result is cut.
        most_output_bytes: A command that writes more is ended.
        stdin_bytes: The longest input that a model can pass to a command. A program's own calls
            are limited by ``file_bytes``; their input is held in memory.
        start_timeout_s: How long a sandbox may take to start.
        n_services: Most services of a workspace at one time. Each has the limits of a command.
        service_log_bytes: How much of a service's newest output is kept.
        service_start_timeout_s: How long a service may take until it is ready.
        services: Services that can be started by their name alone.
        network: What commands can reach; nothing by default. The isolation report has the layer
            "no network" as not active if it is not empty.
    """

    cpus: float = 1.0
    memory_bytes: int = _GIB
    n_processes: int = 256
    n_open_files: int = 4_096
    file_bytes: int = _GIB
    tmp_bytes: int = 64 * _MIB
    shm_bytes: int = 16 * _MIB
    workspace_bytes: int = 4 * _GIB
    workspace_entries: int = 500_000
    env: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({"PYTHONDONTWRITEBYTECODE": "1"})
    )
    mounts: tuple[ReadOnlyMount, ...] = ()
    timeout_s: float = 30.0
    longest_timeout_s: float = 600.0
    output_bytes: int = 64 * _KIB
    output_file_bytes: int = 8 * _MIB
    most_output_bytes: int = 256 * _MIB
    stdin_bytes: int = 16 * _MIB
    start_timeout_s: float = 60.0
    n_services: int = 4
    service_log_bytes: int = _MIB
    service_start_timeout_s: float = 60.0
    services: tuple[ServiceConfig, ...] = ()
    network: NetworkRules = field(default_factory=NetworkRules)

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, int | float) and value <= 0 and name != "n_waiting":
                raise UsageError(f"{name} is {value}", hint="Use a positive number.")
            if name in _LEAST and value < _LEAST[name]:
                raise UsageError(
                    f"{name} is {value:,}, which is too small to start a command",
                    hint=f"Use at least {_LEAST[name]:,}.",
                )
        for name, value in self.env.items():
            if not _VARIABLE.fullmatch(name) or "\0" in value:
                raise UsageError(
                    f"{name!r} cannot be an environment variable, or its value contains a NUL",
                    hint="Use letters, digits and '_' in names.",
                )
