"""Directory descriptors: the one way in which a host directory is touched.

Rule 1: every function takes an open directory and one name in it, never a path, and none
follows a link. What is reached by entering directories one by one from a root lies below
that root, whatever anybody renames or links in between.
Rule 2: only regular files are opened, and opening never waits: a pipe or a device that
takes a file's place is refused.
Rule 3: any depth is walked with few descriptors and no recursion. The way back up is
``..``, which is entered only if it is the directory that was left on the way down.

Functions raise ``OSError`` as the system does; ``translate_os_error`` turns it into this package's
errors where the path is known.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from pathlib import Path
from types import TracebackType

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
from wink_workspace.filesystem.paths import WorkspacePath

__all__ = [
    "ENTER",
    "LOOK",
    "NOT_THERE",
    "READ",
    "TEMPORARY_PREFIX",
    "Descriptor",
    "Listing",
    "Parts",
    "adopt",
    "attributes_of",
    "change_mode",
    "enter",
    "entries_of",
    "exchange_names",
    "give_name",
    "is_open_for_writing",
    "listings",
    "look",
    "look_into",
    "make_entry_accessible",
    "open_at_once",
    "open_directory",
    "open_listing",
    "open_regular",
    "open_root",
    "open_seen",
    "regular",
    "remove",
    "rename_to_free",
    "require_regular",
    "reset_mode",
    "temporary_name",
    "translate_os_error",
    "translated",
    "usual_mode",
    "with_executable_bits",
    "write_all",
]

Parts = tuple[str, ...]
"""The names that lead to a directory from where a walk began."""

TEMPORARY_PREFIX = ".wink-tmp-"
"""How the names of unfinished files begin; one is left behind only by a killed process."""

_PATIENCE = 100
# Only Linux has it; elsewhere this can be imported and nothing more.
_O_PATH: int = getattr(os, "O_PATH", 0)
ENTER = _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
LOOK = _O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
NOT_THERE = -errno.ENOENT
"""Of ``open_at_once``: there is nothing."""

_ERRORS: dict[int, tuple[type[FilesystemError], str]] = {
    errno.ENOENT: (FileMissingError, "does not exist"),
    errno.EEXIST: (PathExistsError, "exists already"),
    errno.EISDIR: (FileExpectedError, "is a directory"),
    errno.ENOTDIR: (DirectoryExpectedError, "is not a directory, or not in one"),
    errno.ENOTEMPTY: (DirectoryNotEmptyError, "is not empty"),
    errno.ELOOP: (LinkError, "is a link"),
    errno.EACCES: (ReadOnlyError, "is out of reach: permission denied"),
    errno.EPERM: (ReadOnlyError, "is out of reach: operation not permitted"),
    errno.EROFS: (ReadOnlyError, "is on a read-only filesystem"),
    errno.ENXIO: (FilesystemError, "is a pipe, a socket or a device, which is not opened"),
    errno.EBADF: (FilesystemError, "is out of reach: its workspace was closed"),
    errno.EBUSY: (FilesystemError, "is being changed by somebody else all the time"),
}


def translated(path: WorkspacePath | Path, error: OSError) -> FilesystemError:
    """What this package raises for an error of the system at *path*."""
    if isinstance(error, FilesystemError):
        return error
    kind, what = _ERRORS.get(error.errno or 0, (FilesystemError, ""))
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return kind(
        f"{path} {what}" if what else f"{path}: {error.strerror}",
        hint="Make room on the disk, and try again." if is_full else None,
    )


# The blocks here are classes: entering a generator's takes several times as long, and one
# that Ctrl-C leaves suspended ends when somebody lets go of a traceback, which may be late.


class translate_os_error(AbstractContextManager[None]):  # noqa: N801 - used as a function
    """Raise the error of this package for an ``OSError`` of the block."""

    __slots__ = ("_path",)

    def __init__(self, path: WorkspacePath | Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError) and not isinstance(error, FilesystemError):
            raise translated(self._path, error) from error


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
    """A name that nobody can guess and nothing has."""
    return TEMPORARY_PREFIX + os.urandom(16).hex()


# Looking and opening


def look(name: str, dir_fd: int) -> tuple[os.stat_result, str | None]:
    """The status of an entry and, for a link, its target; both of the same moment."""
    status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        return status, None
    link = os.open(name, LOOK, dir_fd=dir_fd)
    try:
        return look_into(link)
    finally:
        os.close(link)


def look_into(entry: int) -> tuple[os.stat_result, str | None]:
    """The same of what was opened with ``LOOK``."""
    status = os.fstat(entry)
    return status, os.readlink("", dir_fd=entry) if stat.S_ISLNK(status.st_mode) else None


def open_root(path: Path) -> int:
    """A descriptor for entering the directory at a trusted path, whose links are followed."""
    return os.open(path, _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def open_directory(name: str, dir_fd: int, *, make_accessible: bool = False) -> int:
    """A descriptor for entering a directory, which needs no permission on it.

    With *lift*, a mode that keeps the owner out is changed.
    """
    directory = os.open(name, ENTER, dir_fd=dir_fd)
    if make_accessible:
        make_entry_accessible(directory)
    return directory


def open_listing(directory: int) -> int:
    """A descriptor of the same directory, for listing it.

    Raises:
        PermissionError: If it may not be read or not be entered.
    """
    return os.open(".", _LIST, dir_fd=directory)


def open_regular(name: str, dir_fd: int, *, make_accessible: bool = False) -> int:
    """A descriptor for reading a regular file.

    With *lift*, a mode that keeps the owner from reading is changed.

    Raises:
        OSError: With ``EISDIR``, ``ELOOP`` or ``ENXIO`` for anything else.
    """
    # Looked at before, as opening a device can do something, and afterwards, to be sure.
    status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    require_regular(status)
    if make_accessible and not status.st_mode & stat.S_IRUSR:
        with suppress(PermissionError):
            change_mode(name, dir_fd, _lifted)
    return open_seen(name, dir_fd)[0]


def open_seen(name: str, dir_fd: int) -> tuple[int, os.stat_result]:
    """What was just seen to be a regular file, open for reading, and its status.

    Raises:
        OSError: As ``open_regular``, if something else took its place.
    """
    file = os.open(name, READ, dir_fd=dir_fd)
    return file, regular(file)


def regular(file: int) -> os.stat_result:
    """The status of what was opened to be read; it is closed again if it is no regular file.

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
    """Raise what opening anything but a regular file deserves."""
    if not stat.S_ISREG(status.st_mode):
        codes = {stat.S_IFDIR: errno.EISDIR, stat.S_IFLNK: errno.ELOOP}
        code = codes.get(stat.S_IFMT(status.st_mode), errno.ENXIO)
        raise OSError(code, os.strerror(code))


def is_open_for_writing(name: str, dir_fd: int) -> bool:
    """Whether some process has a regular file open for writing.

    The system says so by refusing a lease. It grants none to others than the owner and root, and
    some filesystems have none; then the answer is ``False``.
    """
    file = os.open(name, READ, dir_fd=dir_fd)
    try:
        # Who opens it in the moment of the lease makes the system send a signal. The usual one
        # ends the process; this one is ignored by default.
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


# Entering

_ENCODING, _ENCODING_ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x04, 0x08
_OPENAT2 = 437  # where it has another number, the system refuses this one


def enter(top: int, parts: Parts, *, make_accessible: bool = False) -> int:
    """A descriptor for entering the directory to which *parts* lead from *top*.

    With *lift*, the modes of directories that keep the owner out are changed.

    Raises:
        OSError: With ``ENOTDIR`` if one of them is a link, or no directory.
    """
    directory = open_at_once(top, parts, ENTER) if parts else os.dup(top)
    if directory < 0:
        return _entered_one_by_one(top, parts, make_accessible=make_accessible)
    if make_accessible:
        make_entry_accessible(directory)
    return directory


def open_at_once(top: int, parts: Parts, how: int) -> int:
    """What openat2(2) opens below *top* without following any link, or ``NOT_THERE``.

    Any other negative number says that only a walk can tell: modes are in the way that may be
    lifted, something on the way is a link or a file, a path is too long for the system, or it
    has no such call.

    Args:
        top: A directory.
        parts: At least one name.
        how: ``ENTER``, ``LOOK`` or ``READ``.
    """
    return _openat2()(top, "/".join(parts).encode(_ENCODING, _ENCODING_ERRORS), how)


def _entered_one_by_one(top: int, parts: Parts, *, make_accessible: bool) -> int:
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
def _openat2() -> Callable[[int, bytes, int], int]:
    """The function of the system that opens without following links, negative for a failure."""
    import ctypes

    system = ctypes.CDLL(None, use_errno=True)
    system.syscall.argtypes = (
        *(ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t),
    )
    system.syscall.restype = ctypes.c_long
    hows = {
        flags: struct.pack("QQQ", flags, 0, _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH)
        for flags in (ENTER, LOOK, READ)
    }

    def openat2(directory: int, path: bytes, flags: int) -> int:
        how = hows[flags]
        opened: int = system.syscall(_OPENAT2, directory, path, how, len(how))
        return opened if opened >= 0 else -ctypes.get_errno()

    return openat2


# Modes and owners


def usual_mode(*, executable: bool) -> int:
    """The permissions of a file or, as *executable*, of a program or directory that we make."""
    return 0o755 if executable else 0o644


def with_executable_bits(mode: int, *, executable: bool) -> int:
    """*mode* with the right to execute for its owner and whoever may read, or for no one."""
    return mode | 0o100 | (mode & 0o444) >> 2 if executable else mode & ~0o111


def change_mode(name: str, dir_fd: int, new_mode: Callable[[os.stat_result], int]) -> None:
    """Set the permissions of a file or directory to *new_mode* of its present status.

    Raises:
        OSError: With ``ELOOP`` for a link, whose permissions mean nothing.
    """
    entry = os.open(name, LOOK, dir_fd=dir_fd)
    try:
        status = os.fstat(entry)
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        _set_mode(entry, status, new_mode(status))
    finally:
        os.close(entry)


def reset_mode(entry: int, mode: int) -> None:
    """Set the permissions of *entry* to *mode*, and remove what else decides on access to it."""
    if attributes_of(entry):
        make_entry_accessible(entry)
        remove_attributes(entry)
    _set_mode(entry, os.fstat(entry), mode)


_RESETTABLE = ("user.", "system.posix_acl_")


def attributes_of(entry: int) -> list[str]:
    """The extended attributes of *entry* that its owner may set, access control lists included."""
    try:
        names = os.listxattr(f"/proc/self/fd/{entry}")
    except OSError:  # a filesystem without them, or a link
        return []
    return names and [name for name in names if name.startswith(_RESETTABLE)]


def remove_attributes(entry: int) -> None:
    """Remove ``attributes_of`` *entry*, whose owner may write to it."""
    for name in attributes_of(entry):
        os.removexattr(f"/proc/self/fd/{entry}", name)


def make_entry_accessible(entry: int) -> None:
    """Let the owner into the directory *entry*; one of somebody else stays as it is."""
    status = os.fstat(entry)
    if status.st_mode & 0o700 != 0o700:
        with suppress(PermissionError):
            _set_mode(entry, status, _lifted(status))


def _lifted(status: os.stat_result) -> int:
    needed = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
    return stat.S_IMODE(status.st_mode) | needed


def _set_mode(entry: int, status: os.stat_result, mode: int) -> None:
    if mode != stat.S_IMODE(status.st_mode):
        # A descriptor that needs no permission on the entry cannot be given to fchmod.
        Path(f"/proc/self/fd/{entry}").chmod(mode)


def adopt(entry: int, owner: os.stat_result) -> None:
    """Give what root has made to the owner of what is around it, as if it had been made there."""
    if os.geteuid() == 0:
        made = os.fstat(entry)
        if (made.st_uid, made.st_gid) != (owner.st_uid, owner.st_gid):
            os.fchown(entry, owner.st_uid, owner.st_gid)


# Naming


def give_name(temporary: str, name: str, dir_fd: int, *, replace: bool) -> None:
    """Give a finished file its name in the same directory.

    With *replace* it takes the place of any entry but a directory, else the name must be
    free. Whoever looks finds the one or the other, and never nothing.
    """
    if not replace:
        rename_to_free(temporary, dir_fd, name, dir_fd)
    elif not _exchanged(temporary, name, dir_fd):
        os.rename(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)


def rename_to_free(old: str, old_dir_fd: int, new: str, new_dir_fd: int) -> None:
    """Rename an entry to a name that must be free."""
    if not _rename_with(_NO_REPLACE, old, new, old_dir_fd, new_dir_fd):
        _require_nothing(new, new_dir_fd)  # and hope that it stays so for a moment
        os.rename(old, new, src_dir_fd=old_dir_fd, dst_dir_fd=new_dir_fd)


def exchange_names(one: str, other: str, dir_fd: int) -> bool:
    """Let two entries of a directory change places at once; ``False`` if that cannot be done."""
    return _rename_with(_EXCHANGE, one, other, dir_fd, dir_fd)


def _exchanged(temporary: str, name: str, dir_fd: int) -> bool:
    """Exchange the two and remove what had the name; ``False`` if that cannot be done.

    A plain rename over a file makes ext4 write the new one to the disk at once, as a
    precaution for programs that do not sync. That takes milliseconds, this some 0.05.
    """
    try:
        if not _rename_with(_EXCHANGE, temporary, name, dir_fd, dir_fd):
            return False
    except FileNotFoundError:
        return False  # the name is free
    try:
        os.unlink(temporary, dir_fd=dir_fd)
    except OSError:  # it is a directory, or somebody else's
        exchange_names(temporary, name, dir_fd)
        raise
    return True


_NO_REPLACE, _EXCHANGE = 1, 2
_NOT_SUPPORTED = frozenset((errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP))


def _rename_with(flag: int, old: str, new: str, old_dir_fd: int, new_dir_fd: int) -> bool:
    """renameat2(2), which Python does not have; ``False`` if the system has not, either."""
    code = _renameat2()(old_dir_fd, old, new_dir_fd, new, flag)
    if code in _NOT_SUPPORTED:
        return False
    if code:
        raise OSError(code, os.strerror(code), new)
    return True


@cache
def _renameat2() -> Callable[[int, str, int, str, int], int]:
    """The function of the system, with the error as its result."""
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


def _require_nothing(name: str, dir_fd: int) -> None:
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


# Walking


class _Descent:
    """A position in a directory tree, held by one descriptor, which it owns."""

    def __init__(self, top: int, *, make_accessible: bool) -> None:
        self.fd = top
        self.names: list[str] = []
        self._above: list[tuple[int, int]] = []
        self._lift = make_accessible

    def enter(self, name: str) -> None:
        """Go down, to a directory that can be listed."""
        directory = open_directory(name, self.fd, make_accessible=self._lift)
        try:
            below = open_listing(directory)
        finally:
            os.close(directory)
        self._above.append(_identity(self.fd))
        self.names.append(name)
        self._replace(below)

    def leave(self) -> str:
        """Go up; the name of what was left, which can be entered and not listed."""
        above = open_directory("..", self.fd)
        if _identity(above) != self._above.pop():
            os.close(above)
            raise _busy()  # somebody has moved this directory elsewhere
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


@dataclass(frozen=True, slots=True)
class Listing:
    """One directory of a walk: where it is, its descriptor until the next step, its entries."""

    parts: Parts
    fd: int
    entries: list[tuple[str, os.stat_result]]


def listings(
    top: int,
    *,
    make_accessible: bool = False,
    before: Callable[[Parts, int], None] | None = None,
    unreadable: Callable[[Parts], None] | None = None,
) -> Iterator[Listing]:
    """Every directory from *top* down, parents first and names in order; links are entries.

    Args:
        top: An open directory.
        make_accessible: Change the mode of directories that keep their owner out.
        before: Called with each directory before it is listed.
        unreadable: Called for each directory that cannot be read, instead of raising.

    Raises:
        OSError: With ``EBUSY`` if a directory was moved elsewhere while it was walked.
    """
    try:
        here = _Descent(open_listing(top), make_accessible=make_accessible)
    except PermissionError:
        if unreadable is None:
            raise
        unreadable(())
        return
    try:
        todo: list[list[str]] = []
        while True:
            parts = tuple(here.names)
            if before is not None:
                before(parts, here.fd)
            listing = Listing(parts, here.fd, entries_of(here.fd))
            yield listing
            todo.append(
                [name for name, st in reversed(listing.entries) if stat.S_ISDIR(st.st_mode)]
            )
            if not _advance(here, todo, unreadable):
                return
    finally:
        here.close()


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
    here: _Descent, todo: list[list[str]], unreadable: Callable[[Parts], None] | None
) -> bool:
    """Go to the next directory; ``False`` if there is none."""
    while True:
        while not todo[-1]:
            todo.pop()
            if not todo:
                return False
            here.leave()
        name = todo[-1].pop()
        try:
            here.enter(name)
        except (FileNotFoundError, NotADirectoryError):
            continue  # it was there when its parent was listed
        except PermissionError:
            if unreadable is None:
                raise
            unreadable((*here.names, name))
            continue
        return True


# Removing


def remove(name: str, dir_fd: int) -> None:
    """Remove an entry, whatever it is; a directory with all that is below it.

    Modes that keep the owner out of directories are changed, and what others put in
    meanwhile is removed too.

    Raises:
        OSError: If something cannot be removed; what came before it is gone then.
    """
    for _ in range(_PATIENCE):
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
    here = _Descent(os.dup(dir_fd), make_accessible=True)
    try:
        todo = [_emptied(here, name)]
        while todo:
            if not todo[-1]:
                todo.pop()
                left = here.leave()
                with suppress(FileNotFoundError):
                    os.rmdir(left, dir_fd=here.fd)
            else:
                with suppress(FileNotFoundError, NotADirectoryError):
                    todo.append(_emptied(here, todo[-1].pop()))
    finally:
        here.close()


def _emptied(here: _Descent, name: str) -> list[str]:
    """Enter a directory and remove what is no directory; the names of those that are."""
    here.enter(name)
    directories: list[str] = []
    for below in os.listdir(here.fd):  # noqa: PTH208 - pathlib takes no descriptor
        try:
            os.unlink(below, dir_fd=here.fd)
        except IsADirectoryError:
            directories.append(below)
        except FileNotFoundError:
            pass
    return directories
