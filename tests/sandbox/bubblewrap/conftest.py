"""Fixtures of the Bubblewrap tests. Where it cannot run, they are skipped; in CI they fail."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import random_cases
from command_contract import MakeSandbox
from sandbox.podman.podman_machine import OrdinaryUser, sandbox_place

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError
from wink_workspace.sandbox import SandboxContext
from wink_workspace.sandbox.bubblewrap import BubblewrapConfig, BubblewrapSandbox
from wink_workspace.sandbox.bubblewrap.bubblewrap_runner import find_bwrap

SHARE = "BUBBLEWRAP_SHARE"
"""The variable by which a process runs a share of the tests; see ``test_bubblewrap_ordinary_user``."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take that share of the tests which run again as an ordinary user."""
    if SHARE in os.environ:
        items[:] = random_cases.some(items, int(os.environ[SHARE]))


@pytest.fixture(scope="session")
def environment() -> Environment:
    environment = Environment.from_os()
    try:
        find_bwrap(environment)
    except SandboxUnavailableError as error:
        if environment.is_ci:
            pytest.fail(f"CI is set, and {error}", pytrace=False)
        pytest.skip(str(error))
    return environment


@pytest.fixture(scope="session")
def make_sandbox(environment: Environment) -> MakeSandbox:
    """Make a sandbox for the tests that every backend passes."""
    variables = {"PATH": environment.variables["PATH"]}
    plain = Environment(variables=variables, home=environment.home)

    def make(
        place: SandboxContext, *, clock: Clock = SYSTEM_CLOCK, **limits: Any
    ) -> BubblewrapSandbox:
        place = replace(place, source=place.source or Path("/srv/project"))
        config = BubblewrapConfig(**limits)
        return BubblewrapSandbox(place, config=config, environment=plain, clock=clock)

    return make


@pytest.fixture(scope="module")
def sandbox(
    tmp_path_factory: pytest.TempPathFactory, make_sandbox: MakeSandbox
) -> Generator[BubblewrapSandbox]:
    """A sandbox that a module's tests share."""
    place = sandbox_place(tmp_path_factory.mktemp("sandbox"))
    with closing(make_sandbox(place)) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def ordinary_user() -> Generator[OrdinaryUser]:
    """A user other than root, who is created when the tests run as root."""
    if os.geteuid():
        pytest.skip("the tests run as an ordinary user already")
    with OrdinaryUser.borrowed() as user:
        yield user
