"""Lets tests look into the files of a branch on an overlay as if it were a directory.

Many tests read ``folder.files`` while a workspace is open, and after it was closed. ``show_files``
makes that the mount of the open branch, or else a mount of its own. That one ends when the branch
is opened here, or at ``close_shown``: no other process may open the branch before.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from wink_workspace.filesystem.overlay.mounting import FILES, Mounter, OverlayMount
from wink_workspace.workspace import WorkspaceFolder
from wink_workspace.workspace.create import overlay_branches
from wink_workspace.workspace.create.derived_layers import layers_of
from wink_workspace.workspace.create.overlay_branches import HELD, MountedBranch

_open: dict[Path, MountedBranch] = {}
_shown: dict[Path, OverlayMount] = {}


def show_files(patch: pytest.MonkeyPatch) -> None:
    """Replace ``WorkspaceFolder.files`` for branches on overlays."""
    plain, discarded = WorkspaceFolder.files.fget, WorkspaceFolder.discarded.fget
    mounted = overlay_branches._mounted  # every mount of a branch is made there
    close = MountedBranch.close
    assert plain is not None
    assert discarded is not None

    def files(folder: WorkspaceFolder) -> Path:
        if folder.branch_dir in _open:
            return _open[folder.branch_dir].tree.root
        if not folder.upper.is_dir():
            return plain(folder)
        if folder.branch_dir not in _shown:
            base = folder.state_dir / "bases" / folder.base.read_text().strip() / "root"
            mount = Mounter.shared().mount([*layers_of(folder), base], folder.upper, folder.work)
            _shown[folder.branch_dir] = mount
        return _shown[folder.branch_dir].path / FILES

    def opened(folder: WorkspaceFolder, *args: object, **options: object) -> MountedBranch:
        close_shown()
        branch = mounted(folder, *args, **options)
        _open[folder.branch_dir] = branch
        return branch

    def closed(branch: MountedBranch) -> None:
        for path, each in list(_open.items()):
            if each is branch:
                del _open[path]
        close(branch)

    def pending(folder: WorkspaceFolder) -> Path:
        return folder.upper / HELD if folder.upper.is_dir() else discarded(folder)

    patch.setattr(WorkspaceFolder, "files", property(files))
    patch.setattr(WorkspaceFolder, "discarded", property(pending))
    patch.setattr(overlay_branches, "_mounted", opened)  # as above
    patch.setattr(MountedBranch, "close", closed)


def close_shown() -> None:
    """End the mounts that were made for looking at closed branches."""
    while _shown:
        _shown.popitem()[1].close()
