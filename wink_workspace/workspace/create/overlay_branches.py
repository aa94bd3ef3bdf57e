"""Branches on overlays: a base that branches share, and a layer of changes for each branch.

::

    base            names the base; written before the first mount
    layers          names layers between both, with derived paths; see ``derived_layers``
    upper/files/    what this branch changed
    upper/held/     what rollbacks discarded and the history does not have yet
    upper.new/      the layer of a branch that is being made
    upper.begun     exists until the layer of a new branch has the derived paths of its checkpoint
    work/           needed by the kernel
    index           statuses of the upper layer when the branch was last closed; only a hint

Rule 1: a branch exists when it has an ``upper``, which appears by one rename. Without one, the
branch begins again with its newest entry: a crash while it is made or folded does no harm. So does
one whose base is lost; what its layer has is kept as a discard.
Rule 2: the caller holds the writer lock of the branch, which is the lock of its upper layer, and
has ended every container that may have mounted it. Two mounts on one layer are undefined behaviour.
Rule 3: the files differ from the tree of the base only where the upper layer has an entry. So an
index of the upper layer is enough, and without one all of the upper layer counts as changed.
Rule 4: a large layer is *folded*: its branch begins again on a new base of its newest entry. That
is done only while the files are those of this entry, no restore or discard is unfinished, and no
unrecorded path needs the base.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.clock import Clock
from wink_workspace.errors import (
    EntryMissingError,
    FileMissingError,
    FilesystemError,
    LedgerDamagedError,
    LedgerError,
)
from wink_workspace.filesystem import Change, FileKind, WorkspacePath
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.os_errors import translate_os_error
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
    TreeEntry,
    build,
    diff,
    entry_at,
    lost_ref,
)
from wink_workspace.ledger.store.disk import sync_filesystem, write_whole
from wink_workspace.processes import OwnProcess
from wink_workspace.workspace.files.checkout import write_layer
from wink_workspace.workspace.files.derived_paths import copy_checkpoint
from wink_workspace.workspace.files.histories import CopyHistory
from wink_workspace.workspace.files.seen_statuses import (
    SourceTimes,
    finish_index,
    forget_last_seen,
    load_last_seen,
    save_last_seen,
)
from wink_workspace.workspace.place.path_rules import (
    ImportConfig,
    PathRules,
    Progress,
    Unrecorded,
    no_progress,
)
from wink_workspace.workspace.place.shared_folders import delete_tree
from wink_workspace.workspace.place.storage import WorkspaceFolder
from wink_workspace.workspace.place.workspace_config import WorkspaceConfig

from .bases import Base, BaseStore
from .derived_layers import delete_stale, layers_of, notice_layers, unrecorded_names

_log = logging.getLogger(__name__)

HELD: Final = "held"
_TREE: Final = re.compile("[0-9a-f]{40}")
"""The directory of a mount for what rollbacks discard."""

_MOST_DIFFERENCES: Final = 2_000
"""A branch with more differences from the nearest base gets a base of its own."""


class MountedBranch(NamedTuple):
    """A mounted branch. ``root`` is the tree from which it differs where ``tracker`` reports."""

    folder: WorkspaceFolder
    base: Base
    mount: OverlayMount
    tracker: OverlayTracker
    tree: DiskTree
    root: str

    @property
    def held(self) -> Path:
        """The folder of pending discards; a path of ``files`` can be renamed into it."""
        return self.mount.path / HELD

    @contextmanager
    def unmounted(self, *trees: DiskTree) -> Generator[None]:
        """A block in which it is not mounted; *trees* are of its files, and have none meanwhile.

        No process may have its files open.

        Raises:
            MountError: If it cannot be mounted again.
        """
        trees = (self.tree, *trees)
        for tree in trees:
            tree.let_go()
        self.mount.unmount()
        try:
            yield
        finally:
            self.mount.mount_again(*_layers(self.folder, self.base))
            for tree in trees:
                tree.open_again()

    def close(self) -> None:
        """Unmount it."""
        self.tree.close()
        self.tracker.close()
        self.mount.close()
        self.base.release()


def mount_branch(
    folder: WorkspaceFolder,
    writer: BranchWriter,
    *,
    unrecorded: Unrecorded | None = None,
    config: WorkspaceConfig,
    clock: Clock,
) -> MountedBranch:
    """Mount the branch, which is made or folded before if it has to be.

    What is *unrecorded* stays in its layer, and is hidden from its tracker and its tree.

    Raises:
        MountError: If the system refuses the mount.
        LedgerError: If the newest entry cannot be read, and the branch has to begin with it, or
            the tree of its base, and the base has to be made again.
        FilesystemError: If something cannot be written, or the base cannot be read at the moment.
    """
    head = _newest(writer)
    bases = BaseStore(folder.state_dir, clock, durable=config.durable)
    base = base_of(folder, bases, writer.store, config) if folder.upper.is_dir() else None
    if base is None and folder.upper.is_dir():
        _discard_layer(folder, writer, head, unrecorded=unrecorded, at=clock.now())
        _set_aside(folder)
    if base is None:
        base = _near(folder, writer, head.files, bases, config=config)
        if not _old(folder).is_dir():
            _begun(folder).touch()
        _begin(folder, writer.store, head, base, config=config)
    mounted = _mounted(folder, base, writer, unrecorded=unrecorded, config=config, clock=clock)
    if (
        mounted.tracker.n_visited <= config.fold_above
        or not _is_finished(mounted, writer)
        or (unrecorded is not None and _shows_base(folder.upper / FILES, unrecorded))
    ):
        return mounted
    mounted.close()
    _set_aside(folder)
    passed(KillPoint.FOLD_BEGUN)
    times = SourceTimes(folder, writer.store, head.files)
    base = bases.build(writer.store, head.files, times)
    _name(folder, base, config=config)
    _begin(folder, writer.store, head, base, config=config)
    return _mounted(folder, base, writer, unrecorded=unrecorded, config=config, clock=clock)


def import_overlay(
    source: Path,
    folder: WorkspaceFolder,
    clock: Clock,
    *,
    config: ImportConfig | None = None,
    progress: Progress = no_progress,
) -> PathRules:
    """Begin a history with the files of *source*, and its main branch on a base of them.

    Derived paths are copied into the branch's own layer: bases are shared, also between sources
    that have other secrets. Raises as ``import_copy``.
    """
    from .importing import begin_history, copy_derived_of

    wanted = config or ImportConfig()
    bases = BaseStore(folder.state_dir, clock)
    Ledger.create(folder.ledger)
    imported = bases.import_source(source, folder.ledger, config=wanted, progress=progress)
    found = imported.found
    try:
        with Ledger(folder.ledger, clock=clock) as ledger, ledger.write() as writer:
            entry = begin_history(ledger, writer, imported.tree, imported.report, clock)
            _name(folder, imported.base, config=WorkspaceConfig())
            _begin(folder, ledger.store, entry, imported.base, config=WorkspaceConfig())
        with DiskTree(folder.upper / FILES) as upper:
            copy_derived_of(source, folder.checkpoint, upper, found, wanted)
    finally:
        imported.base.release()
    return found.rules


def trees_of_bases(folder: WorkspaceFolder) -> set[str]:
    """The trees of the bases of all branches: their files are known relative to them."""
    files = (folder.path / "base", *folder.path.glob("forks/*/base"))
    trees: set[str] = set()
    for file in files:
        with suppress(FileNotFoundError):
            trees.add(_tree_in(file))
    trees.discard("")  # of a damaged file
    return trees


def _tree_in(base: Path) -> str:
    """The tree of the base that a file names; empty if it is damaged."""
    tree = _named(base).rpartition("-")[2]
    return tree if _TREE.fullmatch(tree) else ""


def _named(base: Path) -> str:
    return base.read_bytes().strip().decode(errors="replace")


def base_of(
    folder: WorkspaceFolder, bases: BaseStore, store: ObjectStore, config: WorkspaceConfig
) -> Base | None:
    """The base of an existing branch, made again if it is damaged; ``None`` if it is lost.

    It is lost if no file names it, or if objects of its tree are missing or damaged. Any other
    error may be gone the next time, and is raised: the layer may have changes that no entry has.
    """
    tree, reason = "", f"{folder.base} is missing or damaged"
    with suppress(FileMissingError), translate_os_error(folder.base):
        tree = _tree_in(folder.base)
    if tree:
        try:
            with translate_os_error(folder.state_dir / "bases"):
                named = bases.named(_named(folder.base))
                if named is None:
                    named = bases.build(store, tree, SourceTimes(folder, store, tree))
                    _name(folder, named, config=config)
                return named
        except (LedgerDamagedError, EntryMissingError) as error:
            reason = str(error)
    _log.warning(
        "The base of %s is lost, so the branch begins again with its newest entry: %s",
        folder.branch_dir,
        reason,
    )
    return None


def _discard_layer(
    folder: WorkspaceFolder,
    writer: BranchWriter,
    head: LogEntry,
    *,
    unrecorded: Unrecorded | None,
    at: datetime,
) -> None:
    """Keep what the layer of a branch without a base has as a discard.

    What the layer does not show alone is left out: which files of the base an opaque directory
    hides, and those in a renamed directory.
    """
    from wink_workspace.workspace.files.disk_entries import captured

    found: list[WorkspacePath] = []
    deleted: dict[WorkspacePath, TreeEntry | None] = {}
    with DiskTree(folder.upper / FILES, hidden=unrecorded, make_accessible=True) as layer:
        for listing in layer.listings():
            for name, status in listing.entries:
                path = WorkspacePath((*listing.parts, name))
                if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
                    deleted[path] = None
                elif not stat.S_ISDIR(status.st_mode):
                    found.append(path)
        kept = captured(
            layer, writer.store, head.files, found, on_entry=lambda _path, _mode, _entry: None
        )
    root = build(writer.store, kept.root, deleted)
    if root != head.files:
        writer.discard(root, reason="the base of the branch is lost", call_id="outside", at=at)


def _begin(
    folder: WorkspaceFolder,
    store: ObjectStore,
    entry: LogEntry,
    base: Base,
    *,
    config: WorkspaceConfig,
) -> None:
    """Make the layer of a branch whose files are those of *entry*, over the base that it names."""
    unfinished = folder.upper.with_name("upper.new")
    for left in (unfinished, folder.work):
        delete_tree(left)
    forget_last_seen(folder.index)
    with ExitStack() as on_error:
        on_error.callback(base.release)
        changes = list(diff(store, base.tree, entry.files))
        times = SourceTimes(folder, store, entry.files)
        for path in times.differing:
            there = entry_at(store, entry.files, path)
            is_file = there is not None and there.kind is FileKind.FILE
            if is_file and entry_at(store, base.tree, path) == there:
                changes.append(Change(path, there, there))
        owner = base.files.stat()
        for directory in (unfinished, unfinished / FILES, unfinished / HELD, folder.work):
            directory.mkdir(mode=0o755)
            os.chown(directory, owner.st_uid, owner.st_gid)
        if changes:
            with DiskTree(unfinished / FILES) as layer:
                seen = write_layer(layer, store, changes, times)
            if config.durable:
                with translate_os_error(unfinished):
                    sync_filesystem(unfinished)
            save_last_seen(folder.index, finish_index(seen, folder.branch_dir), entry)
        passed(KillPoint.UPPER_FILLED)
        unfinished.rename(folder.upper)
        passed(KillPoint.UPPER_IN_PLACE)
        on_error.pop_all()


def _near(
    folder: WorkspaceFolder,
    writer: BranchWriter,
    tree: str,
    bases: BaseStore,
    *,
    config: WorkspaceConfig,
) -> Base:
    """A base near *tree*, or else a new one of it; the branch names it."""
    preferred = ""
    with suppress(FileNotFoundError):
        preferred = _named(folder.of_branch(MAIN_BRANCH).base)
    near = bases.nearest(tree, writer.store, preferred)
    if near is not None and _is_near(near, tree, writer.store):
        _name(folder, near, config=config)
        # Otherwise retention deleted a part of its tree before the branch named it
        if near.tree == tree or not writer.has_lost_objects(near.tree, tree):
            return near
    if near is not None:
        near.release()
    base = bases.build(writer.store, tree, SourceTimes(folder, writer.store, tree))
    _name(folder, base, config=config)
    return base


def _is_near(base: Base, tree: str, store: ObjectStore) -> bool:
    if base.tree == tree:
        return True
    with suppress(LedgerError):  # the history lacks a part of the tree of the base
        changes = islice(diff(store, base.tree, tree), _MOST_DIFFERENCES + 1)
        return sum(1 for _ in changes) <= _MOST_DIFFERENCES
    return False


def _name(folder: WorkspaceFolder, base: Base, *, config: WorkspaceConfig) -> None:
    """Let the branch name its base."""
    folder.branch_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(folder.base, f"{base.name}\n".encode(), durable=config.durable)
    passed(KillPoint.BASE_NAMED)


def _mounted(
    folder: WorkspaceFolder,
    base: Base,
    writer: BranchWriter,
    *,
    unrecorded: Unrecorded | None,
    config: WorkspaceConfig,
    clock: Clock,
) -> MountedBranch:
    with ExitStack() as opened:
        opened.callback(base.release)
        _take_over(folder, base, unrecorded)
        folder.work.mkdir(mode=0o755, exist_ok=True)
        mount = Mounter.shared().mount(*_layers(folder, base))
        opened.callback(mount.close)
        if unrecorded is not None:
            notice_layers(folder, unrecorded)
        if _begun(folder).exists():
            if unrecorded is not None:
                with DiskTree(mount.path / FILES) as whole:
                    delete_stale(folder, whole)
                    copy_checkpoint(folder.checkpoint, whole, unrecorded)
            _begun(folder).unlink()
        index, root = load_last_seen(folder.index, writer) or (None, base.tree)
        reports = overlay_support(folder.state_dir).reports_changes
        tracker = OverlayTracker(
            base.files,
            folder.upper / FILES,
            index=index,
            forget_names=mount.forget_names,
            force_scan=config.force_scan or not reports,
            hidden=unrecorded,
            clock=clock,
        )
        opened.callback(tracker.close)
        tree = DiskTree(
            mount.path / FILES,
            tracker=tracker,
            make_accessible=True,
            durable=config.durable,
            hidden=unrecorded,
            process=OwnProcess(f"the workspace {folder.path.name}"),
        )
        opened.pop_all()
    return MountedBranch(folder, base, mount, tracker, tree, root)


def _layers(folder: WorkspaceFolder, base: Base) -> tuple[list[Path], Path, Path]:
    """The lower layers of a branch, its own layer and its work directory."""
    return [*layers_of(folder), base.lower], folder.upper, folder.work


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


def _shows_base(upper: Path, unrecorded: Unrecorded) -> bool:
    """Whether an unrecorded directory of a layer shows files of the base.

    So does a directory of the base that was renamed to ``node_modules``. ``_take_over`` would take
    only the part of it that is in the layer.
    """
    with DiskTree(upper) as layer:
        for listing in layer.listings():
            if unrecorded.hides(listing.parts):
                names = os.listxattr(f"/proc/self/fd/{listing.fd}")
                if any(name.endswith(".overlay.redirect") for name in names):
                    return True
    return False


def _newest(writer: BranchWriter) -> LogEntry:
    if writer.head is None:
        raise lost_ref(MAIN_BRANCH, "the history cannot be continued")
    return writer.head


def _old(folder: WorkspaceFolder) -> Path:
    return folder.upper.with_name("upper.old")


def _begun(folder: WorkspaceFolder) -> Path:
    return folder.upper.with_name("upper.begun")


def _set_aside(folder: WorkspaceFolder) -> None:
    """Take the name of the layer away; ``_take_over`` deletes it."""
    old = _old(folder)
    if folder.upper.is_dir():
        delete_tree(old)
        folder.upper.rename(old)


def _take_over(folder: WorkspaceFolder, base: Base, unrecorded: Unrecorded | None) -> None:
    """Rename the unrecorded paths of a layer that was set aside into the present one; delete it.

    The history cannot write them again. Each step may be repeated.
    """
    old = _old(folder)
    if not old.is_dir():
        return
    if unrecorded is not None:
        with (
            DiskTree(old / FILES, make_accessible=True) as before,
            DiskTree(folder.upper / FILES) as now,
            DiskTree(base.files) as below,
        ):
            for listing in before.listings():
                directory = WorkspacePath(listing.parts)
                there = now.entry(directory) or below.entry(directory)
                if there is None or there.kind is not FileKind.DIRECTORY:
                    listing.entries.clear()  # it was deleted, with everything below it
                    continue
                tops = unrecorded_names(listing, unrecorded)
                if tops and directory.parts:
                    now.put_directory(directory)
                for name in tops:
                    if now.entry(directory / name) is None:
                        _forget_origins(before, directory / name, listing.fd)
                        with now.entered(directory) as into:
                            os.rename(name, name, src_dir_fd=listing.fd, dst_dir_fd=into)
                listing.entries[:] = [at for at in listing.entries if at[0] not in tops]
    if (old / HELD).is_dir():  # what failed calls discarded, and the history does not have yet
        with translate_os_error(old / HELD):
            for discard in list((old / HELD).iterdir()):
                discard.rename(folder.upper / HELD / discard.name)
    delete_tree(old)


def _forget_origins(layer: DiskTree, top: WorkspacePath, directory: int) -> None:
    """Let the files at and below *top* be files of the layer alone.

    The kernel notes in a copied file which file of the base it was. If that one is visible at its
    old path again, only one of both can be read.
    """
    _remove_origins(directory, [top.name])
    entry = layer.entry(top)
    if entry is not None and entry.kind is FileKind.DIRECTORY:
        for listing in layer.listings(top):
            _remove_origins(listing.fd, [name for name, _ in listing.entries])


def _remove_origins(directory: int, names: Iterable[str]) -> None:
    for name in names:
        path = f"/proc/self/fd/{directory}/{name}"
        for attribute in ("trusted.overlay.origin", "user.overlay.origin"):
            with suppress(OSError):  # most files have none
                os.removexattr(path, attribute, follow_symlinks=False)
