"""An engine, images, an ordinary user and a server for all tests of the Podman sandbox.

Without an engine they are skipped and say why; in an automatic build (``CI`` is set) they fail.
Images are built once for all workers, as building waits for others that build.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from typing import NoReturn

import podman_machine
import pytest
from podman_machine import OrdinaryUser
from published_server import PublishedServer, published_server_in

from wink_workspace.environment import Environment
from wink_workspace.sandbox.podman import PodmanSandbox, PodmanService
from wink_workspace.sandbox.podman.engine_conf import EngineSettings
from wink_workspace.sandbox.podman.images import recipe


def _without(what: str) -> NoReturn:
    if Environment.from_os().is_ci:
        pytest.fail(f"CI is set, and {what}", pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="session")
def environment() -> Environment:
    """The surroundings of an engine that works and has our images."""
    environment = Environment.from_os()
    problem = podman_machine.what_is_missing() or podman_machine.build_images(environment)
    if problem:
        _without(problem)
    return environment


@pytest.fixture(scope="session")
def python_image(environment: Environment) -> str:
    return recipe("python").reference


@pytest.fixture(scope="session")
def minimal_image(environment: Environment) -> str:
    return recipe("minimal").reference


@pytest.fixture(scope="session")
def engine_environment(
    environment: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """The same with our settings for the engine, as ``podman run`` and its kin need them."""
    folder = tmp_path_factory.mktemp("engine")
    conf = EngineSettings.for_this_machine(path=environment.variables["PATH"]).write(folder)
    return replace(environment, variables={**environment.variables, "CONTAINERS_CONF": str(conf)})


@pytest.fixture(scope="session")
def service(engine_environment: Environment) -> Generator[PodmanService]:
    """An engine for this worker's tests."""
    with closing(PodmanService(engine_environment)) as service:
        yield service


@pytest.fixture(scope="module")
def sandbox(
    tmp_path_factory: pytest.TempPathFactory, environment: Environment
) -> Generator[PodmanSandbox]:
    """One for all tests of a module that do not break it."""
    place = podman_machine.place_for_a_sandbox(tmp_path_factory.mktemp("sandbox"))
    with closing(PodmanSandbox(place)) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def ordinary_user(environment: Environment) -> Generator[OrdinaryUser]:
    """Somebody who is not root, with images of their own; made when the tests run as root."""
    if os.geteuid():
        pytest.skip("the tests run as an ordinary user already")
    with OrdinaryUser.lent() as user:
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
