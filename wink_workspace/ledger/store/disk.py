"""Disk access for the ledger: atomic writes, fsync, and ``OSError`` as ``LedgerError``.

A file is deleted only after what replaces it would survive a loss of power, whether the ledger is
durable or not: otherwise neither may be on the disk for half a minute. ``sync_pack`` and
``sync_filesystem`` wait for that.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

from wink_workspace.errors import LedgerError

_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
_NO_PERMISSION: Final = frozenset((errno.EACCES, errno.EPERM))
_CANNOT_LINK: Final = frozenset(
    (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)
)
"""The errors of a filesystem without hard links, between two filesystems, and of many links."""


class ledger_failures(AbstractContextManager[None]):  # noqa: N801 - used as a function
    """Raise an ``OSError`` of the block as a ``LedgerError`` whose message begins with *what*."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise ledger_failure(self._what, error) from error


def ledger_failure(what: str, error: OSError) -> LedgerError:
    """The error that ``ledger_failures`` raises, for code too hot for a ``with`` block."""
    hint = "Make room on the disk or fix the permissions, then try again."
    if error.errno == errno.EROFS:
        hint = "Mount the filesystem for writing, or copy the files elsewhere."
    elif error.errno in _NO_PERMISSION:
        hint = "Fix the permissions, or run as the user who owns the files."
    return LedgerError(f"{what}: {error.strerror or error}", hint=hint)


def file_sizes(paths: Iterable[Path]) -> dict[int, int]:
    """The size of each file by its inode, without those that another process deleted meanwhile."""
    sizes: dict[int, int] = {}
    for path in paths:
        with suppress(FileNotFoundError):
            found = path.stat()
            sizes[found.st_ino] = found.st_size
    return sizes


def sync(path: str | Path) -> None:
    """Call fsync on a file or directory, so that it survives a loss of power."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_pack(index: Path) -> None:
    """Wait until a pack and its index would survive a loss of power, with their names."""
    for path in (index.with_suffix(".pack"), index, index.parent):
        sync(path)


def sync_filesystem(path: Path) -> None:
    """Wait until everything written to the filesystem of *path* would survive a loss of power.

    For several files it takes less time than an fsync of each.

    Raises:
        OSError: If something cannot be written to the device.
    """
    import ctypes  # takes 10 ms

    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(fd)


def write_whole(path: Path, data: bytes, *, durable: bool) -> None:
    """Replace the content of *path* with *data* atomically."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_bytes(data)
    if durable:
        sync(unfinished)
    unfinished.replace(path)
    if durable:
        sync(path.parent)


def link_or_copy(source: Path, target: Path, *, prefix: str) -> None:
    """Give the file *source* the second name *target*, or copy it where links are impossible.

    Does nothing if *target* exists. A copy is complete once it has its name. Before that its name
    begins with *prefix*.

    Raises:
        OSError: If *source* cannot be linked for another reason, or cannot be copied.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        unfinished = target.with_name(f"{prefix}{secrets.token_hex(8)}")
        try:
            shutil.copyfile(source, unfinished)
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)


def is_disk_full(error: BaseException) -> bool:
    """Whether *error* or its cause is a full disk or an exceeded quota."""
    causes = (error, error.__cause__)
    return any(isinstance(cause, OSError) and cause.errno in _FULL for cause in causes)
