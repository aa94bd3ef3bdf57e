"""The files of new workspaces, for the contracts."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from wink_workspace.filesystem import DiskFilesystem, Filesystem, FilesystemLimits
from wink_workspace.testing.filesystem_contract import FilesystemFactory
from wink_workspace.workspace import Workspace, WorkspaceConfig, WorkspaceMode, WorkspaceStorage


@contextmanager
def files_of_workspaces(below: Path, mode: WorkspaceMode) -> Generator[FilesystemFactory]:
    """A factory that creates a workspace for each filesystem, and closes it after the block."""
    numbers = itertools.count()
    with ExitStack() as opened:

        def new(
            files: Mapping[str, bytes] | None = None,
            *,
            limits: FilesystemLimits | None = None,
            read_only: bool = False,
        ) -> Filesystem:
            root = below / str(next(numbers))
            root.mkdir()
            for path, content in (files or {}).items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(content)
            workspace = opened.enter_context(
                Workspace.create(
                    root,
                    storage=WorkspaceStorage(below / "state"),
                    mode=mode,
                    config=WorkspaceConfig(limits=limits or FilesystemLimits()),
                )
            )
            if not read_only:
                return workspace.files
            # No public option makes a workspace read-only, but the contract needs one.
            return DiskFilesystem(workspace.files.tree, history=workspace._history, read_only=True)

        yield new
