"""The abstract suite of fsspec, run on its own filesystem for local files."""

from __future__ import annotations

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.tests import abstract


class LocalFixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self):
        return LocalFileSystem(auto_mkdir=True)

    @pytest.fixture
    def fs_path(self, tmp_path):
        return str(tmp_path)


class TestLocalCopy(abstract.AbstractCopyTests, LocalFixtures):
    pass


class TestLocalGet(abstract.AbstractGetTests, LocalFixtures):
    pass


class TestLocalPut(abstract.AbstractPutTests, LocalFixtures):
    pass


class TestLocalOpen(abstract.AbstractOpenTests, LocalFixtures):
    pass


class TestLocalPipe(abstract.AbstractPipeTests, LocalFixtures):
    pass
