"""The filesystem contract, run on ``MemoryFilesystem``, alone and wrapped."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from wink_workspace.filesystem import Filesystem, FilesystemLimits, MemoryFilesystem
from wink_workspace.testing import FailingFilesystem
from wink_workspace.testing.filesystem_contract import (
    FilesystemContract,
    FilesystemFactory,
    HistoryContract,
)


class TestMemoryFilesystem(FilesystemContract, HistoryContract):
    @pytest.fixture
    def new_filesystem(self) -> FilesystemFactory:
        return MemoryFilesystem


class TestFailingFilesystemThatNeverFails(FilesystemContract, HistoryContract):
    @pytest.fixture
    def new_filesystem(self) -> FilesystemFactory:
        def new(
            files: Mapping[str, bytes] | None = None,
            *,
            limits: FilesystemLimits | None = None,
            read_only: bool = False,
        ) -> Filesystem:
            inner = MemoryFilesystem(files, limits=limits, read_only=read_only)
            return FailingFilesystem(inner, fail_at=0)

        return new
