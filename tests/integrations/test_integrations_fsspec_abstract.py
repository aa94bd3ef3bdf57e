"""The abstract suite that fsspec publishes for its implementations, run on ``wink://``.

All of it passes, so there is no list of cases that cannot.
"""

from __future__ import annotations

import pytest
from closed_workspace import ClosedWorkspace
from fsspec.tests import abstract

from wink_workspace.integrations.fsspec import WinkFileSystem

# The fixtures of fsspec 2026.6, the newest that inspect_ai allows, are in a deprecated form.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Class-scoped fixture"),
    pytest.mark.share(20),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> WinkFileSystem:
    """One workspace for all cases; making one for each takes most of the time."""
    return ClosedWorkspace(tmp_path_factory.mktemp("abstract")).fs()


class OwnFixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, shared: WinkFileSystem) -> WinkFileSystem:
        if shared.ls("/"):
            shared.rm("/", recursive=True)
        return shared

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
