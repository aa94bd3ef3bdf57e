"""The choice of a sandbox where the user names none: ``auto``.

Podman if the project has an image, otherwise the programs of this machine in ``bubblewrap``, then
Podman, then isolated Python; or none. It is the first whose checks pass, as ``wink-workspace
doctor`` makes them. The checks take seconds, so a success is remembered for a day, for this user
and boot of the machine and this Podman. A failure is not remembered: the user may have fixed it.

What is remembered only saves time. Each sandbox checks its isolation again before its first
command, and runs nothing if it is not complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError, UsageError

from .backends import DEFAULT_SANDBOX, NO_SANDBOX, SANDBOXES
from .isolation_report import Finding

_MACHINE: Final = "bubblewrap"
_LAST: Final = "python"
_REMEMBERED_S: Final = 86_400.0
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_ENGINE_VARIABLES: Final = ("CONTAINER_HOST", "XDG_RUNTIME_DIR", "CONTAINERS_STORAGE_CONF")
_MISSING: Final = {
    "python": "no shell_execute and no services",
    NO_SANDBOX: "no tool runs code",
}


@dataclass(frozen=True, slots=True)
class SandboxChoice:
    """The sandbox that was chosen.

    Attributes:
        name: A sandbox of the registry, or ``none``.
        reasons: For each better sandbox that does not work, the first finding that is missing.
        why: Why it was preferred.
    """

    name: str
    reasons: tuple[Finding, ...] = ()
    why: str = ""

    def summary(self) -> str:
        """One line: which sandbox, which tools are missing, why, and how to get them."""
        if not self.reasons:
            return f"sandbox: {self.name}; {self.why}"
        first = self.reasons[0]
        fix = f" {first.fix}" if first.fix else ""
        missing = f"{_MISSING[self.name]}, " if self.name in _MISSING else ""
        return (
            f"sandbox: {self.name}; {missing}because {first.part} cannot be used:"
            f" {first.name}: {first.detail}.{fix} All checks: wink-workspace doctor"
        )


def choose_sandbox(
    environment: Environment, *, needs_image: str = "", clock: Clock = SYSTEM_CLOCK
) -> SandboxChoice:
    """The best sandbox that works here; ``none`` if none does.

    Args:
        environment: The user's variables and home.
        needs_image: Why the project needs a sandbox with an image; empty if it does not.
        clock: The time.
    """
    first = (DEFAULT_SANDBOX, _MACHINE) if needs_image else (_MACHINE, DEFAULT_SANDBOX)
    why = needs_image or "programs of this machine; the project has no image"
    memory = _memory_file(environment)
    remembered = _remembered(memory, environment, clock)
    reasons: list[Finding] = []
    for name in (*first, _LAST):
        if name in remembered and not reasons:
            return SandboxChoice(name, why=why)
        missing = _first_missing(name, environment)
        if missing is None:
            if not reasons:
                _remember(memory, remembered | {name}, environment, clock)
            return SandboxChoice(name, tuple(reasons), why)
        reasons.append(missing)
    return SandboxChoice(NO_SANDBOX, tuple(reasons))


def _first_missing(name: str, environment: Environment) -> Finding | None:
    try:
        findings = SANDBOXES.get(name).examine(environment)
    except SandboxUnavailableError as error:
        return Finding(name, "package", "missing", error.message, error.hint)
    return next((each for each in findings if each.state == "missing"), None)


def _memory_file(environment: Environment) -> Path | None:
    try:
        return environment.cache_dir / "sandbox.json"
    except UsageError:
        return None  # without a home directory nothing is remembered


def _remembered(memory: Path | None, environment: Environment, clock: Clock) -> frozenset[str]:
    """The sandboxes whose checks passed."""
    if memory is None:
        return frozenset()
    try:
        found: object = json.loads(memory.read_bytes())
    except (OSError, ValueError):
        return frozenset()
    match found:
        case {"machine": str(machine), "names": str(names), "at_s": int() | float() as at_s}:
            age_s = clock.now().timestamp() - at_s
            is_valid = machine == _machine(environment) and 0 <= age_s < _REMEMBERED_S
            return frozenset(names.split()) if is_valid else frozenset()
        case _:
            return frozenset()


def _remember(
    memory: Path | None, names: frozenset[str], environment: Environment, clock: Clock
) -> None:
    if memory is None:
        return
    at_s = clock.now().timestamp()
    fields = {"machine": _machine(environment), "names": " ".join(sorted(names)), "at_s": at_s}
    temporary = memory.with_suffix(f".{os.getpid()}.new")
    with suppress(OSError):  # it only saves time
        memory.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        temporary.write_text(json.dumps(fields), encoding="utf-8")
        temporary.rename(memory)


def remember_image(environment: Environment, source: Path) -> None:
    """Record that the project in *source* has an image, so that no engine has to be asked."""
    with suppress(OSError, UsageError):
        path = _image_note(environment, source)
        path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        path.touch()


def has_image(environment: Environment, source: Path) -> bool:
    """Whether an image was built for the project in *source*."""
    try:
        return _image_note(environment, source).exists()
    except UsageError:
        return False  # without a home directory nothing is recorded


def _image_note(environment: Environment, source: Path) -> Path:
    name = hashlib.sha256(os.fsencode(source.resolve())).hexdigest()[:32]
    return environment.cache_dir / "projects-with-image" / name


def _machine(environment: Environment) -> str:
    """Identifies what the checks depend on: boot, user, programs and the packages beside us."""
    variables: Mapping[str, str] = environment.variables
    path, bwrap = (shutil.which(each, path=variables.get("PATH")) for each in ("podman", "bwrap"))
    programs = [sys.prefix, path, bwrap]
    parts: list[object] = [os.geteuid(), *programs, *map(variables.get, _ENGINE_VARIABLES)]
    with suppress(OSError):
        parts.append(_BOOT.read_text(encoding="ascii"))
    if path is not None:
        with suppress(OSError):
            status = Path(path).stat()
            parts += [status.st_size, status.st_mtime_ns]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
