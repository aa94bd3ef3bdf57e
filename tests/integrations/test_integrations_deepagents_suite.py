"""LangChain's own suite for sandboxes of deepagents, run on a workspace in Podman."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deepagents.backends.protocol import SandboxBackendProtocol
from langchain_tests.integration_tests import SandboxIntegrationTests

from wink_workspace.integrations.deepagents import WorkspaceSandbox
from wink_workspace.workspace import Workspace

# The suite has fixtures of class scope as instance methods, and both kinds of tests in one class.
pytestmark = [
    pytest.mark.share(30),
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("ignore:Class-scoped fixture defined as instance method"),
    pytest.mark.filterwarnings("ignore:.*but it is not an async function"),
]


class TestWorkspaceSandbox(SandboxIntegrationTests):
    @property
    def sandbox_root_dir(self) -> str:
        return "/workspace/test_sandbox_ops/"

    @pytest.fixture(scope="class")
    def sandbox(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxBackendProtocol]:
        source: Path = tmp_path_factory.mktemp("source")
        with Workspace.temporary(source) as workspace:
            yield WorkspaceSandbox(workspace)
