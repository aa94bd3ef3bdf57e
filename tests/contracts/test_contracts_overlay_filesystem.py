"""The filesystem contract, run on branches on overlays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_workspaces import files_of_workspaces

from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.testing.filesystem_contract import (
    FilesystemContract,
    FilesystemFactory,
    HistoryContract,
)


class TestOverlayFilesystem(FilesystemContract, HistoryContract):
    """All files are those of the base until a test changes them."""

    @pytest.fixture
    def new_filesystem(self, tmp_path: Path) -> Iterator[FilesystemFactory]:
        if not (support := overlay_support(tmp_path)).available:
            pytest.skip(support.reason)
        with files_of_workspaces(tmp_path, "overlay") as new:
            yield new
