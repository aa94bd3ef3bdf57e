"""The error of this package for an error of the system, raised where the path is known."""

from __future__ import annotations

import errno
from contextlib import AbstractContextManager
from pathlib import Path

from wink_workspace.errors import (
    DirectoryExpectedError,
    DirectoryNotEmptyError,
    FileExpectedError,
    FileMissingError,
    FilesystemError,
    LinkError,
    PathExistsError,
    ReadOnlyError,
)

from .paths import WorkspacePath

_ERRORS: dict[int, tuple[type[FilesystemError], str]] = {
    errno.ENOENT: (FileMissingError, "does not exist"),
    errno.EEXIST: (PathExistsError, "exists already"),
    errno.EISDIR: (FileExpectedError, "is a directory"),
    errno.ENOTDIR: (DirectoryExpectedError, "is not a directory, or not in one"),
    errno.ENOTEMPTY: (DirectoryNotEmptyError, "is not empty"),
    errno.ELOOP: (LinkError, "is a link"),
    errno.EACCES: (ReadOnlyError, "is not accessible: permission denied"),
    errno.EPERM: (ReadOnlyError, "is not accessible: operation not permitted"),
    errno.EROFS: (ReadOnlyError, "is on a read-only filesystem"),
    errno.ENXIO: (FilesystemError, "is a pipe, a socket or a device, which cannot be opened"),
    errno.EBADF: (FilesystemError, "is not accessible: its workspace was closed"),
    errno.EBUSY: (FilesystemError, "is being changed by another process all the time"),
}


def translated(path: WorkspacePath | Path, error: OSError) -> FilesystemError:
    """The error of this package for an error of the system at *path*."""
    if isinstance(error, FilesystemError):
        return error
    kind, what = _ERRORS.get(error.errno or 0, (FilesystemError, ""))
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return kind(
        f"{path} {what}" if what else f"{path}: {error.strerror}",
        hint="Make room on the disk, and try again." if is_full else None,
    )


class translate_os_error(AbstractContextManager[None]):  # noqa: N801 - used as a function
    """Raise ``translated`` for an ``OSError`` that the block raises."""

    __slots__ = ("_path",)

    def __init__(self, path: WorkspacePath | Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, FilesystemError):
            raise translated(self._path, error) from error
