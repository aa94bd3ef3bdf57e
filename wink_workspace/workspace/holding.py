"""What a restore throws away: moved aside at once, written into the history later.

A restore plans (``Plan``), moves every path whose content the history does not have into a
folder of its own beside the files, and restores. ``index`` later writes that folder into the
history as one discard, and deletes it. So a rollback costs one rename for each path, not the
reading of what it throws away.

Rule 1: the plan is on the disk before the first path is moved. A process that dies at any
instant leaves folders that the next one indexes.
Rule 2: all folders together hold at most ``limit_bytes``. What is more is deleted at once, the
largest files first, and named in the plan, in the discard and in the record of the call.
Rule 3: indexing may be repeated. A folder is deleted only after a ref keeps what was in it, and
is renamed before, so that no half of one is indexed.

::

    discarded/<n>/plan.json     what was to be moved, and why
    discarded/<n>/held/<k>      the k-th path of the plan
    discarded/<n>~              indexed, and about to be deleted
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
from wink_workspace.filesystem.disk.tree import DiskEntry, DiskTree
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

__all__ = ["Cause", "Held", "Holding", "Plan"]

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
class Cause:
    """Why something is thrown away, and after which entry (0 for none) it was found."""

    reason: str
    call_id: str
    number: int
    files: str
    at: datetime


@dataclass(slots=True, kw_only=True)
class Plan:
    """What a restore throws away.

    Attributes:
        base: The root of the last known state. It has what the paths below do not name.
        wanted: The root that is restored.
        moves: The paths that are moved aside, each with all that is below it.
        gone: The paths that *base* has and that are not there any more.
        same: The paths that are as in *wanted*, though not as in *base*.
        flipped: The files that are as in *wanted* but for the executable bit.
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

    def dumped(self, cause: Cause) -> bytes:
        """The content of ``plan.json``."""
        lists = {name: [path.parts for path in getattr(self, name)] for name in _LISTS}
        dropped = [
            (each.size_bytes, each.reason, path.parts) for path, each in self.dropped.items()
        ]
        why = {**asdict(cause), "at": cause.at.isoformat()}
        trees = {"base": self.base, "wanted": self.wanted}
        return json.dumps({"cause": why, **trees, **lists, "dropped": dropped}).encode()

    @classmethod
    def loaded(cls, content: bytes) -> tuple[Plan, Cause]:
        """What ``dumped`` made; ``LedgerDamagedError`` if it did not make this."""
        try:
            read: dict[str, Any] = json.loads(content)
            why = read["cause"]
            at = datetime.fromisoformat(why.pop("at"))
            cause = Cause(**why, at=at)
            plan = cls(base=read["base"], wanted=read["wanted"])
            for name in _LISTS:
                getattr(plan, name).extend(WorkspacePath(tuple(parts)) for parts in read[name])
            for size_bytes, reason, parts in read["dropped"]:
                plan.drop(WorkspacePath(tuple(parts)), size_bytes, reason)
        except (ValueError, TypeError, KeyError) as error:
            raise LedgerDamagedError(f"a plan of a restore cannot be read: {error!r}") from error
        return plan, cause

    def drop(self, path: WorkspacePath, size_bytes: int, reason: str) -> None:
        """Note that *path* is not kept."""
        self.dropped[path] = DroppedFile(str(path), size_bytes, reason)


_LISTS: Final = ("moves", "gone", "same", "flipped")


@dataclass(frozen=True, slots=True)
class _File:
    """A file that is held: where, of which path, and how large."""

    at: WorkspacePath
    path: WorkspacePath
    size_bytes: int


class Held:
    """One folder of what a restore threw away."""

    def __init__(self, place: Path, plan: Plan, cause: Cause) -> None:
        self.place = place
        self.plan = plan
        self.cause = cause
        self.n_bytes = 0
        self.n_files = 0

    @property
    def directory(self) -> Path:
        """Where the paths of the plan go, each named by its number."""
        return self.place / "held"

    def write_plan(self) -> None:
        """Put the plan, as it is now, on the disk."""
        new = self.place / "plan.new"
        new.write_bytes(self.plan.dumped(self.cause))
        new.rename(self.place / "plan.json")

    def entries(self, tree: DiskTree) -> Iterator[tuple[WorkspacePath, DiskEntry]]:
        """Everything that is held, parents first, with the path that it had."""
        for k, path in enumerate(self.plan.moves):
            at = WorkspacePath((str(k),))
            entry = tree.entry(at)
            if entry is None:
                continue
            yield path, entry
            if entry.kind is FileKind.DIRECTORY:
                for below in tree.walk(at):
                    yield WorkspacePath((*path.parts, *below.path.parts[1:])), below


class Holding:
    """The folders of one line of history.

    Args:
        place: Where they are; made when first needed.
        store: The history.
        limit_bytes: The most that they hold together.
    """

    def __init__(
        self,
        place: Path,
        store: ObjectStore,
        *,
        limit_bytes: int,
    ) -> None:
        self._place = place
        self._store = store
        self._limit_bytes = limit_bytes
        self._notes: dict[Path, str] = {}
        self._held = self._found()

    def _found(self) -> list[Held]:
        """What a dead process left; what it had indexed already is deleted."""
        held: list[Held] = []
        try:
            names = sorted(path.name for path in self._place.iterdir())
        except FileNotFoundError:
            return held
        except OSError as error:
            _log.warning("%s cannot be read: %s", self._place, error)
            return held
        for name in names:
            place = self._place / name
            try:
                if name.endswith("~"):
                    delete_tree(place)
                    continue
                plan, cause = Plan.loaded((place / "plan.json").read_bytes())
            except FileNotFoundError:  # nothing was moved before there was a plan
                with suppress(FilesystemError):
                    delete_tree(place)
            except (OSError, FilesystemError, LedgerDamagedError) as error:
                _log.warning("%s, which a restore left, stays as it is: %s", place, error)
            else:
                held.append(Held(place, plan, cause))
        return held

    # While a restore is under way

    def begin(self, plan: Plan, cause: Cause) -> Held:
        """A new folder, with the plan on the disk.

        Raises:
            OSError: If it cannot be made.
        """
        self._place.mkdir(mode=0o700, exist_ok=True)
        names = [path.name.rstrip("~") for path in self._place.iterdir()]
        numbers = [int(name) for name in names if name.isdecimal()]
        place = self._place / f"{max(numbers, default=0) + 1:0{_DIGITS}}"
        held = Held(place, plan, cause)
        held.directory.mkdir(mode=0o700, parents=True)
        held.write_plan()
        passed(KillPoint.HELD_PLANNED)
        self._held.append(held)
        return held

    def move(self, held: Held, tree: DiskTree) -> None:
        """Move the paths of the plan aside; one that cannot be moved is removed, and named.

        Raises:
            OSError: If the folder cannot be opened; nothing was moved.
        """
        directory = os.open(held.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        directories: list[WorkspacePath] = []
        try:
            for k, path in enumerate(held.plan.moves):
                try:
                    if tree.move_out(path, directory, str(k)):
                        directories.append(path)
                except WinkError as error:
                    there = tree.entry(path)
                    if there is not None:
                        held.plan.drop(path, there.size_bytes, f"cannot be moved: {error.message}")
                passed(KillPoint.HELD_MOVED)
            if held.plan.dropped:
                held.write_plan()
        finally:
            os.close(directory)
            tree.moved_out(directories)

    def trim(self, held: Held) -> None:
        """Delete what is over the limit (rule 2), and say so in ``take_notes``.

        Raises:
            OSError, FilesystemError: If it cannot be; what is over the limit may stay.
        """
        others = sum(each.n_bytes for each in self._held if each is not held)
        self._shrink(held, max(0, self._limit_bytes - others), _TOO_LARGE)
        self._note(held)

    def make_room(self) -> bool:
        """Delete all that is held, as a restore finds no room on the disk; whether that was any."""
        n_bytes = sum(held.n_bytes for held in self._held)
        for held in self._held:
            try:
                self._shrink(held, 0, _DISK_FULL)
            except (OSError, FilesystemError) as error:
                _log.warning("What a restore threw away cannot be deleted: %s", error)
            else:
                self._note(held)
        return n_bytes > 0

    def _note(self, held: Held) -> None:
        if held.plan.dropped:
            note = str(Dropped.of(list(held.plan.dropped.values())))
            self._notes[held.place] = note
            _log.warning("Call %s: %s", held.cause.call_id, note)

    def take_notes(self) -> tuple[str, ...]:
        """What was dropped since this was last asked, in sentences."""
        notes, self._notes = tuple(self._notes.values()), {}
        return notes

    def _shrink(self, held: Held, limit_bytes: float, reason: str) -> None:
        """Drop the largest files until the rest is within the limit."""
        with DiskTree(held.directory, make_accessible=True) as tree:
            files = [
                _File(entry.path, path, entry.size_bytes)
                for path, entry in held.entries(tree)
                if entry.kind is FileKind.FILE
            ]
            files.sort(key=lambda file: (file.size_bytes, file.path))
            held.n_bytes, held.n_files = sum(file.size_bytes for file in files), len(files)
            over: list[_File] = []
            while files and held.n_bytes > limit_bytes:
                over.append(files.pop())
                held.n_bytes -= over[-1].size_bytes
            if not over:
                return
            for file in over:
                held.plan.drop(file.path, file.size_bytes, reason)
            try:
                held.write_plan()
            except OSError:  # the disk is full, and deleting is what makes room
                _log.warning("What a restore drops cannot be noted before it is deleted.")
            passed(KillPoint.HELD_TRIMMED)
            for file in over:
                tree.remove(file.at)
            held.n_files = len(files)
            held.write_plan()

    # Later

    @property
    def is_small(self) -> bool:
        """Whether indexing all that is held takes no noticeable time."""
        return (
            sum(held.n_bytes for held in self._held) <= _SMALL_BYTES
            and sum(held.n_files for held in self._held) <= _SMALL_FILES
        )

    def index(self, keep: Callable[[str, Cause, Dropped], object]) -> None:
        """Write all that is held into the history with *keep*, oldest first, and delete it.

        Raises:
            LedgerError, FilesystemError, OSError: If something cannot be written, read or
                deleted; what is not in the history stays held.
        """
        while self._held:
            held = self._held[0]
            self._shrink(held, self._limit_bytes, _TOO_LARGE)
            self._fit_on_disk(held)
            root = self._root(held)
            dropped = Dropped.of(list(held.plan.dropped.values()))
            if dropped or root not in (held.plan.wanted, held.cause.files):
                keep(root, held.cause, dropped)
            passed(KillPoint.HELD_KEPT)
            done = held.place.with_name(f"{held.place.name}~")
            held.place.rename(done)
            del self._held[0]
            passed(KillPoint.HELD_DELETED)
            delete_tree(done)

    def _fit_on_disk(self, held: Held) -> None:
        """Drop what the disk has no room to hold twice; a little is not worth that."""
        while held.n_bytes > _SMALL_BYTES:
            there = os.statvfs(self._store.repository.directory)
            lacking = held.n_bytes + _SMALL_BYTES - there.f_bavail * there.f_frsize
            if lacking <= 0:
                return
            self._shrink(held, max(0, held.n_bytes - (lacking + 1) // 2), _DISK_FULL)

    def _root(self, held: Held) -> str:
        """The root of all files as they were when *held* was moved aside."""
        plan, store = held.plan, self._store
        base = self._readable(plan.base, plan.wanted)
        changes: dict[WorkspacePath, TreeEntry | None] = dict.fromkeys(plan.gone)
        for path in (*plan.same, *plan.flipped):
            changes[path] = entry_at(store, plan.wanted, path)
        for path in plan.flipped:
            entry = changes[path]
            if entry is not None:
                changes[path] = TreeEntry(entry.kind, entry.id, not entry.executable)
        with DiskTree(held.directory, make_accessible=True) as tree:
            found = list(held.entries(tree))
            if len(found) < _WORTH_A_PACK:
                changes.update(self._contents(held, tree, found))
            else:
                with store.bulk():
                    changes.update(self._contents(held, tree, found))
        for path in plan.dropped:
            changes.setdefault(path, entry_at(store, base, path))
        return build(store, base, {path: entry for path, entry in changes.items() if path.parts})

    def _contents(
        self, held: Held, tree: DiskTree, found: Sequence[tuple[WorkspacePath, DiskEntry]]
    ) -> Iterator[tuple[WorkspacePath, TreeEntry]]:
        for path, entry in found:
            if len(path.parts) > MAX_TREE_DEPTH:
                held.plan.drop(path, entry.size_bytes, _TOO_DEEP)
                continue
            match entry.kind:
                case None:
                    held.plan.drop(path, 0, _NO_FILE)
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
        """The first of *roots* that is still in the history; that of no files without one."""
        for root in roots:
            with suppress(LedgerError):
                self._store.tree(root)
                return root
        return EMPTY_TREE_ID
