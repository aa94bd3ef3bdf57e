"""pydantic-ai's suite for workspace backends, run on its own local backend."""

from __future__ import annotations

import pytest
from pydantic_ai.workspaces import LocalWorkspaceBackend
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite


class TestLocal(WorkspaceBackendSuite):
    @pytest.fixture
    def anyio_backend(self):
        return "asyncio"

    @pytest.fixture
    def backend(self, tmp_path):
        return LocalWorkspaceBackend(tmp_path)
