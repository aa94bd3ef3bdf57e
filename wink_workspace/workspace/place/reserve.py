"""Reserved disk space for a rollback on a full disk.

A rollback on a full disk has to write what its call deleted. So a file beside the files of a
workspace takes up some space, and is deleted when a rollback needs it. The record of that call
uses what remains of the space.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from wink_workspace.ledger import is_disk_full

_RESERVE_BYTES: Final = 512 * 1_024
_OPEN_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Reserve:
    """Reserved space on the disk of *path*, held by a file of that name.

    Attributes:
        is_released: Whether the space was released since it was last reserved.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_released = False
        self.keep()

    def keep(self) -> None:
        """Reserve the space, if it is available."""
        try:
            file = os.open(self._path, _OPEN_FLAGS, 0o600)
            try:
                if os.fstat(file).st_size < _RESERVE_BYTES:
                    os.posix_fallocate(file, 0, _RESERVE_BYTES)
            finally:
                os.close(file)
        except OSError:
            with suppress(OSError):  # only a rollback on a full disk needs the reserve
                self._path.unlink(missing_ok=True)
        else:
            self.is_released = False

    def release(self) -> bool:
        """Release the space; whether there was any."""
        try:
            self._path.unlink()
        except OSError:
            return False
        self.is_released = True
        return True


def is_full(failures: Iterable[BaseException]) -> bool:
    """Whether one of the failures says that the disk is full."""
    return any(map(is_disk_full, failures))
