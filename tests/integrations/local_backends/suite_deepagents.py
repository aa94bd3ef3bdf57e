"""LangChain's suite for sandboxes, run on the local shell of deepagents."""

from __future__ import annotations

import pytest
from deepagents.backends import LocalShellBackend
from langchain_tests.integration_tests import SandboxIntegrationTests

pytestmark = pytest.mark.asyncio


class TestLocal(SandboxIntegrationTests):
    @pytest.fixture(scope="class", autouse=True)
    def folder(self, tmp_path_factory):
        type(self).root = f"{tmp_path_factory.mktemp('local')}/"

    @property
    def sandbox_root_dir(self) -> str:
        return self.root

    @pytest.fixture(scope="class")
    def sandbox(self, folder):
        return LocalShellBackend(root_dir=self.root, virtual_mode=False, inherit_env=True)
