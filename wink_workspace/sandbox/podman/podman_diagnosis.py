"""Examination of this machine for Podman sandboxes: one finding for each thing they need.

Nothing is changed. For the last finding, a container is started as for a workspace, and every
isolation probe is made in it.
"""

from __future__ import annotations

import os
import pwd
import re
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, cast

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxError, WinkError
from wink_workspace.sandbox.backends import SandboxContext
from wink_workspace.sandbox.commands.system_calls import installed_list
from wink_workspace.sandbox.git_directory import FIRST_HOST_ID, N_HOST_IDS, give_to_sandbox
from wink_workspace.sandbox.isolation_report import Finding
from wink_workspace.system_packages import install_hint

from .building.images import USUAL_RECIPES, ImageStore, recipe
from .engine.containers import Host
from .engine.podman_config import PodmanConfig
from .engine.service import PodmanService
from .podman_sandbox import PodmanSandbox

_OLDEST_PODMAN: Final = 4
_SUBORDINATE: Final = (Path("/etc/subuid"), Path("/etc/subgid"))
_MOST_NAMESPACES: Final = Path("/proc/sys/user/max_user_namespaces")
_FILTERS: Final = Path("/proc/sys/kernel/seccomp/actions_avail")
_ENGINE_FIX: Final = "Run `podman info` as this user; its output names the problem."
_STORE_FIX: Final = "Run `podman image ls` as this user; its output names the problem."
_ISOLATION_FIX: Final = (
    "Fix what is missing or limited above, and run this again. If that does not help, try"
    " `podman run --rm --network=none {image} true`, another OCI runtime (runc, crun), a newer one"
    " or a newer kernel."
)


def examine(environment: Environment, *, config: PodmanConfig | None = None) -> tuple[Finding, ...]:
    """All findings, the most basic ones first.

    Args:
        environment: The variables that name the engine.
        config: The sandbox that this machine should run.
    """
    config = config or PodmanConfig()
    path = environment.variables.get("PATH")
    if shutil.which("podman", path=path) is None:
        return (_missing("podman", "not on the PATH", install_hint("podman")),)
    return tuple(_findings(environment, config))


def _findings(environment: Environment, config: PodmanConfig) -> Iterator[Finding]:
    yield from _kernel()
    yield from _ids()
    try:
        with closing(PodmanService(environment)) as service:
            host = Host.of(service)
            yield from _engine(service)
            yield from _limits(config, host)
    except WinkError as error:
        yield _missing("engine", error.message, _next_step(error, _ENGINE_FIX))
        return
    yield from _images(environment)
    yield from _building(environment)
    yield from _isolation(environment, config)


def _good(name: str, detail: str) -> Finding:
    return Finding("podman", name, "good", detail)


def _limited(name: str, detail: str, fix: str) -> Finding:
    return Finding("podman", name, "limited", detail, fix)


def _missing(name: str, detail: str, fix: str) -> Finding:
    return Finding("podman", name, "missing", detail, fix)


def _next_step(error: WinkError, instead: str) -> str:
    """The error's own hint; *instead* if it only has the default hint, which is ``doctor``."""
    return instead if error.hint == type(error).default_hint else error.hint


# The machine


def _kernel() -> Iterator[Finding]:
    try:
        most = int(_MOST_NAMESPACES.read_text(encoding="ascii"))
    except (OSError, ValueError):
        most = 0
    if most == 0:
        yield _missing(
            "user namespaces",
            "the kernel allows 0",
            "Allow them: `sysctl user.max_user_namespaces=15000`.",
        )
    else:
        yield _good("user namespaces", f"{most:,} allowed")
    if not _FILTERS.exists():
        yield _missing(
            "seccomp", "the kernel does not support it", "Use a kernel with CONFIG_SECCOMP_FILTER."
        )
    elif installed_list() is None:
        yield _limited(
            "seccomp",
            "the engine's built-in filter is used and cannot be narrowed",
            install_hint("containers-common"),
        )
    else:
        yield _good("seccomp", f"{installed_list()}, narrowed")


def _ids() -> Iterator[Finding]:
    """Rootless: the user's subordinate ids. Root: whether another user has the same ids."""
    if os.geteuid():
        number = name = str(os.geteuid())
        with suppress(KeyError):  # a user without a name
            name = pwd.getpwuid(os.geteuid()).pw_name
        ours = {number, name}  # the files may contain either
        lacking = [str(file) for file in _SUBORDINATE if not any(_ranges(file, ours))]
        if lacking:
            yield _missing(
                "subordinate ids",
                f"{name} has none in {' and '.join(lacking)}",
                "As root: `usermod --add-subuids 300000-365535 --add-subgids 300000-365535 "
                f"{name}`.",
            )
        else:
            yield _good("subordinate ids", f"{name} has some")
        if shutil.which("newuidmap") is None:
            yield _missing("newuidmap", "not installed", install_hint("newuidmap"))
        return
    others = sorted({who for file in _SUBORDINATE for who in _overlapping(file)})
    if others:
        yield _limited(
            "ids of containers",
            f"{FIRST_HOST_ID} and up are also assigned to {', '.join(others)}, who could change "
            "files of workspaces",
            "Assign other ranges with `usermod --del-subuids` and `--add-subuids`.",
        )
    else:
        yield _good("ids of containers", f"{FIRST_HOST_ID} and up are not assigned to another user")


def _lines(file: Path) -> Iterator[tuple[str, int, int]]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        found = re.fullmatch(r"([^:#]+):(\d+):(\d+)", line.strip())
        if found:
            yield found[1], int(found[2]), int(found[3])


def _ranges(file: Path, names: set[str]) -> Iterator[int]:
    return (count for who, _, count in _lines(file) if who in names and count)


def _overlapping(file: Path) -> Iterator[str]:
    last = FIRST_HOST_ID + N_HOST_IDS
    return (who for who, first, n in _lines(file) if first < last and first + n > FIRST_HOST_ID)


# The engine


def _engine(service: PodmanService) -> Iterator[Finding]:
    info = cast("dict[str, Any]", service.request("GET", "/info"))  # Any: the engine's JSON
    version = str(info["version"]["Version"])
    whose = "root's" if service.is_root else "rootless"
    where = (
        "started by wink-workspace when needed" if service.is_own else f"at {service.socket_path}"
    )
    if int(version.partition(".")[0]) < _OLDEST_PODMAN:
        yield _missing("podman", version, f"Install version {_OLDEST_PODMAN} or newer.")
    else:
        yield _good("podman", f"{version}, {whose}, {where}")
    host = info["host"]
    runtime = Host.of(service).runtime or host["ociRuntime"]["name"]
    yield _good("runtime", str(runtime))
    store = info["store"]
    yield _storage(str(store["graphDriverName"]), str(store["graphRoot"]), service.is_root)


def _storage(driver: str, folder: str, is_root: bool) -> Finding:
    if driver != "vfs":
        return _good("storage", f"{driver} in {folder}")
    return _limited(
        "storage",
        f"vfs in {folder}: each container copies its whole image, with time and disk space",
        ("" if is_root else install_hint("fuse-overlayfs") + " Then: ")
        + f'Set `driver = "overlay"` under `[storage]` in {"/etc" if is_root else "~/.config"}'
        "/containers/storage.conf, run `podman system reset`, which deletes all images and"
        " containers, and `wink-workspace image build`.",
    )


def _limits(config: PodmanConfig, host: Host) -> Iterator[Finding]:
    instead: dict[str, str] = {
        "memory": "each process is limited separately, all together are not",
        "pids": "the limit applies to all processes of the same user together",
        "cpu": "a command may use every processor",
    }
    for controller, effect in instead.items():
        if controller in host.controllers:
            yield _good(f"{controller} limit", "enforced by a cgroup")
        else:
            yield _limited(
                f"{controller} limit",
                f"no {controller} cgroup: {effect}",
                "Run as root, or where systemd delegates cgroups v2 controllers to users.",
            )
    for name, kind, wanted in (
        ("open files", resource.RLIMIT_NOFILE, config.n_open_files),
        ("processes", resource.RLIMIT_NPROC, config.n_processes),
    ):
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY and hard < wanted:
            yield _limited(
                name,
                f"the hard limit is {hard:,}; {wanted:,} wanted",
                "Raise the hard limit of the user, or lower the sandbox's limit.",
            )
    yield _limited(
        "workspace size",
        "no quota: the sandbox ends and undoes a command with which the workspace exceeds"
        f" {config.workspace_bytes // 1_048_576:,} MiB, best effort",
        "Keep workspaces on a separate filesystem if the disk must never fill up.",
    )


# Images


def _images(environment: Environment) -> Iterator[Finding]:
    store = ImageStore(environment)
    for name in USUAL_RECIPES:
        wanted = recipe(name)
        fix = f"Run `wink-workspace image build {name}`."
        try:
            found = store.find(wanted.reference)
        except SandboxError as error:
            yield _missing(f"image {name}", error.message, _next_step(error, _STORE_FIX))
            continue
        if found is None:
            yield _missing(f"image {name}", f"{wanted.reference} has not been built", fix)
        elif found.recipe_digest != wanted.digest:
            yield _limited(
                f"image {name}", f"{wanted.reference} was built from an older recipe", fix
            )
        else:
            yield _good(f"image {name}", wanted.reference)


def _building(environment: Environment) -> Iterable[Finding]:
    path = environment.variables.get("PATH")
    if shutil.which("mmdebstrap", path=path) is None:
        yield _limited(
            "building images",
            "without mmdebstrap, images are based on a registry's",
            install_hint("mmdebstrap"),
        )
    else:
        yield _good("building images", "mmdebstrap is installed")


# The probes


def _isolation(environment: Environment, config: PodmanConfig) -> Iterator[Finding]:
    """Run the probes in a container that is started as for a workspace."""
    with tempfile.TemporaryDirectory(prefix="wink-workspace-") as folder:
        files = Path(folder) / "files"
        files.mkdir()
        give_to_sandbox(files)
        sandbox = PodmanSandbox(SandboxContext(files=files), config=config, environment=environment)
        with closing(sandbox):
            yield _probes(lambda: len(sandbox.report.probes), config.image)


def _probes(run: Callable[[], int], image: str) -> Finding:
    try:
        n_probes = run()
    except WinkError as error:
        fix = _next_step(error, _ISOLATION_FIX.format(image=image))
        return _missing("isolation", error.message, fix)
    return _good("isolation", f"{n_probes} probes, all stopped")
