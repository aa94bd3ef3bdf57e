"""What commands see of this machine: its programs, the tools of the home, and the workspace.

Everything is listed here. What is not listed does not exist inside: other files of the home,
``/run`` with its sockets, ``/var``, ``/sys``, and the state directory with other workspaces.
All of it is read-only but the workspace and the directories in memory, which are emptied after each
command.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError, UsageError
from wink_workspace.sandbox.backends import SandboxContext
from wink_workspace.sandbox.commands.command_config import ReadOnlyMount
from wink_workspace.sandbox.commands.command_runs import VARIABLES
from wink_workspace.sandbox.git_directory import GIT_LAYER_PATH, HISTORY_PATH, WORKSPACE_PATH

from .bubblewrap_config import BubblewrapConfig

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
    ANDROID_HOME CARGO_HOME CONDA_PREFIX DOTNET_ROOT GEM_HOME GOROOT JAVA_HOME MAVEN_HOME
    NVM_BIN NVM_DIR PNPM_HOME PYENV_ROOT RUSTUP_HOME SDKMAN_DIR VIRTUAL_ENV VOLTA_HOME
"""
"""Variables of the user that commands get if they name a place that exists inside."""

_SEARCHED: Final = """
    ACLOCAL_PATH CLASSPATH CMAKE_PREFIX_PATH CPATH CPLUS_INCLUDE_PATH C_INCLUDE_PATH GOPATH
    LD_LIBRARY_PATH LIBRARY_PATH MANPATH NODE_PATH PATH PERL5LIB PKG_CONFIG_PATH PYTHONPATH RUBYLIB
"""
"""Variables with a list of places; commands get those that exist inside."""

_CHOICES: Final = """
    AR CC CFLAGS CGO_ENABLED CI CPP CPPFLAGS CXX CXXFLAGS FC GO111MODULE GOFLAGS GOTOOLCHAIN LANG
    LANGUAGE LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_MONETARY LC_NUMERIC LC_TIME LD LDFLAGS
    MAKEFLAGS NODE_ENV NODE_OPTIONS PYENV_VERSION PYTEST_ADDOPTS PYTHONHASHSEED PYTHONUTF8
    PYTHONWARNINGS RBENV_VERSION RUSTFLAGS RUSTUP_TOOLCHAIN RUST_BACKTRACE SOURCE_DATE_EPOCH TZ
"""
"""Variables that change what compilers and test programs do; none has a credential."""

_MARKS: Final = ("pyvenv.cfg", "conda-meta", "include/node/node.h", "pkg/tool", "lib/modules")
"""What a virtual environment, and an installation of conda, Node, Go or Java has beside ``bin``."""

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
        writes: The directories of the workspace that can be written; all by default.

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

    def __init__(
        self,
        source: Path,
        config: BubblewrapConfig,
        environment: Environment,
        writes: tuple[str, ...] | None = None,
    ) -> None:
        self.source = str(source)
        self._writes = writes
        self._config = config
        self._environment = environment
        self.scratch: tuple[str, ...] = ()
        self.writable: tuple[str, ...] = ()
        _check_source(self.source)
        user = "" if environment.home is None else os.path.realpath(environment.home)
        named = _named(config, user, environment.variables.get("PATH", ""))
        self._tools = {
            path: real for path, real in named if _is_tool(path, real, user, self.source)
        }
        no_home = (self.source, *_UNUSABLE)
        is_private = len(user) > 1 and not any(_is_below(user, each) for each in no_home)
        self.home = user if is_private else "/tmp"  # noqa: S108 - inside
        program = os.path.realpath(sys.executable)
        self._prefix = "" if _is_below(program, "/usr") else os.path.realpath(sys.base_prefix)
        self.python = program.replace(self._prefix, _PYTHON, 1) if self._prefix else program
        self.bound = [f"/{name}" for name in (*_SYSTEM, "etc")] + [*self._tools]
        self.bound += [self.source, _PYTHON, HISTORY_PATH, *(each.target for each in config.mounts)]
        self.variables = {**VARIABLES, "HOME": self.home, **self._of_user(environment.variables)}

    def entries(self, workspace: Entry, git_history: Path | None) -> list[Entry]:
        """The tree below ``root``, parents first; it sets ``scratch`` and ``writable``.

        Args:
            workspace: The entry of the workspace, without its target.
            git_history: The directory with the history of the source, for git.
        """
        found: dict[str, Entry] = {f"/{name}": {} for name in _EMPTY}
        for path in (f"/{name}" for name in _SYSTEM):
            if Path(path).is_symlink():
                found[path] = {"link": str(Path(path).readlink())}
            elif Path(path).is_dir():
                found[path] = {"source": path}
        for path in (f"/etc/{name}" for name in _SETTINGS.split()):
            if Path(path).exists():
                found[path] = {"source": path}
        for name, text in _OWN_FILES.items():
            found[f"/etc/{name}"] = {"text": text.format(home=self.home)}
        if self._prefix:
            found[_PYTHON] = {"source": self._prefix}
        memory = {"within": "scratch"}
        found |= dict.fromkeys(_TEMPORARY, memory)
        if self.home not in found or not found[self.home]:
            found[self.home] = memory
        if git_history is not None:
            found[HISTORY_PATH] = {"source": str(git_history)}
            found[GIT_LAYER_PATH] = memory
        found |= {path: {"source": real} for path, real in self._tools.items()}
        found |= {each.target: {"source": each.source} for each in self._config.mounts}
        if not _is_below(self.source, WORKSPACE_PATH):
            found[WORKSPACE_PATH] = {"link": self.source}
        places = ("",) if self._writes is None else self._writes
        found[self.source] = {
            **workspace,
            "writable": places == ("",),
            "writes": self._writes or (),
        }
        ordered = sorted(found, key=lambda path: path.split("/"))
        sizes = {"size": str(self._config.tmp_bytes), "mode": "0755"}
        shm = {"size": str(self._config.shm_bytes), "mode": "0755"}
        self.scratch = self._emptied(ordered)
        in_memory = (path for path in ordered if found[path] is memory)
        self.writable = (*(os.path.join(self.source, each) for each in places), *in_memory)  # noqa: PTH118 - fast
        return [
            {"target": "scratch", "filesystem": "tmpfs", "options": sizes},
            {"target": "shm", "filesystem": "tmpfs", "options": shm},
            {"target": "mqueue", "filesystem": "mqueue", "options": {}},
            *({"target": f"root{path}", **found[path]} for path in ordered),
        ]

    def _emptied(self, targets: list[str]) -> tuple[str, ...]:
        """The private directories in memory, and those above a mount point in them."""
        tops = {*_TEMPORARY, self.home}
        kept: dict[str, None] = dict.fromkeys(sorted(tops))
        for target in targets:
            if any(_is_below(target, top) for top in tops):
                above = target.rpartition("/")[0]
                while any(_is_below(above, top) for top in tops):
                    kept[above] = None
                    above = above.rpartition("/")[0]
        return tuple(kept)

    def probe_variables(self, context: SandboxContext) -> dict[str, str]:
        """What the probes of this machine have to know."""
        of_user = self._environment.variables
        sockets = [of_user.get(name, "") for name in _SOCKETS]
        buses = [of_user.get(name, "").partition("path=")[2].partition(",")[0] for name in _BUSES]
        hidden = [*sockets, *buses, *_state_of(context)]
        home = self._environment.home
        return {
            "WINK_SCRATCH": "\n".join(self.scratch),
            "WINK_HOST_HOME": "" if home is None else str(home),
            "WINK_HIDDEN": "\n".join(path for path in hidden if path[:1] == "/"),
        }

    def fix_of(self, program: str) -> str:
        """How to make a program of this machine visible; empty if it is, or there is none."""
        listed = self._environment.variables.get("PATH", os.defpath)
        found = shutil.which(program, path=listed) or os.path.join(self.source, program)  # noqa: PTH118 - as above
        real = Path(os.path.realpath(found))
        if not _exists(str(real)) or self.is_visible(str(real)):
            return ""
        folder = real.parent.parent if real.parent.name == "bin" else real.parent
        return (
            f"It is {real}, which commands do not see. If they may read {folder}, add"
            f' "{folder}:{folder}" to `mounts` in your settings.'
        )

    def is_visible(self, path: str) -> bool:
        """Whether *path* of this machine exists inside."""
        return bool(self.inside(path))

    def inside(self, path: str) -> str:
        """The path inside of a place of this machine, where links lead; empty if it is hidden."""
        mounts = [each.source for each in self._config.mounts if each.source == each.target]
        seen = [*(f"/{name}" for name in _SYSTEM), *self._tools, self.source, *mounts]
        for each in (path, os.path.realpath(path)):
            if any(_is_below(each, top) for top in seen) and _exists(path):
                return each
        return ""

    def _of_user(self, variables: Mapping[str, str]) -> dict[str, str]:
        given = {name: variables.get(name, "") for name in (*_PLACES.split(), *_SEARCHED.split())}
        found = {name: variables.get(name, "") for name in _CHOICES.split()}
        for name, text in given.items():
            places = (self.inside(each) if each[:1] == "/" else each for each in text.split(":"))
            found[name] = ":".join(dict.fromkeys(filter(None, places)))
        path = f"{found['PATH']}:{VARIABLES['PATH']}".split(":")
        found["PATH"] = ":".join(dict.fromkeys(filter(None, path)))
        return {name: text for name, text in found.items() if text}


def find_program(
    config: BubblewrapConfig, program: str, source: Path, environment: Environment
) -> tuple[BubblewrapConfig, str]:
    """See ``SandboxBackend.find_program``; a program of a single file is shown if it is hidden."""
    above = os.path.realpath(source)
    listed = environment.variables.get("PATH", os.defpath).split(":")
    absolute = (each for each in listed if each[:1] == "/")
    outside = [each for each in absolute if not _is_below(os.path.realpath(each), above)]
    found = shutil.which(program, path=":".join(outside))
    if found is None:
        raise UsageError(
            f"there is no {program} on your PATH, outside of the project",
            hint="Install it; or build an image that has it, and use --sandbox podman.",
        )
    view, real = HostView(source, config, environment), os.path.realpath(found)
    if view.is_visible(real):
        return config, view.inside(found)
    if "node_modules" in Path(real).parts:
        raise UsageError(f"commands cannot start {program}", hint=view.fix_of(found))
    return replace(config, mounts=(*config.mounts, ReadOnlyMount(real, real))), real


def _state_of(context: SandboxContext) -> list[str]:
    """Where this and other workspaces are, with their base and upper directories."""
    return [str(path) for path in (context.notes, context.services) if path is not None]


def _named(config: BubblewrapConfig, home: str, search_path: str) -> Iterator[tuple[str, str]]:
    """The directories of tools, and where their links lead.

    They are those of the configuration, and installations on the PATH.
    """
    for path in config.tools:
        if path[:2] != "~/":
            yield path, os.path.realpath(path)
        elif home:
            yield f"{home}/{path[2:]}", os.path.realpath(f"{home}/{path[2:]}")
    for path in search_path.split(":"):
        above, _, name = os.path.realpath(path).rpartition("/")
        is_installation = any(_exists(f"{above}/{mark}") for mark in _MARKS)
        if name == "bin" and is_installation and not _is_below(above, "/usr"):
            yield above, above


def _is_tool(path: str, real: str, home: str, source: str) -> bool:
    """Whether it shows neither the workspace, the system's own directories nor the home."""
    apart = [f"/{name}" for name in ("etc", "home", "root", "run", "tmp", "var")]
    apart += [home, f"{home}/.local/share"] if home else []
    shows_more = any(_is_below(each, real) for each in apart)
    return not shows_more and not _is_below(path, source) and _exists(f"{real}/.")


def _exists(path: str) -> bool:
    """Whether it exists, and this user can reach it: a PATH can have directories of root's home."""
    return os.path.exists(path)  # noqa: PTH110 - that of pathlib raises an error there


def _is_below(path: str, top: str) -> bool:
    """Whether *path* is *top* or below it; faster than ``pathlib``, for a hundred paths."""
    return path == top or path.startswith(top.rstrip("/") + "/")


def _check_source(source: str) -> None:
    is_used = any(_is_below(source, path) for path in _UNUSABLE)
    if is_used or any(_is_below(path, source) for path in (*_UNUSABLE, "/usr", "/tmp")):  # noqa: S108 - inside
        raise SandboxUnavailableError(
            f"a sandbox cannot have its files at {source}, which the system uses",
            hint="Move the project to another directory, or use the sandbox podman.",
        )
