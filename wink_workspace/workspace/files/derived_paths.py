"""The derived paths of a branch: copied, and after a failed call dropped or restored.

The history does not record these paths (``path_rules``), so a rollback cannot restore them from
there. A *checkpoint* is a copy of derived paths, beside the files: at the import or, later, where
``Workspace.checkpoint`` was called. A committed call adds the small derived files that it changed.

Rule 1: a rollback looks at every derived path whose status changed since the call began, by the
clock of the filesystem. What the checkpoint has is restored from it; the rest is deleted. What an
earlier call may have changed, before the clock was set back, stays as it is.
Rule 2: the checkpoint always has what is cheap to keep: ``.env``, keys, and other derived paths up
to ``_CHEAP_BYTES`` together. With ``on_rollback="restore"`` it has all derived paths.
Rule 3: each step may be repeated, so recovery after a crash does the same.
Rule 4: nothing here enters the ledger.

::

    derived/            the checkpoint of the main branch: the derived paths, in their directories
    derived.new         an unfinished one; deleted when the branch is opened
    derived.old         the one before, while it is replaced
    derived.inside-1    what was cheap to keep when a call inside one other began, until that ends
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.counts import counted
from wink_workspace.errors import ConflictError, FilesystemError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.changes import ChangeTracker
from wink_workspace.filesystem.disk.copying import NewTree
from wink_workspace.filesystem.disk.descriptors import (
    Descriptor,
    Listing,
    Parts,
    copy_content,
    open_seen,
)
from wink_workspace.filesystem.disk.tree import DiskEntry, DiskTree, entry_of
from wink_workspace.filesystem.os_errors import translate_os_error
from wink_workspace.filesystem.paths import CACHE_NAMES
from wink_workspace.ledger import (
    EMPTY_DIRECTORY,
    CallTimes,
    ObjectStore,
    TreeEntry,
    build,
    entry_at,
)
from wink_workspace.sandbox.git_directory import give_to_sandbox
from wink_workspace.workspace.place.path_rules import Unrecorded
from wink_workspace.workspace.place.shared_folders import delete_tree

_log = logging.getLogger(__name__)

_CHEAP_BYTES: Final = 1_048_576
_CHEAP_ENTRIES: Final = 200
_MOST_LOOKED_AT: Final = 20_000
_MOST_NAMED: Final = 5
_MOST_TICKS: Final = 10_000  # some 20 ms
_SET_BACK: Final = (
    "The clock was set back before this call, so derived paths that it changed may be left as they"
    " are."
)


class RecordedChanges:
    """Passes the changes of a tree to the tracker, except those of unrecorded paths.

    Implements ``ChangeObserver``.

    Attributes:
        expect, changing: See ``ChangeObserver``.
        may_be_recent: Whether unrecorded paths may have been changed since the last call began.
    """

    def __init__(self, tracker: ChangeTracker, unrecorded: Unrecorded) -> None:
        self._tracker = tracker
        self._unrecorded = unrecorded
        self.expect, self.changing = tracker.expect, tracker.changing
        self._has_sandbox = False
        self.may_be_recent = True

    def sandbox_opened(self) -> None:
        """From now on, commands may change unrecorded paths at any time."""
        self._has_sandbox = self.may_be_recent = True

    def call_began(self) -> None:
        """Forget the changes made before."""
        self.may_be_recent = self._has_sandbox

    def note(self, path: WorkspacePath, *, below: bool = False) -> None:
        """See ``ChangeObserver``."""
        if self._unrecorded.hides(path.parts):
            self.may_be_recent = True
        if not self._unrecorded.hides(path.parts, is_directory=False):
            self._tracker.note(path, below=below)
            if below and not self.may_be_recent:  # a directory was moved or deleted
                n = len(path.parts)
                self.may_be_recent = any(top[:n] == path.parts for top in self._unrecorded.seen)

    def directory_made(self, path: WorkspacePath) -> None:
        """See ``ChangeObserver``."""
        if not self._unrecorded.hides(path.parts):
            self._tracker.directory_made(path)

    def directories_left(self, directories: Sequence[WorkspacePath]) -> None:
        """See ``ChangeObserver``."""
        self._tracker.directories_left(directories)


class RolledBack(NamedTuple):
    """What a rollback did with derived paths."""

    dropped: tuple[WorkspacePath, ...] = ()
    restored: tuple[WorkspacePath, ...] = ()

    def notes(self) -> tuple[str, ...]:
        """The same in sentences, for the record of the call."""
        found: list[str] = []
        if self.dropped:
            found.append(f"Derived paths of this call were deleted: {_named(self.dropped)}.")
        if self.restored:
            found.append(
                f"Derived paths were restored from the last checkpoint: {_named(self.restored)}."
            )
        return tuple(found)


def _named(paths: Sequence[WorkspacePath]) -> str:
    shown = ", ".join(map(str, paths[:_MOST_NAMED]))
    n_more = len(paths) - _MOST_NAMED
    return f"{shown} and {counted(n_more, 'more path')}" if n_more > 0 else shown


class DerivedPaths:
    """The derived paths of an open copy.

    Args:
        tree: The files, with the derived paths.
        unrecorded: The rules.
        checkpoint: The directory of the checkpoint; it may be missing.
        created: A file that was written when the workspace was created.
        changes: The observer of *tree*.

    Attributes:
        unrecorded: The rules.
        changes: The observer.
        left_alone: Returns the paths that a rollback leaves as they are, because a service changes
            them at any time; the workspace sets it.
        n_visited: The number of derived entries whose status was read so far.
    """

    def __init__(
        self,
        tree: DiskTree,
        unrecorded: Unrecorded,
        checkpoint: Path,
        *,
        created: Path,
        changes: RecordedChanges,
    ) -> None:
        self._tree = tree
        self.unrecorded = unrecorded
        self._checkpoint = checkpoint
        self._created = created
        self.changes = changes
        self.left_alone: Callable[[], Collection[WorkspacePath]] = lambda: ()
        self.n_visited = 0
        self._savepoints = {*checkpoint.parent.glob(f"{checkpoint.name}.inside-*")}
        self.end_savepoints()
        _finish_replacement(checkpoint)

    def tops(self) -> list[WorkspacePath]:
        """The topmost derived and excluded paths that exist, sorted."""
        found = (WorkspacePath(parts) for parts in sorted(self.unrecorded.seen))
        return [path for path in found if self._exists(path)]

    def _exists(self, path: WorkspacePath) -> bool:
        """Whether there is an unrecorded entry: ``out/`` may have been replaced by a file."""
        entry = self._entry(path)
        return entry is not None and self.unrecorded.hides(
            path.parts, is_directory=entry.kind is FileKind.DIRECTORY
        )

    def _entry(self, path: WorkspacePath) -> DiskEntry | None:
        try:
            return self._tree.entry(path)
        except FilesystemError:
            return None

    def with_directories(self, store: ObjectStore, root: str) -> str:
        """The tree *root*, and in it every directory that holds derived paths.

        The history cannot restore these paths, so a move in the history must not remove their
        directories. Caches that programs make again do not count.

        Raises:
            ConflictError: If *root* has a file in place of such a directory, or of a derived one.
        """
        missing: dict[WorkspacePath, TreeEntry | None] = {}
        for directory, names in self._kept_by_directory().items():
            entry = entry_at(store, root, directory)
            if entry is not None and entry.kind is FileKind.DIRECTORY:
                continue
            top = next((directory / name for name in names if self._exists(directory / name)), None)
            if top is None:
                continue
            for above in (*directory.ancestors(), directory):
                entry = entry_at(store, root, above)
                if entry is not None and entry.kind is not FileKind.DIRECTORY:
                    raise ConflictError(
                        f"{above} would become a file, and {top}, which the history does not have,"
                        " would be lost",
                        hint=f"Move or delete {top}, then try again.",
                    )
            missing[directory] = EMPTY_DIRECTORY
        for top in self.tops():
            is_file_recorded = not self.unrecorded.hides(top.parts, is_directory=False)
            if is_file_recorded and entry_at(store, root, top) is not None:
                raise ConflictError(
                    f"{top} would become a file, and the directory, which the history does not"
                    " have, would be lost",
                    hint=f"Move or delete {top}, then try again.",
                )
        return build(store, root, missing) if missing else root

    def _kept_by_directory(self) -> dict[WorkspacePath, list[str]]:
        """The names of derived and excluded paths that were seen, other than caches."""
        found: dict[Parts, list[str]] = {}
        for parts in self.unrecorded.seen:
            if parts[:-1] and parts[-1] not in CACHE_NAMES:
                found.setdefault(parts[:-1], []).append(parts[-1])
        return {WorkspacePath(directory): found[directory] for directory in sorted(found)}

    # What differs

    def changed(self) -> tuple[WorkspacePath, ...]:
        """The topmost derived paths that changed since the workspace was created.

        The time is bounded: of a very large one, only a part is looked at.
        """
        try:
            since_ns = self._created.stat().st_mtime_ns
        except OSError:
            return ()
        return tuple(path for path in self.tops() if self._is_changed(path, since_ns))

    def _is_changed(self, top: WorkspacePath, since_ns: int) -> bool:
        n_looked_at = 0
        with suppress(FilesystemError):
            for listing in self._listings(top):
                if any(status.st_ctime_ns > since_ns for _, status in listing.entries):
                    return True
                n_looked_at += len(listing.entries)
                if n_looked_at > _MOST_LOOKED_AT:
                    break
        entry = self._entry(top)
        return entry is not None and entry.changed_ns > since_ns

    def _listings(self, top: WorkspacePath) -> Iterator[Listing]:
        entry = self._entry(top)
        if entry is not None and entry.kind is FileKind.DIRECTORY:
            yield from self._tree.listings(top, unreadable=lambda _: None)

    # After a call that failed

    def roll_back(self, times: CallTimes, *, look: bool = False) -> tuple[str, ...]:
        """Drop or restore what changed during the call; what was done, in sentences.

        Unless *look* is set, nothing is examined if no file tool changed a derived path and no
        sandbox was running.

        Raises:
            FilesystemError: If a path cannot be deleted or restored; the others were.
        """
        if not (look or self.changes.may_be_recent):
            return ()
        left = frozenset(self.left_alone())
        notes = self._undo(self._changed_in(times, left), times, left, self._checkpoint).notes()
        if times.earlier_ns >= 0:
            notes += (_SET_BACK,)
        if left:
            notes += (f"Paths of running services were left as they are: {_named(sorted(left))}.",)
        return notes

    def savepoint(self, depth: int, now: Callable[[], CallTimes | None]) -> Callable[[], object]:
        """Keep what is cheap for a call inside *depth* others; what drops or restores its changes.

        The function raises as ``roll_back``.

        Args:
            depth: The number of calls around it.
            now: Returns the times of the outermost call.

        Raises:
            FilesystemError: If a path cannot be copied.
        """
        began, kept, gone = now(), self._checkpoint, frozenset[WorkspacePath]()
        since_ns = -1 if began is None else began.since_ns
        if began is not None and self.changes.may_be_recent:
            kept = self._checkpoint.with_name(f"{self._checkpoint.name}.inside-{depth}")
            self._savepoints.add(kept)
            self.copy_to(kept)
            gone = frozenset(map(WorkspacePath, self.unrecorded.seen)).difference(self.tops())
            for _ in range(_MOST_TICKS):  # no earlier change has the time at which it begins
                times = now() or began
                since_ns = times.until_ns
                if since_ns > began.until_ns:
                    break

        def undo() -> None:
            times = now()
            if times is None or not self.changes.may_be_recent:
                return
            times = replace(times, since_ns=since_ns)
            left = frozenset(self.left_alone())
            self._undo(self._changed_in(times, left), times, left, kept)
            self._undo((), times, left | gone, self._checkpoint)

        return undo

    def end_savepoints(self) -> None:
        """Delete what was kept for calls inside of the one that ended."""
        while self._savepoints:
            delete_tree(self._savepoints.pop())

    def _changed_in(self, times: CallTimes, left: Collection[WorkspacePath]) -> list[DiskEntry]:
        """Everything derived that changed, parents first, without *left*."""
        found: list[DiskEntry] = []
        for top in self.tops():
            entry = self._entry(top)
            if entry is None:
                continue
            if times.include(entry.changed_ns):
                found.append(entry)
            self.n_visited += 1
            for listing in self._listings(top):
                self.n_visited += len(listing.entries)
                inside = WorkspacePath((*top.parts, *listing.parts))
                for name, status in listing.entries:
                    if times.include(status.st_ctime_ns):
                        found.append(entry_of(inside / name, status, None))
        return [entry for entry in found if _above(entry.path).isdisjoint(left)]

    def _undo(
        self,
        changed: Sequence[DiskEntry],
        times: CallTimes,
        left: Collection[WorkspacePath],
        checkpoint: Path,
    ) -> RolledBack:
        dropped: list[WorkspacePath] = []
        restored: list[WorkspacePath] = []
        kept = _opened(checkpoint)
        try:
            for entry in changed:
                if entry.kind is FileKind.DIRECTORY:
                    continue
                self._tree.remove(entry.path)
                passed(KillPoint.DERIVED_REMOVED)
                is_kept = kept is not None and _has(kept, entry.path)
                (restored if is_kept else dropped).append(entry.path)
            if kept is not None:
                self._make_way(kept, changed)
                restored += self._put_back(kept, times.first_ns, left)
        finally:
            if kept is not None:
                kept.close()
        for entry in reversed(changed):
            if entry.kind is FileKind.DIRECTORY and _is_directory(self._tree, entry.path):
                with suppress(FilesystemError):  # it holds something older
                    self._tree.delete(entry.path, recursive=False)
                    dropped.append(entry.path)
        return RolledBack(_topmost(dropped), tuple(sorted({*restored})))

    def _make_way(self, kept: DiskTree, changed: Sequence[DiskEntry]) -> None:
        """Delete empty directories among *changed* at or below a file of the checkpoint."""
        for entry in reversed(changed):
            if entry.kind is FileKind.DIRECTORY and any(
                _is_no_directory(kept, path) for path in _above(entry.path)
            ):
                with suppress(FilesystemError):  # it holds something older
                    self._tree.delete(entry.path, recursive=False)

    def _put_back(
        self, kept: DiskTree, since_ns: int, left: Collection[WorkspacePath]
    ) -> list[WorkspacePath]:
        """Copy what the checkpoint has and the files lack, where the call changed a directory.

        The rollback changed such a directory, too, so it may be newer than the end of the call.

        Raises:
            FilesystemError: If a path cannot be copied, after all others were.
        """
        found: list[WorkspacePath] = []
        failed: FilesystemError | None = None
        target = NewTree(self._tree)
        for listing in kept.listings():
            directory = WorkspacePath(listing.parts)
            if not _above(directory).isdisjoint(left):
                listing.entries.clear()
                continue
            there = self._entry(directory)
            is_derived = self.unrecorded.hides(listing.parts)
            if there is None:
                above = self._entry(directory.parent)
                if not is_derived or above is None or above.changed_ns < since_ns:
                    listing.entries.clear()  # it was deleted before this call, or with its parent
                    continue
                self._tree.put_directory(directory)
            elif there.kind is not FileKind.DIRECTORY:
                listing.entries.clear()  # what is there is recorded, and stays
                continue
            elif there.changed_ns < since_ns:
                continue
            with target.entered(listing.parts) as into:
                for name, status in listing.entries:
                    path = directory / name
                    if stat.S_ISDIR(status.st_mode) or not self.unrecorded.hides(
                        path.parts, is_directory=False
                    ):
                        continue
                    if path not in left and self._entry(path) is None:
                        try:
                            with translate_os_error(path):
                                _copy_entry(listing.fd, name, status, target, into)
                        except FilesystemError as error:
                            failed = failed or error
                            continue
                        found.append(path)
                        passed(KillPoint.DERIVED_RESTORED)
        if failed is not None:
            raise failed
        return found

    # Checkpoints

    def checkpoint(self) -> tuple[WorkspacePath, ...]:
        """Keep the present derived paths, all of them; the topmost ones."""
        tops = [top for top in self.tops() if not self.unrecorded.is_excluded(top.parts)]
        _replace_checkpoint(self._checkpoint, self._tree, tops)
        return tuple(tops)

    def keep_committed(self, times: CallTimes) -> None:
        """Let the checkpoint have the small files, outside of derived directories, of a call.

        Each file replaces the one in the checkpoint by a rename.

        Raises:
            FilesystemError: If one cannot be copied.
        """
        files = [
            top
            for top in self.tops()
            if (entry := self._entry(top)) is not None
            and entry.kind is FileKind.FILE
            and times.include(entry.changed_ns)
            and not self.unrecorded.is_excluded(top.parts)
        ]
        cheap = _cheap(self._tree, files)
        if not cheap:
            return
        if not self._checkpoint.is_dir():
            _replace_checkpoint(self._checkpoint, self._tree, cheap)
            return
        new = _copied_to_new(self._checkpoint, self._tree, cheap)
        with translate_os_error(new), DiskTree(new) as copies, DiskTree(self._checkpoint) as kept:
            for path in cheap:
                if path.parent.parts:
                    kept.put_directory(path.parent)
                if _is_directory(kept, path):
                    kept.remove(path)
                with copies.opened(path.parent) as source, kept.opened(path.parent) as target:
                    os.rename(path.name, path.name, src_dir_fd=source, dst_dir_fd=target)
        delete_tree(new)

    def copy_to(
        self, checkpoint: Path
    ) -> tuple[tuple[WorkspacePath, ...], tuple[WorkspacePath, ...]]:
        """Copy what is cheap into the checkpoint of a new branch; these paths, and the others."""
        tops = [top for top in self.tops() if not self.unrecorded.is_excluded(top.parts)]
        cheap = _cheap(self._tree, tops)
        if cheap:
            _replace_checkpoint(checkpoint, self._tree, cheap)
        else:
            delete_tree(checkpoint)  # of a fork that was interrupted
        return tuple(cheap), tuple(top for top in tops if top not in cheap)


def _above(path: WorkspacePath) -> frozenset[WorkspacePath]:
    """The path, and the directories that contain it."""
    return frozenset((path, *path.ancestors()))


def _topmost(paths: Iterable[WorkspacePath]) -> tuple[WorkspacePath, ...]:
    found: set[WorkspacePath] = set()
    for path in sorted(paths):
        if found.isdisjoint(path.ancestors()):
            found.add(path)
    return tuple(sorted(found))


def _has(tree: DiskTree, path: WorkspacePath) -> bool:
    try:
        return tree.entry(path) is not None
    except FilesystemError:
        return False


def _is_directory(tree: DiskTree, path: WorkspacePath) -> bool:
    try:
        entry = tree.entry(path)
    except FilesystemError:
        return False
    return entry is not None and entry.kind is FileKind.DIRECTORY


def _is_no_directory(tree: DiskTree, path: WorkspacePath) -> bool:
    return _has(tree, path) and not _is_directory(tree, path)


def _opened(directory: Path) -> DiskTree | None:
    return DiskTree(directory) if directory.is_dir() else None


# Copying


def copy_derived(original: DiskTree, copy: DiskTree, tops: Iterable[WorkspacePath]) -> list[str]:
    """Copy *tops*, with everything below them, into *copy*; what could not be read.

    Contents are not read by this process where the kernel can copy them.

    Raises:
        FilesystemError: If the copy cannot be written.
    """
    skipped: list[str] = []
    target = NewTree(copy)
    for top in tops:
        entry = original.entry(top)
        if entry is None:
            continue
        if top.parent.parts:
            copy.put_directory(top.parent)
        if entry.kind is not FileKind.DIRECTORY:
            with original.opened(top.parent) as source, target.entered(top.parent.parts) as into:
                status = os.stat(top.name, dir_fd=source, follow_symlinks=False)
                skipped += _copied(source, top, status, target, into)
            continue
        with target.entered(top.parent.parts) as into, translate_os_error(top):
            target.make_directory(top.name, into)
        unreadable: list[Parts] = []
        for listing in original.listings(top, unreadable=unreadable.append):
            directory = WorkspacePath((*top.parts, *listing.parts))
            with target.entered(directory.parts) as into:
                for name, status in listing.entries:
                    if stat.S_ISDIR(status.st_mode):
                        with translate_os_error(directory / name):
                            target.make_directory(name, into)
                    else:
                        skipped += _copied(listing.fd, directory / name, status, target, into)
        skipped += [str(WorkspacePath((*top.parts, *parts))) for parts in unreadable]
    return skipped


def _copied(
    source: int, path: WorkspacePath, status: os.stat_result, target: NewTree, into: int
) -> list[str]:
    """Copy one entry; its path if it cannot be read."""
    with translate_os_error(path):
        return [] if _copy_entry(source, path.name, status, target, into) else [str(path)]


def _copy_entry(source: int, name: str, status: os.stat_result, target: NewTree, into: int) -> bool:
    """Copy a file or a link; ``False`` for anything else, and for what cannot be read."""
    if stat.S_ISLNK(status.st_mode):
        try:
            link = os.readlink(name, dir_fd=source)
        except OSError:
            return False
        target.make_symlink(name, link, into)
        return True
    try:
        opened, seen = open_seen(name, source)
    except OSError:
        return False
    executable = bool(seen.st_mode & stat.S_IXUSR)
    with Descriptor(opened), target.new_file(name, into, executable=executable) as file:
        try:
            copy_content(opened, file)
            target.finish(file, executable=executable, modified_ns=seen.st_mtime_ns)
        except OSError:  # the disk may be full; a part of the content would count as the file
            os.unlink(name, dir_fd=into)
            raise
    return True


# The checkpoint on the disk


def import_checkpoint(
    checkpoint: Path, copy: DiskTree, tops: Sequence[WorkspacePath], *, everything: bool
) -> None:
    """Make the first checkpoint: of *everything*, or of what is cheap to keep."""
    kept = list(tops) if everything else _cheap(copy, tops)
    if kept:
        _replace_checkpoint(checkpoint, copy, kept)


def copy_checkpoint(checkpoint: Path, copy: DiskTree, unrecorded: Unrecorded) -> None:
    """Copy the derived paths of a checkpoint into the new files of a branch.

    What is there already is recorded, and stays. A path whose directory is missing or something
    else is left out: the entry that the branch begins with has no such directory.
    """
    _finish_replacement(checkpoint)
    kept = _opened(checkpoint)
    if kept is None:
        return
    with kept:
        for listing in kept.listings():
            if listing.parts and not _is_directory(copy, WorkspacePath(listing.parts)):
                listing.entries.clear()
                continue
            derived = unrecorded.hidden_in(
                listing.parts, [name for name, _ in listing.entries], listing.directories()
            )
            missing = {name for name in derived if not _has(copy, _path(listing, name))}
            copy_derived(kept, copy, [_path(listing, name) for name in sorted(missing)])
            listing.entries[:] = [at for at in listing.entries if at[0] not in missing]


def _path(listing: Listing, name: str) -> WorkspacePath:
    return WorkspacePath((*listing.parts, name))


def _cheap(tree: DiskTree, tops: Sequence[WorkspacePath]) -> list[WorkspacePath]:
    """The smallest of *tops* that are together within the limits; a large one is not walked."""
    sizes: list[tuple[int, int, WorkspacePath]] = []
    for top in tops:
        n_bytes, n_entries = _size(tree, top)
        if n_entries <= _CHEAP_ENTRIES and n_bytes <= _CHEAP_BYTES:
            sizes.append((n_bytes, n_entries, top))
    found: list[WorkspacePath] = []
    all_bytes = all_entries = 0
    for n_bytes, n_entries, top in sorted(sizes):
        all_bytes, all_entries = all_bytes + n_bytes, all_entries + n_entries
        if all_bytes > _CHEAP_BYTES or all_entries > _CHEAP_ENTRIES:
            break
        found.append(top)
    return sorted(found)


def _size(tree: DiskTree, top: WorkspacePath) -> tuple[int, int]:
    """The bytes and entries at and below *top*; of a large one only a part is read."""
    n_bytes = n_entries = 0
    found = [tree.entry(top)]
    while found and n_entries <= _CHEAP_ENTRIES and n_bytes <= _CHEAP_BYTES:
        entry = found.pop()
        if entry is None:
            continue
        n_bytes, n_entries = n_bytes + entry.size_bytes, n_entries + 1
        if entry.kind is FileKind.DIRECTORY:
            with suppress(FilesystemError, OSError), tree.opened(entry.path) as directory:
                names = os.listdir(directory)  # noqa: PTH208 - a descriptor has no path
                if len(names) > _CHEAP_ENTRIES:
                    n_entries += len(names)
                else:
                    found += [tree.entry(entry.path / name) for name in names]
    return n_bytes, n_entries


def _copied_to_new(checkpoint: Path, tree: DiskTree, tops: Sequence[WorkspacePath]) -> Path:
    """A directory beside *checkpoint* with copies of *tops*."""
    new = _new(checkpoint)
    delete_tree(new)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    new.mkdir(mode=0o700)
    give_to_sandbox(new)
    with DiskTree(new) as target:
        copy_derived(tree, target, tops)
    return new


def _replace_checkpoint(checkpoint: Path, tree: DiskTree, tops: Sequence[WorkspacePath]) -> None:
    new, old = _copied_to_new(checkpoint, tree, tops), _old(checkpoint)
    passed(KillPoint.CHECKPOINT_COPIED)
    if checkpoint.is_dir():
        checkpoint.rename(old)
        passed(KillPoint.CHECKPOINT_REPLACED)
    new.rename(checkpoint)
    delete_tree(old)


def _finish_replacement(checkpoint: Path) -> None:
    """Finish what a dead process left: the old or the new checkpoint counts, never a part."""
    old = _old(checkpoint)
    if old.is_dir() and not checkpoint.is_dir():
        old.rename(checkpoint)
    for leftover in (old, _new(checkpoint)):
        if leftover.is_dir():
            delete_tree(leftover)


def _new(checkpoint: Path) -> Path:
    return checkpoint.with_name(f"{checkpoint.name}.new")


def _old(checkpoint: Path) -> Path:
    return checkpoint.with_name(f"{checkpoint.name}.old")
