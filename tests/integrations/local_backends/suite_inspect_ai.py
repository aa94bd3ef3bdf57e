"""inspect_ai's checks of sandbox environments, run on its own local one."""

from __future__ import annotations

import pytest
from inspect_ai.util._sandbox.local import LocalSandboxEnvironment
from inspect_ai.util._sandbox.self_check import *  # noqa: F403 - the checks are its functions

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def sandbox_env():
    environment = LocalSandboxEnvironment()
    yield environment
    environment.directory.cleanup()
