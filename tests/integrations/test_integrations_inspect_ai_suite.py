"""inspect_ai's own checks of sandbox environments, run on ours."""

from __future__ import annotations

import asyncio
import gc

import pytest
from inspect_ai.util._sandbox.self_check import *  # noqa: F403 - the checks are its functions

from wink_workspace.integrations.inspect_ai import WinkSandbox

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.share(8),
    # inspect_ai leaves streams of its display to the garbage collector.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <function MemoryObject"),
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def shared(tmp_path_factory, container):
    """One sample for all checks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        environments = asyncio.run(start())
        yield environments["default"]
        environments["default"].workspace.close()
        asyncio.run(WinkSandbox.task_cleanup("checks", None, cleanup=True))
        del environments
        gc.collect()  # here its warnings are ignored


async def start():
    await WinkSandbox.task_init("checks", None)
    return await WinkSandbox.sample_init("checks", None, {})


@pytest.fixture
def sandbox_env(shared: WinkSandbox) -> WinkSandbox:
    return shared
