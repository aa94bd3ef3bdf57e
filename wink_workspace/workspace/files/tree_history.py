"""Keeps snapshots of a directory on disk; each is a tree in the ledger.

Rule 1: a snapshot writes only what changed since the last one. If nothing changed, ``snapshot``
returns the same token.
Rule 2: a restore keeps what it replaces as a *discard*, which can be restored. It moves aside what
the ledger may lack, and ``PendingDiscards`` records it later.
Rule 3: a rollback must not fail because a discard cannot be kept. What cannot be moved, exceeds the
limit or fills the disk is deleted, and the discard names it. If no discard can be made at all, the
files are deleted, and only a warning in the log reports it. The recovery of an interrupted call
fails instead, unless the disk is full: it can be repeated.
Rule 4: a restore removes before it writes, and touches only paths that differ.
Rule 5: a path is *odd* if the ledger cannot record all of it: a pipe, socket or device, a mode
other than 0644 and 0755, extended attributes or an access control list. A restore removes or
resets what became odd since ``accept``. Older odd paths stay, except for those that may have
changed since the last snapshot, and the root.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Final, TypeVar

from wink_workspace._collector import CollectorPaused
from wink_workspace.counts import counted
from wink_workspace.errors import (
    FilesystemError,
    SnapshotError,
    WinkError,
)
from wink_workspace.filesystem import FileChange, FileKind, WorkspacePath
from wink_workspace.filesystem.changes import NOTHING, ChangeTracker, Dirty
from wink_workspace.filesystem.disk.bulk_reading import BulkReading, ReadPart
from wink_workspace.filesystem.disk.descriptors import Parts, attributes_of
from wink_workspace.filesystem.disk.fingerprint_cache import DiskFingerprints
from wink_workspace.filesystem.disk.tree import DiskEntry, DiskTree
from wink_workspace.filesystem.git_binary import blob_id
from wink_workspace.filesystem.paths import ROOT
from wink_workspace.ledger import (
    EMPTY_DIRECTORY,
    EMPTY_TREE_ID,
    LARGE_BYTES,
    SOME_DIRECTORY,
    ObjectStore,
    PreparedBlob,
    TreeEntry,
    build,
    build_directories,
    diff,
    entries_at,
    entry_at,
    file_changes,
    names_in,
    tree_diff,
    walk,
)
from wink_workspace.processes import OwnProcess
from wink_workspace.workspace.place.reserve import Reserve, is_full

from .discard_records import Discards
from .disk_entries import content_of, file_id, same_content
from .pending_discards import DiscardPlan, PendingDiscards

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_Changes = dict[WorkspacePath, TreeEntry | None]

_MODES: dict[FileKind | None, tuple[int, ...]] = {
    FileKind.FILE: (0o644, 0o755),
    FileKind.DIRECTORY: (0o755,),
    FileKind.SYMLINK: (0o777,),
}
"""The modes that a restore can set; a symlink always has 0777."""

_MANY_FILES: Final = 64
"""From this number on, files are written as one pack; benchmarks/results.md has the measurement."""


@dataclass(slots=True)
class _Steps:
    """The steps of a restore, in this order: move ``plan.moves`` aside, remove, make.

    ``made`` has the wanted entry of each path, and ``only_mode``: whether the content is there
    already and only the mode has to be set.
    """

    plan: DiscardPlan
    removed: list[WorkspacePath] = field(default_factory=list[WorkspacePath])
    made: list[tuple[WorkspacePath, TreeEntry, bool]] = field(
        default_factory=list[tuple[WorkspacePath, TreeEntry, bool]]
    )
    complete: set[WorkspacePath] = field(default_factory=set[WorkspacePath])
    """The paths whose steps are planned, with everything below them."""


@dataclass(frozen=True, slots=True, eq=False)
class FilesToken:
    """A snapshot of the files; ``root`` is the id of its tree."""

    history: TreeHistory
    root: str


class TreeHistory:
    """Serves the snapshots of a ``DiskFilesystem`` from the ledger.

    Args:
        tree: The directory.
        tracker: Reports the paths that may have changed.
        store: The store of contents and trees.
        root: The id of the tree from which the directory differs only where *tracker* reports.
        reserve: Disk space that a restore may use when the disk is full.
        pending_discards: Where a restore moves what it replaces; if omitted, it is deleted.

    Attributes:
        discard_recorder: Names the call of a discard; without it, no discard is made.
        fingerprints: Caches the fingerprint of each small file that a snapshot reads, so that
            the file is not read again for it.
        n_noticed: How often the tracker reported changes.
    """

    def __init__(
        self,
        tree: DiskTree,
        tracker: ChangeTracker,
        store: ObjectStore,
        *,
        root: str,
        reserve: Reserve | None = None,
        pending_discards: PendingDiscards | None = None,
    ) -> None:
        self._tree = tree
        self._tracker = tracker
        self._store = store
        self._token = FilesToken(self, root)
        self._odd: set[WorkspacePath] = set()
        self._process = OwnProcess(f"the history of {tree.root}")
        self._unprocessed = NOTHING
        self._is_fresh = False  # ``CopyHistory.reuse_snapshot`` sets it: skip the next scan
        self._not_restored: Set[WorkspacePath] = frozenset()  # a restore failed to write these
        self._reserve = reserve
        self._pending_discards = pending_discards
        self.discard_recorder: Discards | None = None
        self.fingerprints: DiskFingerprints | None = None
        self.n_noticed = 0

    def snapshot(self) -> FilesToken:
        """The present state; the same token while nothing changes.

        Raises:
            LedgerError: If it cannot be written. The next snapshot reads the changes again.
            FilesystemError: If a file cannot be read. The next snapshot tries again.
        """
        if self._is_fresh:
            self._is_fresh = False
            return self._token
        dirty = self.changed_paths(finishes=True)
        try:
            if dirty.paths or dirty.prefixes:
                inexact = self._tree.names.inexact
                with self._tree.listing_once() if inexact else nullcontext():
                    root = self._write_tree(dirty)
                self._store.flush()  # these changes are not reported again
                if root != self._token.root:
                    self._token = FilesToken(self, root)
            self._unprocessed = NOTHING
        finally:
            if dirty.reason is not None:
                self._tracker.finish()
        return self._token

    def restore(self, token: object) -> None:
        """Restore the directory to its state at *token*.

        Raises:
            SnapshotError: If the token is not of this history; nothing changed.
            FilesystemError: If a path cannot be restored; the others were.
        """
        self.move_to(self._checked_token(token))

    def move_to(
        self,
        token: FilesToken,
        *,
        reason: str = "rolled back",
        kept: str | None = None,
        may_fail: bool = False,
    ) -> None:
        """As ``restore``, with a reason; an entry keeps the tree *kept*, so it needs no discard.

        With *may_fail*, an error while a discard is begun is raised as ``FilesystemError``, before
        anything is deleted, unless the disk is full.
        """
        try:
            steps = self._steps(self.changed_paths(leaves=self._leaves(token.root)), token.root)
            self._move_aside(steps, reason, kept, may_fail=may_fail)
            failures = self._replace(steps)
        except BaseException:
            self._tracker.note(ROOT, below=True)  # what was leaving is unknown to the tracker
            raise
        finally:
            self._tracker.finish()
        self._unprocessed = NOTHING
        self._token = token
        self._odd.clear()
        self._not_restored = frozenset(failures)
        if failures:
            self._unprocessed = Dirty(prefixes=frozenset(failures))
            self._tracker.note(ROOT, below=True)  # a directory may have stayed that was leaving
            shown = "; ".join(str(error) for error in failures.values())
            raise FilesystemError(
                f"{counted(len(failures), 'path')} could not be restored: {shown}",
                hint="Fix what the system reports, then close the workspace and open it again.",
            ) from next(iter(failures.values()))

    def _replace(self, steps: _Steps) -> dict[WorkspacePath, WinkError]:
        """Carry out *steps*, with more space on a full disk; the paths that were not restored."""
        failures = self._carry_out(steps)
        # On a full disk, try again with the reserve released, then without the pending discards
        for free_space in (self._reserve and self._reserve.release, self._free_discards):
            if free_space is not None and is_full(failures.values()) and free_space():
                failures = self._carry_out(steps)
        return failures

    def accept(self) -> None:
        """Let restores leave what is odd now; reserve the disk space again if it was released."""
        self._odd.clear()
        if self._reserve is not None and self._reserve.is_released:
            self._reserve.keep()

    def reread(self) -> None:
        """Let the next snapshot read all files: the ledger lost objects of the present one."""
        self._token = FilesToken(self, EMPTY_TREE_ID)
        self._unprocessed = Dirty.all("objects of the last snapshot were deleted")
        self._is_fresh = False

    def token_of(self, root: str) -> FilesToken:
        """The token of a tree that the ledger has."""
        return self._token if root == self._token.root else FilesToken(self, root)

    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        """The paths that differ between two tokens, in path order, with their contents.

        Raises:
            LimitExceededError: If a content is too large to be read as a whole.
        """
        now = self.snapshot() if after is None else self._checked_token(after)
        return tuple(
            file_changes(self._store, diff(self._store, self._checked_token(before).root, now.root))
        )

    def diff(self, before: object, after: object | None = None) -> str:
        """The changes as a git-style diff; one line for each path that is too large."""
        now = self.snapshot() if after is None else self._checked_token(after)
        changed = diff(self._store, self._checked_token(before).root, now.root)
        return tree_diff(self._store, changed).text()

    def _checked_token(self, token: object) -> FilesToken:
        if not isinstance(token, FilesToken) or token.history is not self:
            raise SnapshotError("unknown snapshot token: it belongs to another filesystem")
        return token

    def changed_paths(
        self, *, leaves: Callable[[Parts], bool] | None = None, finishes: bool = False
    ) -> Dirty:
        """What may have changed; it is reported again until a snapshot or a restore succeeds.

        *leaves* and *finishes* are those of ``ChangeTracker.drain``.

        Raises:
            ForkedProcessError: In a child of the process that opened the files.
        """
        self._process.check()
        self._is_fresh = False
        moved = self._tracker.drain(leaves, finishes=finishes)
        if moved.paths or moved.prefixes:
            self.n_noticed += 1
        found = moved if self._unprocessed is NOTHING else self._unprocessed | moved
        self._unprocessed = found
        return found if len(found.prefixes) < _MANY_FILES else self._narrowed(found)

    def _narrowed(self, dirty: Dirty) -> Dirty:
        """*dirty* with single paths in the place of prefixes that never were a directory.

        What neither exists now nor in the present token is left out: it was added and removed
        since, such as by a rollback.
        """
        paths = set(dirty.paths)
        prefixes = {path for path in dirty.prefixes if not path.parts}
        for directory, names in _by_directory(dirty.prefixes).items():
            try:
                found = self._tree.statuses(directory, names)
            except FilesystemError:
                prefixes.update(directory / name for name in names)
                continue
            known = entries_at(self._store, self._token.root, directory, names) or {}
            for name in names:
                now, before = found.get(name), known.get(name)
                if now is None and before is None:
                    continue
                is_whole = (now is not None and stat.S_ISDIR(now.st_mode)) or (
                    before is not None and before.kind is FileKind.DIRECTORY
                )
                (prefixes if is_whole else paths).add(directory / name)
        return Dirty(frozenset(paths), frozenset(prefixes), dirty.reason)

    # From the directory into the ledger

    def _write_tree(self, dirty: Dirty) -> str:
        """The tree of the present state, given what may have changed."""
        if not dirty.prefixes and len(dirty.paths) < _MANY_FILES:
            changes: _Changes = {path: self._entry(path) for path in sorted(dirty.paths)}
            return build(self._store, self._token.root, changes)
        tops = sorted(
            (
                path
                for path in dirty.prefixes
                if not path.parts or not _is_inside(path.parent, dirty.prefixes)
            ),
            key=_parts,
        )
        paths = sorted(  # the root alone has no entry in any tree
            (path for path in dirty.paths if path.parts and not _is_inside(path, dirty.prefixes)),
            key=_parts,
        )
        below = self._few_below(tops, _MANY_FILES - len(paths))
        if below is not None:
            return self._write_few(tops, below, paths)
        with self._store.bulk(), CollectorPaused():
            return self._write_many(tops, paths)

    def _few_below(self, tops: Sequence[WorkspacePath], limit: int) -> list[DiskEntry] | None:
        """Everything below *tops*; ``None`` if it has *limit* entries or more."""
        found: list[DiskEntry] = []
        for top in tops:
            found += islice(self._walk(top), max(0, limit - len(found)))
        return found if len(found) < limit else None

    def _walk(self, top: WorkspacePath) -> Iterator[DiskEntry]:
        """Everything below *top*, nothing if it is not a directory."""
        there = self._tree.entry(top)
        if there is not None and there.kind is FileKind.DIRECTORY:
            yield from self._tree.walk(top)

    def _write_few(
        self,
        tops: Sequence[WorkspacePath],
        below: Iterable[DiskEntry],
        paths: Sequence[WorkspacePath],
    ) -> str:
        """As ``_write_tree``, given everything that is below *tops*."""
        changes: _Changes = {}
        for path in tops:
            entry = self._own_entry(path)
            changes[path] = EMPTY_DIRECTORY if entry == SOME_DIRECTORY else entry
        for there in below:
            stored = self._stored_entry(there)
            if stored is not None:
                changes[there.path] = stored
        for path in paths:
            changes[path] = self._entry(path)
        return build(self._store, self._token.root, changes)

    def _write_many(self, tops: Sequence[WorkspacePath], paths: Sequence[WorkspacePath]) -> str:
        """As ``_write_tree``, inside a bulk; each directory of *tops* is written once."""
        changes: _Changes = {top: self._own_entry(top) for top in tops}
        found: dict[WorkspacePath, dict[Parts, dict[str, TreeEntry]]] = {
            top: {(): {}} for top in tops if changes[top] == SOME_DIRECTORY
        }
        for part in BulkReading(self._tree, self._store.prepare_blob).run(found, paths):
            directory = WorkspacePath(part.top.parts + part.below)
            below = found.get(part.top)
            if below is None:
                for name, entry in self._entries_of(part, directory):
                    changes[directory / name] = entry
                continue
            inside = below.setdefault(part.below, {})
            if part.below and part.entered is not None:
                below[part.below[:-1]][part.below[-1]] = SOME_DIRECTORY
                mode, has_attributes = part.entered
                if has_attributes or mode not in _MODES[FileKind.DIRECTORY]:
                    self._odd.add(directory)
            inside.update(
                (name, entry)
                for name, entry in self._entries_of(part, directory)
                if entry is not None
            )
        for top, below in found.items():
            root = build_directories(self._store, below)
            changes[top] = TreeEntry(FileKind.DIRECTORY, root)
        return build(self._store, self._token.root, changes)

    def _entries_of(
        self, part: ReadPart[PreparedBlob], directory: WorkspacePath
    ) -> Iterator[tuple[str, TreeEntry | None]]:
        """Write the contents of *part*; its entries by name, without directories that it lists."""
        for name, prepared, mode, has_attributes in part.files:
            if has_attributes or mode not in _MODES[FileKind.FILE]:
                self._odd.add(directory / name)
            blob = self._store.write_prepared(prepared)
            yield name, TreeEntry(FileKind.FILE, blob, bool(mode & stat.S_IXUSR))
        for name in part.others:
            yield name, self._entry(directory / name)
        for name in part.missing:
            yield name, None

    def _own_entry(self, top: WorkspacePath) -> TreeEntry | None:
        """The entry of *top*, which may be the root: no tree has its mode."""
        return self._entry(top) if top.parts else SOME_DIRECTORY

    def _entry(self, path: WorkspacePath) -> TreeEntry | None:
        there = self._tree.entry(path)
        return None if there is None else self._stored_entry(there)

    def _stored_entry(self, entry: DiskEntry) -> TreeEntry | None:
        """Write the content; the entry for a tree, ``None`` if the ledger has no such kind."""
        if entry.mode not in _MODES.get(entry.kind, ()):
            self._odd.add(entry.path)
        match entry.kind:
            case None:
                return None
            case FileKind.DIRECTORY:
                if self._tree.has_attributes(entry.path):
                    self._odd.add(entry.path)
                return SOME_DIRECTORY
            case FileKind.SYMLINK:
                target = (entry.target or "").encode("utf-8", "surrogateescape")
                return TreeEntry(FileKind.SYMLINK, self._store.write_blob(target))
            case FileKind.FILE:
                return TreeEntry(FileKind.FILE, self._blob(entry), entry.executable)

    def _is_odd(self, entry: DiskEntry) -> bool:
        """Whether it has a mode, attributes or an access control list that no snapshot keeps."""
        if entry.mode not in _MODES.get(entry.kind, ()):
            return True
        return entry.kind is not FileKind.SYMLINK and self._tree.has_attributes(entry.path)

    def _blob(self, entry: DiskEntry) -> str:
        with self._tree.open(entry.path) as file:
            fd = file.fileno()
            if attributes_of(fd, path_only=False):
                self._odd.add(entry.path)
            if self.fingerprints is None or entry.size_bytes >= LARGE_BYTES:
                before = file_id(entry_at(self._store, self._token.root, entry.path))
                return self._store.write_blob_from(fd, like=before)
            data = self.fingerprints.read_known(file, entry)
            return self._store.write("blob", data)

    # From the ledger into the directory

    def _steps(self, dirty: Dirty, wanted: str) -> _Steps:
        """Plan the restore; nothing is changed yet.

        The paths that may have changed are compared with the wanted tree on disk. All others are
        as in the tree of the present token, so comparing the two trees is enough.
        """
        steps = _Steps(DiscardPlan(base=self._token.root, wanted=wanted))
        todo = dirty.prefixes | (dirty.paths - self._plan_many(steps, dirty))
        for path in sorted(todo, key=_parts):
            top = self._top(path, wanted)
            if not _is_inside(top, steps.complete):
                below = top != path or path in dirty.prefixes
                self._compare(steps, top, below=below)
                if below:
                    steps.complete.add(top)
        for change in diff(self._store, self._token.root, wanted):
            if change.path in dirty.paths or _is_inside(change.path, steps.complete):
                continue
            if change.after is None:
                steps.removed.append(change.path)
            else:
                steps.made.append((change.path, change.after, False))
        done = {path for path, _, _ in steps.made}.union(steps.removed)
        odd = sorted(self._odd - done)
        moved = set(steps.plan.moves) if odd else set[WorkspacePath]()
        for path in odd:
            if not _is_inside(path, moved):
                self._reset_odd(steps, path)
        steps.made.sort(key=lambda made: made[0])
        return steps

    def _plan_many(self, steps: _Steps, dirty: Dirty) -> set[WorkspacePath]:
        """Plan for the files among many changed paths that are new or unchanged; these paths.

        Unchanged are those that had just changed when they were committed. A directory of the
        trees and of the disk is read once for all of its files.
        """
        done: set[WorkspacePath] = set()
        if len(dirty.paths) < _MANY_FILES:
            return done
        store, plan = self._store, steps.plan
        same: dict[WorkspacePath, TreeEntry] = {}
        paths = sorted(dirty.paths - dirty.prefixes, key=_parts)
        for directory, inside in _by_directory(paths).items():
            if _is_inside(directory, dirty.prefixes):
                continue
            wanted = entries_at(store, plan.wanted, directory, inside)
            if wanted is None:
                continue
            known = wanted
            if plan.base != plan.wanted:
                known = entries_at(store, plan.base, directory, inside) or {}
            new = [name for name in inside if wanted[name] is None]
            moved = [directory / name for name in self._tree.statuses(directory, new)]
            plan.moves += moved
            done.update(moved)
            steps.complete.update(moved)
            for name, entry in wanted.items():
                if entry is not None and entry == known.get(name):
                    same[directory / name] = entry
        for part in BulkReading(self._tree, blob_id).run((), sorted(same)):
            for name, blob, mode, has_attributes in part.files:
                path = part.top / name
                found = TreeEntry(FileKind.FILE, blob, bool(mode & stat.S_IXUSR))
                is_odd = has_attributes or mode not in _MODES[FileKind.FILE]
                if not is_odd and found == same[path]:
                    done.add(path)
        return done

    def _leaves(self, wanted: str) -> Callable[[Parts], bool]:
        """Whether a restore of the tree *wanted* moves aside a new directory as a whole."""

        def leaves(directory: Parts) -> bool:
            entry = entry_at(self._store, wanted, WorkspacePath(directory))
            return entry is None or entry.kind is not FileKind.DIRECTORY

        return leaves

    def _top(self, path: WorkspacePath, wanted: str) -> WorkspacePath:
        """*path*, or its topmost ancestor that is not a directory in the wanted tree."""
        for above in path.ancestors():
            entry = entry_at(self._store, wanted, above)
            if entry is None or entry.kind is not FileKind.DIRECTORY:
                return above
        return path

    def _compare(self, steps: _Steps, path: WorkspacePath, *, below: bool) -> None:
        """Add the steps that restore *path*; with *below*, also everything under it.

        ``DiscardPlan`` explains the lists of ``plan``.
        """
        plan = steps.plan
        wanted, there = entry_at(self._store, plan.wanted, path), self._tree.entry(path)
        known = entry_at(self._store, plan.base, path)
        if there is None:
            if known is not None and path not in self._not_restored:
                plan.gone.append(path)
            self._make_all(steps, path, wanted)
        elif wanted is None or wanted.kind is not there.kind:
            plan.moves.append(path)
            self._make_all(steps, path, wanted)
        elif wanted.kind is FileKind.DIRECTORY:
            if path.parts and self._is_odd(there):
                steps.made.append((path, wanted, True))
            if below:
                self._compare_entries(steps, path, wanted)
        elif not self._has_content(there, wanted):
            plan.moves.append(path)
            steps.made.append((path, wanted, False))
        else:
            if self._is_odd(there) or there.executable != wanted.executable:
                steps.made.append((path, wanted, True))
            if there.executable != wanted.executable:
                plan.flipped.append(path)
            elif known != wanted:
                plan.same.append(path)

    def _compare_entries(self, steps: _Steps, path: WorkspacePath, wanted: TreeEntry) -> None:
        try:
            names = {entry.path.name for entry in self._tree.entries(path)}
        except FilesystemError:
            if not path.parts:
                raise
            steps.plan.moves.append(path)  # it cannot be listed
            self._make_all(steps, path, wanted)
            return
        for name in sorted(names.union(names_in(self._store, wanted))):
            self._compare(steps, path / name, below=True)

    def _has_content(self, there: DiskEntry, wanted: TreeEntry) -> bool:
        """Whether a readable file or link has the wanted content."""
        if there.kind is FileKind.FILE and there.size_bytes != self._store.size_bytes(wanted.id):
            return False
        try:
            return same_content(content_of(self._tree, there), wanted, ignore_mode=True)
        except FilesystemError:
            return False

    def _make_all(self, steps: _Steps, path: WorkspacePath, wanted: TreeEntry | None) -> None:
        """Add the steps that write all that is wanted at *path* and below it."""
        steps.complete.add(path)
        if wanted is None:
            return
        steps.made.append((path, wanted, False))
        if wanted.kind is FileKind.DIRECTORY:
            for each, entry in walk(self._store, wanted.id, path):
                steps.made.append((each, entry, False))

    def _reset_odd(self, steps: _Steps, path: WorkspacePath) -> None:
        """Add the step that removes the odd *path*, or resets it if it is in the wanted tree."""
        entry = entry_at(self._store, steps.plan.wanted, path)
        if entry is None:
            steps.removed.append(path)
        elif path.parts:
            steps.made.append((path, entry, True))

    def _move_aside(self, steps: _Steps, reason: str, kept: str | None, *, may_fail: bool) -> None:
        """Move aside what is replaced, unless the ledger keeps it; if that fails, remove it.

        With *may_fail*, it is removed only on a full disk.
        """
        plan = steps.plan
        is_known = plan.base in (plan.wanted, kept)
        if is_known and not (plan.moves or plan.gone or plan.flipped):
            return
        if self._pending_discards is None or self.discard_recorder is None:
            steps.removed += plan.moves
            return
        try:
            cause = self.discard_recorder.cause(reason)
            begin, move = self._pending_discards.begin, self._pending_discards.move
            discard = self._with_reserve(partial(begin, plan, cause))
            failures = self._with_reserve(partial(move, discard, self._tree))
            if is_full(failures) and self._reserve is not None and self._reserve.release():
                move(discard, self._tree)
        except (OSError, WinkError) as error:
            if may_fail and not is_full([error]):
                cause = getattr(error, "strerror", None) or error
                raise FilesystemError(
                    f"the files that a restore replaces cannot be moved aside: {cause}",
                    hint="Fix what the system reports, then open the workspace again.",
                ) from error
            _log.warning("The files that a restore replaces are not kept: %s", error)
            steps.removed += plan.moves
            return
        steps.removed += plan.dropped  # these could not be moved and are in the way
        try:
            self._pending_discards.trim(discard)
        except (OSError, WinkError) as error:
            _log.warning("Cannot measure or limit what a restore moved aside: %s", error)

    def _with_reserve(self, act: Callable[[], _T]) -> _T:
        """Call *act*, and if it fails once more with the reserved space released."""
        try:
            return act()
        except OSError:
            if self._reserve is None or not self._reserve.release():
                raise
            return act()

    def _free_discards(self) -> bool:
        return self._pending_discards is not None and self._pending_discards.free_space()

    def _carry_out(self, steps: _Steps) -> dict[WorkspacePath, WinkError]:
        """Remove, then write, as many paths as possible; return the failures by path."""
        failures: dict[WorkspacePath, WinkError] = {}
        self._reset_root(failures)
        for path in reversed(steps.removed):
            try:
                self._tree.remove(path)
            except WinkError as error:
                failures[path] = error
        for path, entry, only_mode in steps.made:
            try:
                self._make(path, entry, only_mode=only_mode)
            except WinkError as error:
                failures[path] = error
        return failures

    def _reset_root(self, failures: dict[WorkspacePath, WinkError]) -> None:
        """Reset the mode and the attributes of the root, which is not part of any tree.

        No tracker reports their changes, so each restore reads them: two system calls.
        """
        try:
            there = self._tree.entry(ROOT)
            if there is not None and self._is_odd(there):
                self._tree.put_mode(ROOT, executable=True)
        except WinkError as error:
            failures[ROOT] = error

    def _make(self, path: WorkspacePath, entry: TreeEntry, *, only_mode: bool) -> None:
        if entry.kind is not FileKind.DIRECTORY:  # the call replaced it by a derived one
            self._tree.remove_hidden_directory(path)
        match entry.kind:
            case FileKind.DIRECTORY:
                self._tree.put_directory(path)
            case FileKind.SYMLINK:
                target = self._store.read(entry.id).decode("utf-8", "surrogateescape")
                self._tree.put_symlink(path, target)
            case FileKind.FILE if only_mode:
                self._tree.put_mode(path, executable=entry.executable)
            case FileKind.FILE:
                content = self._store.chunks(entry.id)
                self._tree.put_file(path, content, executable=entry.executable)


_parts = attrgetter("parts")  # the order of paths, many times as fast as their own comparison


def _is_inside(path: WorkspacePath, prefixes: Set[WorkspacePath]) -> bool:
    """Whether *path* is or lies below one of *prefixes*; the cost is its depth."""
    return bool(prefixes) and (
        path in prefixes or any(above in prefixes for above in path.ancestors())
    )


def _by_directory(paths: Iterable[WorkspacePath]) -> dict[WorkspacePath, list[str]]:
    """The names of *paths* by their parents, without the root."""
    names: dict[Parts, list[str]] = {}
    for path in paths:
        if path.parts:
            names.setdefault(path.parts[:-1], []).append(path.parts[-1])
    return {WorkspacePath(directory): inside for directory, inside in names.items()}
