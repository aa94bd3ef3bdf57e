"""Read a host directory that other processes may be changing, without leaving it.

Every access opens the directories of the path one by one and refuses links among them. So
everything read lies below the directory that was resolved at the start, whatever other
processes rename or link.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from .disk.descriptors import (
    Descriptor,
    Parts,
    enter,
    open_listing,
    open_regular,
    open_root,
    status_and_target,
)
from .model import FileKind, FileStat
from .paths import WorkspacePath

__all__ = ["HostTree"]


class HostTree:
    """The files below a host directory; methods raise ``OSError`` as the system does.

    Args:
        path: The directory. Links in this path are resolved once, here.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(path)

    def names(self, directory: WorkspacePath) -> list[str]:
        """The names in a directory, in order; bytes that are not UTF-8 as surrogates."""
        with self._entered(directory.parts) as entered, Descriptor(open_listing(entered)) as listed:
            return sorted(os.listdir(listed))  # noqa: PTH208 - pathlib takes no descriptor

    def stat(self, path: WorkspacePath) -> FileStat | None:
        """The entry at *path*; ``None`` for pipes, sockets and devices."""
        with self._entered(path.parts[:-1]) as directory:
            status, target = status_and_target(path.name, directory)
        if target is not None:
            return FileStat(path, FileKind.SYMLINK, status.st_size, target=target)
        if stat.S_ISDIR(status.st_mode):
            return FileStat(path, FileKind.DIRECTORY)
        if stat.S_ISREG(status.st_mode):
            executable = bool(status.st_mode & stat.S_IXUSR)
            return FileStat(path, FileKind.FILE, status.st_size, executable)
        return None

    def open(self, path: WorkspacePath) -> BinaryIO:
        """The regular file at *path*, for reading."""
        with self._entered(path.parts[:-1]) as directory:
            return os.fdopen(open_regular(path.name, directory), "rb")

    def _entered(self, parts: Parts) -> Descriptor:
        with Descriptor(open_root(Path("/"))) as top:
            names = tuple(name for name in self.path.split("/") if name)
            return Descriptor(enter(top, (*names, *parts)))
