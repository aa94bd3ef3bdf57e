"""The files of an open workspace, with their tracker and their history."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wink_workspace.clock import Clock
from wink_workspace.errors import UsageError
from wink_workspace.filesystem import DiskFilesystem, WorkspacePath
from wink_workspace.filesystem.changes import ChangeTracker
from wink_workspace.filesystem.changes.scan import open_tracker
from wink_workspace.filesystem.disk.tree import ChangeObserver, DiskTree, HiddenPaths
from wink_workspace.filesystem.overlay.mounting import OverlayMount
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    MAIN_BRANCH,
    BranchWriter,
    LogEntry,
    lost_ref,
)
from wink_workspace.processes import OwnProcess

from .branch.recorded_branch import RecordedBranch
from .files.derived_paths import DerivedPaths, RecordedChanges
from .files.histories import CopyHistory, FilesHistory
from .files.pending_discards import PendingDiscards
from .files.seen_statuses import load_last_seen
from .place.path_rules import GIT_RULE, OWN_REPOSITORY, Unrecorded
from .place.reserve import Reserve
from .place.storage import WorkspaceFolder, WorkspaceInfo
from .place.workspace_config import WorkspaceConfig

if TYPE_CHECKING:
    from .create.overlay_branches import MountedBranch


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """The parts, which ``close`` closes. ``branch`` is the mount of a branch on an overlay.

    ``absorb_before_change`` sets the function that commits external edits before a change outside
    of any call.
    """

    tree: DiskTree
    tracker: ChangeTracker
    history: FilesHistory
    filesystem: DiskFilesystem
    pending_discards: PendingDiscards | None = None
    reserve: Reserve | None = None
    derived: DerivedPaths | None = None
    recorded_tree: DiskTree | None = None
    branch: MountedBranch | None = None
    absorb_before_change: Callable[[Callable[[], object]], None] = lambda _: None

    @property
    def mount(self) -> OverlayMount | None:
        """The mount of a branch on an overlay."""
        return None if self.branch is None else self.branch.mount

    def give_derived(
        self,
        fork: WorkspaceFolder,
        copied: Collection[WorkspacePath],
        *,
        released: Callable[[], AbstractContextManager[Collection[str]]],
        durable: bool,
    ) -> frozenset[WorkspacePath]:
        """Let a new fork share the derived paths of a branch on an overlay; those that it has.

        Args:
            fork: The fork; it begins with a layer that has what the branch has now.
            copied: Small paths, of which it has a copy.
            released: A block in which the branch can be unmounted; yields what has the files open.
                If there is any, the fork shares what did not change since an earlier fork.
            durable: Wait until what is written would survive a loss of power.

        Raises:
            FilesystemError: If the layer cannot be made.
            MountError: If the branch cannot be mounted again.
        """
        from .create.derived_layers import DerivedLayer, give_layers, is_shared

        branch, derived, recorded = self.branch, self.derived, self.recorded_tree
        if branch is None or derived is None or recorded is None:
            return frozenset()
        folder = branch.folder
        plan = partial(
            DerivedLayer.planned,
            folder,
            branch.base.files,
            self.tree,
            derived.unrecorded,
            copied=copied,
        )
        layer = plan()
        if layer.tops:
            with released() as held:
                layer = plan(can_move=not held)  # a command may have changed them until now
                if layer.tops:
                    with branch.unmounted(self.tree, recorded):
                        layer.fill(durable=durable)
        give_layers(folder, fork, layer.stale, durable=durable)
        shared = (path for path in derived.tops() if is_shared(fork, path))
        return frozenset(shared).difference(layer.stale)

    def close(self) -> None:
        """Close the directory and the tracker."""
        self.tree.close()
        if self.recorded_tree is not None:
            self.recorded_tree.close()
        self.tracker.close()
        if self.branch is not None:
            self.branch.close()


def open_files(
    folder: WorkspaceFolder,
    writer: BranchWriter,
    recorded: RecordedBranch,
    *,
    config: WorkspaceConfig,
    clock: Clock,
) -> OpenedFiles:
    """Open the files of a branch in their form; those of a copy are written if they are missing.

    Args:
        folder: Where they are.
        writer: The branch.
        recorded: The same branch.
        config: The limits.
        clock: The time.

    Raises:
        UsageError: If the directory of a workspace in place is missing or another one, or a link is
            in the place of a copy.
        LedgerError: If the history cannot be read.
        FilesystemError: If a copy cannot be written, or an overlay cannot be mounted.
    """
    from wink_workspace.workspace.files.checkout import check_out

    info = recorded.info
    opening = _Opening(folder, writer, info, config, clock)
    if recorded.is_in_place:
        return opening.in_place()
    if info.mode == "overlay":
        return opening.overlay()
    check_out(recorded.store, recorded.head, folder, unrecorded=info.rules.unrecorded())
    return opening.copy()


class _Opening(NamedTuple):
    """What the files of a branch are opened with; a method for each form."""

    folder: WorkspaceFolder
    writer: BranchWriter
    info: WorkspaceInfo
    config: WorkspaceConfig
    clock: Clock

    def copy(self) -> OpenedFiles:
        unrecorded = self.info.rules.unrecorded()
        last_seen = load_last_seen(self.folder.index, self.writer)
        index, root = last_seen or (None, _head(self.writer).files)
        tracker = open_tracker(
            self.folder.files,
            index=index,
            force_scan=self.config.force_scan,
            make_accessible=True,
            hidden=unrecorded,
            clock=self.clock,
        )
        return self._recorded(
            self.folder.files,
            tracker,
            root=root,
            discarded=self.folder.discarded,
            unrecorded=unrecorded,
        )

    def overlay(self) -> OpenedFiles:
        from .create.overlay_branches import mount_branch

        unrecorded = self.info.rules.unrecorded()
        branch = mount_branch(
            self.folder, self.writer, unrecorded=unrecorded, config=self.config, clock=self.clock
        )
        try:
            opened = self._recorded(
                branch.tree.root,
                branch.tracker,
                root=branch.root,
                discarded=branch.held,
                unrecorded=unrecorded,
            )
        except BaseException:
            branch.close()
            raise
        return replace(opened, branch=branch)

    def _recorded(
        self,
        files: Path,
        tracker: ChangeTracker,
        *,
        root: str,
        discarded: Path,
        unrecorded: Unrecorded | None,
    ) -> OpenedFiles:
        """The directory *files* with a history that restores all that is recorded.

        The history and the tracker use a tree of their own, in which derived and excluded paths are
        hidden. Tools and sandboxes see all files, but tools do not see a ``.git`` that we write.
        """
        changes = None if unrecorded is None else RecordedChanges(tracker, unrecorded)
        has_git = unrecorded is not None and GIT_RULE in unrecorded.rules.excluded

        def opened_tree(observer: ChangeObserver, hidden: HiddenPaths | None) -> DiskTree:
            return DiskTree(
                files,
                tracker=observer,
                make_accessible=True,
                durable=self.config.durable,
                hidden=hidden,
                process=OwnProcess(f"the workspace {self.folder.path.name}"),
            )

        try:
            tree = opened_tree(changes or tracker, OWN_REPOSITORY if has_git else None)
            recorded = tree if unrecorded is None else opened_tree(tracker, unrecorded)
            derived = None
            if unrecorded is not None and changes is not None:
                created = self.folder.path / "about.json"
                derived = DerivedPaths(
                    tree, unrecorded, self.folder.checkpoint, created=created, changes=changes
                )
        except BaseException:
            tracker.close()
            raise
        reserve = Reserve(self.folder.reserve)
        pending_discards = PendingDiscards(
            discarded,
            self.writer.store,
            limit_bytes=self.config.retention.discard_bytes,
            clock=self.clock,
            hidden=unrecorded,
        )
        history = CopyHistory(
            recorded,
            tracker,
            self.writer.store,
            root=root,
            reserve=reserve,
            pending_discards=pending_discards,
        )
        filesystem = DiskFilesystem(
            tree, history=history, limits=self.config.limits, clock=self.clock
        )
        history.fingerprints = filesystem.fingerprints
        return OpenedFiles(
            tree, tracker, history, filesystem, pending_discards, reserve, derived, recorded
        )

    def in_place(self) -> OpenedFiles:
        from .in_place.call_effects import CallEffects
        from .in_place.in_place_filesystem import InPlaceFilesystem
        from .in_place.in_place_history import InPlaceHistory, PresentState
        from .in_place.in_place_tree import InPlaceTree
        from .in_place.private_paths import PrivatePaths
        from .in_place.user_repository import UserRepository
        from .place.mode_store import ModeStore

        _check_directory(self.info)
        rules, head = self.info.rules, _head(self.writer)
        git = UserRepository(self.folder.files, replace(rules, derived=()).unrecorded())
        private = None
        index, root = load_last_seen(self.folder.index, self.writer) or (None, head.files)
        if rules.derived:
            private = PrivatePaths(self.folder.private, self.folder.files, self.writer.store, rules)
            whole = private.whole_root(root)
            index, root = (index, whole) if whole else (None, EMPTY_TREE_ID)
        tracker = open_tracker(
            self.folder.files,
            index=index,
            force_scan=self.config.force_scan,
            hidden=git,
            clock=self.clock,
        )
        effects = CallEffects(self.writer.store, self.writer.effects, base=head.files)
        try:
            tree = InPlaceTree(
                self.folder.files,
                effects=effects,
                store=self.writer.store,
                git=git,
                tracker=tracker,
                process=OwnProcess(f"the workspace {self.folder.path.name}"),
            )
        except BaseException:
            tracker.close()
            raise
        modes = ModeStore(self.folder.modes)
        present = PresentState(tree, tracker, self.writer.store, root=root, modes=modes)
        history = InPlaceHistory(
            tree,
            present,
            effects,
            self.writer.store,
            git,
            earlier=lambda: (entry.files for entry in self.writer.log()),
            private=private,
        )
        filesystem = InPlaceFilesystem(
            tree, history=history, git=git, limits=self.config.limits, clock=self.clock
        )

        def absorb_before_change(absorb: Callable[[], object]) -> None:
            def before_change() -> None:
                if (
                    not self.writer.has_begun
                    and history.snapshot().root != history.root_after_call()
                ):
                    absorb()

            tree.before_change = before_change

        return OpenedFiles(
            tree, tracker, history, filesystem, absorb_before_change=absorb_before_change
        )


def _check_directory(info: WorkspaceInfo) -> None:
    """Raise ``UsageError`` if the directory of a workspace in place was removed or replaced."""
    from .in_place.user_repository import refuse_repository

    directory = Path(info.source)
    hint = (
        "Move it back to where it was, or remove the workspace: that deletes its history, "
        "but none of your files."
    )
    try:
        inode = directory.stat().st_ino if directory.is_dir() else None
    except OSError:
        inode = None
    if inode is None:
        raise UsageError(
            f"the directory {directory} of the workspace {info.id} does not exist",
            hint=hint,
        )
    if inode != info.inode:
        raise UsageError(
            f"{directory} is not the directory in which the workspace {info.id} was created",
            hint=hint,
        )
    refuse_repository(directory)


def check_owner(folder: WorkspaceFolder) -> None:
    """Raise ``UsageError`` if another user made the workspace.

    Root would leave files that this user cannot change, and would read the user's layers wrongly:
    the marks in them have other names. Git's own check of the owner lets ``sudo`` pass.
    """
    try:
        owner = folder.path.stat().st_uid
    except OSError:
        return  # opening the history reports it
    if owner != os.geteuid():
        raise UsageError(
            f"the workspace {folder.path.name} belongs to the user with the id {owner}",
            hint=f"Run this as that user: `sudo -u '#{owner}' …`.",
        )


def _head(writer: BranchWriter) -> LogEntry:
    if writer.head is None:
        raise lost_ref(MAIN_BRANCH, "the history cannot be continued")
    return writer.head
