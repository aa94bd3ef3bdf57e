"""Packages that a project's directory has for this machine, and that cannot run in a sandbox.

A virtual environment or ``node_modules`` is copied into the workspace with the other files. It
works there only if its Python is in the image, and if its compiled files are for the image's
platform. Nothing of the project is run, no link is followed, and the number of files looked at is
bounded: what is not found here fails later with the message of its own program.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

__all__ = ["UnusablePackages", "unusable_packages"]

IMAGE_PYTHON: Final = "3.11"
"""The version of ``/usr/bin/python3`` in the images that are not a project's own."""

_ENVIRONMENTS: Final = (".venv", "venv", "env")
_PYTHONS: Final = frozenset(f"/usr/bin/python{each}" for each in ("", "3", IMAGE_PYTHON))
_MOST_LINKS: Final = 8
_MOST_ENTRIES: Final = 20_000
_MOST_BYTES: Final = 32 * 1_048_576  # of npm's list of what is installed
_ELF_MACHINES: Final = {"x86_64": 62, "aarch64": 183, "riscv64": 243, "ppc64le": 21, "s390x": 22}
_MAC_MAGICS: Final = (b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")


@dataclass(frozen=True, slots=True)
class UnusablePackages:
    """Packages in a project's directory that cannot run in a sandbox without an image of it.

    Attributes:
        path: The directory, relative to the project's.
        reason: Why, as the end of a sentence.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path} cannot run in the sandbox: {self.reason}"


def unusable_packages(source: Path) -> tuple[UnusablePackages, ...]:
    """The virtual environments and ``node_modules`` at the top of *source* that cannot run inside.

    Args:
        source: The project's directory. Files that cannot be read count as usable.
    """
    found = [(name, _problem_of_environment(source / name)) for name in _ENVIRONMENTS]
    found.append(("node_modules", _problem_of_node(source / "node_modules")))
    return tuple(UnusablePackages(name, reason) for name, reason in found if reason is not None)


def _problem_of_environment(folder: Path) -> str | None:
    if not (stat.S_ISDIR(_mode(folder) or 0) and _mode(folder / "pyvenv.cfg")):
        return None
    if stat.S_ISDIR(_mode(folder / "Scripts") or 0):
        return "it is for Windows"
    target = _target(folder)
    if target is None:
        return None
    if not target.is_relative_to(folder.parent):
        if str(target) not in _PYTHONS:
            return f"its Python is {target}, which is not in the image"
    elif (platform := _other_platform(target)) is not None:
        return f"its Python is for {platform}"
    if not stat.S_ISDIR(_mode(folder / "lib" / f"python{IMAGE_PYTHON}") or 0):
        return f"its packages are not for Python {IMAGE_PYTHON}, which the image has"
    return _problem_of_files(folder / "lib", ".so")


def _problem_of_node(folder: Path) -> str | None:
    if not stat.S_ISDIR(_mode(folder) or 0):
        return None
    for path, package in _installed(folder).items():
        systems = cast("object", package.get("os"))
        if isinstance(systems, list) and not _allows_linux(cast("list[object]", systems)):
            return f"{path} is for {', '.join(map(str, cast('list[object]', systems)))}"
    return _problem_of_files(folder, ".node")


def _installed(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """The packages in npm's own list of what it has installed; empty if there is none."""
    try:
        text = _read(folder / ".package-lock.json", _MOST_BYTES)
        content: Any = json.loads(text)  # Any: a file of the project
        packages: Mapping[str, Any] = content["packages"]
        return {path: each for path, each in packages.items() if hasattr(each, "get")}
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return {}


def _allows_linux(systems: list[object]) -> bool:
    """Whether a package with npm's key ``os`` is installed on Linux."""
    allowed = [each for each in systems if not str(each).startswith("!")]
    return "!linux" not in systems and (not allowed or "linux" in allowed)


def _problem_of_files(folder: Path, suffix: str) -> str | None:
    """The first compiled file with that suffix that is for another platform."""
    for file in _files(folder):
        if file.suffix == suffix and (platform := _other_platform(file)) is not None:
            return f"{file.relative_to(folder.parent)} is for {platform}"
    return None


def _files(folder: Path) -> Iterator[Path]:
    """The regular files below *folder*, of its first entries."""
    todo, n_entries = [folder], 0
    while todo:
        try:
            with os.scandir(todo.pop()) as listed:
                for entry in listed:
                    n_entries += 1
                    if n_entries > _MOST_ENTRIES:
                        return
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(Path(entry.path))
                    elif entry.is_file(follow_symlinks=False):
                        yield Path(entry.path)
        except OSError:
            continue  # not readable


def _other_platform(file: Path) -> str | None:
    """The platform of a compiled file; ``None`` for this one, and if it is not known."""
    try:
        head = _read(file, 20)
    except OSError:
        return None
    if head.startswith(_MAC_MAGICS):
        return "macOS"
    if head.startswith(b"MZ"):
        return "Windows"
    wanted = _ELF_MACHINES.get(os.uname().machine)
    if not head.startswith(b"\x7fELF") or len(head) < 20 or wanted is None:
        return None
    found = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    names = {number: name for name, number in _ELF_MACHINES.items()}
    return None if found == wanted else f"Linux on {names.get(found, 'another processor')}"


def _target(folder: Path) -> Path | None:
    """The Python of a virtual environment, or what its links name outside of the project.

    Links of the host are not followed: the image may have others.
    """
    path = folder / "bin" / "python"
    for _ in range(_MOST_LINKS):
        mode = _mode(path)
        if not path.is_relative_to(folder.parent) or stat.S_ISREG(mode or 0):
            return path
        if not stat.S_ISLNK(mode or 0):
            return None
        try:
            text = os.readlink(path)  # noqa: PTH115 - the text itself
        except OSError:
            return None
        path = Path(os.path.normpath(path.parent / text))
    return None


def _mode(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except (OSError, ValueError):
        return None


def _read(path: Path, n_bytes: int) -> bytes:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return file.read(n_bytes)
