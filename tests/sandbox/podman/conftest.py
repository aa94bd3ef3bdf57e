"""Fixtures of the Podman tests: an engine, images, an ordinary user and a server.

Without an engine the tests are skipped with the reason; in CI (``CI`` is set) they fail.
Images are built once for all workers, because builds wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from typing import Any, NoReturn

import podman_machine
import pytest
import random_cases
from command_contract import MakeSandbox
from podman_machine import OrdinaryUser
from published_server import PublishedServer, published_server_in

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.environment import Environment
from wink_workspace.sandbox import SandboxContext
from wink_workspace.sandbox.podman import PodmanConfig, PodmanSandbox, PodmanService
from wink_workspace.sandbox.podman.building.images import recipe
from wink_workspace.sandbox.podman.engine.engine_conf import EngineSettings


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take a share of the tests that run again as an ordinary user; see ``test_podman_rootless``."""
    if PublishedServer.VARIABLE in os.environ:
        items[:] = random_cases.some(items, 60)


def _skip_or_fail(reason: str) -> NoReturn:
    if Environment.from_os().is_ci:
        pytest.fail(f"CI is set, and {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def environment() -> Environment:
    """The environment of a working engine that has our images."""
    environment = Environment.from_os()
    problem = podman_machine.missing_requirement() or podman_machine.build_images(environment)
    if problem:
        _skip_or_fail(problem)
    return environment


@pytest.fixture(scope="session")
def python_image(environment: Environment) -> str:
    return recipe("python").reference


@pytest.fixture(scope="session")
def engine_environment(
    environment: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """The same environment with our engine settings, for commands such as ``podman run``."""
    folder = tmp_path_factory.mktemp("engine")
    conf = EngineSettings.for_this_machine(path=environment.variables["PATH"]).write(folder)
    return replace(environment, variables={**environment.variables, "CONTAINERS_CONF": str(conf)})


@pytest.fixture(scope="session")
def service(engine_environment: Environment) -> Generator[PodmanService]:
    """The engine of this worker's tests."""
    with closing(PodmanService(engine_environment)) as service:
        yield service


@pytest.fixture(scope="module")
def sandbox(
    tmp_path_factory: pytest.TempPathFactory, environment: Environment
) -> Generator[PodmanSandbox]:
    """A sandbox that a module's tests share."""
    place = podman_machine.sandbox_place(tmp_path_factory.mktemp("sandbox"))
    with closing(PodmanSandbox(place)) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def make_sandbox(environment: Environment) -> MakeSandbox:
    """Make a sandbox for the tests that every backend passes."""

    def make(place: SandboxContext, *, clock: Clock = SYSTEM_CLOCK, **limits: Any) -> PodmanSandbox:
        return PodmanSandbox(place, config=PodmanConfig(**limits), clock=clock)

    return make


@pytest.fixture(scope="session")
def ordinary_user(environment: Environment) -> Generator[OrdinaryUser]:
    """A user other than root, with images of its own; created when the tests run as root."""
    if os.geteuid():
        pytest.skip("the tests run as an ordinary user already")
    with OrdinaryUser.borrowed() as user:
        yield user


@pytest.fixture(scope="session")
def published_server(
    engine_environment: Environment, python_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[PublishedServer]:
    """An HTTP server in a container, published on the loopback of this machine."""
    given = os.environ.get(PublishedServer.VARIABLE)
    if given:
        yield PublishedServer.parse(given)
        return
    folder = tmp_path_factory.mktemp("server")
    with published_server_in(python_image, engine_environment, folder) as server:
        yield server


@pytest.fixture(autouse=True)
def _podman_is_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands without ``--sandbox`` run in a container, also for projects without an image."""
    monkeypatch.setenv("WINK_WORKSPACE_SANDBOX", "podman")
