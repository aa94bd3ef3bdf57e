"""The files that a restore discards: moved aside at once, written into the history later.

A restore plans (``DiscardPlan``), moves every path whose content the history lacks into a folder of
its own beside the files, and restores. Later, that folder is written into the history as one
discard, and deleted. So a rollback costs one rename for each path, a new directory being one path,
and reads no contents.

Rule 1: the plan is on the disk before the first path is moved. A process that dies at any
instant leaves folders that the next process records.
Rule 2: all folders together hold at most ``limit_bytes``. The excess is chosen at once: of the
oldest folder first, and there the largest files. It is named in the plan, in the discard and in the
record of the call, and deleted later.
Rule 3: recording may be repeated. A folder is deleted only after a ref keeps its content. It is
renamed first, so that a partly deleted folder is not recorded.
Rule 4: recording and deletion run in steps, so that no call waits for thousands of files:
``advance`` does some milliseconds of them, ``record`` all. An interrupted recording begins again.

::

    discarded/<n>/plan.json     which paths are moved, and why
    discarded/<n>/held/<k>      the k-th path of the plan
    discarded/<n>~              recorded, and about to be deleted
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.clock import Clock
from wink_workspace.errors import FilesystemError, LedgerDamagedError, LedgerError, WinkError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.disk.descriptors import Descriptor, Parts
from wink_workspace.filesystem.disk.tree import DiskTree, HiddenPaths
from wink_workspace.filesystem.paths import ROOT
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    LARGE_BYTES,
    MAX_TREE_DEPTH,
    SOME_DIRECTORY,
    Dropped,
    DroppedFile,
    ObjectStore,
    SeparatePack,
    TreeEntry,
    build,
    entry_at,
    run_steps,
    tree_steps,
)
from wink_workspace.workspace.place.shared_folders import delete_tree

from .disk_entries import file_id

_log = logging.getLogger(__name__)

_SMALL_BYTES: Final = 1_048_576
_SMALL_FILES: Final = 256
_PIECE_BYTES: Final = 131_072
_STEP_S: Final = 0.0005
_DIGITS: Final = 6
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

Keep: TypeAlias = "Callable[[str, DiscardCause, Dropped], object]"
"""Keeps a root of files as a discard."""

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


class _File(NamedTuple):
    """A file in the folder: its size, and its path there; the first part is its number."""

    size_bytes: int
    parts: Parts


class PendingDiscard:
    """The folder of one restore.

    ``n_bytes`` and ``n_files`` are ``None`` until they are measured.
    """

    def __init__(
        self,
        folder: Path,
        plan: DiscardPlan,
        cause: DiscardCause,
        hidden: HiddenPaths | None = None,
    ) -> None:
        self._hidden = hidden
        self.folder = folder
        self.plan = plan
        self.cause = cause
        self.n_bytes: int | None = None
        self.n_files: int | None = None

    @property
    def directory(self) -> Path:
        """The directory for the moved paths, each named by its number in the plan."""
        return self.folder / "held"

    def write_plan(self) -> None:
        """Write the present plan to the disk."""
        new = self.folder / "plan.new"
        new.write_bytes(self.plan.to_json(self.cause))
        new.rename(self.folder / "plan.json")

    def opened(self) -> DiskTree:
        """The moved paths as a tree."""
        return DiskTree(self.directory, make_accessible=True)

    def original(self, parts: Parts) -> WorkspacePath:
        """Where a path in the folder was before."""
        return WorkspacePath((*self.plan.moves[int(parts[0])].parts, *parts[1:]))

    def entries(self, tree: DiskTree) -> Iterator[tuple[Parts, os.DirEntry[str], int]]:
        """Everything in the folder as ``_walk``, but no hidden path: those enter no history."""
        hidden = self._hidden
        if hidden is None:
            return _walk(tree)
        return _walk(
            tree,
            lambda parts, is_directory: (
                len(parts) == 1  # no hidden path is moved
                or not hidden.hides(self.original(parts).parts, is_directory=is_directory)
            ),
        )

    def dropped_parts(self) -> Iterator[Parts]:
        """The paths in the folder that the plan does not keep."""
        numbers = {path: k for k, path in enumerate(self.plan.moves)} if self.plan.dropped else {}
        for path in self.plan.dropped:
            for n in range(len(path.parts) + 1):
                k = numbers.get(WorkspacePath(path.parts[:n]))
                if k is not None:
                    yield (str(k), *path.parts[n:])

    def measure(self) -> list[_File]:
        """The files to keep; sets ``n_bytes`` and ``n_files``."""
        dropped = set(self.dropped_parts())
        found: list[_File] = []
        with self.opened() as tree:
            for parts, entry, _ in self.entries(tree):
                if entry.is_file(follow_symlinks=False) and (*parts, entry.name) not in dropped:
                    size_bytes = entry.stat(follow_symlinks=False).st_size
                    found.append(_File(size_bytes, (*parts, entry.name)))
        self.n_bytes, self.n_files = sum(file.size_bytes for file in found), len(found)
        return found

    def is_small(self) -> bool:
        """Whether recording it takes no noticeable time; looks at some of its entries only."""
        if self.n_bytes is None or self.n_files is None:
            with self.opened() as tree:
                if len(list(islice(self.entries(tree), _SMALL_FILES + 1))) > _SMALL_FILES:
                    return False
            self.measure()
        return (self.n_bytes or 0) <= _SMALL_BYTES and (self.n_files or 0) <= _SMALL_FILES


class PendingDiscards:
    """The pending discards of one branch.

    Args:
        folder: The folder for them, created when first needed.
        store: The history.
        limit_bytes: The most that they hold together.
        clock: Limits the time of ``advance``.
        hidden: Paths that do not enter the history.
    """

    def __init__(
        self,
        folder: Path,
        store: ObjectStore,
        *,
        limit_bytes: int,
        clock: Clock,
        hidden: HiddenPaths | None = None,
    ) -> None:
        self._hidden = hidden
        self._folder = folder
        self._store = store
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._notes: dict[Path, str] = {}
        self._recording: Generator[None, None, None] | None = None
        self._deleting: Generator[None, None, None] | None = None
        self._epoch = store.epoch
        self._pauses_once = False
        self._condemned: list[Path] = []
        self._discards = self._found()

    def _found(self) -> list[PendingDiscard]:
        """Load what a dead process left; what it had recorded already is deleted later."""
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
                    self._condemned.append(folder)
                    continue
                plan, cause = DiscardPlan.from_json((folder / "plan.json").read_bytes())
            except FileNotFoundError:  # nothing is moved before there is a plan
                with suppress(FilesystemError):
                    delete_tree(folder)
            except (OSError, FilesystemError, LedgerDamagedError) as error:
                _log.warning("%s, left by a restore, is not touched: %s", folder, error)
            else:
                found.append(PendingDiscard(folder, plan, cause, self._hidden))
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
        discard = PendingDiscard(folder, plan, cause, self._hidden)
        discard.directory.mkdir(mode=0o700, parents=True)
        discard.write_plan()
        passed(KillPoint.HELD_PLANNED)
        self._discards.append(discard)
        return discard

    def move(self, discard: PendingDiscard, tree: DiskTree) -> list[WinkError]:
        """Move the paths of the plan aside; what cannot be moved is removed and recorded.

        Returns why. This may be called again, and moves the rest.

        Raises:
            OSError: If the folder cannot be opened.
        """
        plan = discard.plan
        plan.dropped.clear()  # what a call before could not move
        directories: list[WorkspacePath] = []
        failures: list[WinkError] = []

        def failed(path: WorkspacePath, error: WinkError) -> None:
            there = tree.entry(path)
            if there is not None:
                plan.drop(path, there.size_bytes, f"cannot be moved: {error.message}")
                failures.append(error)

        inside: dict[Parts, list[tuple[str, int]]] = {}
        for k, path in enumerate(plan.moves):
            inside.setdefault(path.parts[:-1], []).append((path.name, k))
        with Descriptor(os.open(discard.directory, _DIRECTORY)) as held:
            try:
                for parts, names in inside.items():
                    above = WorkspacePath(parts)
                    try:
                        with tree.moving_out(above, held) as move:
                            while names:
                                name, k = names.pop()
                                try:
                                    if move(name, str(k)):
                                        directories.append(above / name)
                                except WinkError as error:
                                    failed(above / name, error)
                                passed(KillPoint.HELD_MOVED)
                    except WinkError as error:  # the directory cannot be entered
                        for name, _ in names:
                            failed(above / name, error)
                if plan.dropped:
                    discard.write_plan()
            finally:
                tree.moved_out(directories)
        return failures

    def trim(self, discard: PendingDiscard) -> None:
        """Choose what exceeds the limit (rule 2), and report it in ``pop_notes``.

        Raises:
            OSError, FilesystemError: If something cannot be read or recorded; the limit may stay
                exceeded.
        """
        self._drop_over(discard, self._limit_bytes, _TOO_LARGE)
        room_bytes = self._limit_bytes - (discard.n_bytes or 0)
        for older in reversed([each for each in self._discards if each is not discard]):
            if older is self._discards[0] and (older.n_bytes or 0) > room_bytes:
                self._stop()  # what it has recorded may be dropped now
            self._drop_over(older, max(0, room_bytes), _TOO_LARGE)
            room_bytes -= older.n_bytes or 0
        self._pauses_once = self._discards == [discard] and not discard.is_small()

    def free_space(self) -> bool:
        """Delete all pending discards because the disk is full; whether there was anything."""
        self._stop()
        found = bool(self._condemned)
        for folder in self._condemned:
            with suppress(FilesystemError):
                delete_tree(folder)
        for discard in self._discards:
            try:
                found |= bool(discard.measure())
                self._drop_over(discard, 0, _DISK_FULL)
                with discard.opened() as tree:
                    run_steps(_delete_dropped(discard, tree))
            except (OSError, FilesystemError) as error:
                _log.warning("cannot delete discarded files: %s", error)
        return found

    def _note(self, discard: PendingDiscard) -> None:
        note = str(Dropped.of(list(discard.plan.dropped.values())))
        self._notes[discard.folder] = note
        _log.warning("Call %s: %s", discard.cause.call_id, note)

    def pop_notes(self) -> tuple[str, ...]:
        """What was dropped since the last call of this, in sentences."""
        notes, self._notes = tuple(self._notes.values()), {}
        return notes

    def _drop_over(self, discard: PendingDiscard, limit_bytes: int, reason: str) -> None:
        """Drop the largest files until the others are within the limit; they stay on the disk."""
        if discard.n_bytes is None:
            discard.measure()
        if (discard.n_bytes or 0) > limit_bytes:
            files = discard.measure()
            n_bytes, n_files = discard.n_bytes or 0, len(files)
            if n_bytes > limit_bytes:
                files.sort()
            while n_bytes > limit_bytes:
                file = files.pop()
                n_bytes -= file.size_bytes
                discard.plan.drop(discard.original(file.parts), file.size_bytes, reason)
            discard.n_bytes = n_bytes
            if len(files) < n_files:
                discard.n_files = len(files)
                try:
                    discard.write_plan()
                except OSError:  # the disk is full, and the deletion makes room
                    _log.warning("cannot record which discarded files are about to be deleted")
                passed(KillPoint.HELD_TRIMMED)
        if discard.plan.dropped:
            self._note(discard)

    # After a restore

    @property
    def has_work(self) -> bool:
        """Whether there is something to record or to delete."""
        return bool(self._discards or self._condemned)

    def advance(self, keep: Keep) -> None:
        """Record and delete for about half a millisecond; small discards are always recorded.

        The first time after a discard that is not small was moved, nothing else is done: the kernel
        frees the memory of the names meanwhile, in interrupts that delay this call by themselves.
        If another discard waits, there is no such pause: calls that fail again and again would put
        the recording off until the limit drops it.

        Raises:
            LedgerError, FilesystemError, OSError: As ``record``.
        """
        end_s = self._clock.monotonic_s() + _STEP_S
        self.record(keep, only_small=True)
        if self._pauses_once:
            self._pauses_once = False
            return
        while self.has_work:
            if self._discards:
                self._record_step(keep)
            else:
                self._delete_step()
            if self._clock.monotonic_s() >= end_s:
                return

    def record(self, keep: Keep, *, only_small: bool = False) -> None:
        """Write the discards into the history with *keep*, oldest first.

        With *only_small*, stop before the first that takes noticeable time.

        Raises:
            LedgerError, FilesystemError, OSError: If something cannot be written, read or
                deleted; what is not in the history stays pending.
        """
        while self._discards and not (only_small and not self._discards[0].is_small()):
            self._record_step(keep)

    def delete(self) -> None:
        """Delete what is recorded; raises as ``record``."""
        while self._condemned:
            self._delete_step()

    def close(self) -> None:
        """Interrupt the recording; another process may repeat it."""
        self._stop()

    def _record_step(self, keep: Keep) -> None:
        if self._epoch != self._store.epoch:
            self._stop()  # an object that it wrote, and that no ref keeps, may be deleted
            self._epoch = self._store.epoch
        if self._recording is None:
            self._recording = self._record_in_steps(self._discards[0], keep)
        self._recording = _after_step(self._recording)

    def _delete_step(self) -> None:
        if self._deleting is None:
            self._deleting = _delete_in_steps(self._condemned[0])
        self._deleting = _after_step(self._deleting)
        if self._deleting is None:
            del self._condemned[0]

    def _stop(self) -> None:
        if self._recording is not None:
            self._recording.close()
        self._recording = None

    def _record_in_steps(self, discard: PendingDiscard, keep: Keep) -> Generator[None, None, None]:
        is_small = discard.is_small()
        with discard.opened() as tree:
            yield from _delete_dropped(discard, tree)
            self._drop_over(discard, self._limit_bytes, _TOO_LARGE)
            self._fit_on_disk(discard)
            yield from _delete_dropped(discard, tree)
            if is_small:
                moved = run_steps(self._contents(discard, tree, self._store))
            else:
                with self._store.begin_pack() as pack:
                    moved = yield from self._contents(discard, tree, pack)
                    yield from pack.finish()
        yield
        root = self._root(discard, moved)
        yield
        dropped = Dropped.of(list(discard.plan.dropped.values()))
        if dropped or root not in (discard.plan.wanted, discard.cause.files):
            keep(root, discard.cause, dropped)
        passed(KillPoint.HELD_KEPT)
        done = discard.folder.with_name(f"{discard.folder.name}~")
        discard.folder.rename(done)
        self._discards.remove(discard)
        passed(KillPoint.HELD_DELETED)
        if is_small:
            delete_tree(done)
        else:
            self._condemned.append(done)

    def _fit_on_disk(self, discard: PendingDiscard) -> None:
        """Drop what the disk cannot hold twice; small discards are always recorded."""
        n_bytes = discard.n_bytes or 0
        if n_bytes > _SMALL_BYTES:
            there = os.statvfs(self._store.repository.directory)
            lacking = n_bytes + _SMALL_BYTES - there.f_bavail * there.f_frsize
            if lacking > 0:
                self._drop_over(discard, max(0, n_bytes - (lacking + 1) // 2), _DISK_FULL)

    def _contents(
        self, discard: PendingDiscard, tree: DiskTree, pack: ObjectStore | SeparatePack
    ) -> Generator[None, None, dict[WorkspacePath, TreeEntry]]:
        """Write all moved files and directories; the entry of each moved path."""
        directories: dict[Parts, dict[str, TreeEntry]] = {(): {}}
        for parts, found, directory in discard.entries(tree):
            below = (*parts, found.name)
            path = discard.original(below)
            if len(path.parts) > MAX_TREE_DEPTH:
                if not found.is_dir(follow_symlinks=False):
                    size_bytes = found.stat(follow_symlinks=False).st_size
                    discard.plan.drop(path, size_bytes, _TOO_DEEP)
            elif found.is_dir(follow_symlinks=False):
                directories[below] = {}
                directories[parts][found.name] = SOME_DIRECTORY
            elif found.is_symlink():
                target = os.readlink(found.name, dir_fd=directory)
                blob = pack.write("blob", target.encode("utf-8", "surrogateescape"))
                directories[parts][found.name] = TreeEntry(FileKind.SYMLINK, blob)
            elif found.is_file(follow_symlinks=False):
                with tree.open(WorkspacePath(below)) as file:
                    status = os.fstat(file.fileno())
                    if status.st_size < LARGE_BYTES:
                        blob = pack.write("blob", file.read())
                    else:
                        blob = yield from self._store.blob_steps(
                            file.fileno(),
                            piece_bytes=_PIECE_BYTES,
                            like=self._version_before(discard.plan, path),
                        )
                executable = bool(status.st_mode & stat.S_IXUSR)
                directories[parts][found.name] = TreeEntry(FileKind.FILE, blob, executable)
            else:
                discard.plan.drop(path, 0, _NO_FILE)
            yield
        entries = yield from tree_steps(pack, directories)
        return {discard.plan.moves[int(k)]: entry for k, entry in entries.items()}

    def _version_before(self, plan: DiscardPlan, path: WorkspacePath) -> str | None:
        """The blob of a file that is moved aside, before the call changed it."""
        return file_id(entry_at(self._store, self._readable(plan.base, plan.wanted), path))

    def _root(self, discard: PendingDiscard, moved: Mapping[WorkspacePath, TreeEntry]) -> str:
        """The root of all files as they were when *discard* was moved aside."""
        plan, store = discard.plan, self._store
        base = self._readable(plan.base, plan.wanted)
        if ROOT in moved:
            base = moved[ROOT].id
        changes: dict[WorkspacePath, TreeEntry | None] = dict.fromkeys(plan.gone)
        for path in (*plan.same, *plan.flipped):
            changes[path] = entry_at(store, plan.wanted, path)
        for path in plan.flipped:
            entry = changes[path]
            if entry is not None:
                changes[path] = TreeEntry(entry.kind, entry.id, not entry.executable)
        changes.update(moved)
        for path in plan.dropped:
            changes.setdefault(path, entry_at(store, base, path))
        return build(store, base, {path: entry for path, entry in changes.items() if path.parts})

    def _readable(self, *roots: str) -> str:
        """The first of *roots* that is still in the history, or the empty tree."""
        for root in roots:
            with suppress(LedgerError):
                self._store.tree(root)
                return root
        return EMPTY_TREE_ID


def _walk(
    tree: DiskTree, shows: Callable[[Parts, bool], bool] = lambda _, __: True
) -> Iterator[tuple[Parts, os.DirEntry[str], int]]:
    """Everything in *tree*, a directory before its entries: its directory, and a descriptor of it.

    A path for which *shows* is false is left out, with everything below it; it gets the path and
    whether that is a directory.
    A directory is read in parts, so that one with many entries takes no longer for each.
    """
    todo: list[Parts] = [()]
    while todo:
        parts = todo.pop()
        with tree.opened(WorkspacePath(parts)) as directory, os.scandir(directory) as entries:
            for entry in entries:
                below = (*parts, entry.name)
                is_directory = entry.is_dir(follow_symlinks=False)
                if not shows(below, is_directory):
                    continue
                yield parts, entry, directory
                if is_directory:
                    todo.append(below)


def _delete_dropped(discard: PendingDiscard, tree: DiskTree) -> Generator[None, None, None]:
    for parts in list(discard.dropped_parts()):
        tree.remove(WorkspacePath(parts))
        yield


def _delete_in_steps(folder: Path) -> Generator[None, None, None]:
    """Delete *folder*, one entry for each step."""
    if folder.is_dir():
        directories: list[Parts] = []
        with DiskTree(folder, make_accessible=True) as tree:
            for parts, entry, directory in _walk(tree):
                if entry.is_dir(follow_symlinks=False):
                    directories.append((*parts, entry.name))
                else:
                    os.unlink(entry.name, dir_fd=directory)
                    yield
            for parts in reversed(directories):
                tree.remove(WorkspacePath(parts))
                yield
        delete_tree(folder)


def _after_step(steps: Generator[None, None, None]) -> Generator[None, None, None] | None:
    """Run one step; ``None`` after the last one."""
    try:
        next(steps)
    except StopIteration:
        return None
    return steps
