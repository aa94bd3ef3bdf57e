"""``wink-workspace version``: what a bug report needs to know of this machine."""

from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

from .screen.command_context import CommandContext, JsonOption, print_json

_NAME: Final = "wink-workspace"
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def show_version(context: CommandContext, json: JsonOption = False) -> None:
    """Print the version, and with --json those of all parts and what the kernel offers.

    It starts no process and no sandbox; ``doctor`` checks those.
    """
    if not json:
        context.out.print(version(_NAME), highlight=False)
        return
    support = context.storage.overlay_support()
    print_json(
        {
            "wink-workspace": version(_NAME),
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "libraries": _libraries(),
            "overlays": {"available": support.available, "reason": support.reason},
            "kernel": {
                "cgroup2": Path("/sys/fs/cgroup/cgroup.controllers").exists(),
                "lsm": _first_line("/sys/kernel/security/lsm"),
                "max_user_namespaces": _first_line("/proc/sys/user/max_user_namespaces"),
                "seccomp": _first_line("/proc/sys/kernel/seccomp/actions_avail"),
            },
        }
    )


def _libraries() -> dict[str, str | None]:
    """The version of each library that a part needs; ``None`` if it is not installed."""
    found: dict[str, str | None] = {}
    for requirement in requires(_NAME) or ():
        name = _REQUIREMENT.match(requirement)
        if name is None or name[0] == _NAME or re.search(r"extra == .dev", requirement):
            continue
        try:
            found[name[0]] = version(name[0])
        except PackageNotFoundError:
            found[name[0]] = None
    return dict(sorted(found.items()))


def _first_line(path: str) -> str | None:
    """The first line of a file of the kernel; ``None`` where the kernel has no such file."""
    try:
        return Path(path).read_text(encoding="utf-8").partition("\n")[0]
    except OSError:
        return None
