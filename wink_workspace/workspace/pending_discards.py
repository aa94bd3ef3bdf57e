"""The files that a restore discards: moved aside at once, written into the history later.

A restore plans (``DiscardPlan``), moves every path whose content the history lacks into a folder of
its own beside the files, and restores. ``record`` later writes that folder into the history as one
discard, and deletes it. So a rollback costs one rename for each path, and reads no contents.

Rule 1: the plan is on the disk before the first path is moved. A process that dies at any
instant leaves folders that the next process records.
Rule 2: all folders together hold at most ``limit_bytes``. The excess is deleted at once, the
largest files first, and named in the plan, in the discard and in the record of the call.
Rule 3: recording may be repeated. A folder is deleted only after a ref keeps its content. It is
renamed first, so that a partly deleted folder is not recorded.

::

    discarded/<n>/plan.json     which paths are moved, and why
    discarded/<n>/held/<k>      the k-th path of the plan
    discarded/<n>~              recorded, and about to be deleted
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import FilesystemError, LedgerDamagedError, LedgerError, WinkError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.disk.tree import DiskEntry, DiskTree, HiddenPaths
from wink_workspace.ledger import (
    EMPTY_DIRECTORY,
    EMPTY_TREE_ID,
    MAX_TREE_DEPTH,
    Dropped,
    DroppedFile,
    ObjectStore,
    TreeEntry,
    build,
    entry_at,
)

from .storage import delete_tree

__all__ = ["DiscardCause", "DiscardPlan", "PendingDiscard", "PendingDiscards"]

_log = logging.getLogger(__name__)

_SMALL_BYTES: Final = 1_048_576
_SMALL_FILES: Final = 256
_WORTH_A_PACK: Final = 100
_DIGITS: Final = 6

_TOO_LARGE: Final = "over the limit for one rollback"
_DISK_FULL: Final = "the disk is full"
_NO_FILE: Final = "a pipe, socket or device"
_TOO_DEEP: Final = "in too many nested directories"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardCause:
    """Why something is discarded, and after which entry (0 for none) it was found."""

    reason: str
    call_id: str
    number: int
    files: str
    at: datetime


@dataclass(slots=True, kw_only=True)
class DiscardPlan:
    """What a restore discards.

    Attributes:
        base: The root of the last known state, for all paths that are not listed below.
        wanted: The root that is restored.
        moves: The paths that are moved aside, each with everything below it.
        gone: The paths that *base* has and that no longer exist.
        same: The paths that are as in *wanted*, though not as in *base*.
        flipped: The files that differ from *wanted* only in the executable bit.
        dropped: What is not kept, by path.
    """

    base: str
    wanted: str
    moves: list[WorkspacePath] = field(default_factory=list[WorkspacePath])
    gone: list[WorkspacePath] = field(default_factory=list[WorkspacePath])
    same: list[WorkspacePath] = field(default_factory=list[WorkspacePath])
    flipped: list[WorkspacePath] = field(default_factory=list[WorkspacePath])
    dropped: dict[WorkspacePath, DroppedFile] = field(
        default_factory=dict[WorkspacePath, DroppedFile]
    )

    def to_json(self, cause: DiscardCause) -> bytes:
        """The plan as the content of ``plan.json``."""
        lists = {name: [path.parts for path in getattr(self, name)] for name in _LISTS}
        dropped = [
            (each.size_bytes, each.reason, path.parts) for path, each in self.dropped.items()
        ]
        why = {**asdict(cause), "at": cause.at.isoformat()}
        trees = {"base": self.base, "wanted": self.wanted}
        return json.dumps({"cause": why, **trees, **lists, "dropped": dropped}).encode()

    @classmethod
    def from_json(cls, content: bytes) -> tuple[DiscardPlan, DiscardCause]:
        """Parse the output of ``to_json``; anything else raises ``LedgerDamagedError``."""
        try:
            read: dict[str, Any] = json.loads(content)
            why = read["cause"]
            at = datetime.fromisoformat(why.pop("at"))
            cause = DiscardCause(**why, at=at)
            plan = cls(base=read["base"], wanted=read["wanted"])
            for name in _LISTS:
                getattr(plan, name).extend(WorkspacePath(tuple(parts)) for parts in read[name])
            for size_bytes, reason, parts in read["dropped"]:
                plan.drop(WorkspacePath(tuple(parts)), size_bytes, reason)
        except (ValueError, TypeError, KeyError) as error:
            raise LedgerDamagedError(f"cannot read the plan of a restore: {error!r}") from error
        return plan, cause

    def drop(self, path: WorkspacePath, size_bytes: int, reason: str) -> None:
        """Record that *path* is not kept."""
        self.dropped[path] = DroppedFile(str(path), size_bytes, reason)


_LISTS: Final = ("moves", "gone", "same", "flipped")


@dataclass(frozen=True, slots=True)
class _File:
    """A file in the folder: where it is, its original path, and its size."""

    at: WorkspacePath
    path: WorkspacePath
    size_bytes: int


class PendingDiscard:
    """The folder of one restore."""

    def __init__(self, folder: Path, plan: DiscardPlan, cause: DiscardCause) -> None:
        self.folder = folder
        self.plan = plan
        self.cause = cause
        self.n_bytes = 0
        self.n_files = 0

    @property
    def directory(self) -> Path:
        """The directory for the moved paths, each named by its number in the plan."""
        return self.folder / "held"

    def write_plan(self) -> None:
        """Write the present plan to the disk."""
        new = self.folder / "plan.new"
        new.write_bytes(self.plan.to_json(self.cause))
        new.rename(self.folder / "plan.json")

    def entries(
        self, tree: DiskTree, hidden: HiddenPaths | None = None
    ) -> Iterator[tuple[WorkspacePath, DiskEntry]]:
        """Everything in the folder with its original path, parents first, but not *hidden* ones."""
        for path, entry in self._all_entries(tree):
            if hidden is None or not hidden.hides(path.parts):
                yield path, entry

    def _all_entries(self, tree: DiskTree) -> Iterator[tuple[WorkspacePath, DiskEntry]]:
        for k, path in enumerate(self.plan.moves):
            at = WorkspacePath((str(k),))
            entry = tree.entry(at)
            if entry is None:
                continue
            yield path, entry
            if entry.kind is FileKind.DIRECTORY:
                for below in tree.walk(at):
                    yield WorkspacePath((*path.parts, *below.path.parts[1:])), below


class PendingDiscards:
    """The pending discards of one branch.

    Args:
        folder: The folder for them, created when first needed.
        store: The history.
        limit_bytes: The most that they hold together.
        hidden: Paths that do not enter the history.
    """

    def __init__(
        self,
        folder: Path,
        store: ObjectStore,
        *,
        limit_bytes: int,
        hidden: HiddenPaths | None = None,
    ) -> None:
        self._hidden = hidden
        self._folder = folder
        self._store = store
        self._limit_bytes = limit_bytes
        self._notes: dict[Path, str] = {}
        self._discards = self._found()

    def _found(self) -> list[PendingDiscard]:
        """Load what a dead process left; delete what it had recorded already."""
        found: list[PendingDiscard] = []
        try:
            names = sorted(path.name for path in self._folder.iterdir())
        except FileNotFoundError:
            return found
        except OSError as error:
            _log.warning("cannot read %s: %s", self._folder, error)
            return found
        for name in names:
            folder = self._folder / name
            try:
                if name.endswith("~"):
                    delete_tree(folder)
                    continue
                plan, cause = DiscardPlan.from_json((folder / "plan.json").read_bytes())
            except FileNotFoundError:  # nothing is moved before there is a plan
                with suppress(FilesystemError):
                    delete_tree(folder)
            except (OSError, FilesystemError, LedgerDamagedError) as error:
                _log.warning("%s, left by a restore, is not touched: %s", folder, error)
            else:
                found.append(PendingDiscard(folder, plan, cause))
        return found

    # During a restore

    def begin(self, plan: DiscardPlan, cause: DiscardCause) -> PendingDiscard:
        """Create a folder with the plan on the disk.

        Raises:
            OSError: If it cannot be created.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        names = [path.name.rstrip("~") for path in self._folder.iterdir()]
        numbers = [int(name) for name in names if name.isdecimal()]
        folder = self._folder / f"{max(numbers, default=0) + 1:0{_DIGITS}}"
        discard = PendingDiscard(folder, plan, cause)
        discard.directory.mkdir(mode=0o700, parents=True)
        discard.write_plan()
        passed(KillPoint.HELD_PLANNED)
        self._discards.append(discard)
        return discard

    def move(self, discard: PendingDiscard, tree: DiskTree) -> None:
        """Move the paths of the plan aside; what cannot be moved is removed and recorded.

        Raises:
            OSError: If the folder cannot be opened; nothing was moved.
        """
        directory = os.open(discard.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        directories: list[WorkspacePath] = []
        try:
            for k, path in enumerate(discard.plan.moves):
                try:
                    if tree.move_out(path, directory, str(k)):
                        directories.append(path)
                except WinkError as error:
                    there = tree.entry(path)
                    if there is not None:
                        discard.plan.drop(
                            path, there.size_bytes, f"cannot be moved: {error.message}"
                        )
                passed(KillPoint.HELD_MOVED)
            if discard.plan.dropped:
                discard.write_plan()
        finally:
            os.close(directory)
            tree.moved_out(directories)

    def trim(self, discard: PendingDiscard) -> None:
        """Delete what exceeds the limit (rule 2), and report it in ``pop_notes``.

        Raises:
            OSError, FilesystemError: If the deletion fails; the limit may stay exceeded.
        """
        others = sum(each.n_bytes for each in self._discards if each is not discard)
        self._shrink(discard, max(0, self._limit_bytes - others), _TOO_LARGE)
        self._note(discard)

    def free_space(self) -> bool:
        """Delete all pending discards because the disk is full; whether there were any."""
        n_bytes = sum(discard.n_bytes for discard in self._discards)
        for discard in self._discards:
            try:
                self._shrink(discard, 0, _DISK_FULL)
            except (OSError, FilesystemError) as error:
                _log.warning("cannot delete discarded files: %s", error)
            else:
                self._note(discard)
        return n_bytes > 0

    def _note(self, discard: PendingDiscard) -> None:
        if discard.plan.dropped:
            note = str(Dropped.of(list(discard.plan.dropped.values())))
            self._notes[discard.folder] = note
            _log.warning("Call %s: %s", discard.cause.call_id, note)

    def pop_notes(self) -> tuple[str, ...]:
        """What was dropped since the last call of this, in sentences."""
        notes, self._notes = tuple(self._notes.values()), {}
        return notes

    def _shrink(self, discard: PendingDiscard, limit_bytes: float, reason: str) -> None:
        """Drop the largest files until the others are within the limit."""
        with DiskTree(discard.directory, make_accessible=True) as tree:
            files = [
                _File(entry.path, path, entry.size_bytes)
                for path, entry in discard.entries(tree)
                if entry.kind is FileKind.FILE
            ]
            files.sort(key=lambda file: (file.size_bytes, file.path))
            discard.n_bytes, discard.n_files = sum(file.size_bytes for file in files), len(files)
            over: list[_File] = []
            while files and discard.n_bytes > limit_bytes:
                over.append(files.pop())
                discard.n_bytes -= over[-1].size_bytes
            if not over:
                return
            for file in over:
                discard.plan.drop(file.path, file.size_bytes, reason)
            try:
                discard.write_plan()
            except OSError:  # the disk is full, and the deletion makes room
                _log.warning("cannot record which discarded files are about to be deleted")
            passed(KillPoint.HELD_TRIMMED)
            for file in over:
                tree.remove(file.at)
            discard.n_files = len(files)
            discard.write_plan()

    # After a restore

    @property
    def is_small(self) -> bool:
        """Whether recording all of them takes no noticeable time."""
        return (
            sum(discard.n_bytes for discard in self._discards) <= _SMALL_BYTES
            and sum(discard.n_files for discard in self._discards) <= _SMALL_FILES
        )

    def record(self, keep: Callable[[str, DiscardCause, Dropped], object]) -> None:
        """Write all of them into the history with *keep*, oldest first, and delete them.

        Raises:
            LedgerError, FilesystemError, OSError: If something cannot be written, read or
                deleted; what is not in the history stays pending.
        """
        while self._discards:
            discard = self._discards[0]
            self._shrink(discard, self._limit_bytes, _TOO_LARGE)
            self._fit_on_disk(discard)
            root = self._root(discard)
            dropped = Dropped.of(list(discard.plan.dropped.values()))
            if dropped or root not in (discard.plan.wanted, discard.cause.files):
                keep(root, discard.cause, dropped)
            passed(KillPoint.HELD_KEPT)
            done = discard.folder.with_name(f"{discard.folder.name}~")
            discard.folder.rename(done)
            del self._discards[0]
            passed(KillPoint.HELD_DELETED)
            delete_tree(done)

    def _fit_on_disk(self, discard: PendingDiscard) -> None:
        """Drop what the disk cannot hold twice; small discards are always recorded."""
        while discard.n_bytes > _SMALL_BYTES:
            there = os.statvfs(self._store.repository.directory)
            lacking = discard.n_bytes + _SMALL_BYTES - there.f_bavail * there.f_frsize
            if lacking <= 0:
                return
            self._shrink(discard, max(0, discard.n_bytes - (lacking + 1) // 2), _DISK_FULL)

    def _root(self, discard: PendingDiscard) -> str:
        """The root of all files as they were when *discard* was moved aside."""
        plan, store = discard.plan, self._store
        base = self._readable(plan.base, plan.wanted)
        changes: dict[WorkspacePath, TreeEntry | None] = dict.fromkeys(plan.gone)
        for path in (*plan.same, *plan.flipped):
            changes[path] = entry_at(store, plan.wanted, path)
        for path in plan.flipped:
            entry = changes[path]
            if entry is not None:
                changes[path] = TreeEntry(entry.kind, entry.id, not entry.executable)
        with DiskTree(discard.directory, make_accessible=True) as tree:
            found = list(discard.entries(tree, self._hidden))
            if len(found) < _WORTH_A_PACK:
                changes.update(self._contents(discard, tree, found))
            else:
                with store.bulk():
                    changes.update(self._contents(discard, tree, found))
        for path in plan.dropped:
            changes.setdefault(path, entry_at(store, base, path))
        return build(store, base, {path: entry for path, entry in changes.items() if path.parts})

    def _contents(
        self,
        discard: PendingDiscard,
        tree: DiskTree,
        found: Sequence[tuple[WorkspacePath, DiskEntry]],
    ) -> Iterator[tuple[WorkspacePath, TreeEntry]]:
        for path, entry in found:
            if len(path.parts) > MAX_TREE_DEPTH:
                discard.plan.drop(path, entry.size_bytes, _TOO_DEEP)
                continue
            match entry.kind:
                case None:
                    discard.plan.drop(path, 0, _NO_FILE)
                case FileKind.DIRECTORY:
                    yield path, EMPTY_DIRECTORY
                case FileKind.SYMLINK:
                    target = (entry.target or "").encode("utf-8", "surrogateescape")
                    yield path, TreeEntry(FileKind.SYMLINK, self._store.write_blob(target))
                case FileKind.FILE:
                    with tree.open(entry.path) as file:
                        content = self._store.write_blob_from(file.fileno())
                    yield path, TreeEntry(FileKind.FILE, content, entry.executable)

    def _readable(self, *roots: str) -> str:
        """The first of *roots* that is still in the history, or the empty tree."""
        for root in roots:
            with suppress(LedgerError):
                self._store.tree(root)
                return root
        return EMPTY_TREE_ID
