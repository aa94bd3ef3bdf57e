"""The change tracker of a branch on an overlay.

It tracks the upper layer only, with any other tracker: every change of a branch changes its upper
layer, which is small. Contents and statuses of the branch are read through the mount.

A path that changed in the upper layer changed in the branch. A directory that is new in the upper
layer may have been copied up, because an entry of it changed. So it is *resolved*: a directory that
is merged with the directory of the same name in the base stands for its entries in the upper layer,
now and earlier. Only an entry of one of these can differ from the base. Any other directory hides
what is in the base, and stands for everything below it. So does a file, unless it was in the upper
layer before: the base may have a directory of that name.

The kernel reports the changes of a file for the name by which it first saw it in the mount. If that
was one of several names (hard links), and its directory was removed, no event reports them. So
after each drain in which that may have happened, the kernel is made to forget the names of files.
That takes 0.1 ms, or some 40 ms after thousands of new files.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import FilesystemError, MountError
from wink_workspace.filesystem.changes import Dirty, FileIndex, Leaves, open_tracker
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.tree import DiskEntry, DiskTree, HiddenPaths
from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import WorkspacePath

_log = logging.getLogger(__name__)

_FORMS = (".overlay.opaque", ".overlay.redirect")
_FORM_BYTES = 6


def directory_form(directory: int) -> int:
    """The form of an open directory of an upper layer; see ``DirectoryForm``."""
    path = f"/proc/self/fd/{directory}"
    try:
        names = sorted(name for name in os.listxattr(path) if name.endswith(_FORMS))
        if not names:
            return 0
        digest = hashlib.blake2b(digest_size=_FORM_BYTES)
        for name in names:
            digest.update(name.encode() + b"\0" + os.getxattr(path, name) + b"\0")
        return int.from_bytes(digest.digest(), "big") or 1
    except OSError:  # it cannot be read, or changes right now: then it counts as hiding the base
        return 1


class OverlayTracker:
    """Tracks the upper layer of a branch; implements ``ChangeTracker``.

    Args:
        base: The files of the base.
        upper: The files of the upper layer.
        index: An earlier state of the upper layer; changes are reported since then. Without one,
            the first ``drain`` reports all paths in the upper layer.
        forget_names: See ``OverlayMount``; omitted if nothing else changes the files.
        force_scan: Read every status of the upper layer in each drain.
        hidden: Paths that are not tracked.
        clock: Measures the age of files.

    Attributes:
        expect, directory_made, directories_left: See ``ChangeObserver``; the names and
            directories are those of the branch.
    """

    def __init__(
        self,
        base: Path,
        upper: Path,
        *,
        index: FileIndex | None = None,
        forget_names: Callable[[], None] | None = None,
        force_scan: bool = False,
        hidden: HiddenPaths | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._earlier: dict[Parts, set[str]] = {}
        self._files: set[Parts] = set()  # in the upper layer as of the last drain
        if index is not None:
            for directory, entries in index.directories.items():
                self._earlier[directory] = set(entries)
        self._forget_names = forget_names
        self._had_links = False
        self._base = DiskTree(base)
        self._upper = DiskTree(upper)
        self._watched: set[Parts] = {()}
        self._directories_in_base: dict[Parts, bool] = {}
        # Modes are made accessible through the mount only, which would not notice it here.
        self._tracker = open_tracker(
            upper,
            index=index,
            force_scan=force_scan,
            hidden=hidden,
            form=directory_form,
            clock=clock,
        )
        self.expect = self._tracker.expect
        self.directory_made = self._tracker.directory_made
        self.directories_left = self._tracker.directories_left

    @property
    def n_visited(self) -> int:
        """The number of entries whose status was read so far, all of them in the upper layer."""
        return self._tracker.n_visited

    @property
    def index(self) -> FileIndex | None:
        """The index of the upper layer as of the last drain; ``None`` if unknown."""
        return self._tracker.index

    def changing(self, path: WorkspacePath) -> None:
        """Record that this process is about to change *path*.

        A directory of it that is in the upper layer already was copied up by another process, or
        is watched. The first is not expected, so that its event causes a scan: that process may
        have used hard links in it.
        """
        if path.parts[:-1] not in self._watched:
            for above in path.ancestors():
                if above.parts not in self._watched and _entry(self._upper, above) is not None:
                    self._watched.add(above.parts)

    def note(self, path: WorkspacePath, *, below: bool = False) -> None:
        """Record that *path*, with *below* also everything below it, may have changed."""
        self._tracker.note(path, below=below)
        if path.parts[:-1] not in self._watched:
            self._watch_copied_up(path)

    def drain(self, leaves: Leaves | None = None, *, finishes: bool = False) -> Dirty:
        """What may have changed since the last drain; the arguments are as in ``ChangeTracker``.

        If the caller finishes, names are forgotten then: it is slow to find all of them again.
        """
        found = self._tracker.drain(leaves)
        if self._had_links or found.reason is not None:
            self._had_links = True
            if leaves is None and not (finishes and found.reason is not None):
                self._forget_stale_names()
        if not found:
            return found
        if found.prefixes:
            self._files.clear()
        elif not found.paths or self._files.issuperset([path.parts for path in found.paths]):
            return found  # as before, nothing is below these names, and they hide what the base has
        paths: set[WorkspacePath] = set()
        prefixes = {path for path in found.paths if not path.parts}
        index = self._tracker.index
        for directory, inside in _by_directory(found.paths).items():
            for path in inside:
                name = path.parts[-1]
                status = None if index is None else index.get(directory, name)
                is_directory = status is not None and status.is_directory
                if status is not None and not is_directory:
                    self._files.add(path.parts)
                # Only the mount knows whether it was a directory of the base
                (paths if is_directory else prefixes).add(path)
        for prefix in found.prefixes:
            if index is None or prefix.parts in index.unreadable:
                prefixes.add(prefix)
            else:
                self._resolve(index, prefix, paths, prefixes)
        for changed in (paths, prefixes):
            for directory, inside in _by_directory(changed).items():
                names = [path.parts[-1] for path in inside]
                self._earlier.setdefault(directory, set()).update(names)
        return Dirty(frozenset(paths), frozenset(prefixes), found.reason)

    def finish(self) -> None:
        """Forget stale names, which the drain before did not."""
        if self._had_links:
            self._forget_stale_names()

    def close(self) -> None:
        """Stop tracking."""
        self._tracker.close()
        self._upper.close()
        self._base.close()

    def _forget_stale_names(self) -> None:
        """See the module; a failure is logged, and the next drain tries again."""
        index = self._tracker.index
        self._had_links = index is None or bool(index.linked)
        if self._forget_names is not None:
            try:
                self._forget_names()
            except MountError as error:
                self._had_links = True
                _log.warning("Changes of hard links may not be noticed: %s", error)

    def _resolve(
        self,
        index: FileIndex,
        top: WorkspacePath,
        paths: set[WorkspacePath],
        prefixes: set[WorkspacePath],
    ) -> None:
        """Add what *top* stands for to *paths* and *prefixes*."""
        if not self._is_merged(index, top):
            prefixes.add(top)
            return
        todo = [top]
        while todo:
            directory = todo.pop()
            if directory.parts:
                paths.add(directory)
            now = index.directories.get(directory.parts, {})
            earlier = self._earlier.get(directory.parts, set())
            for name in now.keys() | earlier:
                path = directory / name
                status = now.get(name)
                if status is not None and status.is_directory:
                    if self._is_merged_in(index, path, status.inode):
                        todo.append(path)
                    else:
                        prefixes.add(path)
                else:
                    prefixes.add(path)  # it may have been a directory

    def _is_merged(self, index: FileIndex, path: WorkspacePath) -> bool:
        """Whether *path*, and so everything above it, is merged with the same path in the base."""
        for each in (*path.ancestors(), path):
            if not each.parts:
                continue
            status = index.get(each.parts[:-1], each.name)
            if status is None or not status.is_directory or status.inode:
                return False
        return self._is_directory_in_base(path)

    def _is_merged_in(self, index: FileIndex, path: WorkspacePath, form: int) -> bool:
        """As ``_is_merged``, if the parent is merged."""
        if form or path.parts in index.unreadable:
            return False
        return self._is_directory_in_base(path)

    def _is_directory_in_base(self, path: WorkspacePath) -> bool:
        known = self._directories_in_base.get(path.parts)
        if known is None:
            there = _entry(self._base, path)
            known = there is not None and there.kind is FileKind.DIRECTORY
            self._directories_in_base[path.parts] = known  # a base never changes
        return known

    def _watch_copied_up(self, path: WorkspacePath) -> None:
        """Watch the directories that a change of *path* copied up.

        They are watched at once, so that their events do not look like directories that another
        process made, which need a scan. If one is missed, there is a scan.
        """
        for above in path.ancestors():
            if above.parts not in self._watched and _entry(self._upper, above) is not None:
                self._watched.add(above.parts)
                self._tracker.directory_made(above)


def _by_directory(paths: Iterable[WorkspacePath]) -> dict[Parts, list[WorkspacePath]]:
    """The *paths* by their directories, without the root."""
    inside: dict[Parts, list[WorkspacePath]] = {}
    for path in paths:
        if path.parts:
            inside.setdefault(path.parts[:-1], []).append(path)
    return inside


def _entry(tree: DiskTree, path: WorkspacePath) -> DiskEntry | None:
    try:
        return tree.entry(path)
    except FilesystemError:
        return None
