"""The filesystem contract, run on branches on overlays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from wink_workspace.filesystem import (
    DiskFilesystem,
    Filesystem,
    FilesystemLimits,
)
from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.testing.filesystem_contract import (
    FilesystemContract,
    FilesystemFactory,
    HistoryContract,
)
from wink_workspace.workspace import Workspace, WorkspaceConfig, WorkspaceStorage


class TestOverlayFilesystem(FilesystemContract, HistoryContract):
    """All files are those of the base until a test changes them."""

    @pytest.fixture
    def new_filesystem(self, tmp_path: Path) -> Iterator[FilesystemFactory]:
        if not (support := overlay_support(tmp_path)).available:
            pytest.skip(support.reason)
        numbers = itertools.count()
        with ExitStack() as opened:

            def new(
                files: Mapping[str, bytes] | None = None,
                *,
                limits: FilesystemLimits | None = None,
                read_only: bool = False,
            ) -> Filesystem:
                root = tmp_path / str(next(numbers))
                root.mkdir()
                for name, content in (files or {}).items():
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    (root / name).write_bytes(content)
                config = WorkspaceConfig(limits=limits or FilesystemLimits())
                workspace = opened.enter_context(
                    Workspace.create(
                        root,
                        storage=WorkspaceStorage(tmp_path / "state"),
                        mode="overlay",
                        config=config,
                    )
                )
                if not read_only:
                    return workspace.files
                tree = workspace.files.tree
                # No public option makes a workspace read-only, but the contract needs one.
                return DiskFilesystem(tree, history=workspace._history, read_only=True)

            yield new
