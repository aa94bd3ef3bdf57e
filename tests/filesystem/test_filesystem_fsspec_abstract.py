"""The abstract suite of fsspec, run on files in memory."""

from __future__ import annotations

import pytest
from fsspec_suite import *  # noqa: F403 - the suite is its classes

from wink_workspace.filesystem import MemoryFilesystem
from wink_workspace.filesystem.fsspec_memory import MemoryFsspec


@pytest.fixture
def implementation() -> MemoryFsspec:
    return MemoryFilesystem().as_fsspec()
