"""Attempts to reach more than a network list from a sandbox over the programs of this machine."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from network_escape_rig import *  # noqa: F403 - the attempts against every sandbox with a list
from network_escape_rig import NetworkTarget, network_target_of

from wink_workspace.environment import Environment
from wink_workspace.sandbox.bubblewrap import BubblewrapConfig, BubblewrapSandbox

pytestmark = pytest.mark.xdist_group("bubblewrap")


@pytest.fixture(scope="module")
def network_target(
    tmp_path_factory: pytest.TempPathFactory, environment: Environment
) -> Generator[NetworkTarget]:
    with network_target_of(
        tmp_path_factory.mktemp("network"),
        lambda place, rules: BubblewrapSandbox(place, config=BubblewrapConfig(network=rules)),
    ) as target:
        yield target
