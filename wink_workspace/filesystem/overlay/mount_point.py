"""A path of the host for a mounted branch, so that people and editors can use it.

A branch has no path: only its process and its container see it. Root can attach it to a directory
of the host. An ordinary user cannot, because the host's mount namespace does not belong to a
user's namespace.

Rule 1: the path ends before the lock of the branch is released, or else the branch could be
mounted a second time over the same upper layer.
Rule 2: a guard process detaches the path if this process is killed. It waits for the end of a pipe.
A program that has a file open there then keeps that view; nothing else sees its changes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess  # noqa: TID251 - the guard has to survive this process
from pathlib import Path
from typing import Final

from wink_workspace._descriptors import ClosedAfterBlock
from wink_workspace.errors import MountError, UsageError

from .mounting import OverlayMount

_NOFOLLOW: Final = 8
_LAZY: Final = 2
_GUARD: Final = 'read -r _; umount -- "$1" || umount -l -- "$1"'


class MountPoint(ClosedAfterBlock):
    """A directory that shows the files of a branch until ``detach`` or ``close``.

    Args:
        mount: The branch.
        directory: An empty directory.

    Raises:
        UsageError: If this process is not root, or *directory* is not an empty directory.
        MountError: If the system refuses it.
    """

    def __init__(self, mount: OverlayMount, directory: Path) -> None:
        self.directory = directory.resolve()
        if os.geteuid() != 0:
            raise UsageError(
                "an ordinary user cannot mount a branch in the file system of the host",
                hint="`wink-workspace shell` opens a shell in the branch, and `exec` runs a"
                " command there. Or create the workspace with `new --mode copy`.",
            )
        if not self.directory.is_dir() or any(self.directory.iterdir()):
            raise UsageError(
                f"{directory} is not an empty directory", hint="Name a new or empty directory."
            )
        self._guard: subprocess.Popen[bytes] | None = subprocess.Popen(  # noqa: S603 - fixed words and a path
            ["/bin/sh", "-c", _GUARD, "sh", str(self.directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C in a terminal is not for it
        )
        try:
            mount.attach(os.getpid(), str(self.directory))
        except BaseException:
            self._end_guard()
            raise

    def detach(self) -> bool:
        """Detach the path; ``False`` if a program uses it, and then it stays.

        Raises:
            MountError: If the system refuses it for another reason.
        """
        return self._guard is None or self._unmount(0)

    def close(self) -> None:
        """Detach the path, also if a program uses it. May be called again."""
        if self._guard is not None:
            self._unmount(_LAZY)

    def _unmount(self, flags: int) -> bool:
        path = os.fsencode(self.directory)
        if ctypes.CDLL(None, use_errno=True).umount2(path, flags | _NOFOLLOW) != 0:
            number = ctypes.get_errno()
            if number == errno.EBUSY:
                return False
            if number != errno.EINVAL:  # the user has detached it
                raise MountError(f"cannot detach {self.directory}: {os.strerror(number)}")
        self._end_guard()
        return True

    def _end_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.communicate()
