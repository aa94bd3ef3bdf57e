"""The filesystem contract, run on the files of an in-place workspace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_workspaces import files_of_workspaces

from wink_workspace.testing.filesystem_contract import (
    FilesystemContract,
    FilesystemFactory,
    HistoryContract,
)


class TestInPlaceFilesystem(FilesystemContract, HistoryContract):
    @pytest.fixture
    def new_filesystem(self, tmp_path: Path) -> Iterator[FilesystemFactory]:
        with files_of_workspaces(tmp_path, "in_place") as new:
            yield new
