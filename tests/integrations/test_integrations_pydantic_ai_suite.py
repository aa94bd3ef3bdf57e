"""pydantic-ai's own suite for workspace backends, run on ours."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from wink_workspace.integrations.pydantic_ai import WinkWorkspaces
from wink_workspace.workspace import WorkspaceStorage


class FastLoop(asyncio.SelectorEventLoop):
    """A loop whose time runs faster, for cases that wait until they give up."""

    def time(self) -> float:
        return super().time() * 30


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory, container):
    folder = tmp_path_factory.mktemp("suite")
    (folder / "source").mkdir()
    storage = WorkspaceStorage(folder / "storage")
    with WinkWorkspaces(str(folder / "source"), storage=storage, sandbox=container) as workspaces:
        yield workspaces


@pytest.fixture(scope="module")
def ref(workspaces):
    """One workspace for most cases; making one for each takes most of the time."""

    async def create():
        backend = workspaces.backend()
        await backend.working_dir()
        return backend.ref

    return asyncio.run(create())


@pytest.mark.share(16)
class TestWorkspaceBackend(WorkspaceBackendSuite):
    @pytest.fixture
    def anyio_backend(self, request):
        waits = "background_child" in request.node.name or "detached" in request.node.name
        return ("asyncio", {"loop_factory": FastLoop} if waits else {})

    @pytest.fixture
    def backend(self, workspaces, ref):
        return workspaces.backend(ref)

    @pytest.fixture
    def fresh_backend(self, workspaces):
        return workspaces.backend

    @pytest.fixture
    def attach_backend(self, workspaces):
        return workspaces.backend

    @pytest.fixture
    def destroy_environment(self, workspaces):
        async def destroy(backend) -> None:
            await asyncio.to_thread(workspaces.delete, backend.ref.id)

        return destroy
