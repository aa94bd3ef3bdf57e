"""The filesystem that tools see in the user's own directory."""

from __future__ import annotations

from dataclasses import replace

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import FileMissingError, GitRepositoryError
from wink_workspace.filesystem import (
    DiskFilesystem,
    FileKind,
    FileStat,
    FilesystemLimits,
    WorkspacePath,
)
from wink_workspace.filesystem.model import WriteMode
from wink_workspace.ledger import (
    DiskView,
    Found,
    enclosing_repository,
    is_layout_name,
    repositories_in,
)

from .in_place_history import InPlaceHistory
from .in_place_tree import InPlaceTree
from .user_repository import UserRepository


class InPlaceFilesystem(DiskFilesystem):
    """A ``DiskFilesystem`` that never changes a git repository.

    The repository at the top is hidden. Nested ones, bare ones too, can be read, and are deleted
    and restored with the directories that hold them. Nothing is written into them, and no change
    may complete one (``ledger.git_discovery``): git may run what it finds there.

    Args:
        tree: The directory.
        history: Serves snapshots.
        git: The user's repository.
        limits: Bounds on single operations.
        clock: The time.
    """

    def __init__(
        self,
        tree: InPlaceTree,
        *,
        history: InPlaceHistory,
        git: UserRepository,
        limits: FilesystemLimits | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(tree, history=history, limits=limits, clock=clock)
        self._git = git
        self._view = DiskView(tree)

    def _existing(self, path: WorkspacePath, *, follow: bool = True) -> FileStat:
        try:
            return super()._existing(path, follow=follow)
        except FileMissingError as error:
            if not self._git.hides(path.parts):
                raise
            raise FileMissingError(
                f"{path} belongs to the user's git repository, not to this workspace",
                hint="Work with the files beside it.",
            ) from error

    def _check_writable(self, *paths: WorkspacePath) -> None:
        super()._check_writable(*paths)
        for path in paths:
            if self._git.hides(path.parts) or enclosing_repository(self._view, path) is not None:
                raise GitRepositoryError(
                    f"{path} is part of a git repository, which only its user may change"
                )

    # Nothing may complete a repository: checked here, where every write ends

    def _write(self, path: WorkspacePath, data: bytes, *, mode: WriteMode) -> None:
        if is_layout_name(path.name):
            before = self._view.look(path) if mode == "append" else None
            content = data if before is None else before.beginning() + data
            self._refuse_new_repository(path, Found(FileKind.FILE, lambda: content))
        super()._write(path, data, mode=mode)

    def _mkdir(self, path: WorkspacePath) -> None:
        if is_layout_name(path.name):
            self._refuse_new_repository(path, Found(FileKind.DIRECTORY))
        super()._mkdir(path)

    def _symlink(self, path: WorkspacePath, target: str) -> None:
        content = target.encode("utf-8", "surrogateescape")
        self._refuse_new_repository(path, Found(FileKind.SYMLINK, lambda: content))
        super()._symlink(path, target)

    def _move(self, source: WorkspacePath, destination: WorkspacePath) -> None:
        moved = self._view.look(source)
        if moved is not None and moved.kind is FileKind.DIRECTORY:
            self._refuse_moved_commondir(source)
            moved = replace(moved, is_whole=True)
        self._refuse_new_repository(destination, moved)
        super()._move(source, destination)

    def _refuse_new_repository(self, path: WorkspacePath, arriving: Found | None) -> None:
        for directory in repositories_in(self._view, {path: arriving}).values():
            named = f"the directory {directory}"
            where = named if directory.parts else "the workspace's own directory"
            raise GitRepositoryError(
                f"with {path}, git would take {where} for a repository,"
                " and a repository can make git run programs",
                hint="Use other names, or let a test make the repository in a temporary directory"
                " when it runs. A workspace that is a copy may hold one.",
            )

    def _refuse_moved_commondir(self, moved: WorkspacePath) -> None:
        """Refuse to move a ``commondir`` that points out of *moved*: it would point elsewhere."""
        for holder, shared in self._view.common_directories().items():
            if holder.is_below(moved) and not shared.is_below(moved):
                raise GitRepositoryError(
                    f"{moved} cannot be moved: the git repository {holder} in it shares {shared}"
                )
