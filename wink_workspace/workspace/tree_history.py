"""Former states of a directory on disk, each the root of a tree in the ledger.

Rule 1: a snapshot writes what moved since the last one, and nothing else; when nothing did, it
is the same token.
Rule 2: a restore first writes down what it is about to replace, so that nothing is lost, and
tells ``discarding``. When that cannot be done (a full disk, a tree too deep to keep), or is more
than ``MOST_DISCARDED_BYTES`` (what fills the disk is not to fill it twice), it restores all the
same: the promise to the caller is the older one.
Rule 3: a restore removes before it writes, and touches only paths that differ.
Rule 4: what the ledger keeps less of than there is (pipes, modes other than 0644 and 0755) is
*odd*. A restore removes or resets what became odd since ``accept``, and nothing older.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass

from wink_workspace.errors import (
    FilesystemError,
    LedgerError,
    LimitExceededError,
    SnapshotError,
    WinkError,
)
from wink_workspace.filesystem import FileChange, FileKind, WorkspacePath
from wink_workspace.filesystem.changes import ChangeTracker, Dirty
from wink_workspace.filesystem.disk.tree import DiskEntry, DiskTree
from wink_workspace.ledger import (
    EMPTY_DIRECTORY,
    EMPTY_TREE_ID,
    SOME_DIRECTORY,
    ObjectStore,
    TreeChange,
    TreeEntry,
    build,
    diff,
    entry_at,
    file_changes,
    walk,
)
from wink_workspace.wording import counted

from .reserve import Reserve, is_full

__all__ = ["MOST_DISCARDED_BYTES", "FilesToken", "TreeHistory"]

_log = logging.getLogger(__name__)

MOST_DISCARDED_BYTES = 268_435_456
"""How much of what a restore replaces is written down first."""

_Changes = dict[WorkspacePath, TreeEntry | None]

_MODES: dict[FileKind | None, tuple[int, ...]] = {
    FileKind.FILE: (0o644, 0o755),
    FileKind.DIRECTORY: (0o755,),
    FileKind.SYMLINK: (0o777,),
}
"""The modes that come back after a rollback; links have no other."""


@dataclass(frozen=True, slots=True, eq=False)
class FilesToken:
    """A state of the files; ``root`` is the id of its tree."""

    history: TreeHistory
    root: str


class TreeHistory:
    """Serves a ``DiskFilesystem``'s snapshots from the ledger.

    Args:
        tree: The directory.
        tracker: Knows what moved in it.
        store: Where contents and trees are kept.
        root: The tree of the state in which the directory is, but for what *tracker* knows.
        reserve: Room on the disk that a restore may use up when there is no other.
    """

    def __init__(
        self,
        tree: DiskTree,
        tracker: ChangeTracker,
        store: ObjectStore,
        *,
        root: str,
        reserve: Reserve | None = None,
    ) -> None:
        self._tree = tree
        self._tracker = tracker
        self._store = store
        self._token = FilesToken(self, root)
        self._odd: set[WorkspacePath] = set()
        self._owed = Dirty()
        self._room_bytes: int | None = None
        self._reserve = reserve
        self.discarding: Callable[[str], None] | None = None

    def snapshot(self) -> FilesToken:
        """The present state; the same token while nothing changes.

        Raises:
            LedgerError: If it cannot be written; what moved is looked at again next time.
            FilesystemError: If a file cannot be read, likewise.
        """
        dirty = self.moved()
        if dirty and (root := self._written(dirty)) != self._token.root:
            self._token = FilesToken(self, root)
        self._owed = Dirty()
        return self._token

    def restore(self, token: object) -> None:
        """Make the directory what it was at *token*.

        Raises:
            SnapshotError: If the token is not of this history; nothing changed.
            FilesystemError: If a path cannot be put back; the others were.
        """
        self.move_to(self._own(token))

    def move_to(self, token: FilesToken, *, kept: str | None = None) -> None:
        """As ``restore``; what is replaced need not be kept if it is the tree *kept*."""
        steps = self._steps(self.moved(), token.root, kept)
        failures = self._put(steps)
        if self._reserve is not None and is_full(failures.values()) and self._reserve.spend():
            failures = self._put(steps)
        self._owed = Dirty()
        self._token = token
        self._odd.clear()
        if failures:
            self._owed = Dirty(prefixes=frozenset(failures))
            shown = "; ".join(str(error) for error in failures.values())
            raise FilesystemError(
                f"{counted(len(failures), 'path')} could not be put back: {shown}",
                hint="Mend what the system complains of, then recover the workspace.",
            ) from next(iter(failures.values()))

    def accept(self) -> None:
        """Take what is odd now as meant so."""
        self._odd.clear()
        if self._reserve is not None and self._reserve.is_spent:
            self._reserve.keep()

    def token_of(self, root: str) -> FilesToken:
        """The token of a tree that the ledger keeps."""
        return self._token if root == self._token.root else FilesToken(self, root)

    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        """The paths that differ between two tokens, in path order, with their contents.

        Raises:
            LimitExceededError: If a content is too large to be read as a whole.
        """
        now = self.snapshot() if after is None else self._own(after)
        return tuple(file_changes(self._store, diff(self._store, self._own(before).root, now.root)))

    def _own(self, token: object) -> FilesToken:
        if not isinstance(token, FilesToken) or token.history is not self:
            raise SnapshotError("the files were asked for a snapshot that they did not make")
        return token

    def moved(self) -> Dirty:
        """What may have moved; it stays owed until the caller has dealt with all of it."""
        self._owed |= self._tracker.drain()
        return self._owed

    def _tell_discarding(self, root: str) -> None:
        if self.discarding is None:
            return
        try:
            self.discarding(root)
        except LedgerError as error:
            _log.warning("What a restore replaces is not kept: %s", error)

    # From the directory into the ledger

    def _written(self, dirty: Dirty) -> str:
        """The tree of the present state, given what may have moved."""
        if dirty.everything:
            with self._store.bulk():
                return build(self._store, EMPTY_TREE_ID, self._below(WorkspacePath(())))
        changes: _Changes = {}
        for prefix in sorted(dirty.prefixes):
            changes[prefix] = self._entry(prefix)
            if changes[prefix] == SOME_DIRECTORY:
                changes[prefix] = EMPTY_DIRECTORY
                changes.update(self._below(prefix))
        for path in sorted(dirty.paths):
            if not _is_inside(path, dirty.prefixes):
                changes[path] = self._entry(path)
        return build(self._store, self._token.root, changes)

    def _below(self, prefix: WorkspacePath) -> _Changes:
        return {
            entry.path: kept
            for entry in self._tree.walk(prefix)
            if (kept := self._kept(entry)) is not None
        }

    def _entry(self, path: WorkspacePath) -> TreeEntry | None:
        there = self._tree.entry(path)
        return None if there is None else self._kept(there)

    def _kept(self, entry: DiskEntry) -> TreeEntry | None:
        """What the ledger keeps of an entry, its content written; ``None`` if it cannot be kept."""
        if entry.mode not in _MODES.get(entry.kind, ()):
            self._odd.add(entry.path)
        match entry.kind:
            case None:
                return None
            case FileKind.DIRECTORY:
                return SOME_DIRECTORY
            case FileKind.SYMLINK:
                target = (entry.target or "").encode("utf-8", "surrogateescape")
                return TreeEntry(FileKind.SYMLINK, self._store.write_blob(target))
            case FileKind.FILE:
                return TreeEntry(FileKind.FILE, self._blob(entry), entry.executable)

    def _blob(self, entry: DiskEntry) -> str:
        if self._room_bytes is not None:
            self._room_bytes -= entry.size_bytes
            if self._room_bytes < 0:
                raise LimitExceededError(f"it is more than {MOST_DISCARDED_BYTES:,} bytes")
        with self._tree.open(entry.path) as file:
            return self._store.write_blob_from(file.fileno())

    # From the ledger into the directory

    def _steps(self, dirty: Dirty, wanted: str, kept: str | None) -> list[TreeChange]:
        """What is to be done; everything is read that must be read before a path is touched."""
        self._room_bytes = MOST_DISCARDED_BYTES
        try:
            present = self._written(dirty)
        except (LedgerError, FilesystemError) as error:
            _log.warning("What a restore replaces could not be kept: %s", error)
            return list(self._forced(dirty, wanted))
        finally:
            self._room_bytes = None
        if present not in (wanted, kept):
            self._tell_discarding(present)
        differing = list(diff(self._store, present, wanted))
        return [*self._even(wanted, {change.path for change in differing}), *differing]

    def _even(self, wanted: str, differing: set[WorkspacePath]) -> Iterator[TreeChange]:
        """What is odd and otherwise as it should be."""
        for path in sorted(self._odd - differing):
            entry = entry_at(self._store, wanted, path)
            yield TreeChange(path, entry, entry)

    def _forced(self, dirty: Dirty, wanted: str) -> Iterator[TreeChange]:
        """Every path that may differ, to be written without looking at what is there."""
        for prefix in sorted(dirty.prefixes):
            yield TreeChange(prefix, SOME_DIRECTORY, None)
            for path, entry in walk(self._store, wanted):
                if path.is_below(prefix):
                    yield TreeChange(path, None, entry)
        known = diff(self._store, self._token.root, wanted)
        for path in sorted({*dirty.paths, *(change.path for change in known)}):
            yield TreeChange(path, SOME_DIRECTORY, entry_at(self._store, wanted, path))

    def _put(self, steps: Sequence[TreeChange]) -> dict[WorkspacePath, WinkError]:
        """Remove, then write, all that can be; what could not be, and why."""
        failures: dict[WorkspacePath, WinkError] = {}
        gone = [path for step in reversed(steps) if step.after is None for path in self._each(step)]
        for path in gone:
            try:
                self._tree.remove(path)
            except WinkError as error:
                failures[path] = error
        for step in steps:
            if step.after is not None:
                try:
                    self._make(step.path, step.after, is_there=step.before == step.after)
                except WinkError as error:
                    failures[step.path] = error
        return failures

    def _each(self, step: TreeChange) -> Sequence[WorkspacePath]:
        """The path of a step or, as the root cannot be removed, all that is in it."""
        if step.path.parts:
            return (step.path,)
        return [entry.path for entry in self._tree.entries(step.path)]

    def _make(self, path: WorkspacePath, entry: TreeEntry, *, is_there: bool) -> None:
        match entry.kind:
            case FileKind.DIRECTORY:
                self._tree.put_directory(path)
            case FileKind.SYMLINK:
                target = self._store.read(entry.id).decode("utf-8", "surrogateescape")
                self._tree.put_symlink(path, target)
            case FileKind.FILE if is_there:
                self._tree.put_mode(path, executable=entry.executable)
            case FileKind.FILE:
                content = self._store.chunks(entry.id)
                self._tree.put_file(path, content, executable=entry.executable)


def _is_inside(path: WorkspacePath, prefixes: Set[WorkspacePath]) -> bool:
    """Whether *path* is or lies below one of many; what it costs is its depth."""
    return path in prefixes or any(above in prefixes for above in path.ancestors())
