"""The files of the user's own directory, as tools see them."""

from __future__ import annotations

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import FileMissingError, ReadOnlyError
from wink_workspace.filesystem import DiskFilesystem, FileStat, FilesystemLimits, WorkspacePath
from wink_workspace.ledger import is_git_directory_name

from .history import InPlaceHistory
from .own_git import OwnGit
from .tree import InPlaceTree

__all__ = ["InPlaceFilesystem"]


class InPlaceFilesystem(DiskFilesystem):
    """A ``DiskFilesystem`` that keeps its hands off repositories.

    The one at the top is not there. Nested ones can be read, and go and come back with the
    directories that they are in; nothing is written into them, and none is made: what git
    finds there it may run, on the user's machine.

    Args:
        tree: The directory.
        history: Serves snapshots.
        git: What belongs to the user's git.
        limits: Bounds on single operations.
        clock: The time.
    """

    def __init__(
        self,
        tree: InPlaceTree,
        *,
        history: InPlaceHistory,
        git: OwnGit,
        limits: FilesystemLimits | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(tree, history=history, limits=limits, clock=clock)
        self._git = git

    def _existing(self, path: WorkspacePath, *, follow: bool = True) -> FileStat:
        try:
            return super()._existing(path, follow=follow)
        except FileMissingError as error:
            if not self._git.hides(path.parts):
                raise
            raise FileMissingError(
                f"{path} is no part of this workspace, as it belongs to the user's git repository",
                hint="Work with the files beside it.",
            ) from error

    def _check_writable(self, *places: WorkspacePath) -> None:
        super()._check_writable(*places)
        for place in places:
            if self._git.hides(place.parts) or any(map(is_git_directory_name, place.parts)):
                raise ReadOnlyError(
                    f"{place} belongs to a git repository itself, which is its user's alone",
                    hint="Change the files beside it, and leave the repository to the user.",
                )
