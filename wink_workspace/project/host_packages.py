"""Packages that a project's directory has for this machine, and that cannot run in a sandbox.

A virtual environment or ``node_modules`` is copied into the workspace with the other files. It
works there only if its Python is in the image, and if npm installed it for Linux. Only the lists of
the installers are read: what is not found here fails later with the message of its own program.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, cast

from wink_workspace.filesystem import WorkspacePath
from wink_workspace.filesystem.mounts import HostTree

IMAGE_PYTHON: Final = "3.11"
"""The version of ``/usr/bin/python3`` in the images that are not a project's own."""

_ENVIRONMENTS: Final = (".venv", "venv", "env")
_MOST_BYTES: Final = 32 * 1_048_576  # of npm's list of what is installed


def unusable_packages(source: Path) -> tuple[str, ...]:
    """A sentence for each directory of packages at the top of *source* that cannot run inside.

    Args:
        source: The project's directory. Files that cannot be read count as usable.
    """
    tree = HostTree(source)
    found = [(name, _problem_of_environment(tree, name)) for name in _ENVIRONMENTS]
    found.append(("node_modules", _problem_of_node(tree)))
    return tuple(f"{name} cannot run in the sandbox: {why}" for name, why in found if why)


def _problem_of_environment(tree: HostTree, name: str) -> str | None:
    lines = (line.partition("=") for line in _text(tree, name, "pyvenv.cfg").splitlines())
    home = {key.strip(): value.strip() for key, _, value in lines}.get("home", "/usr/bin")
    if home != "/usr/bin":
        return f"its Python is in {home}, which is not in the image"
    try:
        versions = [each for each in tree.names(WorkspacePath((name, "lib"))) if "python" in each]
    except OSError:
        return None
    if versions and f"python{IMAGE_PYTHON}" not in versions:
        return f"its packages are not for Python {IMAGE_PYTHON}, which the image has"
    return None


def _problem_of_node(tree: HostTree) -> str | None:
    """Why a package in npm's own list of what it has installed is not for Linux."""
    try:
        content: Any = json.loads(_text(tree, "node_modules", ".package-lock.json"))
        packages: list[tuple[str, Any]] = list(content["packages"].items())
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
    for path, package in packages:
        fields = cast("dict[str, object]", package if isinstance(package, dict) else {})
        systems = fields.get("os")
        if isinstance(systems, list):
            names = list(map(str, cast("list[object]", systems)))
            allowed = [each for each in names if not each.startswith("!")]
            if "!linux" in names or (allowed and "linux" not in allowed):
                return f"{path} is for {', '.join(names)}"
    return None


def _text(tree: HostTree, *path: str) -> str:
    """The start of a regular file, without following links; ``""`` if it cannot be read."""
    try:
        with tree.open(WorkspacePath(path)) as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
