"""Fill a new directory that no other process uses yet.

Files are created under their final names, without a rename, and the status of an entry after its
creation is final. If anything fails, the caller deletes the whole directory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from wink_workspace.filesystem.paths import ROOT, WorkspacePath

from .descriptors import Descriptor, Parts, change_mode, usual_mode, write_with_holes
from .tree import DiskTree

__all__ = ["NewTree"]

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NewTree:
    """Creates entries in *tree*, which is empty at first; raises ``OSError`` as the system does.

    Files get the mode 0644 or 0755, directories 0755, whatever the umask is. If this process is
    root, new files and directories, but not links, get the owner of the tree's root.
    """

    def __init__(self, tree: DiskTree) -> None:
        self._tree = tree
        with tree.entered(ROOT) as top:
            self._owner = _other_owner(top)

    def entered(self, parts: Parts) -> Descriptor:
        """A descriptor for entering a directory, for a ``with`` block."""
        return self._tree.entered(WorkspacePath(parts))

    def make_directory(self, name: str, dir_fd: int) -> os.stat_result:
        """Create a directory; its status."""
        os.mkdir(name, 0o755, dir_fd=dir_fd)
        if self._owner is not None:
            os.chown(name, *self._owner, dir_fd=dir_fd, follow_symlinks=False)
        made = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        if stat.S_IMODE(made.st_mode) == 0o755:
            return made
        change_mode(name, dir_fd, lambda _: 0o755)
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)

    def make_symlink(self, name: str, target: str, dir_fd: int) -> os.stat_result:
        """Create a link to any *target*; its status."""
        os.symlink(target, name, dir_fd=dir_fd)
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)

    def mark_deleted(self, name: str, dir_fd: int) -> os.stat_result:
        """Hide *name* in the layers below, if the tree is an upper layer; the mark's status.

        Since Linux 5.8 any user may create this one device.
        """
        os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=dir_fd)
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)

    def write_file(
        self,
        name: str,
        content: Iterable[bytes],
        dir_fd: int,
        *,
        executable: bool,
        modified_ns: int | None = None,
    ) -> os.stat_result:
        """Create a file from pieces of any size, long runs of zeros as holes; its status."""
        with self.new_file(name, dir_fd, executable=executable) as file:
            write_with_holes(file, content)
            return self.finish(file, executable=executable, modified_ns=modified_ns)

    def new_file(self, name: str, dir_fd: int, *, executable: bool) -> Descriptor:
        """Create an empty file, which the caller writes, finishes and closes."""
        return Descriptor(os.open(name, _NEW, usual_mode(executable=executable), dir_fd=dir_fd))

    def finish(
        self, file: int, *, executable: bool, modified_ns: int | None = None
    ) -> os.stat_result:
        """Set owner and time, and the mode, which the umask may have reduced; the status.

        A file keeps the present time without *modified_ns*, the modification time of its original.
        """
        if self._owner is not None:
            os.fchown(file, *self._owner)
        if modified_ns is not None:
            os.utime(file, ns=(modified_ns, modified_ns))
        status, mode = os.fstat(file), usual_mode(executable=executable)
        if stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(file, mode)
            status = os.fstat(file)
        return status


def _other_owner(directory: int) -> tuple[int, int] | None:
    """The owner and group for new entries; ``None`` if they need not be set."""
    status = os.fstat(directory)
    ours = (os.geteuid(), os.getegid())
    theirs = (status.st_uid, status.st_gid)
    return theirs if ours[0] == 0 and theirs != ours else None
