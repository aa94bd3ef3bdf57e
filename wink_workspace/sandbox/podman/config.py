"""How a Podman sandbox is made and limited. Every field names its unit and has a default."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import ClassVar, Final

from wink_workspace.errors import UsageError
from wink_workspace.sandbox.backends import SandboxConfig

__all__ = ["DEFAULT_IMAGE", "IMAGE_VERSION", "PodmanConfig", "ReadOnlyMount"]

IMAGE_VERSION: Final = "1"
"""Changes with what our images hold."""

DEFAULT_IMAGE: Final = f"localhost/wink-workspace/python:{IMAGE_VERSION}"

_KIB, _MIB, _GIB = 1_024, 1_048_576, 1_073_741_824
_LEAST: Final = {"cpus": 0.01, "memory_bytes": 16 * _MIB, "n_processes": 2, "n_open_files": 16}
"""With less, no command can be started: the runner inside and Python need as much."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_PLACES = ("/", "/workspace", "/tmp", "/dev", "/proc", "/sys")  # noqa: S108 - inside the container


@dataclass(frozen=True, slots=True)
class ReadOnlyMount:
    """A directory or file of the host that commands may read: a cache of packages, say.

    Both paths are absolute; *target* is where it is inside.
    """

    source: str
    target: str

    def __post_init__(self) -> None:
        for path in (self.source, self.target):
            if not path.startswith("/") or ".." in PurePosixPath(path).parts or "\0" in path:
                raise UsageError(
                    f"the mount's path {path!r} is not absolute", hint="Give absolute paths."
                )
        if str(PurePosixPath(self.target)) in _OWN_PLACES:
            raise UsageError(
                f"nothing can be mounted at {self.target}", hint="Choose a place such as /mnt/data."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodmanConfig(SandboxConfig):
    """What the container is made of and what its commands may use.

    A limit above the caller's own hard limit is lowered to that. A limit too small for anything
    to be started is refused; the error names the least.

    Attributes:
        image: The image; it must be there, as nothing is ever pulled.
        cpus: Processor time, as a number of processors.
        memory_bytes: Memory of all commands together, swap included. Without cgroups (rootless
            on some systems) it bounds the data of each process instead.
        n_processes: Processes and threads that a command may have at once.
        n_open_files: Descriptors that each process may have open.
        file_bytes: The largest file that can be written.
        tmp_bytes: Room in ``/tmp``, which is emptied after each command.
        shm_bytes: Room in ``/dev/shm``, likewise.
        workspace_bytes: How large the workspace may grow; a command that goes beyond is ended.
        workspace_entries: How many files and directories it may hold, likewise.
        network: ``"none"``, or a network mode of Podman; the proof then says that this wall
            is not wanted.
        env: Variables that every command finds.
        user_id: The ordinary user and group that commands are.
        mounts: What of the host can be read.
        runtime: The OCI runtime, such as ``runc``, ``crun`` or ``runsc``; by default what the
            engine chooses, where that works.
        timeout_s: How long a command may run unless it asks for another time.
        longest_timeout_s: The longest that it can ask for.
        output_bytes: What is kept of each stream in a result.
        output_file_bytes: What is kept of each in a file when a result does not hold all.
        most_output_bytes: A command that writes more is ended.
        stdin_bytes: The most that a model can give a command to read. For a program's own
            calls the bound is ``file_bytes``, and that it is kept in memory.
        start_timeout_s: How long the engine may take to start a container.
    """

    backend: ClassVar[str] = "podman"

    image: str = DEFAULT_IMAGE
    cpus: float = 1.0
    memory_bytes: int = _GIB
    n_processes: int = 256
    n_open_files: int = 4_096
    file_bytes: int = _GIB
    tmp_bytes: int = 64 * _MIB
    shm_bytes: int = 16 * _MIB
    workspace_bytes: int = 4 * _GIB
    workspace_entries: int = 500_000
    network: str = "none"
    env: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({"PYTHONDONTWRITEBYTECODE": "1"})
    )
    user_id: int = 1_000
    mounts: tuple[ReadOnlyMount, ...] = ()
    runtime: str | None = None
    timeout_s: float = 30.0
    longest_timeout_s: float = 600.0
    output_bytes: int = 64 * _KIB
    output_file_bytes: int = 8 * _MIB
    most_output_bytes: int = 256 * _MIB
    stdin_bytes: int = 16 * _MIB
    start_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, int | float) and value <= 0:
                raise UsageError(f"{name} is {value}", hint="Use a positive number.")
            if name in _LEAST and value < _LEAST[name]:
                raise UsageError(
                    f"{name} is {value:,}, with which nothing could be started",
                    hint=f"Use at least {_LEAST[name]:,}.",
                )
        if not self.user_id < 65_536:
            raise UsageError(
                f"user_id is {self.user_id}", hint="Use an id from 1 to 65535, such as 1000."
            )
        for name, value in self.env.items():
            if not _VARIABLE.fullmatch(name) or "\0" in value:
                raise UsageError(
                    f"{name!r} cannot be a variable", hint="Use letters, digits and '_'."
                )
