"""``wink-workspace shell`` over the programs of this machine."""

from __future__ import annotations

import pytest
from shell_contract import *  # noqa: F403 - the tests that every sandbox passes

from wink_workspace.sandbox.bubblewrap import BubblewrapConfig

pytestmark = pytest.mark.xdist_group("bubblewrap")


@pytest.fixture
def backend() -> BubblewrapConfig:
    return BubblewrapConfig()
