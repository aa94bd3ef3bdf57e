"""The filesystem contract, run on ``DiskFilesystem``."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest

from wink_workspace.filesystem import (
    DiskFilesystem,
    DiskTree,
    Filesystem,
    FilesystemLimits,
    parse_path,
)
from wink_workspace.testing.filesystem_contract import FilesystemContract, FilesystemFactory


class TestDiskFilesystem(FilesystemContract):
    @pytest.fixture
    def new_filesystem(self, tmp_path: Path) -> FilesystemFactory:
        numbers = itertools.count()

        def new(
            files: Mapping[str, bytes] | None = None,
            *,
            limits: FilesystemLimits | None = None,
            read_only: bool = False,
        ) -> Filesystem:
            root = tmp_path / str(next(numbers))
            root.mkdir()
            tree = DiskTree(root)
            for name, content in (files or {}).items():
                tree.put_file(parse_path(name), [content])
            return DiskFilesystem(tree, limits=limits, read_only=read_only)

        return new
