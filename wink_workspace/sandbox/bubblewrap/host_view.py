"""What commands see of this machine: its programs, the tools of the home, and the workspace.

Everything is listed here. What is not listed does not exist inside: other files of the home,
``/run`` with its sockets, ``/var``, ``/sys``, and the state directory with other workspaces.
All of it is read-only but the workspace and the directories in memory, which are emptied after each
command.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError
from wink_workspace.sandbox.backends import SandboxContext
from wink_workspace.sandbox.commands.command_runs import VARIABLES
from wink_workspace.sandbox.git_directory import GIT_LAYER_PATH, HISTORY_PATH, WORKSPACE_PATH

from .bubblewrap_config import BubblewrapConfig

__all__ = ["HostView"]

_SYSTEM: Final = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SETTINGS: Final = """
    alternatives bash.bashrc bash_completion ca-certificates ca-certificates.conf crypto-
    policies debian_version fonts gai.conf groff host.conf inputrc issue java ld.so.cache
    ld.so.conf ld.so.conf.d locale.alias locale.conf localtime lsb-release machine-info magic
    mailcap manpath.config maven mime.types nanorc nsswitch.conf openssl os-release perl pki
    profile profile.d protocols python3 rpc services shells skel ssl/certs ssl/openssl.cnf
    terminfo timezone xattr.conf xdg
"""
"""What programs read in ``/etc``; none has credentials."""
_OWN_FILES: Final = {
    "passwd": "root:x:0:0::/:/bin/sh\nagent:x:1000:1000:agent:{home}:/bin/sh\n"
    "nobody:x:65534:65534::/:/bin/false\n",
    "group": "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "hostname": "sandbox\n",
    "resolv.conf": "nameserver 127.0.0.1\n",
}
_EMPTY: Final = ("dev", "proc", "run", "home", "mnt", "opt", "root", "srv", "sys")
_TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108 - inside
_UNUSABLE: Final = ("/dev", "/proc", "/sys", "/etc", "/run/wink")
_PYTHON: Final = "/run/wink/python"
_PLACES: Final = """
    ANDROID_HOME CARGO_HOME CONDA_PREFIX DOTNET_ROOT GEM_HOME GOPATH GOROOT JAVA_HOME MAVEN_HOME
    NVM_BIN NVM_DIR PNPM_HOME PYENV_ROOT RUSTUP_HOME SDKMAN_DIR VIRTUAL_ENV VOLTA_HOME
"""
"""Variables of the user that commands get if they name a place that exists inside."""

_SOCKETS: Final = ("SSH_AUTH_SOCK", "GPG_AGENT_INFO", "CONTAINER_HOST", "DOCKER_HOST")
_BUSES: Final = ("DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS")

Entry = dict[str, Any]
"""An entry of the tree; see ``start`` in the program that makes mounts."""


class HostView:
    """The view of one workspace.

    Args:
        source: The path at which commands find the workspace.
        config: The tools, and the sizes.
        environment: The user's home and variables.

    Attributes:
        home: The home of commands.
        variables: The variables of every command.
        python: The interpreter of the runner.
        scratch: The directories that are emptied after each command.
        writable: All directories in which commands can write.
        bound: The paths at which something of this machine is visible.

    Raises:
        SandboxUnavailableError: If the workspace cannot be at *source*.
    """

    def __init__(self, source: Path, config: BubblewrapConfig, environment: Environment) -> None:
        self.source = source
        self._config = config
        self._environment = environment
        self.scratch: tuple[str, ...] = ()
        self.writable: tuple[str, ...] = ()
        _check_source(source)
        user = environment.home and Path(os.path.realpath(environment.home))
        self._tools = [*_tools(config, user, source)]
        is_private = user is not None and not user.is_relative_to(source) and len(user.parts) > 1
        self.home = str(user) if user is not None and is_private else "/tmp"  # noqa: S108 - inside
        prefix, program = Path(sys.base_prefix).resolve(), Path(sys.executable).resolve()
        self._prefix = None if program.is_relative_to("/usr") else prefix
        if self._prefix is None:
            self.python = str(program)
        else:
            self.python = f"{_PYTHON}/{program.relative_to(prefix)}"
        self.bound = [f"/{name}" for name in (*_SYSTEM, "etc")] + [*map(str, self._tools)]
        self.bound += [str(source), _PYTHON, HISTORY_PATH, *(each.target for each in config.mounts)]
        self.variables = {**VARIABLES, "HOME": self.home, **self._of_user(environment.variables)}

    def entries(self, workspace: Entry, git_history: Path | None) -> list[Entry]:
        """The tree below ``root``, parents first; it sets ``scratch`` and ``writable``.

        Args:
            workspace: The entry of the workspace, without its target.
            git_history: The directory with the history of the source, for git.
        """
        found: dict[str, Entry] = {f"/{name}": {} for name in _EMPTY}
        for name in _SYSTEM:
            path = Path("/", name)
            if path.is_symlink():
                found[str(path)] = {"link": str(path.readlink())}
            elif path.is_dir():
                found[str(path)] = {"source": str(path)}
        for name in _SETTINGS.split():
            path = Path("/etc", name)
            if path.exists():
                found[str(path)] = {"source": str(path)}
        for name, text in _OWN_FILES.items():
            found[f"/etc/{name}"] = {"text": text.format(home=self.home)}
        if self._prefix is not None:
            found[_PYTHON] = {"source": str(self._prefix)}
        memory = {"within": "scratch"}
        found |= dict.fromkeys(_TEMPORARY, memory)
        if self.home not in found or not found[self.home]:
            found[self.home] = memory
        if git_history is not None:
            found[HISTORY_PATH] = {"source": str(git_history)}
            found[GIT_LAYER_PATH] = memory
        found |= {str(tool): {"source": str(tool)} for tool in self._tools}
        found |= {each.target: {"source": each.source} for each in self._config.mounts}
        if not self.source.is_relative_to(WORKSPACE_PATH):
            found[WORKSPACE_PATH] = {"link": str(self.source)}
        found[str(self.source)] = {**workspace, "writable": True}
        ordered = sorted(found, key=lambda path: PurePosixPath(path).parts)
        sizes = {"size": str(self._config.tmp_bytes), "mode": "0755"}
        shm = {"size": str(self._config.shm_bytes), "mode": "0755"}
        self.scratch = self._emptied(ordered)
        self.writable = (str(self.source), *(path for path in ordered if found[path] is memory))
        return [
            {"target": "scratch", "filesystem": "tmpfs", "options": sizes},
            {"target": "shm", "filesystem": "tmpfs", "options": shm},
            {"target": "mqueue", "filesystem": "mqueue", "options": {}},
            *({"target": f"root{path}", **found[path]} for path in ordered),
        ]

    def _emptied(self, targets: list[str]) -> tuple[str, ...]:
        """The private directories in memory, and those above a mount point in them."""
        tops = {*_TEMPORARY, self.home}
        kept = [
            str(above)
            for target in map(PurePosixPath, targets)
            for above in target.parents
            if str(above) not in tops and any(above.is_relative_to(top) for top in tops)
        ]
        return tuple(dict.fromkeys((*sorted(tops), *kept)))

    def probe_variables(self, context: SandboxContext) -> dict[str, str]:
        """What the probes of this machine have to know."""
        of_user = self._environment.variables
        sockets = [of_user.get(name, "") for name in _SOCKETS]
        buses = [of_user.get(name, "").partition("path=")[2].partition(",")[0] for name in _BUSES]
        hidden = [*sockets, *buses, *_state_of(context)]
        home = self._environment.home
        return {
            "WINK_SCRATCH": " ".join(self.scratch),
            "WINK_HOST_HOME": "" if home is None else str(home),
            "WINK_HIDDEN": json.dumps([path for path in hidden if path[:1] == "/"]),
        }

    def is_visible(self, path: str) -> bool:
        """Whether *path* of this machine exists inside."""
        real = Path(os.path.realpath(path))
        seen = [*(Path("/", name) for name in _SYSTEM), *self._tools, self.source]
        return real.exists() and any(real.is_relative_to(each) for each in seen)

    def _of_user(self, variables: Mapping[str, str]) -> dict[str, str]:
        listed = variables.get("PATH", "").split(":")
        usual = VARIABLES["PATH"].split(":")
        programs = [path for path in listed if path[:1] == "/" and self.is_visible(path)]
        places = {name: variables.get(name, "") for name in _PLACES.split()}
        return {
            "PATH": ":".join(dict.fromkeys((*programs, *usual))),
            **{name: path for name, path in places.items() if path and self.is_visible(path)},
        }


def _state_of(context: SandboxContext) -> list[str]:
    """Where this and other workspaces are, with their base and upper directories."""
    return [str(path) for path in (context.notes, context.services) if path is not None]


def _tools(config: BubblewrapConfig, home: Path | None, source: Path) -> Iterator[Path]:
    for text in config.tools:
        if text.startswith("~/"):
            if home is None:
                continue
            path = home / text.removeprefix("~/")
        else:
            path = Path(text)
        path = Path(os.path.realpath(path))
        if path.is_dir() and not path.is_relative_to(source) and _is_apart(path, home):
            yield path


def _is_apart(path: Path, home: Path | None) -> bool:
    """Whether *path* shows neither the system's own directories nor the whole home."""
    above = [Path("/", name) for name in ("etc", "home", "root", "run", "tmp", "var")]
    above += [] if home is None else [home]
    return not any(each.is_relative_to(path) for each in above)


def _check_source(source: Path) -> None:
    used = [Path(path) for path in (*_UNUSABLE, "/usr", "/tmp")]  # noqa: S108 - inside
    inside = any(source.is_relative_to(path) for path in used[: len(_UNUSABLE)])
    if inside or any(path.is_relative_to(source) for path in used):
        raise SandboxUnavailableError(
            f"a sandbox cannot have its files at {source}, which the system uses",
            hint="Move the project to another directory, or use the sandbox podman.",
        )
