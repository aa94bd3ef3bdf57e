"""A file that names the running container of a workspace, so that it can be ended after a crash.

The file is written before anything runs in the container and deleted after its end. The next
process that opens the workspace ends the named container before it reads any file. Usually there is
none, because a container ends with its owner; so this module does not load the engine's library.
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

from .capture import last_output
from .containers import LiveContainer, kill_first_process

__all__ = ["end_leftover", "forget", "note"]

_NOTE: Final = "container.json"
_END_TIMEOUT_S: Final = 2.0


def note(folder: Path, container: LiveContainer) -> None:
    """Record that *container* may be running."""
    fields = {"name": container.name, "pid": container.pid, "started": container.started}
    temporary = folder / f"{_NOTE}.new"
    temporary.write_text(json.dumps(fields) + "\n", encoding="utf-8")
    temporary.replace(folder / _NOTE)


def forget(folder: Path) -> None:
    """Delete the record: the container has ended."""
    (folder / _NOTE).unlink(missing_ok=True)


def end_leftover(folder: Path, remove: Callable[[str], None]) -> str:
    """End the container that is recorded in *folder*, if any; returns its last output.

    Args:
        folder: The directory with the record.
        remove: Ends a container by its name through the engine. Called only if the container runs
            and this process is not permitted to kill it.

    Raises:
        SandboxError: If it runs and cannot be ended.
    """
    container = _recorded(folder)
    if container is None:
        return ""
    if not _wait_for_end(container, 0.0):
        kill_first_process(container)
        if not _wait_for_end(container, _END_TIMEOUT_S):
            remove(container.name)
            if not _wait_for_end(container, _END_TIMEOUT_S):
                raise SandboxError(
                    f"the container {container.name} is still running",
                    hint=f"End it with `podman rm --force {container.name}`, then open the"
                    " workspace again.",
                )
    output = last_output(folder)
    for name in ("stdout", "stderr"):
        (folder / name).unlink(missing_ok=True)
    forget(folder)
    return output


def _recorded(folder: Path) -> LiveContainer | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        fields: dict[str, Any] = json.loads((folder / _NOTE).read_bytes())
        return LiveContainer(str(fields["name"]), int(fields["pid"]), int(fields["started"]))
    return None


def _wait_for_end(container: LiveContainer, timeout_s: float) -> bool:
    """Whether it has ended, or ends within *timeout_s*."""
    if not container.is_running:
        return True
    try:
        fd = os.pidfd_open(container.pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1_000)) or not container.is_running
    finally:
        os.close(fd)
