"""To whom the files of a workspace belong, so that a sandbox's ordinary user can change them.

Run by an ordinary user, a container maps its ordinary user to the caller, and nothing is to be
done. Run by root, it maps its users to a range of ids that nobody else has, so that not even
the container's root is somebody on the host; a copy then belongs to one of these ids from the
start. Only copies are ever given away, never a directory of the user's.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["FIRST_HOST_ID", "N_HOST_IDS", "give_to_sandbox", "host_owner"]

FIRST_HOST_ID: Final = 2_100_000_000
"""What the container's root is on the host when the engine runs as root.

Above all that is given out without asking: to users by ``useradd`` (up to 600,100,000), to machines
by ``systemd-nspawn`` (up to 1,879,048,191), to the users of a domain by SSSD (up to 2,000,200,000);
below what systemd keeps for itself (from 2,147,352,576).
"""

N_HOST_IDS: Final = 65_536

_ORDINARY_ID: Final = 1_000


def host_owner(user_id: int = _ORDINARY_ID) -> int | None:
    """The id, of user and group, that the container's *user_id* has on the host.

    ``None`` if it is the caller's own, who is no root then.
    """
    return FIRST_HOST_ID + user_id if os.geteuid() == 0 else None


def give_to_sandbox(directory: Path) -> None:
    """Give a new and empty directory to who works in sandboxes; what is made in it follows.

    Where the system does not let root do that, it stays, and no sandbox will work on it.
    """
    owner = host_owner()
    if owner is not None:
        with suppress(OSError):  # root of a user namespace in which that id does not exist
            os.chown(directory, owner, owner)
