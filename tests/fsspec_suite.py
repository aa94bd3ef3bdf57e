"""The abstract suite that fsspec publishes for its implementations.

A module that runs it imports the classes and ``pytestmark``, and has a fixture ``implementation``:
an empty filesystem.
"""

from __future__ import annotations

import pytest
from fsspec import AbstractFileSystem
from fsspec.tests import abstract

__all__ = ["TestCopy", "TestGet", "TestOpen", "TestPipe", "TestPut", "pytestmark"]

# The fixtures of fsspec 2026.6, the newest that inspect_ai allows, are in a deprecated form.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Class-scoped fixture"),
    pytest.mark.share(20),
]


class OwnFixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, implementation: AbstractFileSystem) -> AbstractFileSystem:
        return implementation

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
