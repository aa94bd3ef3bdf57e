"""Services over the programs of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandbox.podman.podman_machine import children_of
from services_contract import *  # noqa: F403 - the tests that every sandbox passes
from services_contract import Running

from wink_workspace.sandbox.bubblewrap import BubblewrapConfig
from wink_workspace.sandbox.commands.live_container import started_ticks

pytestmark = pytest.mark.xdist_group("bubblewrap-services")


@pytest.fixture(scope="module")
def backend() -> BubblewrapConfig:
    return BubblewrapConfig()


@pytest.fixture
def running() -> Running:
    """The processes of ``bwrap`` that a process has started through the program for mounts."""

    def running(pid: int) -> set[str]:
        children = children_of(pid)
        own = {str(each) for each in children if started_ticks(each) and name_of(each) == "bwrap"}
        return own.union(*map(running, children))

    return running


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except FileNotFoundError:
        return ""
