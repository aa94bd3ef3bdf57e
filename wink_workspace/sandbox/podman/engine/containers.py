"""Containers: their specification, their start and end, and removal of abandoned ones.

``container_spec`` defines the isolation. Of Podman's defaults it relies only on the seccomp filter
and the masked parts of ``/proc`` and ``/sys``. A container removes itself when its first process
ends, and that one ends when the stream to it is closed. So a container whose owner was killed ends
soon; ``sweep`` removes the remaining ones.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import subprocess  # noqa: TID251 - enters the namespace of a container
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from socket import socket
from typing import Any, Final, cast
from urllib.parse import quote

from wink_workspace.errors import MountError, SandboxError, SandboxUnavailableError
from wink_workspace.filesystem.overlay.mounting import Mounter
from wink_workspace.sandbox.commands.freezer import thaw
from wink_workspace.sandbox.commands.kernel_limits import (
    NAMESPACE_LIMITS,
    PERIOD_US,
    SETTINGS,
    SPARE_PIDS,
    process_limits,
)
from wink_workspace.sandbox.commands.live_container import LiveContainer, started_ticks
from wink_workspace.sandbox.commands.system_calls import narrowed
from wink_workspace.sandbox.git_directory import (
    FIRST_HOST_ID,
    GIT_LAYER_PATH,
    HISTORY_PATH,
    N_HOST_IDS,
    WORKSPACE_PATH,
)
from wink_workspace.system_packages import install_hint

from .podman_config import PodmanConfig
from .service import EngineError, PodmanService

# ----------------------------------------------------------------------------------------- owners

# The process that owns a container, distinguished from later processes with the same process id.
#
# Each container has its owner as a label. So another process can find out that the owner is dead,
# and remove the container.


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


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid").removeprefix("pid:").strip("[]")  # noqa: PTH115 - the link's target is not a path


# ------------------------------------------------------------------------------------- host paths

# Hides the paths of the host that the list of mounts would show inside a container.
#
# The engine's mounts show them: the root has the image's layers as options, and ``/etc/hosts``
# its path in the engine's directory. Between the creation of a container's first process and the
# start of its program, the program that makes overlay mounts gives the container another root: a
# read-only overlay of the engine's root, whose options are relative. So the cost is part of the
# start, and a container that waits for its workspace has paid it. The first process must be in
# the root directory: another one would stay in the mounts that are detached.
#
# What is bound keeps its path: a workspace that is a plain copy, and ``PodmanConfig.mounts``. The
# kernel shows the path of a bound directory inside its filesystem, and an overlay cannot replace
# it: its behaviour is undefined if its layers change, as these do. The history for git never
# changes, so an overlay replaces it.


_log = logging.getLogger(__name__)


def hide_host_paths(pid: int, spec: Mapping[str, Any], directory: str) -> str | None:
    """Replace the root of a container whose program has not started.

    Args:
        pid: Its first process.
        spec: The request that created it; see ``container_spec``.
        directory: A directory there. If this is interrupted, it stays covered.

    Returns:
        Why the machine cannot do it; the container is unchanged then. ``None`` if it is done.
    """
    mounts = spec.get("mounts", ())
    bound = {str(mount["destination"]) for mount in mounts if mount["type"] == "bind"}
    unchanging = bound & {HISTORY_PATH}
    try:
        Mounter.shared().hide_paths(
            pid, directory, keep=[*bound - unchanging], unchanging=[*unchanging]
        )
    except MountError as error:
        _log.warning("Commands can see paths of the host in the list of mounts: %s", error)
        return error.message
    return None


# ------------------------------------------------------------------------------------- containers


OWNER_LABEL: Final = "io.wink-workspace.owner"
WORKSPACE_LABEL: Final = "io.wink-workspace.workspace"
PROJECT_PATH: Final = "/opt/project"
"""What build steps keep, in their containers and in the image of the project."""

_RUNNER_VARIABLES: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
"""Where the runner's Python is looked for: set-up steps of a project cannot write there."""
_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_KERNEL: Final = ("runc", "crun")
"""Runtimes whose containers share the host's kernel; others have a kernel with its own limits."""
_OTHER_KERNEL: Final = "the runtime has a kernel of its own, whose mounts are not changed"
_LIMIT_TIMEOUT_S: Final = 10.0
_STOP_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Host:
    """What this machine provides for limiting a container.

    Attributes:
        is_root: Whether the engine runs as root.
        controllers: The cgroup controllers that the engine may use.
        runtime: The OCI runtime to request; ``None`` for the engine's default.
    """

    is_root: bool
    controllers: frozenset[str]
    runtime: str | None = None

    @classmethod
    def of(cls, service: PodmanService) -> Host:
        """Examine this machine and the engine's permissions."""
        unified = (_CGROUPS / "cgroup.controllers").is_file()
        # The user's engine may use crun, which refuses hybrid cgroups (v1 and v2).
        runtime = None if unified or service.is_own else shutil.which("runc")
        return cls(service.is_root, _controllers(unified=unified, is_root=service.is_root), runtime)


def _controllers(*, unified: bool, is_root: bool) -> frozenset[str]:
    """The usable cgroup controllers; rootless, only those of cgroups v2 delegated to the user."""
    if unified:
        delegated = _CGROUPS
        if not is_root:
            user = os.geteuid()
            delegated = _CGROUPS / f"user.slice/user-{user}.slice/user@{user}.service"
        with suppress(OSError):
            return frozenset((delegated / "cgroup.controllers").read_text("ascii").split())
        return frozenset()
    if not is_root:
        return frozenset()
    return frozenset(path.name for path in _CGROUPS.iterdir() if path.is_dir())


def container_spec(
    config: PodmanConfig,
    *,
    host: Host,
    name: str,
    workspace: Path | None,
    command: Sequence[str],
    project: Path | None = None,
) -> dict[str, Any]:
    """The request that creates a container with every isolation layer that the machine supports.

    Args:
        config: The limits.
        host: What the machine provides.
        name: The container's name.
        workspace: The directory that the engine mounts at ``/workspace``. ``None`` for an empty
            read-only directory, on which a workspace is mounted after the start.
        command: The first process.
        project: The directory that a build step can write, at ``PROJECT_PATH``.
    """
    limits = process_limits(config, host.controllers)
    spec: dict[str, Any] = {
        "name": name,
        "image": config.image,
        "entrypoint": list(command),
        "command": [],
        "user": "0:0",
        "env": dict(_RUNNER_VARIABLES),
        "unsetenvall": True,
        "labels": {
            OWNER_LABEL: str(Owner.this_process()),
            **({} if workspace is None else {WORKSPACE_LABEL: str(workspace)}),
        },
        "hostname": "sandbox",
        "work_dir": "/",
        "stdin": True,
        "terminal": False,
        "remove": True,
        "stop_timeout": 0,
        "log_configuration": {"driver": "none"},
        "image_volume_mode": "ignore",
        "mounts": _mounts(config, workspace, project),
        "read_only_filesystem": True,
        "read_write_tmpfs": False,
        "shm_size": config.shm_bytes,
        "cap_drop": ["all"],
        "cap_add": ["CAP_SETUID", "CAP_SETGID", "CAP_KILL"],
        "no_new_privileges": True,
        "netns": {"nsmode": "none"},
        "ipcns": {"nsmode": "private"},
        "pidns": {"nsmode": "private"},
        "utsns": {"nsmode": "private"},
        "r_limits": [
            {"type": kind, "soft": value, "hard": value} for kind, value in limits.items()
        ],
        "sysctl": dict(SETTINGS),
        **_users(config, host),
    }
    resources = _resources(config, host)
    if resources:
        spec["resource_limits"] = resources
    runtime = config.runtime or host.runtime
    if runtime:
        spec["oci_runtime"] = runtime
    return spec


def _mounts(
    config: PodmanConfig, workspace: Path | None, project: Path | None
) -> list[dict[str, Any]]:
    scratch = ["rw", "nosuid", "nodev", f"size={config.tmp_bytes}", "mode=1777"]
    bound = ["rw", "nosuid", "nodev", "bind", "private"]
    empty = ["ro", "nosuid", "nodev", "noexec", "size=4k", "mode=0555", "notmpcopyup"]
    mounts: list[dict[str, Any]] = [
        {
            "type": "tmpfs" if workspace is None else "bind",
            "source": "tmpfs" if workspace is None else str(workspace),
            "destination": WORKSPACE_PATH,
            "options": empty if workspace is None else bound,
        },
        {"type": "tmpfs", "source": "tmpfs", "destination": "/tmp", "options": scratch},  # noqa: S108 - inside the container
    ]
    if project is not None:
        mounts.append(
            {
                "type": "bind",
                "source": str(project),
                "destination": PROJECT_PATH,
                "options": bound,
            }
        )
    if any(mount.target == HISTORY_PATH for mount in config.mounts):
        mounts.append(
            {
                "type": "tmpfs",
                "source": "tmpfs",
                "destination": GIT_LAYER_PATH,
                "options": scratch,
            }
        )
    for mount in config.mounts:
        options = ["ro", "nosuid", "nodev", "bind", "private"]
        mounts.append(
            {
                "type": "bind",
                "source": mount.source,
                "destination": mount.target,
                "options": options,
            }
        )
    return mounts


def _users(config: PodmanConfig, host: Host) -> dict[str, Any]:
    """The mapping of user ids. Root: a range that no account has. Rootless: the caller's id."""
    if not host.is_root:
        mapped = f"uid={config.user_id},gid={config.user_id}"
        return {"userns": {"nsmode": "keep-id", "value": mapped}}
    ids = [{"container_id": 0, "host_id": FIRST_HOST_ID, "size": N_HOST_IDS}]
    return {
        "userns": {"nsmode": "private"},
        "idmappings": {
            "UIDMap": ids,
            "GIDMap": ids,
            "HostUIDMapping": False,
            "HostGIDMapping": False,
            "AutoUserNs": False,
            "AutoUserNsOpts": {},
        },
    }


def _resources(config: PodmanConfig, host: Host) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if "memory" in host.controllers:
        limits["memory"] = {"limit": config.memory_bytes, "swap": config.memory_bytes}
    if "pids" in host.controllers:
        limits["pids"] = {"limit": config.n_processes + SPARE_PIDS}
    if "cpu" in host.controllers:
        limits["cpu"] = {"quota": int(config.cpus * PERIOD_US), "period": PERIOD_US}
    return limits


class Container:
    """Creates a container; later starts and ends it.

    Args:
        service: The engine.
        spec: From ``container_spec``, with a name that no container has.
        timeout_s: How long each step may take.

    Raises:
        SandboxUnavailableError: If the image is missing, or the engine cannot create it.
    """

    def __init__(
        self, service: PodmanService, spec: Mapping[str, Any], *, timeout_s: float
    ) -> None:
        self._service = service
        self._timeout_s = timeout_s
        self.name = str(spec["name"])
        self._spec = spec
        self._shares_kernel = spec.get("oci_runtime") in (None, *_OWN_KERNEL)
        try:
            with narrowed() as seccomp:
                body = spec if seccomp is None else {**spec, "seccomp_profile_path": str(seccomp)}
                created = _uninterrupted(
                    lambda: service.request(
                        "POST", "/containers/create", body=body, timeout_s=timeout_s
                    )
                )
        except EngineError as error:
            raise _cannot_create(str(spec["image"]), error) from error
        except (KeyboardInterrupt, SystemExit):
            remove(service, self.name)
            raise
        self.id = str(cast("Mapping[str, object]", created)["Id"])

    def attach(self) -> socket:
        """Connect to its standard streams, before it starts."""
        streams = "stream=true&stdin=true&stdout=true&stderr=true"
        try:
            return self._service.hijack(
                f"/containers/{self.id}/attach?{streams}", timeout_s=self._timeout_s
            )
        except EngineError as error:
            raise _cannot_start(error) from error

    def start(self) -> LiveContainer:
        """Limit its user namespace and hide paths, then start its first process.

        Raises:
            SandboxUnavailableError: If it does not start, or cannot be limited.
        """
        try:
            self._request("init")
            live = self._live()
            shown: str | None = _OTHER_KERNEL
            if self._shares_kernel:
                _limit_namespace(live.pid)
                shown = hide_host_paths(live.pid, self._spec, WORKSPACE_PATH)
            self._request("start")
        except EngineError as error:
            raise _cannot_start(error) from error
        return replace(live, shown=shown)

    def _request(self, action: str) -> None:
        self._service.request("POST", f"/containers/{self.id}/{action}", timeout_s=self._timeout_s)

    def _live(self) -> LiveContainer:
        state = self._service.request("GET", f"/containers/{self.id}/json")["State"]
        pid = int(state["Pid"])
        started = started_ticks(pid) if pid else None
        if started is None:
            raise SandboxError(f"the container {self.name} ended immediately")
        return LiveContainer(self.name, pid, started)

    def end(self) -> None:
        """Kill its processes and remove it; does nothing if it has been removed."""
        remove(self._service, self.id)


def _uninterrupted(request: Callable[[], object]) -> object:
    """The result of *request*, which creates a container.

    On the main thread Ctrl-C waits for its end. Otherwise the engine would create the container
    after the interrupt, when ``remove`` has not found it. Other threads get no Ctrl-C, and at the
    end of the interpreter they cannot start threads.
    """
    if threading.current_thread() is not threading.main_thread():
        return request()
    with ThreadPoolExecutor(1) as executor:
        executor.submit(int).result()  # starts the thread: Ctrl-C during the start is safe
        return executor.submit(request).result()


def _limit_namespace(pid: int) -> None:
    """Write the limits of the user namespace of process *pid*.

    The kernel shows a process the limits of its own namespace, and the namespace's root may write
    them. ``/proc/sys`` is read-only in the container, so a process of the host enters the
    namespace.
    """
    lines = (f"echo {limit} > /proc/sys/user/{name}" for name, limit in NAMESPACE_LIMITS.items())
    nsenter = shutil.which("nsenter", path=f"{os.defpath}:/usr/sbin:/sbin")
    if nsenter is None:
        raise SandboxUnavailableError(
            "the container's kernel objects cannot be limited: nsenter is not installed",
            hint=install_hint("nsenter"),
        )
    try:
        subprocess.run(  # noqa: S603 - fixed words and a number
            [
                *(nsenter, f"--target={pid}", "--user", "--setuid=0", "--setgid=0"),
                *("/bin/sh", "-ec", "\n".join(lines)),
            ],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            cwd="/",
            timeout=_LIMIT_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        stderr = getattr(error, "stderr", None) or b""
        raise SandboxUnavailableError(
            "the container's kernel objects cannot be limited: "
            + (stderr.decode("utf-8", "replace").strip() or str(error)),
            hint="`wink-workspace doctor` examines the machine.",
        ) from error


def remove(service: PodmanService, which: str) -> None:
    """Kill and remove a container by name or id; does nothing if it does not exist."""
    try:
        service.request(
            "DELETE",
            f"/containers/{quote(which)}",
            params={"force": "true", "timeout": "0", "ignore": "true", "v": "true"},
            timeout_s=_STOP_TIMEOUT_S,
        )
    except EngineError as error:
        if error.status != 404 and _exists(service, which):
            raise


def _exists(service: PodmanService, which: str) -> bool:
    try:
        service.request("GET", f"/containers/{quote(which)}/exists")
    except EngineError:
        return False
    return True


def new_name() -> str:
    """A new, random container name."""
    return f"wink-workspace-{secrets.token_hex(8)}"


def sweep(service: PodmanService) -> tuple[str, ...]:
    """Remove the containers whose owner is dead; returns their names."""
    import json

    filters = json.dumps({"label": [OWNER_LABEL]})
    listed = service.request("GET", "/containers/json", params={"all": "true", "filters": filters})
    removed: list[str] = []
    for found in cast("list[dict[str, Any]]", listed or []):
        owner = Owner.parse(str(found["Labels"].get(OWNER_LABEL, "")))
        if owner is not None and owner.is_dead:
            thaw(int(found.get("Pid") or 0))
            remove(service, str(found["Id"]))
            removed.extend(str(name) for name in found["Names"])
    return tuple(removed)


def sweep_quietly(service: PodmanService) -> None:
    """As ``sweep``; an engine that refuses it does not prevent the start of a container."""
    with suppress(SandboxError):
        sweep(service)


def _cannot_create(image: str, error: EngineError) -> SandboxUnavailableError:
    if error.status == 404 or "image not known" in error.message:
        return SandboxUnavailableError(
            f"there is no image {image}",
            hint="Build it with `wink-workspace image build`, or use another image (`--image`,"
            " PodmanConfig.image).",
        )
    return SandboxUnavailableError(f"the container cannot be created: {error.message}")


def _cannot_start(error: EngineError) -> SandboxUnavailableError:
    return SandboxUnavailableError(f"the container does not start: {error.message}")
