"""Probes of the workspace's mount, run inside a container by the user of commands.

They run after the workspace has been mounted, and before the first command. Like ``probes``, this
file is sent to the container as a whole, and prints a line of JSON for each probe. It is short
and loads nothing, because a command waits for it. It makes no change: the host would have to look
for the effects.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

WORKSPACE = os.environ.get("WINK_WORKSPACE", "/workspace")
CANARY = os.environ.get("WINK_CANARY", "")
OVERLAY = os.environ.get("WINK_OVERLAY", "")
"""Which of the mounts in the workspace is that of the branch on an overlay; empty for a copy."""
N_MOUNTS = int(os.environ.get("WINK_N_MOUNTS", "1"))
"""How many mounts there are in the workspace, with the empty mount point of a container."""
IS_OWN_PATH = WORKSPACE != "/workspace"
"""Whether the workspace is at the path of its source."""
WRITES = os.environ["WINK_WRITES"].split("\n")[1:] if "WINK_WRITES" in os.environ else None
"""For a service, the directories that it may change; ``None`` for commands, which change all."""


def work_in_the_workspace() -> str | None:
    """Check that commands may write here, so that a refusal elsewhere comes from the isolation."""
    status = os.stat(WORKSPACE)
    if status.st_uid != os.getuid():
        return f"it belongs to user {status.st_uid}, and commands run as {os.getuid()}"
    if WRITES is None and not os.access(WORKSPACE, os.R_OK | os.W_OK | os.X_OK):
        return "a command cannot write to the workspace"
    for path in WRITES or ():
        if not os.access(os.path.join(WORKSPACE, path), os.R_OK | os.W_OK | os.X_OK):
            return f"a service cannot write to {path}"
    return None


def write_to_a_read_only_workspace() -> str | None:
    """Find a service that may change more than it declares."""
    if WRITES is not None and not os.statvfs(WORKSPACE).f_flag & os.ST_RDONLY:
        return "the workspace is not read-only"
    return None


def use_devices_or_setuid_of_the_workspace() -> str | None:
    """Find device files or setuid programs that work in the workspace."""
    flags = os.statvfs(WORKSPACE).f_flag
    wanted = {"nosuid": os.ST_NOSUID, "nodev": os.ST_NODEV}
    missing = [name for name, flag in wanted.items() if not flags & flag]
    return f"the mount is not {' and '.join(missing)}" if missing else None


def leave_the_workspace() -> str | None:
    """Reach what lies beside the workspace on the host, such as the files of another branch."""
    above = os.stat(os.path.join(WORKSPACE, ".."))
    if not IS_OWN_PATH and not os.path.samestat(above, os.stat("/")):
        return "the directory above the workspace is not the container's root"
    if os.path.exists(WORKSPACE + "/.." + CANARY):
        return "a file of the host is visible"
    return None


def mounts_at(path: str) -> list[tuple[str, str]]:
    """The mounts on *path*, each with its root in its filesystem and its options [proc(5)]."""
    found: list[tuple[str, str]] = []
    for character in "\\ \t\n":
        path = path.replace(character, f"\\{ord(character):03o}")
    with open("/proc/self/mountinfo", errors="surrogateescape") as lines:
        for line in lines:
            fields, _, rest = line.rstrip("\n").partition(" - ")
            parts = fields.split(" ")
            if parts[4] == path or parts[4].startswith(path + "/"):
                found.append((parts[3], rest))
    return found


def see_host_paths_of_the_workspace() -> str | None:
    """Find paths of the host, or other workspaces, in the list of mounts."""
    mounts = mounts_at(WORKSPACE)
    if len(mounts) != N_MOUNTS:
        return f"{len(mounts)} mounts in the workspace"
    if not OVERLAY:
        return None
    root, rest = mounts[int(OVERLAY)]
    if root != "/files":
        return f"the mount's root is {root}"
    _, source, options = rest.split(" ", 2)
    for option in [source, *options.split(",")]:
        for path in option.partition("=")[2].split(":"):
            if path.startswith("/") and not path.startswith("/proc/self/fd/"):
                return f"the mount has the option {option}"
    return None


PROBES: tuple[Callable[[], str | None], ...] = (
    work_in_the_workspace,
    write_to_a_read_only_workspace,
    use_devices_or_setuid_of_the_workspace,
    leave_the_workspace,
    see_host_paths_of_the_workspace,
)


def main() -> None:
    """Run every probe and print the results."""
    for probe in PROBES:
        try:
            found = probe()
        except OSError as error:
            found = f"the probe failed: {error}"
        name = probe.__name__.replace("_", " ")
        stopped, detail = str(found is None).lower(), (found or "nothing found")[:300]
        safe = "".join(c if c.isalnum() or c in " ./,:_-" else f"\\u{ord(c):04x}" for c in detail)
        sys.stdout.write(f'["{name}", {stopped}, "{safe}"]\n')


if __name__ == "__main__":
    main()
