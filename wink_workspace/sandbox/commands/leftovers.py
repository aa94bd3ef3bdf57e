"""Files that name the running containers of a workspace, so that they can be ended after a crash.

One names the container of the commands, and one that of each service. A file is written before
anything runs in its container and deleted after its end. The next process that opens the workspace
ends the named containers before it reads any file. Usually there is none, because a container ends
with its owner; so this module does not load the engine's library.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from wink_workspace.errors import SandboxError

from .capture import last_output
from .live_container import LiveContainer, kill_first_process

COMMANDS: Final = "container.json"
"""The name of the file for the container of the commands."""

_SERVICE: Final = "service-{}.json"
_END_TIMEOUT_S: Final = 2.0


def note_of_service(name: str) -> str:
    """The name of the file for the container of a service."""
    return _SERVICE.format(name)


def note(file: Path, container: LiveContainer) -> None:
    """Record that *container* may be running."""
    fields = {"name": container.name, "pid": container.pid, "started": container.started}
    temporary = file.with_name(f"{file.name}.new")
    temporary.write_text(json.dumps(fields) + "\n", encoding="utf-8")
    temporary.replace(file)


def forget(file: Path) -> None:
    """Delete the record: the container has ended."""
    file.unlink(missing_ok=True)


def end_leftover(folder: Path, remove: Callable[[str], None], *, with_services: bool = True) -> str:
    """End the containers that are recorded in *folder*; returns the last output of a command.

    Args:
        folder: The directory with the records.
        remove: Ends a container by its name through the engine. Called only if the container runs
            and this process is not permitted to kill it.
        with_services: Whether to end services, too: they belong to a process that has ended.

    Raises:
        SandboxError: If one runs and cannot be ended.
    """
    for file in folder.glob(_SERVICE.format("*")) if with_services else ():
        container = _recorded(file)
        if container is not None:
            _end(container, remove)
        forget(file)
    container = _recorded(folder / COMMANDS)
    if container is None:
        return ""
    _end(container, remove)
    output = last_output(folder)
    for name in ("stdout", "stderr"):
        (folder / name).unlink(missing_ok=True)
    forget(folder / COMMANDS)
    return output


def _end(container: LiveContainer, remove: Callable[[str], None]) -> None:
    if not container.ends_within(0.0):
        kill_first_process(container)
        if not container.ends_within(_END_TIMEOUT_S):
            remove(container.name)
            if not container.ends_within(_END_TIMEOUT_S):
                raise SandboxError(
                    f"the container {container.name} is still running",
                    hint=f"End it with `podman rm --force {container.name}`, then open the"
                    " workspace again.",
                )


def _recorded(file: Path) -> LiveContainer | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        fields: dict[str, Any] = json.loads(file.read_bytes())
        return LiveContainer(str(fields["name"]), int(fields["pid"]), int(fields["started"]))
    return None
