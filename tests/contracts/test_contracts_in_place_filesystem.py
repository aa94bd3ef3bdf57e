"""The filesystem contract, run on the files of an in-place workspace."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from wink_workspace.filesystem import DiskFilesystem, Filesystem, FilesystemLimits
from wink_workspace.testing.filesystem_contract import (
    FilesystemContract,
    FilesystemFactory,
    HistoryContract,
)
from wink_workspace.workspace import Workspace, WorkspaceConfig, WorkspaceStorage


class TestInPlaceFilesystem(FilesystemContract, HistoryContract):
    @pytest.fixture
    def new_filesystem(self, tmp_path: Path) -> Iterator[FilesystemFactory]:
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
                workspace = opened.enter_context(
                    Workspace.create(
                        root,
                        storage=WorkspaceStorage(tmp_path / "state"),
                        mode="in_place",
                        config=WorkspaceConfig(limits=limits or FilesystemLimits()),
                    )
                )
                files_of = workspace.files
                if not read_only:
                    return files_of
                # No public option makes an in-place workspace read-only, but the contract needs one.
                return DiskFilesystem(files_of.tree, history=workspace._history, read_only=True)

            yield new
