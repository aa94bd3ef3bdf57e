"""Services, each in a container of its own.

Run by root and, in ``test_podman_rootless``, by an ordinary user.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from podman_machine import listed_containers
from services_contract import *  # noqa: F403 - the tests that every sandbox passes
from services_contract import Running

from wink_workspace.environment import Environment
from wink_workspace.sandbox.podman import PodmanConfig, PodmanService
from wink_workspace.sandbox.podman.commands.waiting import WaitingContainers

pytestmark = pytest.mark.xdist_group("podman-services")


@pytest.fixture(scope="module")
def backend() -> PodmanConfig:
    return PodmanConfig()


@pytest.fixture
def running() -> Running:
    """The names of the containers that the engine knows, without those that wait."""

    def running(pid: int) -> set[str]:
        shared = WaitingContainers.shared()
        shared.wait()
        waiting = {container.live.name for _, container in shared._waiting}
        with closing(PodmanService(Environment.from_os())) as service:
            listed = listed_containers(service, "io.wink-workspace.owner")
        return {
            name
            for found in listed
            for name in found["Names"]
            if f"/{pid}/" in found["Labels"]["io.wink-workspace.owner"]
        } - waiting

    return running


@pytest.fixture(scope="module", autouse=True)
def _no_container_waits_afterwards() -> Iterator[None]:
    yield
    WaitingContainers.shared().close()
