"""Branches on overlays: a base that branches share, and a layer of changes for each branch.

::

    base            names the base; written before the first mount
    upper/files/    what this branch changed
    upper/held/     what rollbacks discarded and the history does not have yet
    upper.new/      the layer of a branch that is being made
    work/           needed by the kernel
    index           statuses of the upper layer when the branch was last closed; only a hint

Rule 1: a branch exists when it has an ``upper``, which appears by one rename. Without one, the
branch begins again with its newest entry: a crash while it is made or folded does no harm.
Rule 2: the caller holds the writer lock of the branch, which is the lock of its upper layer, and
has ended every container that may have mounted it. Two mounts on one layer are undefined behaviour.
Rule 3: the files differ from the tree of the base only where the upper layer has an entry. So an
index of the upper layer is enough, and without one all of the upper layer counts as changed.
Rule 4: a large layer is *folded*: its branch begins again on a new base of its newest entry. That
is done only while the files are those of this entry, and no restore or discard is unfinished.
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.clock import Clock
from wink_workspace.errors import FilesystemError, LedgerError
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.overlay.mounting import (
    FILES,
    Mounter,
    OverlayMount,
    overlay_support,
)
from wink_workspace.filesystem.overlay.tracking import OverlayTracker
from wink_workspace.ledger import (
    MAIN_BRANCH,
    BranchWriter,
    Ledger,
    LogEntry,
    ObjectStore,
    diff,
    lost_ref,
)
from wink_workspace.ledger.disk import write_whole
from wink_workspace.processes import OwnProcess

from .bases import Base, BaseStore
from .config import WorkspaceConfig
from .histories import CopyHistory
from .importing import Progress, begin_history, no_progress
from .last_seen import forget_last_seen, load_last_seen, save_last_seen
from .storage import WorkspaceFolder, delete_tree

__all__ = ["HELD", "MountedBranch", "import_overlay", "mount_branch", "trees_of_bases"]

_log = logging.getLogger(__name__)

HELD: Final = "held"
"""The directory of a mount for what rollbacks discard."""

_MOST_DIFFERENCES: Final = 2_000
"""A branch with more differences from the nearest base gets a base of its own."""


@dataclass(frozen=True, slots=True)
class MountedBranch:
    """A mounted branch. ``root`` is the tree from which it differs where ``tracker`` reports."""

    base: Base
    mount: OverlayMount
    tracker: OverlayTracker
    tree: DiskTree
    root: str

    @property
    def held(self) -> Path:
        """The folder of pending discards; a path of ``files`` can be renamed into it."""
        return self.mount.path / HELD

    def close(self) -> None:
        """Unmount it."""
        self.tree.close()
        self.tracker.close()
        self.mount.close()
        self.base.release()


def mount_branch(
    folder: WorkspaceFolder, writer: BranchWriter, *, config: WorkspaceConfig, clock: Clock
) -> MountedBranch:
    """Mount the branch, which is made or folded before if it has to be.

    Raises:
        MountError: If the system refuses the mount.
        LedgerError: If the newest entry cannot be read, and the branch has to begin with it.
        FilesystemError: If something cannot be written.
    """
    head = _newest(writer)
    bases = BaseStore(folder.state_dir, clock, durable=config.durable)
    base = _base_of(folder, bases, writer.store) if folder.upper.is_dir() else None
    if base is None:
        base = _begin(folder, writer.store, head, bases, config=config, clock=clock)
    mounted = _mounted(folder, base, writer, config=config, clock=clock)
    if mounted.tracker.n_visited <= config.fold_above or not _is_finished(mounted, writer):
        return mounted
    mounted.close()
    _set_aside(folder)
    passed(KillPoint.FOLD_BEGUN)
    base = _begin(
        folder,
        writer.store,
        head,
        bases,
        base=bases.build(writer.store, head.files),
        config=config,
        clock=clock,
    )
    return _mounted(folder, base, writer, config=config, clock=clock)


def import_overlay(
    source: Path, folder: WorkspaceFolder, clock: Clock, *, progress: Progress = no_progress
) -> None:
    """Begin a history with the files of *source*, and its main branch on a base of them."""
    bases = BaseStore(folder.state_dir, clock)
    Ledger.create(folder.ledger)
    imported = bases.import_source(source, folder.ledger, progress=progress)
    try:
        with Ledger(folder.ledger, clock=clock) as ledger:
            entry = begin_history(ledger, imported.tree, imported.report, clock)
            config = WorkspaceConfig()
            _begin(
                folder, ledger.store, entry, bases, base=imported.base, config=config, clock=clock
            )
    finally:
        imported.base.release()


def trees_of_bases(folder: WorkspaceFolder) -> set[str]:
    """The trees of the bases of all branches: their files are known relative to them."""
    files = (folder.path / "base", *folder.path.glob("forks/*/base"))
    trees: set[str] = set()
    for file in files:
        with suppress(FileNotFoundError):
            trees.add(_tree_in(file))
    return trees


def _tree_in(base: Path) -> str:
    """The tree of the base that a file names."""
    return base.read_text(encoding="utf-8").strip().rpartition("-")[2]


def _base_of(folder: WorkspaceFolder, bases: BaseStore, store: ObjectStore) -> Base | None:
    """The base of an existing branch, made again if it is damaged; ``None`` if it is lost."""
    try:
        name = folder.base.read_text(encoding="utf-8").strip()
        return bases.named(name) or bases.build(store, _tree_in(folder.base))
    except (OSError, LedgerError) as error:
        _log.warning(
            "The base of %s is lost, so the branch begins again with its newest entry: %s",
            folder.branch_dir,
            error,
        )
        _set_aside(folder)
        return None


def _begin(
    folder: WorkspaceFolder,
    store: ObjectStore,
    entry: LogEntry,
    bases: BaseStore,
    *,
    base: Base | None = None,
    config: WorkspaceConfig,
    clock: Clock,
) -> Base:
    """Make the layer of a branch whose files are those of *entry*; the base, still in use."""
    folder.branch_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = folder.upper.with_name("upper.new")
    for left in (unfinished, folder.work):
        delete_tree(left)
    forget_last_seen(folder.index)
    base = base or _near(bases, store, entry.files)
    with ExitStack() as on_error:
        on_error.callback(base.release)
        write_whole(folder.base, f"{base.name}\n".encode(), durable=config.durable)
        passed(KillPoint.BASE_NAMED)
        owner = base.files.stat()
        for directory in (unfinished, unfinished / FILES, unfinished / HELD, folder.work):
            directory.mkdir(mode=0o755)
            os.chown(directory, owner.st_uid, owner.st_gid)
        if base.tree != entry.files:
            _write_difference(folder, base, store, entry, unfinished, clock)
        passed(KillPoint.UPPER_FILLED)
        unfinished.rename(folder.upper)
        passed(KillPoint.UPPER_IN_PLACE)
        on_error.pop_all()
    return base


def _near(bases: BaseStore, store: ObjectStore, tree: str) -> Base:
    """A base near *tree*, or else a new one of it."""
    near = bases.nearest(tree, store)
    if near is None:
        return bases.build(store, tree)
    differences = islice(diff(store, near.tree, tree), _MOST_DIFFERENCES + 1)
    if near.tree == tree or sum(1 for _ in differences) <= _MOST_DIFFERENCES:
        return near
    near.release()
    return bases.build(store, tree)


def _write_difference(
    folder: WorkspaceFolder,
    base: Base,
    store: ObjectStore,
    entry: LogEntry,
    upper: Path,
    clock: Clock,
) -> None:
    """Write the difference of *entry* from its base through a mount of the unfinished layer."""
    with Mounter.shared().mount(base.lower, upper, folder.work) as mount:
        tracker = OverlayTracker(base.files, upper / FILES, clock=clock)
        try:
            tree = DiskTree(mount.path / FILES, tracker=tracker)
            history = CopyHistory(tree, tracker, store, root=base.tree)
            history.check_out(entry.files, kept=entry.files)
            tracker.drain()
            if tracker.index is not None:
                save_last_seen(folder.index, tracker.index, entry)
            tree.close()
        finally:
            tracker.close()


def _mounted(
    folder: WorkspaceFolder,
    base: Base,
    writer: BranchWriter,
    *,
    config: WorkspaceConfig,
    clock: Clock,
) -> MountedBranch:
    with ExitStack() as opened:
        opened.callback(base.release)
        folder.work.mkdir(mode=0o755, exist_ok=True)
        mount = Mounter.shared().mount(base.lower, folder.upper, folder.work)
        opened.callback(mount.close)
        index, root = load_last_seen(folder.index, writer) or (None, base.tree)
        reports = overlay_support(folder.state_dir).reports_changes
        tracker = OverlayTracker(
            base.files,
            folder.upper / FILES,
            index=index,
            force_scan=config.force_scan or not reports,
            clock=clock,
        )
        opened.callback(tracker.close)
        tree = DiskTree(
            mount.path / FILES,
            tracker=tracker,
            make_accessible=True,
            durable=config.durable,
            process=OwnProcess(f"the workspace {folder.path.name}"),
        )
        opened.pop_all()
    return MountedBranch(base, mount, tracker, tree, root)


def _is_finished(mounted: MountedBranch, writer: BranchWriter) -> bool:
    """Whether the files are those of the newest entry, and nothing is to be recovered."""
    head = _newest(writer)
    if writer.pending() is not None or any(mounted.held.iterdir()):
        return False
    history = CopyHistory(mounted.tree, mounted.tracker, writer.store, root=mounted.root)
    try:
        dirty = history.changed_paths()
        is_same = history.snapshot().root == head.files
    except (LedgerError, FilesystemError) as error:
        _log.warning("%s is not folded: %s", mounted.tree.root, error)
        return False
    for path in dirty.paths:
        mounted.tracker.note(path)
    for path in dirty.prefixes:
        mounted.tracker.note(path, below=True)
    return is_same


def _newest(writer: BranchWriter) -> LogEntry:
    if writer.head is None:
        raise lost_ref(MAIN_BRANCH, "the history cannot be continued")
    return writer.head


def _set_aside(folder: WorkspaceFolder) -> None:
    """Take the name of the layer away, and delete it."""
    old = folder.upper.with_name("upper.old")
    delete_tree(old)
    if folder.upper.is_dir():
        folder.upper.rename(old)
    delete_tree(old)
