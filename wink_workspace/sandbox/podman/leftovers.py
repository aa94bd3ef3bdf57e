"""The container of a workspace, as it is noted on the disk for whoever comes after a crash.

The note is written before anything runs in the container and removed after its end. Who opens
the workspace next ends what it names before looking at any file. This module loads no engine's
library: mostly nothing is left, as a container ends when its owner does.
"""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from wink_workspace.errors import SandboxError

from .capture import last_words
from .containers import LiveContainer, kill_first_process

__all__ = ["end_leftover", "forget", "note"]

_NOTE: Final = "container.json"
_PATIENCE_S: Final = 2.0


def note(folder: Path, container: LiveContainer) -> None:
    """Write down that *container* may run."""
    fields = {"name": container.name, "pid": container.pid, "started": container.started}
    temporary = folder / f"{_NOTE}.new"
    temporary.write_text(json.dumps(fields) + "\n", encoding="utf-8")
    temporary.replace(folder / _NOTE)


def forget(folder: Path) -> None:
    """Write down that it has ended."""
    (folder / _NOTE).unlink(missing_ok=True)


def end_leftover(folder: Path, remove: Callable[[str], None]) -> str:
    """End the container that the note in *folder* names, if there is one; what it said last.

    Args:
        folder: Where the note is.
        remove: Ends a container by its name, by way of the engine; needed only if it runs
            and is another user's in the eyes of the system.

    Raises:
        SandboxError: If it runs and cannot be ended.
    """
    container = _noted(folder)
    if container is None:
        return ""
    if not _ends(container, 0.0):
        kill_first_process(container)
        if not _ends(container, _PATIENCE_S):
            remove(container.name)
            if not _ends(container, _PATIENCE_S):
                raise SandboxError(
                    f"the container {container.name} still runs",
                    hint=f"End it with `podman rm --force {container.name}`, then open again.",
                )
    said = last_words(folder)
    for name in ("stdout", "stderr"):
        (folder / name).unlink(missing_ok=True)
    forget(folder)
    return said


def _noted(folder: Path) -> LiveContainer | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        fields: dict[str, Any] = json.loads((folder / _NOTE).read_bytes())
        return LiveContainer(str(fields["name"]), int(fields["pid"]), int(fields["started"]))
    return None


def _ends(container: LiveContainer, patience_s: float) -> bool:
    """Whether it has ended, or does so in time."""
    if not container.is_running:
        return True
    try:
        fd = os.pidfd_open(container.pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(patience_s * 1_000)) or not container.is_running
    finally:
        os.close(fd)
