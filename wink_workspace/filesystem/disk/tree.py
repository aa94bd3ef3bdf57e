"""The entries of a host directory that untrusted code may be changing.

Rule 1: nothing outside of the root is read or written. Every path is walked from the root's
descriptor, one directory after the other, and a link on the way is an error.
Rule 2: a file appears complete under its name or not at all: it is written under a random name
and then renamed. Other names of the replaced file (hard links) keep its content.
Rule 3: the ``ChangeObserver`` is notified of every change, also of one that failed.
Rule 4: a path exists only if its directory lists exactly its name (``ExactNames``).

For restores, ``put_file``, ``put_symlink``, ``put_directory``, ``put_mode`` and ``remove``
replace whatever is at a path. The other methods refuse what a filesystem refuses.
"""

from __future__ import annotations

import errno
import os
import stat
import string
import unicodedata
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Sequence,
    Set,
)
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from io import BufferedReader, FileIO
from itertools import islice
from operator import attrgetter
from pathlib import Path
from threading import get_ident
from typing import BinaryIO, NamedTuple, Protocol

from wink_workspace._descriptors import ClosedAfterBlock, closed_with, put_at, put_nothing_at
from wink_workspace.errors import (
    DirectoryExpectedError,
    FileMissingError,
    FilesystemError,
    ReadOnlyError,
    UsageError,
)
from wink_workspace.filesystem.model import FileKind, WriteMode
from wink_workspace.filesystem.os_errors import translate_os_error, translated
from wink_workspace.filesystem.paths import ROOT, WorkspacePath
from wink_workspace.processes import OwnProcess

from .descriptors import (
    MISSING,
    PATH_ONLY,
    READ,
    Descriptor,
    Listing,
    Parts,
    attributes_of,
    change_mode,
    enter,
    entries_of,
    give_name,
    keeps_times,
    listings,
    match_owner,
    open_beneath,
    open_directory,
    open_listing,
    open_regular,
    open_root,
    remove,
    rename,
    require_regular,
    reset_mode,
    status_and_target,
    status_of_regular,
    temporary_name,
    usual_mode,
    with_executable_bits,
    write_all,
    write_with_holes,
)

# ------------------------------------------------------------------------------------ exact names

# Whether a path that a lookup found has exactly the names that were looked up.
#
# Some filesystems ignore the case of names, or compare Unicode names in a normal form, such as
# Windows drives in WSL 2 and shared folders of virtual machines. If README.md was renamed to
# Readme.md there, a lookup of README.md still finds a file.
#
# Rule 1: a path exists if each directory on the way lists exactly its name. Rule 2: directories
# are listed only where lookups are known to ignore something. The first name with a letter that
# is found on a device is looked up again in the other case, and the first one with other
# characters than ASCII in another normal form. If both are found, but not both are listed, the
# lookups of this device ignore the difference.
#
# Limits: only the first such path of a device is examined, so directories of one filesystem that
# differ in this (``casefold`` of ext4) are treated alike. A directory that cannot be listed counts
# as one that lists all names.


_device = attrgetter("st_dev")
_OTHER_CASE = str.maketrans(
    string.ascii_letters, string.ascii_uppercase + string.ascii_lowercase
)  # swapcase() changes other letters in ways that no filesystem ignores


class ExactNames:
    """Compares the names of found paths with those that the directories of one tree list.

    Attributes:
        exact_case: The devices on which lookups do not ignore the case; names of ASCII characters
            that were found there are exact.
        inexact: The devices on which lookups ignore the case or the normal form.
    """

    def __init__(self) -> None:
        self.exact_case: set[int] = set()
        self.inexact: set[int] = set()
        self._exact_form: set[int] = set()
        self._listed: tuple[int, dict[Parts, Set[str] | None]] | None = None

    def are_exact(self, root: int, parts: Parts, device: int) -> bool:
        """Whether a path that was found exists with exactly these names.

        Args:
            root: A descriptor of the root of the tree.
            parts: The path, at least one name.
            device: The device of what was found (``st_dev``).
        """
        if self._finds_exact(root, parts, device):
            return True
        listings = (self._names(root, parts[:n]) for n in range(len(parts)))
        return all(
            names is None or name in names for name, names in zip(parts, listings, strict=True)
        )

    def exact_in(
        self, root: int, directory: Parts, found: dict[str, os.stat_result]
    ) -> dict[str, os.stat_result]:
        """Those of the entries *found* in a directory that exist with exactly these names."""
        devices = set(map(_device, found.values()))
        if not self.exact_case.issuperset(devices):
            for name, at in islice(found.items(), 1):
                self._finds_exact(root, (*directory, name), at.st_dev)
        if (
            self.inexact.isdisjoint(devices)
            and self.exact_case.issuperset(devices)
            and (self._exact_form.issuperset(devices) or "".join((*directory, *found)).isascii())
        ):
            return found
        paths = {name: (*directory, name) for name in found}
        with self.listing_once():
            return {
                name: at
                for name, at in found.items()
                if self.are_exact(root, paths[name], at.st_dev)
            }

    def _finds_exact(self, root: int, parts: Parts, device: int) -> bool:
        """Whether lookups on a device compare names such as *parts* exactly."""
        if device not in self.inexact:
            if device not in self.exact_case:
                self._probe(root, parts, device, self.exact_case, _other_case)
            if device not in self._exact_form and not "".join(parts).isascii():
                self._probe(root, parts, device, self._exact_form, _other_form)
        return device not in self.inexact

    def _probe(
        self, root: int, parts: Parts, device: int, exact: set[int], other: Callable[[str], str]
    ) -> None:
        for n in reversed(range(len(parts))):
            name = other(parts[n])
            if name == parts[n]:
                continue
            is_found = _exists(root, (*parts[:n], name, *parts[n + 1 :]))
            names = self._names(root, parts[:n]) if is_found else None
            is_exact = names is None or {name, parts[n]} <= names
            (exact if is_exact else self.inexact).add(device)
            return

    @contextmanager
    def listing_once(self) -> Generator[None]:
        """List each directory at most once for this thread in the block, which changes nothing."""
        before = self._listed
        if before is None or before[0] != get_ident():
            self._listed = get_ident(), {}
        try:
            yield
        finally:
            self._listed = before

    def _names(self, root: int, directory: Parts) -> Set[str] | None:
        """The names that a directory lists; ``None`` if that is not possible."""
        thread, listed = self._listed or (0, {})
        if thread != get_ident():
            return _names_of(root, directory)
        if directory not in listed:
            listed[directory] = _names_of(root, directory)
        return listed[directory]


def _other_case(name: str) -> str:
    return name.translate(_OTHER_CASE)


def _other_form(name: str) -> str:
    decomposed = unicodedata.normalize("NFD", name)
    return decomposed if decomposed != name else unicodedata.normalize("NFC", name)


def _exists(root: int, parts: Parts) -> bool:
    found = open_beneath(root, parts, PATH_ONLY)
    if found >= 0:
        os.close(found)
    if found >= 0 or found == MISSING:
        return found >= 0
    try:
        with Descriptor(enter(root, parts[:-1])) as directory:
            os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return True


def _names_of(root: int, directory: Parts) -> Set[str] | None:
    try:
        with (
            Descriptor(enter(root, directory)) as entered,
            Descriptor(open_listing(entered)) as listed,
        ):
            return frozenset(os.listdir(listed))  # noqa: PTH208 - pathlib takes no descriptor
    except OSError:
        return None


# ------------------------------------------------------------------------------------------- tree


_CHUNK_BYTES = 1_048_576
_MANY_NAMES = 64  # from this number on, hidden names are found faster together
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_IFREG: FileKind.FILE,
    stat.S_IFDIR: FileKind.DIRECTORY,
    stat.S_IFLNK: FileKind.SYMLINK,
}


_MISSING_ERRNOS = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG))


class DiskEntry(NamedTuple):
    """The metadata of a path, known without reading its content.

    ``kind`` is ``None`` for what a workspace cannot store: pipes, sockets and devices. ``mode``
    has the permission bits. ``identity`` (device, inode, size, modification and change time in
    ns) differs after every change, unless two changes happen in one tick of the filesystem's
    clock.
    """

    path: WorkspacePath
    kind: FileKind | None
    size_bytes: int
    mode: int
    identity: tuple[int, int, int, int, int]
    n_links: int
    target: str | None = None

    @property
    def changed_ns(self) -> int:
        """When the status last changed, in ns since the epoch."""
        return self.identity[4]

    @property
    def executable(self) -> bool:
        """Whether it is a file that its owner may execute."""
        return self.kind is FileKind.FILE and bool(self.mode & stat.S_IXUSR)


class ChangeObserver(Protocol):
    """Is notified of the changes that a ``DiskTree`` makes; a ``ChangeTracker`` is one."""

    def changing(self, path: WorkspacePath) -> None:
        """Record that this process is about to change *path*; ``note`` follows."""
        ...

    def note(self, path: WorkspacePath, *, below: bool = False) -> None:
        """Record that *path*, with *below* also everything below it, may have changed."""
        ...

    def expect(self, name: str) -> None:
        """Expect a new file of this process with the random *name*."""
        ...

    def directory_made(self, path: WorkspacePath) -> None:
        """Record that this process created the directory *path*, empty."""
        ...

    def directories_left(self, directories: Sequence[WorkspacePath]) -> None:
        """Record that *directories* were moved out of the root, with everything below them."""
        ...


class HiddenPaths(Protocol):
    """Paths that a tree neither shows nor changes."""

    def hides(self, parts: Parts, *, is_directory: bool = True) -> bool:
        """Whether a path is hidden, or lies below a hidden one; a directory, if it is not given."""
        ...

    def hidden_in(
        self, directory: Parts, names: Sequence[str], directories: Sequence[str]
    ) -> Collection[str]:
        """Those of the *names* in *directory* that are hidden; called for each listed directory.

        *directories* are those of them that are directories.
        """
        ...


def kind_of(status: os.stat_result) -> FileKind | None:
    """See ``DiskEntry.kind``."""
    return _KINDS.get(stat.S_IFMT(status.st_mode))


def identity_of(status: os.stat_result) -> tuple[int, int, int, int, int]:
    """See ``DiskEntry.identity``."""
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


class DiskTree(ClosedAfterBlock):
    """The entries below *root*.

    Args:
        root: An existing directory; links in this path are trusted and resolved once.
        tracker: Is notified of every change made here.
        make_accessible: Change the modes of files and directories that deny access to the
            owner. Otherwise, access to them fails with ``ReadOnlyError``.
        durable: Wait until written data would survive a loss of power.
        hidden: Paths that are never shown and cannot be changed (``ReadOnlyError``).
        process: The only process that may change anything; any process, if omitted.

    Methods raise the errors of ``Filesystem``. Files get the mode 0644 or 0755, directories
    0755, whatever the umask is. New entries belong to the owner of their directory, also if
    this process is root.
    """

    _skips_unreadable = False
    """Whether walks leave out directories that cannot be read, instead of raising."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        tracker: ChangeObserver | None = None,
        make_accessible: bool = False,
        durable: bool = False,
        hidden: HiddenPaths | None = None,
        process: OwnProcess | None = None,
    ) -> None:
        self._process = process
        self.root = Path(root).absolute()
        self.hidden = hidden
        self.tracker = tracker
        self.names = ExactNames()
        self._make_accessible = make_accessible
        self._durable = durable
        with translate_os_error(self.root):
            self._root = open_root(self.root)
        self._finalizer = closed_with(self, self._root)

    def close(self) -> None:
        """Close the root; no method works afterwards."""
        self._root = -1  # the number may be reused for another directory
        self._finalizer()

    def let_go(self) -> None:
        """Close the root until ``open_again``: no path exists meanwhile."""
        put_nothing_at(self._root)

    def open_again(self) -> None:
        """Open ``root`` again, which may be on another mount than before."""
        with translate_os_error(self.root):
            put_at(self._root, open_root(self.root))

    @cached_property
    def keeps_times(self) -> bool:
        """Whether change times of files and directories follow the rules of ``descriptors``."""
        return keeps_times(self._root)

    # Metadata and reading

    def entry(self, path: WorkspacePath) -> DiskEntry | None:
        """The entry at *path*; ``None`` if it does not exist or its parent is not a directory."""
        existing = self.status_and_target(path)
        return None if existing is None else entry_of(path, *existing)

    def status_and_target(self, path: WorkspacePath) -> tuple[os.stat_result, str | None] | None:
        """The status of *path* and, for a link, its target; ``None`` as for ``entry``."""
        parts = path.parts
        try:
            if not parts:
                return os.fstat(self._root), None
            if self.hidden is not None and self._hides(path):
                return None
            entry = open_beneath(self._root, parts, PATH_ONLY)
            if entry >= 0:
                try:
                    status = os.fstat(entry)
                    device, names = status.st_dev, self.names
                    if not (
                        (device in names.exact_case and "".join(parts).isascii())  # mostly
                        or names.are_exact(self._root, parts, device)
                    ):
                        return None
                    is_link = stat.S_ISLNK(status.st_mode)
                    return status, os.readlink("", dir_fd=entry) if is_link else None
                finally:
                    os.close(entry)
            if entry == MISSING:
                return None
            with self._parent(path) as directory:
                found = status_and_target(parts[-1], directory)
            return found if self.names.are_exact(self._root, parts, found[0].st_dev) else None
        except OSError as error:
            if error.errno in _MISSING_ERRNOS:
                return None
            raise translated(path, error) from error

    def listing_once(self) -> AbstractContextManager[None]:
        """For a block that looks up many paths and changes nothing; see ``ExactNames``."""
        return self.names.listing_once()

    def entries(self, path: WorkspacePath) -> list[DiskEntry]:
        """The entries of the directory *path*, by name."""
        with translate_os_error(path), self.opened(path) as listed:
            listing = Listing((), listed, entries_of(listed))
            self._hide(path.parts, listing)
            return _entries(path, listing)

    def walk(self, path: WorkspacePath = ROOT) -> Iterator[DiskEntry]:
        """Everything below the directory *path*, parents first; links are not followed."""
        for listing in self.listings(path):
            yield from _entries(WorkspacePath(path.parts + listing.parts), listing)

    def listings(
        self,
        path: WorkspacePath = ROOT,
        *,
        before: Callable[[Parts, int], None] | None = None,
        unreadable: Callable[[Parts], None] | None = None,
    ) -> Iterator[Listing]:
        """Every directory from *path* down, parents first, sorted by name; links are not followed.

        Args:
            path: The first directory.
            before: Called with each directory and its descriptor before it is listed.
            unreadable: Called with each directory that cannot be read, instead of raising.
        """
        if unreadable is None and self._skips_unreadable:
            unreadable = _skip
        with translate_os_error(path), self._entered(path) as top:
            for listing in listings(
                top,
                make_accessible=self._make_accessible,
                before=before,
                unreadable=unreadable,
            ):
                self._hide(path.parts + listing.parts, listing)
                yield listing

    def _hide(self, directory: Parts, listing: Listing) -> None:
        """Remove hidden entries from *listing*, so that the walk does not enter them."""
        if self.hidden is None or not listing.entries:
            return
        hidden = self.hidden.hidden_in(
            directory, [name for name, _ in listing.entries], listing.directories()
        )
        if hidden:
            listing.entries[:] = [entry for entry in listing.entries if entry[0] not in hidden]

    def entered(self, path: WorkspacePath) -> Descriptor:
        """A descriptor for entering the directory *path*; for a ``with`` block."""
        with translate_os_error(path):
            return self._entered(path)

    def opened(self, path: WorkspacePath) -> Descriptor:
        """A descriptor for listing the directory *path*; for a ``with`` block."""
        with translate_os_error(path), self._entered(path) as directory:
            return Descriptor(open_listing(directory))

    def statuses(self, path: WorkspacePath, names: Iterable[str]) -> dict[str, os.stat_result]:
        """The status of each of *names* that exists in the directory *path*."""
        found: dict[str, os.stat_result] = {}
        names = list(names)
        hidden = self.hidden if len(names) < _MANY_NAMES else None
        try:
            if self.hidden is not None:
                self._check_not_hidden(path)
            directory = enter(self._root, path.parts, make_accessible=self._make_accessible)
            try:
                for name in names:
                    try:
                        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    is_directory = stat.S_ISDIR(status.st_mode)
                    if hidden is None or not hidden.hides(
                        (*path.parts, name), is_directory=is_directory
                    ):
                        found[name] = status
            finally:
                os.close(directory)
            found = self.names.exact_in(self._root, path.parts, found)
        except OSError as error:
            failure = translated(path, error)
            if not isinstance(failure, (FileMissingError, DirectoryExpectedError)):
                raise failure from error
        if self.hidden is not hidden and self.hidden is not None:
            below = [name for name, status in found.items() if stat.S_ISDIR(status.st_mode)]
            for name in self.hidden.hidden_in(path.parts, list(found), below):
                del found[name]
        return found

    def open(self, path: WorkspacePath) -> BinaryIO:
        """The regular file *path*, for reading and seeking; the caller closes it."""
        try:
            existing = self.status_and_target(path)
            file = -1
            if existing is not None and stat.S_ISREG(existing[0].st_mode):
                file = open_beneath(self._root, path.parts, READ)
            if file < 0:
                with self._parent(path) as directory:
                    file = open_regular(path.name, directory, make_accessible=self._make_accessible)
            elif not stat.S_ISREG(os.fstat(file).st_mode):
                status_of_regular(file)  # raises
            return BufferedReader(FileIO(file, "rb"))
        except OSError as error:
            if isinstance(error, FilesystemError):
                raise
            raise translated(path, error) from error

    # Changes with the checks of a filesystem

    def write_file(
        self,
        path: WorkspacePath,
        content: Iterable[bytes],
        *,
        mode: WriteMode = "overwrite",
        executable: bool | None = None,
        permissions: int | None = None,
    ) -> os.stat_result | None:
        """Write a file, whose parent exists, from pieces of any size; its status if it is known.

        Args:
            path: The file. An existing entry is replaced, unless it is a directory.
            content: The pieces, each written when it is produced; long runs of zeros as holes.
            mode: As in ``Filesystem.write_bytes``; an append copies the old content.
            executable: Sets the mode to 0755 or 0644; by default a file keeps its mode.
            permissions: Sets the mode, and takes precedence over *executable*.
        """
        name = "".join(path.parts[-1:])
        self._check_changeable(path)
        try:
            with self._parent(path) as directory:
                existing = _status(name, directory)
                replaced = (
                    existing if existing is not None and stat.S_ISREG(existing.st_mode) else None
                )
                with Unfinished(self, path, directory) as (unfinished, file):
                    if mode == "append" and existing is not None:
                        self._copy(name, directory, file)
                    write_with_holes(file, content)
                    match_owner(file, replaced or os.fstat(directory))
                    if permissions is None:
                        permissions = _file_mode(replaced, executable)
                    os.fchmod(file, permissions)
                    if self._durable:
                        os.fsync(file)
                    give_name(unfinished, name, directory, replace=mode != "create")
                    status = os.fstat(file)
                if self._durable:
                    self._sync_directory(directory)
                return status
        except OSError as error:
            if isinstance(error, FilesystemError):
                raise
            raise translated(path, error) from error
        finally:
            if self.tracker is not None:
                self.tracker.note(path)

    def make_directory(self, path: WorkspacePath) -> None:
        """Create a directory; its parent exists."""
        with (
            translate_os_error(path),
            self._changing(path, below=True),
            self._parent(path) as directory,
        ):
            os.mkdir(path.name, 0o755, dir_fd=directory)
            with (
                Descriptor(open_directory(path.name, directory)) as entered,
                Descriptor(open_listing(entered)) as made,
            ):
                match_owner(made, os.fstat(directory))
                os.fchmod(made, 0o755)
            if self.tracker is not None:
                self.tracker.directory_made(path)
            self._sync_directory(directory)

    def make_symlink(self, path: WorkspacePath, target: str) -> None:
        """Create a link, whose parent exists, to any *target*."""
        with translate_os_error(path), self._changing(path), self._parent(path) as directory:
            os.symlink(target, path.name, dir_fd=directory)
            self._sync_directory(directory)

    def delete(self, path: WorkspacePath, *, recursive: bool) -> None:
        """Delete a file, a link or an empty directory; with *recursive*, any directory.

        A recursive delete changes modes that prevent it. If it fails, a part may be deleted.
        """
        with (
            translate_os_error(path),
            self._changing(path, below=True),
            self._parent(path) as directory,
        ):
            status = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) and not recursive:
                os.rmdir(path.name, dir_fd=directory)
            else:
                remove(path.name, directory)
            self._sync_directory(directory)

    def move(self, source: WorkspacePath, destination: WorkspacePath) -> None:
        """Rename *source*; replaces a file or link at *destination*, whose parent exists."""
        if source == destination:
            return
        old, new = source.name, destination.name
        with (
            self._changing(source, below=True),
            self._changing(destination, below=True),
            translate_os_error(source),
            self._parent(source) as old_parent,
        ):
            moved = os.stat(old, dir_fd=old_parent, follow_symlinks=False)
            with translate_os_error(destination), self._parent(destination) as new_parent:
                replaced = _status(new, new_parent)
                if (
                    replaced is not None
                    and os.path.samestat(moved, replaced)
                    and self.names.are_exact(self._root, destination.parts, replaced.st_dev)
                ):
                    # rename(2) does nothing between two names of one file.
                    os.unlink(old, dir_fd=old_parent)
                else:
                    if self._make_accessible and stat.S_ISDIR(moved.st_mode):
                        os.close(open_directory(old, old_parent, make_accessible=True))
                    rename(old, new, old_parent, new_parent)
                self._sync_directory(new_parent)
                self._sync_directory(old_parent)

    @contextmanager
    def moving_out(
        self, path: WorkspacePath, directory: int
    ) -> Generator[Callable[[str, str], bool]]:
        """Rename entries of *path*, with everything below them, into another open directory.

        *directory* is the descriptor of that directory. The block gets a function for the name of
        an entry and the new name, which returns whether the entry is a directory. The caller then
        passes all moved directories to ``moved_out``.
        """
        self._check_changeable(path)
        with translate_os_error(path), self._entered(path) as parent:

            def move(name: str, new_name: str) -> bool:
                is_directory = True
                if self.tracker is not None:
                    self.tracker.changing(path / name)
                try:
                    moved = os.stat(name, dir_fd=parent, follow_symlinks=False)
                    is_directory = stat.S_ISDIR(moved.st_mode)
                    if self._make_accessible and is_directory:
                        os.close(open_directory(name, parent, make_accessible=True))
                    rename(name, new_name, parent, directory)
                except OSError as error:
                    raise translated(path / name, error) from error
                finally:
                    if self.tracker is not None:
                        self.tracker.note(path / name, below=is_directory)
                return is_directory

            yield move
            self._sync_directory(parent)

    def moved_out(self, directories: Sequence[WorkspacePath]) -> None:
        """Stop tracking *directories*, which ``moving_out`` moved."""
        if self.tracker is not None and directories:
            self.tracker.directories_left(directories)

    def set_executable(self, path: WorkspacePath, *, executable: bool) -> None:
        """Set or clear the executable bits of a file; its other bits stay."""

        def changed(status: os.stat_result) -> int:
            require_regular(status)
            mode = stat.S_IMODE(status.st_mode)
            return with_executable_bits(mode, executable=executable)

        with translate_os_error(path), self._changing(path), self._parent(path) as directory:
            change_mode(path.name, directory, changed)

    # Changes that replace whatever exists

    def remove_hidden_directory(self, path: WorkspacePath) -> None:
        """Delete a directory at *path* that is hidden, where a file or link would not be."""
        hidden = self.hidden
        if hidden and self._hides(path) and not hidden.hides(path.parts, is_directory=False):
            with translate_os_error(path), Descriptor(enter(self._root, path.parts[:-1])) as above:
                remove(path.name, above)

    def put_file(
        self, path: WorkspacePath, content: Iterable[bytes], *, executable: bool = False
    ) -> None:
        """Make *path* a file with this content, and the mode 0644 or 0755."""
        self._make_way(
            path, lambda kind: kind is not FileKind.DIRECTORY
        )  # anything else is replaced
        self.write_file(path, content, executable=executable)

    def put_symlink(self, path: WorkspacePath, target: str) -> None:
        """Make *path* a link to *target*."""
        self._make_way(path, lambda _: False)
        self.make_symlink(path, target)

    def put_directory(self, path: WorkspacePath) -> None:
        """Make *path* a directory with the mode 0755; an existing one keeps its entries."""
        if self._make_way(path, lambda kind: kind is FileKind.DIRECTORY):
            self.put_mode(path, executable=True)
        else:
            self.make_directory(path)

    def put_mode(self, path: WorkspacePath, *, executable: bool) -> None:
        """Give a file the mode 0755 or 0644, and a directory 0755.

        Its extended attributes and access control lists are removed; its content stays.
        """
        with translate_os_error(path), self._changing(path), self._opened_path_only(path) as entry:
            is_directory = stat.S_ISDIR(os.fstat(entry).st_mode)
            reset_mode(entry, usual_mode(executable=executable or is_directory))

    def has_attributes(self, path: WorkspacePath) -> bool:
        """Whether *path* has extended attributes or an access control list; a link has none."""
        with translate_os_error(path), self._opened_path_only(path) as entry:
            return bool(attributes_of(entry))

    @contextmanager
    def _opened_path_only(self, path: WorkspacePath) -> Generator[int]:
        """An ``O_PATH`` descriptor of *path*, which needs no permission on it."""
        if not path.parts:
            yield self._root
            return
        with self._parent(path) as directory:
            entry = os.open(path.name, PATH_ONLY, dir_fd=directory)
            try:
                yield entry
            finally:
                os.close(entry)

    def remove(self, path: WorkspacePath) -> None:
        """Delete *path*, if it exists, with everything below it."""
        with suppress(FileMissingError, DirectoryExpectedError):
            self.delete(path, recursive=True)

    def _make_way(self, path: WorkspacePath, may_stay: Callable[[FileKind | None], bool]) -> bool:
        """Make all parents directories; whether *path* exists and may stay. Otherwise remove it."""
        if not self._is_directory(path.parent):
            for ancestor in (*path.ancestors(),)[1:]:
                if not self._is_directory(ancestor):
                    self.remove(ancestor)
                    self.make_directory(ancestor)
        existing = self.entry(path)
        stays = existing is not None and may_stay(existing.kind)
        if existing is not None and not stays:
            self.remove(path)
        return stays

    def _is_directory(self, path: WorkspacePath) -> bool:
        existing = self.entry(path)
        return existing is not None and existing.kind is FileKind.DIRECTORY

    # Entering

    def _entered(self, path: WorkspacePath) -> Descriptor:
        """A descriptor for entering the directory *path*."""
        if self.hidden is not None:
            self._check_not_hidden(path)
        return Descriptor(enter(self._root, path.parts, make_accessible=self._make_accessible))

    def _parent(self, path: WorkspacePath) -> Descriptor:
        """A descriptor for entering the parent directory of *path*."""
        if not path.parts:
            raise UsageError("the root has no parent directory", hint="Name a path below the root.")
        if self.hidden is not None:
            self._check_not_hidden(path)
        return Descriptor(enter(self._root, path.parts[:-1], make_accessible=self._make_accessible))

    def _check_not_hidden(self, path: WorkspacePath) -> None:
        if self.hidden is not None and self._hides(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _hides(self, path: WorkspacePath) -> bool:
        """Whether *path* is hidden as what it is now; a missing one is not a directory."""
        hidden = self.hidden
        if hidden is None or not hidden.hides(path.parts):
            return False
        if hidden.hides(path.parts, is_directory=False):
            return True
        with (
            suppress(OSError, FilesystemError),
            Descriptor(enter(self._root, path.parts[:-1])) as above,
        ):
            status = _status(path.name, above)
            return status is not None and stat.S_ISDIR(status.st_mode)
        return False

    def _changing(self, path: WorkspacePath, *, below: bool = False) -> _Changing:
        self._check_changeable(path)
        return _Changing(self.tracker, path, below=below)

    def _check_changeable(self, path: WorkspacePath) -> None:
        if self._process is not None:
            self._process.check()
        if self.hidden is not None and self._hides(path):
            raise ReadOnlyError(f"{path} cannot be changed: it is not part of this workspace")
        if self.tracker is not None:
            self.tracker.changing(path)

    # Writing

    def begin_unfinished(self, beside: WorkspacePath) -> str:
        """A name for an unfinished file in the directory of *beside*; notifies the tracker."""
        del beside
        name = temporary_name()
        if self.tracker is not None:
            self.tracker.expect(name)
        return name

    def drop_unfinished(self, name: str, beside: WorkspacePath, directory: int) -> None:
        """Remove an unfinished file; *directory* is the descriptor of the directory of *beside*."""
        del beside
        with suppress(OSError):
            os.unlink(name, dir_fd=directory)

    def _copy(self, name: str, directory: int, file: int) -> None:
        with Descriptor(
            open_regular(name, directory, make_accessible=self._make_accessible)
        ) as source:
            while piece := os.read(source, _CHUNK_BYTES):
                write_all(file, piece)

    def _sync(self, file: int) -> None:
        if self._durable:
            os.fsync(file)

    def _sync_directory(self, directory: int) -> None:
        if self._durable:
            with Descriptor(open_listing(directory)) as listing:
                os.fsync(listing)


class _Changing(AbstractContextManager[None]):
    """Notifies the tracker of a change when the block ends, also with an error."""

    __slots__ = ("_below", "_path", "_tracker")

    def __init__(self, tracker: ChangeObserver | None, path: WorkspacePath, *, below: bool) -> None:
        self._tracker = tracker
        self._path = path
        self._below = below

    def __exit__(self, *_: object) -> None:
        if self._tracker is not None:
            self._tracker.note(self._path, below=self._below)


class Unfinished(AbstractContextManager[tuple[str, int]]):
    """A new file in the directory of a path, and its name; dropped if the block raises.

    With *name*, it is an unfinished file that exists already.
    """

    __slots__ = ("_beside", "_directory", "_file", "_name", "_tree")

    def __init__(
        self, tree: DiskTree, beside: WorkspacePath, directory: int, *, name: str | None = None
    ) -> None:
        self._tree = tree
        self._beside = beside
        self._directory = directory
        self._name = name or tree.begin_unfinished(beside)
        flags = _NEW & ~(os.O_CREAT | os.O_EXCL) if name else _NEW
        self._file = os.open(self._name, flags, 0o600, dir_fd=directory)

    def __enter__(self) -> tuple[str, int]:
        return self._name, self._file

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        os.close(self._file)
        if error is not None:
            self._tree.drop_unfinished(self._name, self._beside, self._directory)


def _file_mode(existing: os.stat_result | None, executable: bool | None) -> int:
    if executable is None and existing is not None:
        return existing.st_mode & 0o777
    return usual_mode(executable=bool(executable))


def _status(name: str, directory: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def entry_of(path: WorkspacePath, status: os.stat_result, target: str | None) -> DiskEntry:
    """The entry of *path* with this status and, for a link, its target."""
    return DiskEntry(
        path=path,
        kind=kind_of(status),
        size_bytes=status.st_size,
        mode=stat.S_IMODE(status.st_mode),
        identity=identity_of(status),
        n_links=status.st_nlink,
        target=target,
    )


def _entries(path: WorkspacePath, listing: Listing) -> list[DiskEntry]:
    entries: list[DiskEntry] = []
    for name, listed in listing.entries:
        status, target = listed, None
        if stat.S_ISLNK(listed.st_mode):
            try:
                status, target = status_and_target(name, listing.fd)
            except FileNotFoundError:
                continue
        entries.append(entry_of(path / name, status, target))
    return entries


def _skip(parts: Parts) -> None:
    del parts
