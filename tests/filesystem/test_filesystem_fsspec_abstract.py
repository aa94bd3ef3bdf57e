"""The abstract suite that fsspec publishes for its implementations, run on ours."""

from __future__ import annotations

import pytest
from fsspec.tests import abstract

from wink_workspace.filesystem import MemoryFilesystem
from wink_workspace.filesystem.fsspec_memory import MemoryFsspec

# The fixtures of fsspec 2026.6, the newest that inspect_ai allows, are in a deprecated form.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Class-scoped fixture"),
    pytest.mark.share(20),
]


class OwnFixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self) -> MemoryFsspec:
        return MemoryFilesystem().as_fsspec()

    @pytest.fixture
    def fs_path(self) -> str:
        return "/"


class TestCopy(abstract.AbstractCopyTests, OwnFixtures):
    pass


class TestGet(abstract.AbstractGetTests, OwnFixtures):
    pass


class TestPut(abstract.AbstractPutTests, OwnFixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, OwnFixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, OwnFixtures):
    pass
