"""Rename anything within one filesystem, also a directory that the system refuses to rename.

In a user namespace, the kernel refuses to rename a directory of the base of an overlay (``EXDEV``),
and expects a copy. The copy appears under its name when it is complete; the original is removed
after that.
"""

from __future__ import annotations

import errno
import os
import stat

from .descriptors import (
    ENTER,
    Descriptor,
    attributes_of,
    entries_of,
    match_owner,
    open_listing,
    open_seen,
    remove,
    temporary_name,
    write_all,
)

__all__ = ["rename"]

_CHUNK_BYTES = 1_048_576
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def rename(old: str, new: str, old_dir_fd: int, new_dir_fd: int) -> None:
    """Rename an entry, also over *new*; copy a directory if the system demands it.

    Raises:
        OSError: Of the system; a copy that failed is removed.
    """
    try:
        os.rename(old, new, src_dir_fd=old_dir_fd, dst_dir_fd=new_dir_fd)
    except OSError as error:
        status = os.stat(old, dir_fd=old_dir_fd, follow_symlinks=False)
        if error.errno != errno.EXDEV or not stat.S_ISDIR(status.st_mode):
            raise
        unfinished = temporary_name()
        try:
            _copy(old, unfinished, old_dir_fd, new_dir_fd)
            os.rename(unfinished, new, src_dir_fd=new_dir_fd, dst_dir_fd=new_dir_fd)
        except BaseException:
            remove(unfinished, new_dir_fd)
            raise
        remove(old, old_dir_fd)


def _copy(top: str, new_top: str, old_dir_fd: int, new_dir_fd: int) -> None:
    """Copy a directory; each level needs four descriptors."""
    with Descriptor(os.open(top, ENTER, dir_fd=old_dir_fd)) as old:
        status = os.fstat(old)
        os.mkdir(new_top, 0o700, dir_fd=new_dir_fd)
        with (
            Descriptor(os.open(new_top, ENTER, dir_fd=new_dir_fd)) as new,
            Descriptor(open_listing(new)) as made,
            Descriptor(open_listing(old)) as listed,
        ):
            for name, each in entries_of(listed):
                _copy_entry(name, each, old, new)
            match_owner(made, status)
            _copy_attributes(old, made)
            os.fchmod(made, stat.S_IMODE(status.st_mode))


def _copy_entry(name: str, status: os.stat_result, old: int, new: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        _copy(name, name, old, new)
    elif stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(name, dir_fd=old), name, dir_fd=new)
    elif stat.S_ISREG(status.st_mode):
        with (
            Descriptor(open_seen(name, old)[0]) as source,
            Descriptor(os.open(name, _NEW, 0o600, dir_fd=new)) as file,
        ):
            while piece := os.read(source, _CHUNK_BYTES):
                write_all(file, piece)
            match_owner(file, status)
            _copy_attributes(source, file)
            os.fchmod(file, stat.S_IMODE(status.st_mode))
    else:  # a pipe or a socket of the upper layer, which can be renamed
        os.rename(name, name, src_dir_fd=old, dst_dir_fd=new)


def _copy_attributes(old: int, new: int) -> None:
    for name in attributes_of(old):
        os.setxattr(f"/proc/self/fd/{new}", name, os.getxattr(f"/proc/self/fd/{old}", name))
