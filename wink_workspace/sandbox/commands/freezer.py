"""Freezes a container: none of its processes runs until it is thawed.

It writes to the container's cgroup and not through the engine, because a rollback must not wait
for an engine to start. Cgroups of version 2 and the freezer of version 1 both work. Where the
container has no cgroup of its own, or this process may not write to it, nothing is frozen.
"""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from wink_workspace.clock import Clock

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OF_CONTAINER: Final = re.compile(
    r"(.*/(?:libpod-[0-9a-f]{64}(?:\.scope)?|wink-workspace/[0-9]+-[0-9a-f]{16}))(?:/.*)?"
)
_TIMEOUT_S: Final = 2.0
_STEP_S: Final = 0.001


def freeze(pid: int, clock: Clock) -> bool:
    """Freeze the container of process *pid*; ``False`` if that is not possible here.

    It returns when no process of the container runs any more.
    """
    group = _group(pid)
    if group is None:
        return False
    try:
        if group.name == "cgroup.freeze":
            return _frozen(group, "1", group.with_name("cgroup.events"), "frozen 1", clock)
        return _frozen(group, "FROZEN", group, "FROZEN", clock)
    except OSError:  # not permitted, or the container has ended
        return False


def thaw(pid: int) -> None:
    """Let the container of process *pid* continue; does nothing if it is not frozen."""
    group = _group(pid)
    if group is not None:
        with suppress(OSError):
            group.write_text("0" if group.name == "cgroup.freeze" else "THAWED", encoding="ascii")


def _frozen(group: Path, text: str, state: Path, wanted: str, clock: Clock) -> bool:
    group.write_text(text, encoding="ascii")
    until_s = clock.monotonic_s() + _TIMEOUT_S
    pause = threading.Event()
    while wanted not in state.read_text(encoding="ascii").splitlines():
        if clock.monotonic_s() >= until_s:
            return False
        pause.wait(_STEP_S)
    return True


def _group(pid: int) -> Path | None:
    """The file that freezes the container of a process; ``None`` if it has no cgroup of its own."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines()
        own = Path("/proc/self/cgroup").read_text(encoding="ascii")
    except OSError:
        return None
    parsed = [line.split(":", 2) for line in lines]
    # Version 2 first: there, a frozen process can be killed.
    for _, controllers, path in sorted(parsed, key=lambda fields: bool(fields[1])):
        found = _OF_CONTAINER.fullmatch(path)
        if found is None or ".." in path or found[1] in own:
            continue
        below = found[1].lstrip("/")
        if not controllers:
            places = (_CGROUPS / below, _CGROUPS / "unified" / below)
            files = [place / "cgroup.freeze" for place in places]
        elif controllers == "freezer":
            files = [_CGROUPS / "freezer" / below / "freezer.state"]
        else:
            continue
        for file in files:
            if file.exists():
                return file
    return None
