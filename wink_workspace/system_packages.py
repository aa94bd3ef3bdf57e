"""The command that installs a missing program on this system, for hints of errors.

Rule: a message that asks a user to install a package of the system gets its command
here. The names of packages are those of Debian and Ubuntu, Fedora and its relatives, and Arch; on
other systems the hint names the program. Extras of this package are named by ``MissingExtraError``.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Final

__all__ = ["install_hint"]

_COMMANDS: Final = {
    "debian": "apt-get install",
    "fedora": "dnf install",
    "arch": "pacman -S",
}
_PACKAGES: Final[Mapping[str, Mapping[str, str]]] = {  # where the package has another name
    "containers-common": {"debian": "golang-github-containers-common"},
    "libseccomp": {"debian": "libseccomp2"},
    "newuidmap": {"debian": "uidmap", "fedora": "shadow-utils", "arch": "shadow"},
    "nsenter": {"debian": "util-linux", "fedora": "util-linux", "arch": "util-linux"},
}


def install_hint(*programs: str, release: Mapping[str, str] | None = None) -> str:
    """A sentence with the command that installs *programs*, such as ``podman``.

    Args:
        programs: Their names: those of executables, or of the packages of Arch.
        release: The fields of ``/etc/os-release``; by default those of this system.
    """
    system = _system(_release() if release is None else release)
    if system is None:
        return f"Install {' and '.join(programs)} with the package manager of your system."
    packages = [_PACKAGES.get(name, {}).get(system, name) for name in programs]
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"Install it: `{sudo}{_COMMANDS[system]} {' '.join(packages)}`."


def _release() -> Mapping[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def _system(release: Mapping[str, str]) -> str | None:
    names = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    return next((name for name in names if name in _COMMANDS), None)
