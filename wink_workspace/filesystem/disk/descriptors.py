"""System calls on directory descriptors; every access to a host directory uses them.

Rule 1: every function takes an open directory and one name in it, never a path, and follows no
links. Directories are entered one by one from a root, so everything reached lies below that
root, whatever other processes rename or link.
Rule 2: only regular files are opened, and opening never blocks: a pipe or a device in place of
a file is refused.
Rule 3: any depth is walked with few descriptors and no recursion. The walk goes up by ``..``, and
only if that is still the directory from which it came.

Functions raise ``OSError`` as the system does; see ``os_errors``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

Parts = tuple[str, ...]
"""The names of a path, relative to the directory at which a walk began."""

TEMPORARY_PREFIX = ".wink-tmp-"
"""Prefix of the names of unfinished files. Only a killed process leaves one behind."""

_MAX_ATTEMPTS = 100
# Only Linux has it. Elsewhere, this module can be imported but not used.
_O_PATH: int = getattr(os, "O_PATH", 0)
ENTER = _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
PATH_ONLY = _O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
MISSING = -errno.ENOENT
"""Result of ``open_beneath`` if the path does not exist."""

# The context managers here are classes: generators take several times as long to enter. One that
# Ctrl-C leaves suspended would end only when the traceback is dropped.


class Descriptor(AbstractContextManager[int]):
    """A descriptor that is closed when the block ends."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def temporary_name() -> str:
    """A random name, which cannot be guessed and is not in use."""
    return TEMPORARY_PREFIX + os.urandom(16).hex()


# Metadata and opening


def status_and_target(name: str, dir_fd: int) -> tuple[os.stat_result, str | None]:
    """The status of an entry and, for a link, its target; both are of the same entry."""
    status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        return status, None
    link = os.open(name, PATH_ONLY, dir_fd=dir_fd)
    try:
        status = os.fstat(link)
        is_link = stat.S_ISLNK(status.st_mode)
        return status, os.readlink("", dir_fd=link) if is_link else None
    finally:
        os.close(link)


def open_root(path: Path) -> int:
    """A descriptor for entering the directory *path*, a trusted path whose links are followed."""
    return os.open(path, _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def open_directory(name: str, dir_fd: int, *, make_accessible: bool = False) -> int:
    """A descriptor for entering a directory; opening it needs no permission on the directory.

    With *make_accessible*, a mode that denies access to the owner is changed.
    """
    directory = os.open(name, ENTER, dir_fd=dir_fd)
    if make_accessible:
        make_entry_accessible(directory)
    return directory


def open_listing(directory: int) -> int:
    """Another descriptor of *directory*, for listing it.

    Raises:
        PermissionError: If it may not be read or entered.
    """
    return os.open(".", _LIST, dir_fd=directory)


def open_regular(name: str, dir_fd: int, *, make_accessible: bool = False) -> int:
    """A descriptor for reading a regular file.

    With *make_accessible*, a mode that does not let the owner read is changed.

    Raises:
        OSError: With ``EISDIR``, ``ELOOP`` or ``ENXIO`` for anything else.
    """
    # Checked before, since opening a device can have effects, and again after opening.
    status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    require_regular(status)
    if make_accessible and not status.st_mode & stat.S_IRUSR:
        with suppress(PermissionError):
            change_mode(name, dir_fd, _accessible_mode)
    return open_seen(name, dir_fd)[0]


def open_seen(name: str, dir_fd: int) -> tuple[int, os.stat_result]:
    """Open a file that was regular a moment ago, for reading; the descriptor and its status.

    Raises:
        OSError: As ``open_regular``, if another process replaced it.
    """
    file = os.open(name, READ, dir_fd=dir_fd)
    return file, status_of_regular(file)


def status_of_regular(file: int) -> os.stat_result:
    """The status of an open file; the descriptor is closed if the file is not regular.

    Raises:
        OSError: As ``open_regular``.
    """
    try:
        status = os.fstat(file)
        require_regular(status)
    except OSError:
        os.close(file)
        raise
    return status


def require_regular(status: os.stat_result) -> None:
    """Raise the ``OSError`` for opening anything but a regular file."""
    if not stat.S_ISREG(status.st_mode):
        codes = {stat.S_IFDIR: errno.EISDIR, stat.S_IFLNK: errno.ELOOP}
        code = codes.get(stat.S_IFMT(status.st_mode), errno.ENXIO)
        raise OSError(code, os.strerror(code))


def is_open_for_writing(name: str, dir_fd: int) -> bool:
    """Whether a process has a regular file open for writing.

    If so, the system refuses a read lease. Only the owner and root can get a lease, and some
    filesystems support none; then the answer is ``False``.
    """
    file = os.open(name, READ, dir_fd=dir_fd)
    try:
        # If another process opens the file during the lease, the system sends a signal. The
        # default signal ends this process; SIGURG is ignored by default.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    finally:
        os.close(file)
    return False


def write_all(file: int, data: bytes) -> None:
    """Write all of *data*, which the system may take in parts."""
    n_bytes = os.write(file, data)
    while n_bytes < len(data):
        n_bytes += os.write(file, memoryview(data)[n_bytes:])


# Sparse files: parts of them, the holes, read as zeros and take no disk space

_COPIED_AT_ONCE = 8 * 1_048_576
_LEAST_SPARSE_BYTES = 65_536
_BLOCK_BYTES = 512
"""The unit of ``st_blocks`` [stat(2)]."""


def is_sparse(status: os.stat_result) -> bool:
    """Whether a file has holes that are worth keeping."""
    return status.st_size >= _LEAST_SPARSE_BYTES and (
        status.st_blocks * _BLOCK_BYTES < status.st_size
    )


def copy_content(source: int, target: int) -> None:
    """Copy a file into the empty file *target*; holes stay holes.

    The kernel copies if it can, which lets some filesystems share the blocks.
    """
    size_bytes = os.fstat(source).st_size
    at = 0
    while at < size_bytes:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
            end = os.lseek(source, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is only a hole up to the end
                break
            start, end = at, size_bytes  # a filesystem that does not know its holes
        _copy_range(source, target, start, end)
        at = end
    if os.fstat(target).st_size < size_bytes:
        os.ftruncate(target, size_bytes)


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    at = start
    try:
        while at < end:
            n_bytes = os.copy_file_range(source, target, min(end - at, _COPIED_AT_ONCE), at, at)
            if n_bytes == 0:  # it was truncated meanwhile
                return
            at += n_bytes
    except OSError:  # not supported between these two; continue where it stopped
        os.lseek(target, at, os.SEEK_SET)
        while at < end and (piece := os.pread(source, min(end - at, _COPIED_AT_ONCE), at)):
            write_all(target, piece)
            at += len(piece)


def write_with_holes(file: int, pieces: Iterable[bytes]) -> None:
    """Write *pieces* into an empty file; long runs of zeros become holes."""
    has_hole = False
    for piece in pieces:
        # Counting takes long, and most pieces have another byte at an end
        may_be_hole = len(piece) >= _LEAST_SPARSE_BYTES and not (piece[0] or piece[-1])
        if may_be_hole and piece.count(0) == len(piece):
            os.lseek(file, len(piece), os.SEEK_CUR)
            has_hole = True
        else:
            write_all(file, piece)
    if has_hole:  # the last one has to be within the size
        os.ftruncate(file, os.lseek(file, 0, os.SEEK_CUR))


# Entering

_ENCODING, _ENCODING_ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x04, 0x08
_OPENAT2 = 437  # on architectures with another number, the call fails
_HOW = {
    flags: struct.pack("QQQ", flags, 0, _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH)
    for flags in (ENTER, PATH_ONLY, READ)
}
_HOW_BYTES = struct.calcsize("QQQ")


def enter(top: int, parts: Parts, *, make_accessible: bool = False) -> int:
    """A descriptor for entering the directory *parts* below *top*.

    With *make_accessible*, modes that deny access to the owner are changed.

    Raises:
        OSError: With ``ENOTDIR`` if a component is a link, or not a directory.
    """
    directory = open_beneath(top, parts, ENTER) if parts else os.dup(top)
    if directory < 0:
        return _enter_one_by_one(top, parts, make_accessible=make_accessible)
    if make_accessible:
        make_entry_accessible(directory)
    return directory


def open_beneath(top: int, parts: Parts, flags: int) -> int:
    """Open a path below *top* with openat2(2), following no links; ``MISSING`` if there is none.

    Any other negative number means that the caller has to walk: a mode may have to be made
    accessible, a component is a link or a file, the path is too long, or the system has no
    openat2.

    Args:
        top: A directory.
        parts: At least one name.
        flags: ``ENTER``, ``PATH_ONLY`` or ``READ``.
    """
    system_call, error_number = _system_call()
    path = "/".join(parts).encode(_ENCODING, _ENCODING_ERRORS)
    opened = system_call(_OPENAT2, top, path, _HOW[flags], _HOW_BYTES)
    return opened if opened >= 0 else -error_number()


def _enter_one_by_one(top: int, parts: Parts, *, make_accessible: bool) -> int:
    directory = os.dup(top)
    try:
        if make_accessible:
            make_entry_accessible(directory)
        for name in parts:
            above = directory
            directory = open_directory(name, above, make_accessible=make_accessible)
            os.close(above)
    except BaseException:
        os.close(directory)
        raise
    return directory


@cache
def _system_call() -> tuple[Callable[[int, int, bytes, bytes, int], int], Callable[[], int]]:
    """The function syscall(2) with the arguments of openat2(2), and one for its last ``errno``."""
    import ctypes

    system_call = ctypes.CDLL(None, use_errno=True).syscall
    system_call.argtypes = (
        *(ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t),
    )
    system_call.restype = ctypes.c_long
    return system_call, ctypes.get_errno


# Modes and owners


def usual_mode(*, executable: bool) -> int:
    """The permissions of a new file; with *executable*, those of a program or directory."""
    return 0o755 if executable else 0o644


def with_executable_bits(mode: int, *, executable: bool) -> int:
    """*mode* with the execute bits set for the owner and all who may read, or with none."""
    return mode | 0o100 | (mode & 0o444) >> 2 if executable else mode & ~0o111


def change_mode(name: str, dir_fd: int, new_mode: Callable[[os.stat_result], int]) -> None:
    """Set the permissions of a file or directory to *new_mode* of its current status.

    Raises:
        OSError: With ``ELOOP`` for a link.
    """
    entry = os.open(name, PATH_ONLY, dir_fd=dir_fd)
    try:
        status = os.fstat(entry)
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        _set_mode(entry, status, new_mode(status))
    finally:
        os.close(entry)


def reset_mode(entry: int, mode: int) -> None:
    """Set the permissions of *entry* to *mode*, and remove its ``attributes_of``."""
    if attributes_of(entry):
        make_entry_accessible(entry)
        remove_attributes(entry)
    _set_mode(entry, os.fstat(entry), mode)


_RESETTABLE = ("user.", "system.posix_acl_")


def attributes_of(entry: int, *, path_only: bool = True) -> list[str]:
    """The extended attributes of *entry* that its owner may set, access control lists included.

    *path_only* says that it may be an ``O_PATH`` descriptor, which takes longer.
    """
    try:
        names = os.listxattr(f"/proc/self/fd/{entry}" if path_only else entry)
    except OSError:  # a filesystem without them, or a link
        return []
    return names and [name for name in names if name.startswith(_RESETTABLE)]


def remove_attributes(entry: int) -> None:
    """Remove ``attributes_of`` *entry*, which its owner must be able to write."""
    for name in attributes_of(entry):
        os.removexattr(f"/proc/self/fd/{entry}", name)


def make_entry_accessible(entry: int) -> None:
    """Give the owner access to *entry*; an entry of another user is not changed."""
    status = os.fstat(entry)
    if status.st_mode & 0o700 != 0o700:
        with suppress(PermissionError):
            _set_mode(entry, status, _accessible_mode(status))


def _accessible_mode(status: os.stat_result) -> int:
    needed = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
    return stat.S_IMODE(status.st_mode) | needed


def _set_mode(entry: int, status: os.stat_result, mode: int) -> None:
    if mode != stat.S_IMODE(status.st_mode):
        # fchmod does not accept an O_PATH descriptor.
        Path(f"/proc/self/fd/{entry}").chmod(mode)


def match_owner(entry: int, owner: os.stat_result) -> None:
    """If this process is root, give the new *entry* to the owner in *owner*."""
    if os.geteuid() == 0:
        made = os.fstat(entry)
        if (made.st_uid, made.st_gid) != (owner.st_uid, owner.st_gid):
            os.fchown(entry, owner.st_uid, owner.st_gid)


# Naming


def give_name(temporary: str, name: str, dir_fd: int, *, replace: bool) -> None:
    """Rename a finished file to its name in the same directory.

    With *replace*, it replaces any entry but a directory; otherwise the name must be free.
    Other processes see the old entry or the new one at any time.
    """
    if not replace:
        rename_to_free(temporary, dir_fd, name, dir_fd)
    elif not _exchange_and_remove(temporary, name, dir_fd):
        os.rename(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)


def rename_to_free(old: str, old_dir_fd: int, new: str, new_dir_fd: int) -> None:
    """Rename an entry to a name that must be free."""
    if not _rename_with(_NO_REPLACE, old, new, old_dir_fd, new_dir_fd):
        _require_free(new, new_dir_fd)  # not atomic: another process may take the name now
        os.rename(old, new, src_dir_fd=old_dir_fd, dst_dir_fd=new_dir_fd)


def exchange_names(one: str, other: str, dir_fd: int) -> bool:
    """Exchange two entries of a directory atomically; ``False`` if that is not supported."""
    return _rename_with(_EXCHANGE, one, other, dir_fd, dir_fd)


def _exchange_and_remove(temporary: str, name: str, dir_fd: int) -> bool:
    """Exchange the two and remove the old entry; ``False`` if that is not possible.

    A plain rename over a file makes ext4 write the new one to the disk at once, for programs
    that do not sync. That takes milliseconds; an exchange takes about 0.05 ms.
    """
    try:
        if not _rename_with(_EXCHANGE, temporary, name, dir_fd, dir_fd):
            return False
    except FileNotFoundError:
        return False  # the name is free
    try:
        os.unlink(temporary, dir_fd=dir_fd)
    except OSError:  # it is a directory, or belongs to another user
        exchange_names(temporary, name, dir_fd)
        raise
    return True


_NO_REPLACE, _EXCHANGE = 1, 2
_NOT_SUPPORTED = frozenset((errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP))


def _rename_with(flag: int, old: str, new: str, old_dir_fd: int, new_dir_fd: int) -> bool:
    """renameat2(2), which Python lacks; ``False`` if the system does not support it."""
    code = _renameat2()(old_dir_fd, old, new_dir_fd, new, flag)
    if code in _NOT_SUPPORTED:
        return False
    if code:
        raise OSError(code, os.strerror(code), new)
    return True


@cache
def _renameat2() -> Callable[[int, str, int, str, int], int]:
    """The system call renameat2(2); returns 0 or the errno."""
    import ctypes

    system = ctypes.CDLL(None, use_errno=True)

    def rename(old_dir_fd: int, old: str, new_dir_fd: int, new: str, flag: int) -> int:
        if not hasattr(system, "renameat2"):
            return errno.ENOSYS
        failed = system.renameat2(
            *(old_dir_fd, old.encode(_ENCODING, _ENCODING_ERRORS)),
            *(new_dir_fd, new.encode(_ENCODING, _ENCODING_ERRORS)),
            flag,
        )
        return ctypes.get_errno() if failed else 0

    return rename


def _require_free(name: str, dir_fd: int) -> None:
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


# Walking

_KIND, _DIRECTORY = 0o170000, stat.S_IFDIR


class _Descent:
    """A position in a directory tree; it owns the one descriptor of it."""

    def __init__(self, top: int, *, make_accessible: bool) -> None:
        self.fd = top
        self.names: list[str] = []
        self._above: list[tuple[int, int]] = []
        self._make_accessible = make_accessible

    def enter(self, name: str) -> None:
        """Enter a directory below, which must be readable."""
        directory = open_directory(name, self.fd, make_accessible=self._make_accessible)
        try:
            below = open_listing(directory)
        finally:
            os.close(directory)
        self._above.append(_identity(self.fd))
        self.names.append(name)
        self._replace(below)

    def leave(self) -> str:
        """Go up, for entering but not for listing; the name of the directory that was left."""
        above = open_directory("..", self.fd)
        if _identity(above) != self._above.pop():
            os.close(above)
            raise _busy()  # another process moved this directory
        self._replace(above)
        return self.names.pop()

    def close(self) -> None:
        os.close(self.fd)

    def _replace(self, fd: int) -> None:
        os.close(self.fd)
        self.fd = fd


def _busy() -> OSError:
    return OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _identity(directory: int) -> tuple[int, int]:
    status = os.fstat(directory)
    return status.st_dev, status.st_ino


class Listing(NamedTuple):
    """One directory of a walk: its path, a descriptor until the next step, and its entries."""

    parts: Parts
    fd: int
    entries: list[tuple[str, os.stat_result]]

    def directories(self) -> list[str]:
        """The names of the directories in it."""
        return [name for name, status in self.entries if stat.S_ISDIR(status.st_mode)]


def listings(
    top: int,
    *,
    make_accessible: bool = False,
    before: Callable[[Parts, int], None] | None = None,
    unreadable: Callable[[Parts], None] | None = None,
) -> Iterator[Listing]:
    """Every directory from *top* down, parents first, sorted by name; links are not followed.

    Args:
        top: An open directory.
        make_accessible: Change the mode of directories that deny access to their owner.
        before: Called with each directory before it is listed.
        unreadable: Called for each directory that cannot be read, instead of raising.

    Raises:
        OSError: With ``EBUSY`` if another process moved a directory during the walk.
    """
    try:
        position = _Descent(open_listing(top), make_accessible=make_accessible)
    except PermissionError:
        if unreadable is None:
            raise
        unreadable(())
        return
    try:
        pending: list[list[str]] = []
        while True:
            parts = tuple(position.names)
            if before is not None:
                before(parts, position.fd)
            listing = Listing(parts, position.fd, entries_of(position.fd))
            yield listing
            inner = [name for name, st in listing.entries if st.st_mode & _KIND == _DIRECTORY]
            pending.append(inner[::-1])
            if not _advance(position, pending, unreadable):
                return
    finally:
        position.close()


def entries_of(directory: int) -> list[tuple[str, os.stat_result]]:
    """Name and status of everything in a directory opened for listing, by name."""
    entries: list[tuple[str, os.stat_result]] = []
    with os.scandir(directory) as found:
        for entry in found:
            try:  # noqa: SIM105 - suppress() would add a third to the time of a scan
                entries.append((entry.name, entry.stat(follow_symlinks=False)))
            except FileNotFoundError:
                pass
    entries.sort(key=itemgetter(0))
    return entries


def _advance(
    position: _Descent, pending: list[list[str]], unreadable: Callable[[Parts], None] | None
) -> bool:
    """Go to the next directory; ``False`` at the end of the walk."""
    while True:
        while not pending[-1]:
            pending.pop()
            if not pending:
                return False
            position.leave()
        name = pending[-1].pop()
        try:
            position.enter(name)
        except (FileNotFoundError, NotADirectoryError):
            continue  # it was deleted after its parent was listed
        except PermissionError:
            if unreadable is None:
                raise
            unreadable((*position.names, name))
            continue
        return True


# Removing


def remove(name: str, dir_fd: int) -> None:
    """Remove an entry of any kind; a directory with everything below it.

    Modes of directories that deny access to the owner are changed. Entries that other processes
    add meanwhile are removed, too.

    Raises:
        OSError: If an entry cannot be removed; others may be removed already.
    """
    for _ in range(_MAX_ATTEMPTS):
        with suppress(IsADirectoryError):
            os.unlink(name, dir_fd=dir_fd)
            return
        try:
            _remove_directory(name, dir_fd)
        except OSError as error:
            if error.errno not in _CHANGED_MEANWHILE:
                raise
        else:
            return
    raise _busy()


_CHANGED_MEANWHILE = frozenset((errno.EBUSY, errno.ENOTEMPTY, errno.ENOTDIR))


def _remove_directory(name: str, dir_fd: int) -> None:
    position = _Descent(os.dup(dir_fd), make_accessible=True)
    try:
        pending = [_enter_and_empty(position, name)]
        while pending:
            if not pending[-1]:
                pending.pop()
                emptied = position.leave()
                with suppress(FileNotFoundError):
                    os.rmdir(emptied, dir_fd=position.fd)
            else:
                with suppress(FileNotFoundError, NotADirectoryError):
                    pending.append(_enter_and_empty(position, pending[-1].pop()))
    finally:
        position.close()


def _enter_and_empty(position: _Descent, name: str) -> list[str]:
    """Enter a directory and remove all entries but directories; the names of these."""
    position.enter(name)
    directories: list[str] = []
    for below in os.listdir(position.fd):  # noqa: PTH208 - pathlib takes no descriptor
        try:
            os.unlink(below, dir_fd=position.fd)
        except IsADirectoryError:
            directories.append(below)
        except FileNotFoundError:
            pass
    return directories


# --------------------------------------------------------------------------------------- renaming

# Rename anything within one filesystem, also a directory that the system refuses to rename.
#
# In a user namespace, the kernel refuses to rename a directory of the base of an overlay
# (``EXDEV``), and expects a copy. The copy appears under its name when it is complete; the
# original is removed after that.


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


# ------------------------------------------------------------------------------------ mount table

# What the table of mounts says about a directory; see proc(5) for its format.
#
# Some filesystems are known to keep two rules for times: this machine sets them, and each change
# of a name changes the times of its directory, too. Others may not: times of a network filesystem
# are those of a server, whose clock may be late, and FAT and filesystems in buckets have
# directories whose times stay. A filesystem that is not known is treated as one of these.


_KEEP_TIMES: Final = frozenset(
    (
        *("bcachefs", "btrfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2"),
        *("overlay", "ramfs", "reiserfs", "rootfs", "squashfs", "tmpfs", "ubifs", "xfs", "zfs"),
    )
)


def read_mounts() -> str:
    """The lines of the table.

    Raises:
        OSError: If it cannot be read.
    """
    return Path("/proc/self/mountinfo").read_text(errors="replace")


def prefix_of_points_below(root: Path) -> str:
    """What the mount points below *root*, which has no links, begin with in the table."""
    escaped = "".join(f"\\{ord(char):03o}" if char in " \t\n\\" else char for char in str(root))
    return escaped.rstrip("/") + "/"


def keeps_times(directory: int) -> bool:
    """Whether all filesystems at and below an open directory are known to keep the rules above.

    A mount that is not in the table is a detached one: an overlay of ours, on a filesystem that
    keeps them.
    """
    try:
        about = Path(f"/proc/self/fdinfo/{directory}").read_text()
        below = prefix_of_points_below(Path(f"/proc/self/fd/{directory}").readlink())
        mounts = read_mounts()
    except OSError:
        return False
    mount_id = about.partition("mnt_id:")[2].split(maxsplit=1)[:1]
    kinds: list[str] = []
    for mount in mounts.splitlines():
        fields, _, kind = mount.partition(" - ")
        at = fields.split()
        if at[:1] == mount_id or at[4].startswith(below):
            kinds.append(kind.split(maxsplit=1)[0])
    return _KEEP_TIMES.issuperset(kinds)
