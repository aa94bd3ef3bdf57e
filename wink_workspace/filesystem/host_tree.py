"""Reading a host directory that somebody may be changing meanwhile, without leaving it.

Every access opens the directories on its way one inside the other and refuses links among
them, so what is read lies below the directory that was resolved at the start, whatever is
swapped in between.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from typing import BinaryIO

from .model import FileKind, FileStat
from .paths import WorkspacePath

__all__ = ["HostTree"]

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening must not wait for the other end of a pipe that took a file's place.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class HostTree:
    """The files below a host directory; methods raise ``OSError`` as the system does.

    Args:
        path: The directory, whose links are followed now and never again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(path)

    def names(self, directory: WorkspacePath) -> list[str]:
        """The names in a directory, in order; bytes that are not UTF-8 as surrogates."""
        with self._opened(directory) as descriptor:
            return sorted(os.listdir(descriptor))  # noqa: PTH208 - pathlib takes no descriptor

    def stat(self, path: WorkspacePath) -> FileStat | None:
        """What is at *path* below the directory; ``None`` for pipes, devices and the like."""
        with self._opened(path.parent) as descriptor:
            status = os.stat(path.name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                target = os.readlink(path.name, dir_fd=descriptor)
                return FileStat(path, FileKind.SYMLINK, status.st_size, target=target)
        if stat.S_ISDIR(status.st_mode):
            return FileStat(path, FileKind.DIRECTORY)
        if stat.S_ISREG(status.st_mode):
            executable = bool(status.st_mode & stat.S_IXUSR)
            return FileStat(path, FileKind.FILE, status.st_size, executable)
        return None

    def open(self, path: WorkspacePath) -> BinaryIO:
        """The regular file at *path*, for reading."""
        with self._opened(path.parent) as descriptor:
            file = os.fdopen(os.open(path.name, _FILE_FLAGS, dir_fd=descriptor), "rb")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError(f"{path} is no regular file")
        return file

    @contextmanager
    def _opened(self, directory: WorkspacePath) -> Generator[int]:
        names = [name for name in self.path.split("/") if name]
        descriptor = os.open("/", _DIRECTORY_FLAGS)
        try:
            for name in (*names, *directory.parts):
                above, descriptor = descriptor, os.open(name, _DIRECTORY_FLAGS, dir_fd=descriptor)
                os.close(above)
            yield descriptor
        finally:
            os.close(descriptor)
